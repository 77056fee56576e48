"""`graph-machine train` as a user meets it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.conftest import OutOf
from graph_machine.errors import CheckpointError, ConfigError
from graph_machine.lab.cli import run
from support.runs import write_puzzles

SMALL = ["--budget", "smoke", "--progress", "none", "--set", "model.d_node=8", "model.num_edges=5"]


@pytest.fixture(scope="module")
def puzzles(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_puzzles(tmp_path_factory.mktemp("data") / "puzzles.store"))


def test_train_then_resume_by_the_folder_alone(puzzles: str, tmp_path: Path, out_of: OutOf) -> None:
    out = str(tmp_path / "run")
    command = ["train", "gm", *SMALL, "--steps", "4", "--data", puzzles, "--out", out]
    line = out_of(command)
    assert "of 10 test puzzles after 4 steps" in line
    assert line.strip().endswith(out)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["config"]["model"]["d_node"] == 8
    assert facts["config"]["train"]["steps"] == 4
    assert json.loads(out_of(["train", "--resume", "--out", out, "--json"]))["steps"] == 4
    with pytest.raises(CheckpointError, match="already"):
        run(command)


def test_dry_run_writes_nothing(
    puzzles: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    out_of: OutOf,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    text = out_of(["train", "gm", *SMALL, "--data", puzzles, "--dry-run"])
    for part in ("model.d_node = 8", "parameters   ", "MiB", "s per step on ", "180 train"):
        assert part in text
    assert run(["train", "gm", *SMALL, "--dry-run"]) == 0  # makes no puzzles
    assert "would generate" in capsys.readouterr().out
    cost = json.loads(
        out_of(["train", "transformer", *SMALL[:4], "--data", puzzles, "--dry-run", "--json"])
    )["cost"]
    assert cost["memory_bytes"] > 16 * cost["parameters"]
    assert cost["seconds_per_step"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["gm-rop"], "'gm-rope'"),
        (["gm", "--budget", "cup"], "'cpu'"),
        (["gm", "--set", "model.layers=3"], "'model.layers'"),
        (["gm", "--set", "steps"], "KEY=VALUE"),
        (["gm", "--set", "train.steps=many"], "'many'"),
        ([], "condition"),
        (["--resume"], "condition"),
    ],
)
def test_mistakes_are_one_line(argv: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        run(["train", *argv])
    assert "\n" not in str(error.value)
    with pytest.raises(CheckpointError, match="run"):  # there is none to resume
        run(["train", "--resume", "--out", str(tmp_path)])


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(puzzles: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["train", "gm", "--budget", "smoke", "--data", puzzles, "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "graph_machine", *arguments, "--steps", "100000"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 240
    while not (out / "checkpoints" / "latest").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 130
    assert errors.splitlines()[-1].endswith(f"graph-machine train --resume --out {out}")
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
