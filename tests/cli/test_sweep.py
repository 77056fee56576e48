"""`graph-machine sweep` as a user types it."""

import shutil
from pathlib import Path

import pytest

from graph_machine.cli import run
from graph_machine.cli.sweep import with_ray_value
from graph_machine.errors import ConfigError
from support.run_folders import make_run
from support.sweeps import TINY


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--ray"], ["--ray", "default"]),
        (["--ray", "--all"], ["--ray", "default", "--all"]),
        (["--ray", "host:1", "--all"], ["--ray", "host:1", "--all"]),
        (["--all"], ["--all"]),
    ],
)
def test_ray_may_stand_alone(given: list[str], expected: list[str]) -> None:
    assert with_ray_value(given) == expected


def test_dry_run_lists_the_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, "gm", 1, budget="cpu", name="cpu/4x4/gm/seed-1")
    words = ["--table", "7", "--seeds", "0-1", "--budget", "cpu", "--out", str(tmp_path)]
    assert run(["sweep", *words, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("gm-no-factor-temps seed 0: waiting: ")
    assert lines[3].startswith("gm seed 1: finished before: ")
    assert lines[4] == "4 runs: 3 waiting, 1 finished before"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Say what to run"),
        (["--conditions", "gm-rop"], "Did you mean 'gm-rope'"),
        (["--table", "77"], "Unknown table '77'"),
        (["--conditions", "gm", "--seeds", "x"], "--seeds should look like"),
        (["--conditions", "gm", "--budget", "cpus"], "Did you mean 'cpu'"),
        (["--conditions", "gm", "--set", "train.stps=3"], "Did you mean 'train.steps'"),
        (["--conditions", "gm", "--workers", "0"], "--workers should be at least 1"),
        (["--conditions", "gm", "--ray", "--workers", "2"], "--workers is for this machine"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(["sweep", *words, "--out", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_runs_is_left_alone(tmp_path: Path) -> None:
    make_run(tmp_path, "gm", 0, budget="cpu", name="cpu/4x4/gm/seed-0")
    words = ["--conditions", "gm", "--budget", "cpu", "--set", "train.steps=3"]
    with pytest.raises(ConfigError, match="Choose another --out for this sweep"):
        run(["sweep", *words, "--out", str(tmp_path)])


@pytest.mark.slow
def test_a_failure_is_told_and_the_others_go_on_then_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    damaged = runs / "smoke" / "4x4" / "transformer" / "seed-0" / "checkpoints" / "latest"
    damaged.mkdir(parents=True)
    (damaged / "state.json").write_text("{")
    words = ["sweep", "--conditions", "transformer,gm", "--seeds", "0", "--budget", "smoke"]
    words += ["--workers", "2", "--out", str(runs), "--set", *TINY, "train.steps=3"]
    assert run(words) == 1
    told = capsys.readouterr()
    assert "transformer seed 0 failed: The checkpoint is damaged" in told.err
    assert "gm seed 0: finished" in told.out
    assert "2 runs: 1 failed, 1 finished" in told.out
    shutil.rmtree(damaged)
    assert run(words) == 0
    assert "2 runs: 1 finished, 1 finished before" in capsys.readouterr().out
    assert run(["report", str(runs), "--table", "1"]) == 0
    assert "| Transformer |" in capsys.readouterr().out
