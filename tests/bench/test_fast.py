"""The benchmark of the fast path: measures, refuses what is wrong, writes and draws."""

from pathlib import Path

import pytest
import torch

from graph_machine.bench.cases import OPS, Case, build
from graph_machine.bench.measure import Apart, Probe, measure, probe, probe_here
from graph_machine.bench.suites import SUITES, Suite, run_suite
from graph_machine.cli.bench import main
from graph_machine.errors import ConfigError, TrainingError
from graph_machine.ops.fused import native, refer

TINY = {"n": 5, "k": 3, "batch": 2}


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the process are for benchmarks, not for the tests after this one."""
    monkeypatch.setattr("graph_machine.bench.suites.tune_cpu", lambda: None)
    monkeypatch.setattr("graph_machine.bench.measure.tune_cpu", lambda: None)


@pytest.mark.parametrize("op", [op for op in OPS if not op.startswith("stack")])
def test_every_op_is_measured(op: str) -> None:
    rows = {row.contestant: row for row in measure(Case(op, **TINY), rounds=3)}
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
    right = refer.padded
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setattr(refer, "padded", lambda *args: right(*args).mul_(1.01))
    with pytest.raises(ConfigError, match="fused differs from the reference"):
        measure(Case("referral", **TINY))


def test_unknown_names_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'layer'"):
        build(Case("layr"))
    with pytest.raises(ConfigError, match="Did you mean 'quick'"):
        run_suite("quik", tmp_path)
    with pytest.raises(ConfigError, match="no case of the suite"):
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
    rows = measure(Case("layer", **TINY, untuned=True), rounds=2)
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


def test_suite_writes_page_table_and_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = tuple(Case("layer", n=n, k=8, batch=1) for n in (3, 5))
    monkeypatch.setitem(SUITES, "quick", Suite(cases, ((cases[0], "fused", False),), rounds=2))
    fake = Probe(cases[0].name, "fused", False, 1.0, 2.0, 3.0, 4)
    monkeypatch.setattr("graph_machine.bench.suites.probe", lambda *args: fake)
    threads = torch.get_num_threads()
    try:
        assert main(["--out", str(tmp_path), "--threads", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    written = sorted(path.suffix for path in tmp_path.iterdir())
    assert written == [".csv", ".csv", ".md", ".png"]
    page = next(tmp_path.glob("*.md")).read_text()
    assert "| layer n=5 k=8 b=1 | reference |" in page
    assert "torch 2" in page
    assert "written:" in capsys.readouterr().out
