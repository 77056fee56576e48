"""Whom to look at: a checkpoint, run folder or hand-built GM, with the data that belongs to it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graph_machine.config import SudokuConfig, TaskConfig
from graph_machine.errors import CheckpointError, ConfigError
from graph_machine.models import GraphMachine, load_model
from graph_machine.models.checkpoint import find_checkpoint, read_config
from graph_machine.models.handmade import handmade_gm
from graph_machine.tasks.base import Split, Task, make_task
from graph_machine.tasks.sudoku.board import BoxShape

HANDMADE = "handmade"
# Generated for models that do not say what they were trained on: enough to look at, soon made.
PUZZLES = 1000


@dataclass
class Subject:
    """A model and what is known of its training."""

    model: GraphMachine
    name: str
    condition: str
    seed: int = 0
    task: TaskConfig | None = None
    run: dict[str, Any] = field(default_factory=dict)  # run.json, where there is one

    @property
    def box(self) -> tuple[int, int] | None:
        """Rows and columns of a box, for Sudoku boards."""
        return self.task.box_shape if isinstance(self.task, SudokuConfig) else None

    @property
    def budget(self) -> str:
        """One line on what the model is and how long it was trained, to stand beside its numbers.

        A reduced run must never be taken for the paper's.
        """
        grid = self.model.spec.grid
        words = [f"{grid[0]}x{grid[1]} board"] if grid else []
        words.append(f"{self.model.config.num_layers} layers")
        train = self.run.get("config", {}).get("train", {})
        if "steps" in train:
            words.append(f"{train['steps']:,} steps of {train.get('batch_size', '?')}")
        else:
            words.append("built by hand" if self.name.startswith(HANDMADE) else "training unknown")
        return ", ".join(words)

    def open_data(self, data: str | None) -> Task:
        """Its task's data: a file, or what its own config generates."""
        if self.task is None:
            raise ConfigError(f"{self.name} does not say what task it was trained on.")
        return make_task(self.task, data, self.seed)

    def batches(
        self, data: str | None, *, split: Split = "test", batch_size: int = 16, limit: int | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(tokens, answers) of a split, as its own seed draws it."""
        for batch in self.open_data(data).split_batches(split, batch_size, limit):
            assert batch.tokens is not None
            yield batch.tokens, batch.answers

    def samples(
        self, data: str | None, count: int, *, split: Split = "test"
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """The first puzzles of a split, their answers, and the data's identity."""
        task = self.open_data(data)
        parts = list(task.split_batches(split, count, count))
        tokens = torch.cat([part.tokens for part in parts if part.tokens is not None])
        answers = torch.cat([part.answers for part in parts])
        about = {"identity": task.identity, "source": task.source, "split": split}
        return tokens, answers, about | {"seed": self.seed}


def open_subject(name: str) -> Subject:
    """A checkpoint or run folder, a shipped model by name, or `handmade:2x2` (`2x3`, `3x3`)."""
    if name.partition(":")[0] == HANDMADE:
        box = BoxShape.parse(name.partition(":")[2] or "3x3")
        task = SudokuConfig(box=str(box), puzzles=PUZZLES)
        model = handmade_gm((box.rows, box.cols))
        return Subject(model, f"{HANDMADE} {box}", HANDMADE, task=task)
    model = load_model(name)
    folder = find_checkpoint(name)
    extra = {} if folder is None else read_config(folder)
    run: dict[str, Any] = {} if folder is None else _read_run(folder)
    if not run and "train" in extra:  # a shipped model, without its run folder
        run = {"config": {"train": extra["train"]}}
    kind = "gm" if model.config.has_edges else "transformer"
    condition = str(extra.get("condition") or run.get("condition") or kind)
    seed = int(extra.get("seed") or run.get("seed") or 0)
    task = extra.get("task") or run.get("config", {}).get("task")
    try:
        config = TaskConfig.from_dict(task) if task else _guess_task(model)
    except ConfigError as error:
        raise CheckpointError(f"Its task is not understood ({error}): {name}") from None
    return Subject(model, f"{condition}-{seed}", condition, seed, config, run)


def _read_run(folder: Path) -> dict[str, Any]:
    """run.json of the run that a model folder (or a checkpoint of it) lies in, if any."""
    for place in (folder, *folder.parents[:2]):
        file = place / "run.json"
        if file.is_file():
            try:
                found = json.loads(file.read_text(encoding="utf-8"))
            except ValueError:
                raise CheckpointError(f"run.json is damaged (not valid JSON): {file}") from None
            return found if isinstance(found, dict) else {}
    return {}


def _guess_task(model: GraphMachine) -> TaskConfig | None:
    """Sudoku, where the spec looks like it: a square grid with as many answers as its side."""
    grid = model.spec.grid
    if grid is None or grid[0] != grid[1] or model.spec.num_outputs != grid[0]:
        return None
    shapes = BoxShape.candidates(grid[0] * grid[1])
    return SudokuConfig(box=str(shapes[0]), puzzles=PUZZLES) if shapes else None
