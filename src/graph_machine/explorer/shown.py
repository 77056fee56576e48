"""What is shown: a model that can be run on any puzzle, or a recording."""

import threading
from pathlib import Path

import numpy as np
import torch

from graph_machine.errors import CheckpointError, DataError
from graph_machine.explorer.boards import Board
from graph_machine.explorer.forward import RECORDED, Forward, forward_of
from graph_machine.explorer.puzzles import Example
from graph_machine.models import GraphMachine, open_model
from graph_machine.models.checkpoint import find_checkpoint
from graph_machine.models.open import HANDMADE
from graph_machine.records.record import Record
from graph_machine.records.recorder import record
from graph_machine.tasks.base import Task


class LiveModel:
    """A model; every puzzle is run through it while it is being recorded."""

    can_run = True

    def __init__(self, model: GraphMachine, name: str = "", task: Task | None = None) -> None:
        self.model, self.task = model.eval(), task
        self.name = name or ("GM" if model.config.has_edges else "Transformer")
        spec = model.spec
        if spec.num_nodes is None or spec.grid is None:
            raise DataError(f"The explorer draws boards; the task of {self.name} has no grid.")
        box = None if task is None else task.box_shape
        self.board = Board.of(spec.to_dict(), spec.grid, spec.num_nodes, box)
        core = f", then {model.config.rounds} rounds" if model.config.has_core else ""
        layers = f"{model.config.num_layers} layers{core}"
        self.facts = f"{layers}, {model.num_parameters:,} parameters"
        self._lock = threading.Lock()

    def forward(self, tokens: np.ndarray) -> Forward:
        with self._lock:
            # Halves where they do not show, as in files: the page gets halves in any case.
            names = (*RECORDED, "logits")
            found = record(self.model, tokens[None].astype(np.int64), names=names)
        logits = found.inputs("logits")
        assert logits is not None
        chances = torch.from_numpy(logits[0]).softmax(dim=-1).numpy()
        return forward_of(found, 0, chances)


class ShownRecord:
    """A recording: its samples and nothing else, without a model."""

    can_run = False

    def __init__(self, recorded: Record) -> None:
        if recorded.tokens is None:
            raise DataError(f"The recording of {recorded.name} has no inputs to show.")
        self.record = recorded
        self.name = recorded.name
        self.facts = f"recording, {recorded.num_layers} layers, {len(recorded.samples)} samples"
        spec = recorded.meta["model"].get("spec")
        self.board = Board.of(spec, recorded.grid, recorded.nodes, recorded.box)
        self.rows: dict[str, int] = {}
        for row, tokens in enumerate(recorded.tokens):
            self.rows.setdefault(self.board.format(tokens), row)

    @property
    def examples(self) -> list[Example]:
        samples = self.record.samples
        return [Example(text, f"sample {samples[row]}") for text, row in self.rows.items()]

    def forward(self, tokens: np.ndarray) -> Forward:
        text = self.board.format(tokens)
        if text not in self.rows:
            raise DataError(
                f"This puzzle is not in the recording of {self.name}; it holds {len(self.rows)}."
            )
        return forward_of(self.record, self.rows[text])


Shown = LiveModel | ShownRecord


def open_shown(name: str | Path) -> Shown:
    """A recording, or any model that `open_model` knows."""
    path = Path(name)
    if path.is_file():
        return ShownRecord(Record.load(path))
    is_file_name = path.is_absolute() or path.suffix == ".safetensors"
    if is_file_name and not path.exists() and find_checkpoint(name) is None:
        raise CheckpointError(f"There is no such checkpoint or recording: {path}")
    found = open_model(name)
    # A shipped model or one of the Hub has a name of its own, a run its condition and seed.
    named = found.condition != HANDMADE and not path.exists()
    return LiveModel(found.model, found.given_name if named else found.name, found.task)
