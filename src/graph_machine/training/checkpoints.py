"""Checkpoints of a run: folders of safetensors and JSON that appear complete or not at all.

checkpoints/latest/  config.json, model.safetensors   (loads like any model)
                     average.safetensors (with train.ema: what was tested, and is opened)
                     optimizer.safetensors, state.json (what resuming needs besides)
checkpoints/best/    the same, at the best evaluation so far
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from graph_machine.config.legacy import modern_window
from graph_machine.errors import CheckpointError, TrainingError
from graph_machine.files import FULL, atomic_folder, read_object, settle
from graph_machine.models import GraphMachine
from graph_machine.models.checkpoint import (
    AVERAGE_FILE,
    CONFIG_FILE,
    WEIGHTS_FILE,
    config_data,
    digest,
    load_weights,
)
from graph_machine.training.average import WeightAverage
from graph_machine.training.optim import load_optimizer, optimizer_tensors

OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"
VERSION = 2  # states of version 1 have no checksum


@dataclass
class Position:
    """Where a run is. Random numbers and batches follow from `step` and the run's seed."""

    step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of this process, all threads together
    best: dict[str, Any] | None = None  # the best evaluation so far
    window: dict[str, float] = field(default_factory=dict)  # sums since the last metric line


def save_checkpoint(
    folder: Path,
    model: GraphMachine,
    optimizer: torch.optim.Adam,
    position: Position,
    extra: dict[str, Any],
    average: WeightAverage | None = None,
) -> None:
    """Write a checkpoint beside `folder`, then let it take that name."""
    weights = {n: t.detach().cpu().contiguous() for n, t in model.state_dict().items()}
    content = save(weights, metadata={"format": "pt"})
    digests = {"sha256": digest(content)}
    files = {WEIGHTS_FILE: content, OPTIMIZER_FILE: save(optimizer_tensors(model, optimizer))}
    if average is not None:
        files[AVERAGE_FILE] = save({n: t.cpu() for n, t in average.tensors.items()})
        digests["average_sha256"] = digest(files[AVERAGE_FILE])
    files[CONFIG_FILE] = _json(config_data(model, **digests, **extra))
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    state = {"version": VERSION, **asdict(position), "sha256": hashes}
    files[STATE_FILE] = _json(state | {"checksum": _checksum(state)})
    what = f"the checkpoint of step {position.step} was not saved"
    with disk_errors(folder, what), atomic_folder(folder) as made:
        for name, content in files.items():
            (made / name).write_bytes(content)


def load_checkpoint(
    folder: Path,
    model: GraphMachine,
    optimizer: torch.optim.Adam,
    average: WeightAverage | None = None,
) -> Position:
    """Put a checkpoint into a model and its optimiser; damage is found before either is touched."""
    state = read_state(folder)
    _content(folder, CONFIG_FILE, state)
    weights = _tensors(folder, WEIGHTS_FILE, state)
    moments = _tensors(folder, OPTIMIZER_FILE, state)
    averaged = None if average is None else _tensors(folder, AVERAGE_FILE, state)
    load_weights(model, weights, folder)
    if average is not None and averaged is not None:
        average.load(averaged)
    load_optimizer(model, optimizer, moments, folder)
    names = (item.name for item in fields(Position))
    position = Position(**{name: state[name] for name in names if name in state})
    position.window = modern_window(position.window)
    return position


def find_latest(checkpoints: Path) -> Path | None:
    """The checkpoint to resume from: the newest, or the best where that is missing."""
    folders = [checkpoints / name for name in ("latest", "best")]
    for folder in folders:
        settle(folder)
    return next((folder for folder in folders if folder.exists()), None)


def read_state(folder: Path) -> dict[str, Any]:
    """The contents of state.json, which are what was written or an error."""
    try:
        state = read_object(folder / STATE_FILE, CheckpointError)
    except (CheckpointError, OSError):
        raise _damaged(folder, STATE_FILE, "it is missing or no JSON") from None
    version, checksum = state.get("version"), state.pop("checksum", None)
    if version not in (1, VERSION):
        raise _damaged(folder, STATE_FILE, f"its version is not {VERSION}")
    if version == VERSION and checksum != _checksum(state):
        raise _damaged(folder, STATE_FILE, "its contents are not those that were written")
    kinds = {"step": int, "seconds": float, "window": dict, "sha256": dict}
    if any(type(state.get(name)) is not kind for name, kind in kinds.items()) or not isinstance(
        state.get("best", 0), dict | None
    ):
        raise _damaged(folder, STATE_FILE, "it does not say where the run is")
    return state


def _checksum(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


@contextmanager
def disk_errors(path: Path, what: str) -> Iterator[None]:
    """A full disk as one clear line."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise TrainingError(
            f"The disk is full: {what}; what was there before is intact. Free space, then continue "
            f"with --resume: {path}"
        ) from None


def _damaged(folder: Path, name: str, how: str) -> CheckpointError:
    best = folder.parent / "best"
    instead = "the best one" if folder.name == "latest" and best.exists() else "step 0"
    return CheckpointError(
        f"The checkpoint is damaged ({name}: {how}). Nothing was changed; delete this folder to "
        f"resume from {instead} instead: {folder}"
    )


def _content(folder: Path, name: str, state: dict[str, Any]) -> bytes:
    try:
        content = (folder / name).read_bytes()
    except OSError:
        raise _damaged(folder, name, "it is missing") from None
    if hashlib.sha256(content).hexdigest() != state["sha256"].get(name):
        raise _damaged(folder, name, "its bytes are not those that were written")
    return content


def _tensors(folder: Path, name: str, state: dict[str, Any]) -> dict[str, Tensor]:
    try:
        return load(_content(folder, name, state))
    except SafetensorError as error:
        raise _damaged(folder, name, str(error)) from None


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
