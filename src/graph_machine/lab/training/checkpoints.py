"""Checkpoints of a run: folders of safetensors and JSON that appear complete or not at all.

checkpoints/step-N/  config.json, model.safetensors   (loads like any model)
                     average.safetensors (with train.ema: what was tested, and is opened)
                     optimizer.safetensors, state.json (what resuming needs besides)
checkpoints/latest   a link to the newest one
checkpoints/best     a link to the one with the best evaluation so far

A run resumes from the complete folder with the highest number, so links can be made again after a
kill at any moment. The one before the newest is kept too, in case the newest is damaged. Earlier
versions wrote `latest` and `best` as folders; `adopt` gives those their numbers.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from graph_machine.config import ModelConfig
from graph_machine.errors import CheckpointError, TrainingError
from graph_machine.files import FULL, atomic_folder, read_object
from graph_machine.lab.config import ExperimentConfig, TaskConfig, TrainConfig
from graph_machine.lab.run_files import RunInfo
from graph_machine.lab.training.optim import Optimizer, WeightAverage
from graph_machine.models import GraphMachine
from graph_machine.models import checkpoint as stored
from graph_machine.models.checkpoint import AVERAGE_FILE, CONFIG_FILE, WEIGHTS_FILE, checksum_of

OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"
VERSION = 2  # states of version 1 have no checksum
LINKS = ("best", "latest")


@dataclass
class Position:
    """Where a run is. Random numbers and batches follow from `step` and the run's seed."""

    step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of this process, all threads together
    best: dict[str, Any] | None = None  # the best evaluation so far
    window: dict[str, float] = field(default_factory=dict)  # sums since the last metric line


class _Damage(Exception):
    """A damaged file of a checkpoint."""


def save_checkpoint(
    checkpoints: Path,
    model: GraphMachine,
    optimizer: Optimizer,
    position: Position,
    extra: dict[str, Any],
    average: WeightAverage | None = None,
    settings: dict[str, Any] | None = None,
) -> None:
    """Write the checkpoint of this step, point the links to it, drop those no longer needed.

    `extra` goes into config.json, and `settings` (those of the training) into state.json.
    """
    weights = {n: t.detach().cpu().contiguous() for n, t in model.state_dict().items()}
    content = save(weights, metadata={"format": "pt"})
    digests = {"sha256": hashlib.sha256(content).hexdigest()}
    files = {WEIGHTS_FILE: content, OPTIMIZER_FILE: save(optimizer.tensors())}
    if average is not None:
        files[AVERAGE_FILE] = save({n: t.cpu() for n, t in average.tensors.items()})
        digests["average_sha256"] = hashlib.sha256(files[AVERAGE_FILE]).hexdigest()
    own = {"model": model.config.to_dict(), "spec": model.spec.to_dict()}
    files[CONFIG_FILE] = _json(stored.config_data(own | digests | extra))
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    state = {"version": VERSION, **asdict(position), "settings": settings or {}, "sha256": hashes}
    files[STATE_FILE] = _json(state | {"checksum": checksum_of(state)})
    what = f"the checkpoint of step {position.step} was not saved"
    with disk_errors(checkpoints, what):
        with atomic_folder(checkpoints / f"step-{position.step}") as made:
            for name, content in files.items():
                (made / name).write_bytes(content)
        point(checkpoints, position)


def numbered(checkpoints: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    found = [each for each in checkpoints.glob("step-*") if each.name[5:].isdecimal()]
    return sorted(found, key=lambda folder: int(folder.name[5:]))


def find_latest(checkpoints: Path) -> Path | None:
    """The checkpoint to resume from: the newest."""
    return next(reversed(numbered(checkpoints)), None)


def adopt(checkpoints: Path) -> None:
    """Give the checkpoints of an earlier version their numbers."""
    for name in LINKS:
        place, aside = checkpoints / name, checkpoints / f".{name}.old"
        if aside.is_dir() and not place.exists():  # killed between two renames
            os.replace(aside, place)
        if place.is_dir() and not place.is_symlink():
            target = checkpoints / f"step-{read_state(place)['step']}"
            if target.exists():
                shutil.rmtree(place)
            else:
                os.replace(place, target)


def point(checkpoints: Path, position: Position) -> None:
    """Let the links point to the newest and the best checkpoint; drop all others but one."""
    *older, newest = numbered(checkpoints)
    kept = [newest, *older[-1:]]
    _link(checkpoints / "latest", newest)
    if position.best is not None:
        best = checkpoints / f"step-{position.best.get('step')}"
        if best.is_dir():
            kept.append(best)
            _link(checkpoints / "best", best)
    for folder in older:
        if folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)
    for pattern in (".*.tmp", ".*.old"):  # of killed processes: the run is locked
        for left in checkpoints.glob(pattern):
            left.unlink() if left.is_symlink() else shutil.rmtree(left, ignore_errors=True)


def _link(link: Path, folder: Path) -> None:
    if not (link.is_symlink() and os.readlink(link) == folder.name):
        temporary = link.with_name(f".{link.name}.link.tmp")
        temporary.unlink(missing_ok=True)
        os.symlink(folder.name, temporary)
        os.replace(temporary, link)


def load_checkpoint(
    folder: Path,
    model: GraphMachine,
    optimizer: Optimizer,
    average: WeightAverage | None = None,
) -> Position:
    """Put a checkpoint into a model and its optimiser; damage is found before either is touched."""
    with _damage_as_one_line(folder):
        state = _state(folder)
        weights = _tensors(folder, WEIGHTS_FILE, state)
        moments = _tensors(folder, OPTIMIZER_FILE, state)
        averaged = None if average is None else _tensors(folder, AVERAGE_FILE, state)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise stored.misfit(error, folder) from None
    if average is not None and averaged is not None:
        average.load(averaged)
    optimizer.load(moments, folder)
    names = (item.name for item in fields(Position))
    return Position(**{name: state[name] for name in names if name in state})


def read_state(folder: Path) -> dict[str, Any]:
    """The contents of state.json, and config.json checked by it; damage is an error."""
    with _damage_as_one_line(folder):
        return _state(folder)


@contextmanager
def _damage_as_one_line(folder: Path) -> Iterator[None]:
    """The error for a damaged checkpoint, which names the newest sound one to continue from."""
    try:
        yield
    except _Damage as damage:
        sound = [other for other in numbered(folder.parent) if other != folder and _is_sound(other)]
        instead = f"step {sound[-1].name[5:]}, which is sound" if sound else "step 0"
        raise CheckpointError(
            f"The checkpoint is damaged ({damage}). Nothing was changed; delete this folder to "
            f"continue from {instead}: {folder}"
        ) from None


def _state(folder: Path) -> dict[str, Any]:
    try:
        state = read_object(folder / STATE_FILE, CheckpointError)
    except (CheckpointError, OSError):
        raise _Damage(f"{STATE_FILE}: missing or not JSON") from None
    version, checksum = state.get("version"), state.pop("checksum", None)
    if version not in (1, VERSION):
        raise _Damage(f"{STATE_FILE}: its version is not {VERSION}")
    if version == VERSION and checksum != checksum_of(state):
        raise _Damage(f"{STATE_FILE}: its contents are not those that were written")
    kinds = {"step": int, "seconds": float, "window": dict, "sha256": dict}
    if any(type(state.get(name)) is not kind for name, kind in kinds.items()) or not isinstance(
        state.get("best", 0), dict | None
    ):
        raise _Damage(f"{STATE_FILE}: it does not say where the run is")
    _content(folder, CONFIG_FILE, state)
    return state


def check_checkpoint(folder: Path, config: ExperimentConfig, info: RunInfo) -> None:
    """Refuse a checkpoint of another run, by its own record; older ones record less.

    Checkpoints from before the run was extended have one of its earlier lengths.
    """
    state, about = read_state(folder), stored.read_config(folder)
    stated = state.get("settings", {}) if state["version"] == VERSION else {}
    ours: dict[str, Any] = {"seed": info.seed, "data_identity": info.data.identity}
    ours |= {"model": config.model, "task": config.task, "init_from": info.init_from}
    theirs = {name: about[name] for name in ours if name in about} | stated
    for name, kind in {"model": ModelConfig, "task": TaskConfig, "train": TrainConfig}.items():
        if name in theirs:
            theirs[name] = kind.from_dict(theirs[name])
    train = theirs.pop("train", config.train)
    if train.steps in info.extended:
        train = train.replace(steps=config.train.steps)
    different = [name for name, value in theirs.items() if value != ours[name]]
    different += [f"train.{name}" for name in train.differences(config.train)]
    if different:
        raise CheckpointError(
            f"The checkpoint is of another run (it has another {', '.join(different)}). Choose "
            f"another --out, or remove the checkpoints: {folder}"
        )


@contextmanager
def disk_errors(path: Path, what: str) -> Iterator[None]:
    """A full disk as a one-line error."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise TrainingError(
            f"The disk is full: {what}; what was there before is intact. Free space, then continue "
            f"with --resume: {path}"
        ) from None


def _is_sound(folder: Path) -> bool:
    try:
        state = _state(folder)
        return all(_content(folder, name, state) for name in state["sha256"])
    except _Damage:
        return False


def _content(folder: Path, name: str, state: dict[str, Any]) -> bytes:
    try:
        content = (folder / name).read_bytes()
    except OSError:
        raise _Damage(f"{name}: missing") from None
    if hashlib.sha256(content).hexdigest() != state["sha256"].get(name):
        raise _Damage(f"{name}: its bytes are not those that were written")
    return content


def _tensors(folder: Path, name: str, state: dict[str, Any]) -> dict[str, Tensor]:
    try:
        return load(_content(folder, name, state))
    except SafetensorError as error:
        raise _Damage(f"{name}: {error}") from None


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
