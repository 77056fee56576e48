"""The benchmark of the fast path: measures, refuses what is wrong, writes and draws."""

import os
from pathlib import Path

import pytest
import torch

from benchmarks.cases import OPS, Case, Contest, build, compile_afresh
from benchmarks.measure import Apart, Probe, probe, probe_here, time_case
from benchmarks.suites import SUITES, Suite, run_suite
from graph_machine.errors import ConfigError, TrainingError
from graph_machine.lab.cli import run as command
from graph_machine.ops import native, torch_code

TINY = {"n": 5, "k": 3, "batch": 2}


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the process are for benchmarks, not for the tests after this one."""
    monkeypatch.setattr("benchmarks.suites.tune_cpu", lambda: None)
    monkeypatch.setattr("benchmarks.measure.tune_cpu", lambda: None)


@pytest.mark.parametrize("op", [op for op in OPS if not op.startswith("stack")])
def test_every_op_is_measured(op: str) -> None:
    rows = {row.contestant: row for row in time_case(Case(op, **TINY), rounds=3)}
    assert {"reference", "fused"} <= set(rows)
    assert rows["fused"].to_fused is None
    ratio = rows["reference"].to_fused
    assert ratio is not None
    assert ratio > 0
    assert rows["reference"].wall_low_ms <= rows["reference"].wall_high_ms


def test_contestants_beside_ours() -> None:
    assert "transformer" in build(Case("layer", **TINY)).steps
    assert "floor" in build(Case("referral", **TINY)).steps
    assert "sdpa" in build(Case("attention", **TINY)).steps


def test_no_speed_up_for_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch_code._e2_factors
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setattr(torch_code, "_e2_factors", lambda *given: right(*given).mul_(1.01))
    with pytest.raises(ConfigError, match="fused"):
        time_case(Case("referral", **TINY))


def test_unknown_names_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'layer'"):
        build(Case("layr"))
    with pytest.raises(ConfigError, match="'quick'"):
        run_suite("quik", tmp_path)
    with pytest.raises(ConfigError, match="suite"):
        run_suite("quick", tmp_path, only="nothing")
    with pytest.raises(ConfigError, match="no contestant"):
        probe_here(Case("sharpen", **TINY), "transformer", tuned=False)


def test_a_probe_is_a_process_of_its_own() -> None:
    torch.ones(80_000_000)  # a peak of ours is not to hide that of the process
    found = probe(Case("sharpen", 64, 8, 32), "fused", tuned=True)
    assert found.tuned
    assert found.peak_mb > 4  # 32 * 64 * 8 * 64 addresses of four bytes, and their gradients
    with pytest.raises(TrainingError, match="no contestant"):
        probe(Case("sharpen", **TINY), "floor", tuned=False)


def test_the_reference_with_the_system_s_settings_takes_turns() -> None:
    rows = time_case(Case("layer", **TINY, untuned=True), rounds=2)
    (row,) = [row for row in rows if row.contestant == "reference-untuned"]
    assert row.rounds == 2
    assert row.wall_ms > 0
    assert row.to_fused is not None


def test_a_reference_that_ends_is_an_error() -> None:
    apart = Apart(Case("layer", **TINY))
    apart.process.kill()
    apart.process.wait()
    with pytest.raises(TrainingError, match="ended"):
        apart()
    apart.close()


def broken(contestant: str) -> Contest:
    """Sharpening, with a contestant that raises at its first step as a compiler does."""
    subject = build(Case("sharpen", **TINY))

    def step() -> None:
        raise OSError("main.so: file | too short\n\nSet TORCHDYNAMO_VERBOSE=1\n")

    return Contest(subject.run, subject.steps | {contestant: step})


@pytest.mark.parametrize("contestant", ["compiled", "fused"])
def test_a_contestant_that_fails_leaves_the_contest(
    contestant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPS, "broken", lambda case: broken(contestant))
    rows = {row.contestant: row for row in time_case(Case("broken", **TINY), rounds=2)}
    assert rows[contestant].failed == "OSError: main.so: file | too short"
    assert rows[contestant].rounds == 0
    assert rows["reference"].rounds == 2
    assert (rows["reference"].to_fused is None) == (contestant == "fused")


def test_a_suite_goes_on_after_failures_and_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(OPS, "broken", lambda case: broken("compiled"))
    last = Case("sharpen", **TINY)
    cases = (Case("broken", **TINY), Case("unknown", **TINY))
    probes = ((last, "floor", False),)
    monkeypatch.setitem(SUITES, "quick", Suite(cases, probes, rounds=2, long=(last,)))
    with pytest.raises(TrainingError, match="broken") as raised:
        command(["bench", "--out", str(tmp_path)])
    message = str(raised.value)
    assert "\n" not in message
    assert "broken n=5 k=3 b=2, compiled (OSError: main.so" in message
    assert "unknown n=5 k=3 b=2, all (ConfigError" in message
    assert "sharpen n=5 k=3 b=2, floor (TrainingError" in message
    page = next(tmp_path.glob("*.md")).read_text()
    assert "| compiled | failed: OSError: main.so: file \\| too short | |" in page
    assert "| floor | system's | failed: TrainingError" in page
    assert "| sharpen n=5 k=3 b=2 | reference | " in page
    assert "compiled failed: OSError" in capsys.readouterr().out


def test_only_keeps_the_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = tuple(Case("sharpen", n=n, k=3, batch=1) for n in (3, 5))
    fake = Probe(cases[0].name, "fused", False, 1.0, 2.0, 3.0, 4)
    monkeypatch.setattr("benchmarks.suites.probe", lambda *args: fake)
    monkeypatch.setitem(SUITES, "quick", Suite(cases, ((cases[0], "fused", False),), rounds=2))
    page = run_suite("quick", tmp_path)
    before = page.with_suffix(".csv").read_text().splitlines()
    memory = page.with_name(f"{page.stem}_memory.csv")
    peaks = memory.read_text()
    assert run_suite("quick", tmp_path, rounds=3, only="n=5") == page
    after = page.with_suffix(".csv").read_text().splitlines()
    assert after[:4] == before[:4]  # stamp, names, the two rows of n = 3
    assert len(after) == len(before)
    assert all(line.endswith(",3,") for line in after[4:])
    assert memory.read_text() == peaks
    memory.write_text("# another machine\n")
    with pytest.raises(ConfigError, match="hardware"):
        run_suite("quick", tmp_path, only="n=5")


def test_compilation_has_a_cache_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/shared")
    seen = []
    monkeypatch.setattr(
        torch,
        "compile",
        lambda module, **_: seen.append(os.environ["TORCHINDUCTOR_CACHE_DIR"]) or module,
    )
    steps = build(Case("layer", **TINY, compiled=True)).steps
    assert {"compiled", "compiled-fused"} <= set(steps)
    assert seen == [str(compile_afresh())]
    assert compile_afresh().is_dir()
    assert "/shared" not in seen


def test_suite_writes_page_table_and_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = tuple(Case("layer", n=n, k=8, batch=1) for n in (3, 5))
    monkeypatch.setitem(SUITES, "quick", Suite(cases, ((cases[0], "fused", False),), rounds=2))
    fake = Probe(cases[0].name, "fused", False, 1.0, 2.0, 3.0, 4)
    monkeypatch.setattr("benchmarks.suites.probe", lambda *args: fake)
    threads = torch.get_num_threads()
    try:
        assert command(["bench", "--out", str(tmp_path), "--threads", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    written = sorted(path.suffix for path in tmp_path.iterdir())
    assert written == [".csv", ".csv", ".md", ".png"]
    page = next(tmp_path.glob("*.md")).read_text()
    assert "| layer n=5 k=8 b=1 | reference |" in page
    assert "torch 2" in page
    assert "written:" in capsys.readouterr().out
