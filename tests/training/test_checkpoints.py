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

from graph_machine.errors import CheckpointError, TrainingError
from graph_machine.tasks.sudoku.task import SudokuTask
from graph_machine.training import RunFolder, train
from graph_machine.training.checkpoints import (
    Position,
    find_latest,
    load_checkpoint,
    save_checkpoint,
)
from graph_machine.training.trainer import Trainer
from support.runs import puzzle_store, tiny


@pytest.fixture
def trainer() -> Trainer:
    task = SudokuTask(tiny().task).use(puzzle_store(40))
    return Trainer(tiny(), task, seed=0, device=torch.device("cpu"))


def save(trainer: Trainer, folder: Path, step: int) -> None:
    save_checkpoint(folder, trainer.model, trainer.optimizer, Position(step=step), {})


def load(trainer: Trainer, folder: Path) -> Position:
    return load_checkpoint(folder, trainer.model, trainer.optimizer)


def test_a_replacement_cut_short_is_finished(trainer: Trainer, tmp_path: Path) -> None:
    save(trainer, tmp_path / "latest", 1)
    # Between the two renames there is only the old folder; beside it a half-made one.
    (tmp_path / "latest").rename(tmp_path / ".latest.old")
    (tmp_path / ".latest.abc.tmp").mkdir()
    assert find_latest(tmp_path) == tmp_path / "latest"
    assert [p.name for p in tmp_path.iterdir()] == ["latest"]
    # After them there is the new one, and the old one has not been deleted yet.
    shutil.copytree(tmp_path / "latest", tmp_path / ".latest.old")
    save(trainer, tmp_path / "latest", 2)
    found = find_latest(tmp_path)
    assert found is not None
    assert load(trainer, found).step == 2
    assert [p.name for p in tmp_path.iterdir()] == ["latest"]


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "config.json", "state.json"]
)
@pytest.mark.parametrize("how", ["cut", "flipped", "missing"])
def test_damage_is_found_before_anything_is_touched(
    name: str, how: str, trainer: Trainer, tmp_path: Path
) -> None:
    trainer.step(0)
    folder = tmp_path / "latest"
    save(trainer, folder, 1)
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
    with pytest.raises(CheckpointError, match=rf"damaged \({name}.*from step 0 instead"):
        load(trainer, folder)
    assert all(torch.equal(before[n], t) for n, t in trainer.model.state_dict().items())


@pytest.mark.parametrize(
    "change", [{"step": 5}, {"seconds": 1.5}, {"window": {"loss": 1.0}}, {"checksum": "0"}], ids=str
)
def test_an_edited_state_is_refused(
    change: dict[str, Any], trainer: Trainer, tmp_path: Path
) -> None:
    save(trainer, tmp_path / "latest", 1)
    path = tmp_path / "latest" / "state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state))  # its layout does not matter
    assert load(trainer, tmp_path / "latest").step == 1
    path.write_text(json.dumps(state | change))
    with pytest.raises(CheckpointError, match=r"state\.json: its contents are not those"):
        load(trainer, tmp_path / "latest")


def test_states_from_before_the_checksum_are_read(trainer: Trainer, tmp_path: Path) -> None:
    save(trainer, tmp_path / "latest", 3)
    path = tmp_path / "latest" / "state.json"
    state = json.loads(path.read_text()) | {"version": 1}
    del state["checksum"]
    path.write_text(json.dumps(state))
    assert load(trainer, tmp_path / "latest").step == 3
    path.write_text(json.dumps(state | {"step": "3"}))
    with pytest.raises(CheckpointError, match="does not say where the run is"):
        load(trainer, tmp_path / "latest")


def test_without_the_newest_the_best_is_resumed(trainer: Trainer, tmp_path: Path) -> None:
    assert find_latest(tmp_path) is None
    save(trainer, tmp_path / "best", 4)
    assert find_latest(tmp_path) == tmp_path / "best"


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
    with pytest.raises(TrainingError, match="The disk is full: the checkpoint of step 4"):
        train(tiny(eval_every=100), out=out, data=puzzles, progress="none")
    monkeypatch.setattr(os, "fsync", real)
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == ["latest"]
    train(tiny(eval_every=100), out=out, data=puzzles, progress="none", resume=True)
    assert RunFolder(out).finished


def test_a_full_disk_at_the_final_save(
    out: Path, puzzles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are made in memory and written in one go, which the system refuses."""

    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("graph_machine.models.checkpoint.atomic_path", full)
    with pytest.raises(TrainingError, match="The disk is full: the result was not written"):
        train(tiny(), out=out, data=puzzles, progress="none")
    assert RunFolder(out).read()["status"] == "failed"
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
