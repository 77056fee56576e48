"""Checkpoints appear whole or not at all; damage and full disks are one clear line."""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from graph_machine import GraphMachine
from graph_machine.errors import CheckpointError, TrainingError
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training import RunFolder, train
from graph_machine.lab.training.checkpoints import (
    Position,
    adopt,
    find_latest,
    load_checkpoint,
    point,
    save_checkpoint,
)
from graph_machine.lab.training.trainer import Trainer
from support.runs import puzzle_store, same_bits, tiny


@pytest.fixture
def trainer() -> Trainer:
    task = SudokuTask(tiny().task).use(puzzle_store(40))
    return Trainer(tiny(), task, seed=0, device=torch.device("cpu"))


def save(trainer: Trainer, folder: Path, step: int, best: int | None = None) -> None:
    position = Position(step=step, best=None if best is None else {"step": best})
    save_checkpoint(folder, trainer.model, trainer.optimizer, position, {})


def load(trainer: Trainer, folder: Path) -> Position:
    return load_checkpoint(folder, trainer.model, trainer.optimizer)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def as_before(checkpoints: Path) -> None:
    """The same checkpoints as earlier versions wrote them: two folders without numbers."""
    for name in ("latest", "best"):
        folder = (checkpoints / name).resolve()
        (checkpoints / name).unlink()
        shutil.copytree(folder, checkpoints / name)
        state = json.loads((checkpoints / name / "state.json").read_text())
        del state["settings"], state["checksum"]
        (checkpoints / name / "state.json").write_text(json.dumps(state | {"version": 1}))
    for folder in checkpoints.glob("step-*"):
        shutil.rmtree(folder)


def test_the_newest_the_one_before_and_the_best_are_kept(trainer: Trainer, tmp_path: Path) -> None:
    assert find_latest(tmp_path) is None
    for step, best in ((1, None), (2, 2), (3, 2), (10, 2), (11, 2)):
        save(trainer, tmp_path, step, best)
    assert names(tmp_path) == ["best", "latest", "step-10", "step-11", "step-2"]
    assert find_latest(tmp_path) == tmp_path / "step-11"
    assert load(trainer, tmp_path / "latest").step == 11
    assert load(trainer, tmp_path / "best").step == 2


def test_links_are_made_again_after_a_kill(trainer: Trainer, tmp_path: Path) -> None:
    for step in (1, 2):
        save(trainer, tmp_path, step, step)
    whole = names(tmp_path)
    for name in ("latest", "best"):
        (tmp_path / name).unlink()
    (tmp_path / ".latest.link.tmp").symlink_to("step-1")
    (tmp_path / ".step-3.abc.tmp").mkdir()
    found = find_latest(tmp_path)
    assert found is not None
    assert found.name == "step-2"
    point(tmp_path, load(trainer, found))
    assert names(tmp_path) == whole
    assert (tmp_path / "best").resolve() == found


@pytest.mark.parametrize("killed", [False, True])
def test_runs_of_earlier_versions_resume_to_the_same_bits(
    tmp_path: Path, puzzles: str, killed: bool
) -> None:
    out, whole = tmp_path / "run", tmp_path / "whole"
    train(tiny(), out=whole, data=puzzles, progress="none")
    train(tiny(steps=3, warmup=0.0, final_lr=1.0), out=out, data=puzzles, progress="none")
    as_before(out / "checkpoints")
    GraphMachine.from_pretrained(out / "checkpoints" / "best")
    if killed:  # between the two renames of that time
        (out / "checkpoints" / "latest").rename(out / "checkpoints" / ".latest.old")
    adopt(out / "checkpoints")
    assert {"step-3"} <= set(names(out / "checkpoints")) <= {"step-3", ".latest.old"}
    (out / "result.json").unlink()
    config = tiny(steps=3, warmup=0.0, final_lr=1.0)
    train(config, out=out, data=puzzles, progress="none", resume=True)
    assert names(out / "checkpoints") == ["best", "latest", "step-3"]


@pytest.mark.parametrize(
    ("change", "word"),
    [({"peak_lr": 0.01}, r"train\.peak_lr"), ({"steps": 9}, r"train\.steps"), ({}, "init_from")],
    ids=["peak_lr", "steps", "init_from"],
)
def test_a_checkpoint_states_its_settings(
    out: Path, tmp_path: Path, puzzles: str, change: dict[str, float], word: str
) -> None:
    """Checkpoints of a run with other settings, or run.json edited: refused."""
    train(tiny(), out=out, data=puzzles, progress="none")
    (out / "result.json").unlink()
    record = json.loads((out / "run.json").read_text())
    record["config"]["train"] |= change
    record |= {} if change else {"init_from": "gm-4x4"}
    (out / "run.json").write_text(json.dumps(record))
    with pytest.raises(CheckpointError, match=f"another run.*{word}"):
        train(tiny("gm", **change), out=out, data=puzzles, progress="none", resume=True)


def test_a_damaged_newest_checkpoint_names_the_sound_one(
    out: Path, puzzles: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tiny(), out=out, data=puzzles, progress="none")
    shutil.copytree(out, tmp_path / "whole")
    (out / "result.json").unlink()
    (out / "metrics.jsonl").unlink()
    newest = out / "checkpoints" / "step-6"
    (newest / "config.json").write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"config\.json.*continue from step 4.*step-6"):
        train(tiny(), out=out, data=puzzles, progress="none", resume=True)
    shutil.rmtree(newest)
    train(tiny(), out=out, data=puzzles, progress="none", resume=True)
    assert "metrics.jsonl is missing" in capsys.readouterr().err
    assert same_bits(out, tmp_path / "whole")


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "config.json", "state.json"]
)
@pytest.mark.parametrize("how", ["cut", "flipped", "missing"])
def test_damage_is_found_before_anything_is_touched(
    name: str, how: str, trainer: Trainer, tmp_path: Path
) -> None:
    trainer.step(0)
    folder = tmp_path / "step-1"
    save(trainer, tmp_path, 1)
    path = folder / name
    content = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[:-20])
    else:
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    before = {n: t.clone() for n, t in trainer.model.state_dict().items()}
    with pytest.raises(CheckpointError, match=rf"damaged \({name}.*from step 0"):
        load(trainer, folder)
    assert all(torch.equal(before[n], t) for n, t in trainer.model.state_dict().items())


@pytest.mark.parametrize(
    "change", [{"step": 5}, {"seconds": 1.5}, {"window": {"loss": 1.0}}, {"checksum": "0"}], ids=str
)
def test_an_edited_state_is_refused(
    change: dict[str, Any], trainer: Trainer, tmp_path: Path
) -> None:
    save(trainer, tmp_path, 1)
    path = tmp_path / "latest" / "state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state))  # its layout does not matter
    assert load(trainer, tmp_path / "latest").step == 1
    path.write_text(json.dumps(state | change))
    with pytest.raises(CheckpointError, match=r"state\.json"):
        load(trainer, tmp_path / "latest")


def test_states_from_before_the_checksum_are_read(trainer: Trainer, tmp_path: Path) -> None:
    save(trainer, tmp_path, 3)
    path = tmp_path / "latest" / "state.json"
    state = json.loads(path.read_text()) | {"version": 1}
    del state["checksum"]
    path.write_text(json.dumps(state))
    assert load(trainer, tmp_path / "latest").step == 3
    path.write_text(json.dumps(state | {"step": "3"}))
    with pytest.raises(CheckpointError, match="where"):
        load(trainer, tmp_path / "latest")


def test_a_full_disk_leaves_the_last_checkpoint(
    out: Path, puzzles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TrainingError, match="step 4"):
        train(tiny(eval_every=100), out=out, data=puzzles, progress="none")
    monkeypatch.setattr(os, "fsync", real)
    assert names(out / "checkpoints") == ["latest", "step-2"]
    train(tiny(eval_every=100), out=out, data=puzzles, progress="none", resume=True)
    assert RunFolder(out).finished


def test_a_full_disk_at_the_final_save(
    out: Path, puzzles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are made in memory and written in one go, which the system refuses."""

    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("graph_machine.models.checkpoint.atomic_path", full)
    with pytest.raises(TrainingError, match="result"):
        train(tiny(), out=out, data=puzzles, progress="none")
    assert RunFolder(out).info().status == "failed"
    monkeypatch.undo()
    train(tiny(), out=out, data=puzzles, progress="none", resume=True)
    assert RunFolder(out).finished


def test_a_real_limit_on_file_size_is_one_line(tmp_path: Path, puzzles: str) -> None:
    """The kernel refuses the write, as it does on a full disk."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    command = f"train gm --budget smoke --data {puzzles} --out {tmp_path / 'run'} --progress none"
    done = subprocess.run(
        [sys.executable, "-m", "graph_machine", *command.split()],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    # The kernels could not be cached either, which is a line of its own.
    said = [line for line in done.stderr.splitlines() if "C kernels" not in line]
    assert said[0].startswith("graph-machine: The disk is full: the checkpoint of step 5")
    assert len(said) == 1
