"""`graph-machine sweep` as a user types it."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from cli.conftest import OutOf
from graph_machine.errors import ConfigError
from graph_machine.lab.cli import run
from graph_machine.lab.cli._options import read_command
from graph_machine.lab.sweeps.progress import Entry, View
from graph_machine.lab.training import RunFolder
from support.run_folders import make_run
from support.sweeps import TINY, Watch, worker_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--ray"], "default"),
        (["--ray", "--all"], "default"),
        (["--ray", "host:1", "--all"], "host:1"),
        (["--all"], None),
    ],
)
def test_ray_may_stand_alone(given: list[str], expected: str | None) -> None:
    assert read_command("sweep", given).ray == expected


def test_dry_run_lists_the_grid(tmp_path: Path, out_of: OutOf) -> None:
    make_run(tmp_path, "gm", 1, budget="cpu", name="cpu/4x4/gm/seed-1")
    make_run(tmp_path, "gm", 0, None, budget="cpu", name="cpu/4x4/gm/seed-0", status="interrupted")
    words = ["--table", "7", "--seeds", "0-1", "--budget", "cpu", "--out", str(tmp_path)]
    lines = out_of(["sweep", *words, "--dry-run"]).splitlines()
    assert lines[0].startswith("gm-no-factor-temps seed 0: waiting: ")
    assert lines[1].startswith("gm seed 0: interrupted at step 500 of 500: ")
    assert lines[3].startswith("gm seed 1: finished before: ")
    assert lines[4] == "4 runs: 1 interrupted, 2 waiting, 1 finished before"
    assert not (tmp_path / "cpu" / "4x4" / "gm-no-factor-temps").exists()


def test_steps_and_a_grid_over_settings(tmp_path: Path, out_of: OutOf) -> None:
    words = ["--conditions", "gm", "--seeds", "0", "--budget", "smoke", "--out", str(tmp_path)]
    words += ["--steps", "7", "--grid", "train.peak_lr=1e-3,2e-3", "--dry-run"]
    lines = out_of(["sweep", *words]).splitlines()
    assert lines[0].startswith("gm train.peak_lr=1e-3 seed 0: waiting: ")
    assert lines[-1] == "2 runs: 2 waiting"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.json", '{"config": []}'),
        ("result.json", '{"board_accuracy": []}'),
        ("metrics.jsonl", '[]\n{"step": "x", "kind": "eval", "board_accuracy": {}}\n'),
    ],
)
def test_a_malformed_file_costs_its_own_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    for seed in (0, 1):
        place = f"smoke/4x4/gm/seed-{seed}"
        folder = make_run(tmp_path, "gm", seed, budget="smoke", name=place)
    (folder / name).write_text(text)
    words = ["--conditions", "gm", "--seeds", "0-1", "--budget", "smoke", "--out", str(tmp_path)]
    bad = name in ("run.json", "result.json")
    assert run(["sweep", *words]) == int(bad)
    told = capsys.readouterr()
    assert "gm seed 0" not in told.err
    assert ("gm seed 1 failed: " in told.err and name in told.err) == bad
    assert run(["report", str(tmp_path), "--table", "1"]) == 0
    assert "not counted" in capsys.readouterr().err


@pytest.mark.slow
def test_unfinished_runs_are_named_and_the_exit_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that somebody ends with SIGTERM saves itself; its run is not finished."""

    def end(entry: Entry) -> None:
        os.kill(worker_of(entry), signal.SIGTERM)

    monkeypatch.setattr("graph_machine.lab.cli.sweep.make_view", lambda: Watch(2, end))
    words = ["sweep", "--conditions", "transformer", "--seeds", "0", "--budget", "smoke"]
    words += ["--out", str(tmp_path), "--set", *TINY, "--steps", "100000"]
    assert run(words) == 1
    assert "transformer seed 0 interrupted at step" in capsys.readouterr().err
    with RunFolder(tmp_path / "smoke" / "4x4" / "transformer" / "seed-0").locked():
        monkeypatch.setattr("graph_machine.lab.cli.sweep.make_view", View)
        assert run(words) == 1
    assert "transformer seed 0 another process has it: process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--conditions gm --budget cpus", "'cpu'"),
        ("--conditions gm --set train.stps=3", "'train.steps'"),
        ("--conditions gm --workers 0", "--workers"),
        ("--conditions gm --ray --workers 2", "--workers"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(["sweep", *words.split(), "--out", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_runs_is_left_alone(tmp_path: Path) -> None:
    make_run(tmp_path, "gm", 0, budget="cpu", name="cpu/4x4/gm/seed-0")
    words = ["--conditions", "gm", "--budget", "cpu", "--set", "train.steps=3"]
    with pytest.raises(ConfigError, match="--out"):
        run(["sweep", *words, "--out", str(tmp_path)])


@pytest.mark.slow
def test_a_failure_is_told_and_the_others_go_on_then_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], out_of: OutOf
) -> None:
    runs = tmp_path / "runs"
    damaged = runs / "smoke" / "4x4" / "transformer" / "seed-0" / "checkpoints" / "latest"
    damaged.mkdir(parents=True)
    (damaged / "state.json").write_text("{")
    words = ["sweep", "--conditions", "transformer,gm", "--seeds", "0", "--budget", "smoke"]
    words += ["--workers", "2", "--out", str(runs), "--set", *TINY, "train.steps=3"]
    assert run(words) == 1
    told = capsys.readouterr()
    assert "transformer seed 0 failed: This folder has checkpoints, but no run.json" in told.err
    assert "gm seed 0: finished" in told.out
    assert "2 runs: 1 failed, 1 finished" in told.out
    shutil.rmtree(damaged.parent)
    assert "2 runs: 1 finished, 1 finished before" in out_of(words)
    assert "| Transformer |" in out_of(["report", str(runs), "--table", "1"])
