"""Who is looked at: a model that can be run on any example, or a recording of one."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from graph_machine.config import InputSpec, TaskConfig
from graph_machine.config.legacy import task_of_spec
from graph_machine.errors import CheckpointError, ConfigError, DataError, count_of
from graph_machine.explorer.examples import Example
from graph_machine.explorer.forward import RECORDED, Forward, forward_of
from graph_machine.explorer.pictures import key_of
from graph_machine.graphs import InputGraph
from graph_machine.models import GraphMachine, open_model
from graph_machine.models.checkpoint import find_checkpoint
from graph_machine.models.open import EXAMPLES, HANDMADE
from graph_machine.records.record import Record
from graph_machine.records.recorder import record
from graph_machine.records.rounds import refuse_rounds
from graph_machine.tasks.base import Split, Task, task_of
from graph_machine.tasks.batch import Batch

SYMBOLS = ".123456789ABCDEFGHIJKLMNOP"  # of tokens that have no characters of their own
MOST_NODES = 1024  # of another size than trained: what is recorded grows with their square
UNKNOWN = "Neither the model nor the recording says what its task is."


class PlainTask(Task):
    """What can be said of examples by their spec alone, where the task is not known."""

    def __init__(self, spec: InputSpec) -> None:
        super().__init__(TaskConfig())
        if spec.alphabet is None and 0 < (spec.num_tokens or 0) <= len(SYMBOLS):
            spec = spec.replace(alphabet=SYMBOLS[: spec.num_tokens])
        if spec.answers is None and spec.num_outputs < len(SYMBOLS):
            spec = spec.replace(answers=SYMBOLS[1 : spec.num_outputs + 1])
        self._spec = spec

    def make_spec(self) -> InputSpec:
        return self._spec

    def open(self, data: str | None = None, seed: int = 0) -> Task:
        raise DataError(UNKNOWN)

    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        raise DataError(UNKNOWN)

    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        raise DataError(UNKNOWN)

    def sample(self, count: int, seed: int) -> Batch | None:
        """Nothing but blanks."""
        if self.spec.num_nodes is None or self.spec.num_tokens is None:
            return None
        tokens = torch.zeros(count, self.spec.num_nodes, dtype=torch.long)
        return Batch(tokens, tokens, tokens == 0)


class LiveModel:
    """A model; every example is run through it while it is being recorded."""

    can_run = True

    def __init__(
        self,
        model: GraphMachine,
        name: str = "",
        task: Task | None = None,
        rounds: int | None = None,
    ) -> None:
        self.model = model.eval()
        self.rounds = rounds
        self.task = task or known_task(model.spec, None)
        self.name = name or ("GM" if model.config.has_edges else "Transformer")
        number = model.check_rounds(rounds)
        core = f", then {count_of(number, 'rounds')}" if model.config.has_core else ""
        layers = count_of(model.config.num_layers, "layers") + core
        self.facts = f"{layers}, {model.num_parameters:,} parameters"
        self._lock = threading.Lock()

    def fitted(self, spec: InputSpec | None) -> GraphMachine:
        """The model for examples of another size, where it takes any."""
        nodes = None if spec is None else spec.num_nodes
        if spec is None or nodes is None or nodes == self.model.spec.num_nodes:
            return self.model
        if self.model.spec.learned_places:
            own = self.model.spec.num_nodes
            raise DataError(f"{self.name} reads examples of {own} nodes, this one has {nodes}.")
        if nodes > MOST_NODES:
            raise DataError(f"An example of {nodes} nodes: at most {MOST_NODES} can be shown.")
        return self.model.for_spec(self.model.spec.replace(num_nodes=nodes, grid=spec.grid))

    def forward(self, key: str, example: Batch, spec: InputSpec | None = None) -> Forward:
        """The quantities of a batch of one; `spec` is that of its size."""
        del key
        model = self.fitted(spec)
        with self._lock:
            # The page gets halves in any case, and 900 cells in 64 rounds take gigabytes.
            names = (*RECORDED, "logits")
            found = record(model, example, names=names, rounds=self.rounds, half_factors=True)
        logits = found.inputs("logits")
        assert logits is not None
        chances = torch.from_numpy(logits[0]).softmax(dim=-1).numpy()
        return forward_of(found, 0, chances, consume=True)


class ShownRecord:
    """A recording: its samples and nothing else, without a model."""

    can_run = False

    def __init__(self, recorded: Record) -> None:
        if recorded.tokens is None and recorded.inputs("targets") is None:
            raise DataError(f"The recording of {recorded.name} has no inputs to show.")
        self.record = recorded
        self.name = recorded.name
        layers, samples = count_of(recorded.num_layers, "layers"), len(recorded.samples)
        self.facts = f"recording, {layers}, {count_of(samples, 'samples')}"
        self.task = known_task(_spec_of(recorded), recorded.meta.get("task"))
        self.examples: list[Example] = []
        self.rows: dict[str, int] = {}
        for row, number in enumerate(recorded.samples):
            batch, words = batch_of(recorded, row, self.task), f"sample {number}"
            key = key_of(self.task, batch, words)
            if key not in self.rows:
                known = recorded.solutions is not None
                self.examples.append(Example(key, words, batch, known))
            self.rows.setdefault(key, row)

    def forward(self, key: str, example: Batch, spec: InputSpec | None = None) -> Forward:
        """What was recorded of an example."""
        del example, spec
        if key not in self.rows:
            raise DataError(
                f"This example is not in the recording of {self.name}; it holds {len(self.rows)}."
            )
        return forward_of(self.record, self.rows[key])


Shown = LiveModel | ShownRecord


def _spec_of(recorded: Record) -> InputSpec:
    """The spec of a recorded model; of a module of one's own, what its tensors show."""
    told = recorded.meta["model"].get("spec")
    if told:
        return InputSpec.from_dict(told)
    tokens = recorded.tokens
    most = 1 if tokens is None else int(tokens.max(initial=0)) + 1
    grid, nodes = recorded.grid, recorded.nodes
    return InputSpec(
        num_tokens=max(2, most), num_outputs=max(1, most - 1), num_nodes=nodes, grid=grid
    )


def known_task(spec: InputSpec, config: Any) -> Task:
    """The task that a recording names, or that older ones are of; else what the spec tells."""
    try:
        found = TaskConfig.from_dict(config) if config else task_of_spec(spec, EXAMPLES)
        task = None if found is None else task_of(found)
    except ConfigError:  # a task of somebody's own, which is not here
        task = None
    return PlainTask(spec) if task is None else task


def batch_of(recorded: Record, row: int, task: Task) -> Batch:
    """One recorded sample as the batch that went in."""
    held = {
        name: None if value is None else torch.from_numpy(value[row : row + 1])
        for name in ("tokens", "solutions", "targets", "categories", "node_mask", "features")
        for value in [recorded.inputs(name)]
    }
    tokens = None if held["tokens"] is None else held["tokens"].long()
    nodes, given, targets = recorded.nodes, task.spec.given_answers(), held["targets"]
    where = torch.ones(1, nodes, dtype=torch.bool)
    if given is not None and tokens is not None:
        where = torch.tensor(given)[tokens] < 0
    graph = None
    if targets is not None and held["categories"] is not None:
        kinds = task.spec.num_edge_categories
        graph = InputGraph(targets.long(), held["categories"].long(), kinds)
    mask = None if held["node_mask"] is None else held["node_mask"].bool()
    answers = torch.zeros(1, nodes, dtype=torch.long)
    if held["solutions"] is not None:
        answers = held["solutions"].long()
    return Batch(tokens, answers, where, graph=graph, node_mask=mask, features=held["features"])


def open_shown(name: str | Path, rounds: int | None = None) -> Shown:
    """A recording, or any model that `open_model` knows; a recurrent core runs `rounds` times."""
    path = Path(name)
    if path.is_file():
        found = ShownRecord(Record.load(path))
        refuse_rounds(rounds, name)
        return found
    is_file_name = path.is_absolute() or path.suffix == ".safetensors"
    if is_file_name and not path.exists() and find_checkpoint(name) is None:
        raise CheckpointError(f"There is no such checkpoint or recording: {path}")
    found = open_model(name)
    # A shipped model or one of the Hub has a name of its own, a run its condition and seed.
    named = found.condition != HANDMADE and not path.exists()
    shown = found.given_name if named else found.name
    return LiveModel(found.model, shown, found.task, rounds)
