"""Nothing of another run is adopted, damaged weights are seen, and runs end as run.json says."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from graph_machine.errors import CheckpointError, ConfigError
from graph_machine.files import ZOO, shipped
from graph_machine.lab.cli import run as command
from graph_machine.lab.reports.runs import load_runs
from graph_machine.lab.training import Interrupted, RunFolder, train
from graph_machine.lab.training import run as run_module
from graph_machine.lab.training.loop import Run
from graph_machine.models import GraphMachine
from graph_machine.models.checkpoint import read_config
from support.runs import tiny, write_puzzles


@pytest.fixture(scope="module")
def puzzles(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_puzzles(tmp_path_factory.mktemp("data") / "puzzles.store"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, puzzles: str) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    train(tiny(), out=out, data=puzzles, condition="gm", budget="smoke", progress="none")
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run", symlinks=True))


def go(out: Path, puzzles: str, resume: bool = True, **more: object) -> None:
    train(tiny(), out=out, data=puzzles, resume=resume, progress="none", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("left", ["checkpoints", "result.json", "model"])
@pytest.mark.parametrize("resume", [True, False])
def test_what_is_left_of_a_run_is_not_adopted(
    copy: Path, puzzles: str, left: str, resume: bool
) -> None:
    for path in copy.iterdir():
        if path.name not in (left, ".lock"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(CheckpointError, match=f"This folder has {left}, but no run.json"):
        go(copy, puzzles, resume, seed=99)


def test_a_checkpoint_of_another_run_is_refused(copy: Path, puzzles: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    train(tiny(), seed=5, out=other, data=puzzles, progress="none")
    shutil.rmtree(copy / "checkpoints")
    shutil.copytree(other / "checkpoints", copy / "checkpoints")
    (copy / "result.json").unlink()
    with pytest.raises(CheckpointError, match="another run"):
        go(copy, puzzles)


def test_a_flipped_bit_is_seen(copy: Path) -> None:
    for folder in (copy / "model", copy / "checkpoints" / "latest"):
        GraphMachine.from_pretrained(folder)
        path = folder / "model.safetensors"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="checksum"):
            GraphMachine.from_pretrained(folder)


def test_shipped_models_have_a_digest() -> None:
    assert all(read_config(ZOO / name).get("sha256") for name in shipped())


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("expansion", 1_000, "size mismatch for stack.layers.0"),
        ("expansion", 20_000, "expansion should be"),
        ("num_edge_sublayers", 10**9, "num_edge_sublayers should be"),
        ("d_node", 40_000, "d_node should be"),
        ("d_node", 10_000, "size mismatch"),
        ("num_layers", 1_000, "1,000 layers; the file has 2"),
    ],
)
def test_a_config_that_does_not_fit_costs_nothing(
    copy: Path, setting: str, value: int, message: str
) -> None:
    path = copy / "model" / "config.json"
    data = json.loads(path.read_text())
    del data["checksum"]  # older checkpoints have none
    data["model"][setting] = value
    path.write_text(json.dumps(data))
    start = time.process_time()
    with pytest.raises(CheckpointError, match=message):
        GraphMachine.from_pretrained(copy)
    assert time.process_time() - start < 10


def test_resuming_refuses_what_differs(copy: Path) -> None:
    plain = ["train", "--resume", "--out", str(copy), "--progress", "none"]
    assert command(plain) == 0
    assert command([*plain, "--seed", "0", "--steps", "6", "--budget", "smoke"]) == 0
    for words, message in (
        (["--steps", "9"], "train.steps was 6, is 9"),
        (["--set", "train.peak_lr=1"], "train.peak_lr was"),
        (["--set", "train.unknown=1"], "Unknown setting"),
        (["--seed", "3"], "seed was 0, is 3"),
        (["--budget", "cpu"], "budget was smoke, is cpu"),
        (["--box", "3x3"], "box was 2x2, is 3x3"),
    ):
        with pytest.raises(ConfigError, match=message):
            command([*plain, *words])


def test_a_finished_run_can_be_extended(copy: Path, puzzles: str) -> None:
    words = ["train", "--extend", "--out", str(copy), "--progress", "none"]
    with pytest.raises(ConfigError, match="steps"):
        command(words)
    with pytest.raises(CheckpointError, match="extend"):
        command([*words, "--steps", "6"])
    assert command([*words, "--steps", "9"]) == 0
    folder = RunFolder(copy)
    assert folder.info().extended == [6]
    assert folder.result().steps == 9
    assert json.loads((copy / "result-6.json").read_text())["steps"] == 6
    (record,) = load_runs([copy.parent]).runs
    assert "extended at 6" in record.signature.overrides


def test_a_run_that_was_killed_after_its_result_is_finished(copy: Path, puzzles: str) -> None:
    RunFolder(copy).update(status="running")
    go(copy, puzzles)
    assert RunFolder(copy).info().status == "finished"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_the_final_test_stops_the_run(
    tmp_path: Path, puzzles: str, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    out = tmp_path / "run"
    real: Callable[..., object] = Run.scores

    def scores(self: Run, split: str, limit: int | None) -> object:
        if split == "test":
            os.kill(os.getpid(), number)
            time.sleep(0.1)
        return real(self, split, limit)

    monkeypatch.setattr(Run, "scores", scores)
    with pytest.raises(Interrupted) as stopped:
        go(out, puzzles, resume=False)
    assert stopped.value.signal_number == number
    assert RunFolder(out).info().status == "interrupted"
    assert not RunFolder(out).finished
    monkeypatch.undo()
    go(out, puzzles)
    assert RunFolder(out).finished


def test_the_commit_of_a_foreign_repository_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "site-packages" / "graph_machine" / "training" / "run.py"
    where.parent.mkdir(parents=True)
    where.write_text("")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "theirs"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(run_module, "__file__", str(where))
    assert run_module.commit() is None
