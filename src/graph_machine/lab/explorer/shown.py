"""Who is looked at: a model that can be run on any example, or a recording of one."""

from pathlib import Path
from typing import Any

import torch

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import CheckpointError, ConfigError, DataError, count_of
from graph_machine.graphs import InputGraph
from graph_machine.lab.config import TaskConfig
from graph_machine.lab.explorer.examples import Example, key_of
from graph_machine.lab.explorer.forward import COLLECTED, RECORDED, Forward, forward_of
from graph_machine.lab.opening import HANDMADE, open_model
from graph_machine.lab.records.record import Record, refuse_rounds
from graph_machine.lab.records.recorder import give_back, record
from graph_machine.lab.tasks.base import Split, Task, task_of
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.generated import GeneratedTask
from graph_machine.models import GraphMachine

SYMBOLS = ".123456789ABCDEFGHIJKLMNOP"  # of tokens that have no characters of their own
MOST_NODES = 1024  # of another size than trained: what is recorded grows with their square
ROOM = 384 * 1024**2  # bytes of one forward pass; one of the paper's GM takes about 90 MB


class PlainTask(GeneratedTask):
    """A task that is not known: examples follow from their spec alone."""

    def __init__(self, spec: InputSpec) -> None:
        super().__init__(TaskConfig())
        if spec.alphabet is None and 0 < (spec.num_tokens or 0) <= len(SYMBOLS):
            spec = spec.replace(alphabet=SYMBOLS[: spec.num_tokens])
        if spec.answers is None and spec.num_outputs < len(SYMBOLS):
            spec = spec.replace(answers=SYMBOLS[1 : spec.num_outputs + 1])
        self._spec = spec

    def make_spec(self) -> InputSpec:
        return self._spec

    def make(self, key: int, count: int, split: Split, progress: float) -> Batch:
        """Nothing but blanks."""
        if self.spec.num_nodes is None or self.spec.num_tokens is None:
            raise DataError("Neither the model nor the recording says what its task is.")
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

    def fitted(self, spec: InputSpec) -> GraphMachine:
        """The model for examples of another size, where it takes any."""
        nodes = spec.num_nodes
        if nodes is None or nodes == self.model.spec.num_nodes:
            return self.model
        if self.model.spec.learned_places:
            own = self.model.spec.num_nodes
            raise DataError(f"{self.name} reads examples of {own} nodes, this one has {nodes}.")
        if nodes > MOST_NODES:
            raise DataError(f"An example of {nodes} nodes: at most {MOST_NODES} can be shown.")
        return self.model.for_spec(self.model.spec.replace(num_nodes=nodes, grid=spec.grid))

    def forward(self, example: Example, *, node: int = 0, room: int = ROOM) -> Forward:
        """The quantities of an example.

        Where all of them take more than `room` bytes, those of the nodes in one block with `node`
        are kept, and addresses of all nodes if they fit.
        """
        model, nodes = self.fitted(example.task.spec), example.batch.num_nodes
        rounds = model.check_rounds(self.rounds)
        seen = slots_of(model, example.batch)
        each, address = bytes_of_source(model.config, nodes, rounds, seen)
        sources, every = None, ()
        if nodes * each > room:
            every = COLLECTED if nodes * address <= room // 2 else ()
            size = (room - (nodes * address if every else 0)) // each
            if size < 1:
                raise DataError(
                    f"The quantities of one node of {self.name} take {each / 1e6:,.0f} MB on "
                    f"{nodes} nodes in {count_of(rounds, 'rounds')}, and {room / 1e6:,.0f} MB are "
                    f"kept: choose a smaller example or fewer --rounds."
                )
            sources = range(node // size * size, min(nodes, (node // size + 1) * size))
        found = record(
            model,
            example.batch,
            names=(*RECORDED, "logits"),
            rounds=self.rounds,
            sources=sources,
            every_source=every,
            half_factors=True,  # the page gets halves in any case
        )
        logits = found.inputs("logits")
        assert logits is not None
        chances = torch.from_numpy(logits[0]).softmax(dim=-1).numpy()
        made = forward_of(found, 0, chances, consume=True)
        give_back()
        return made


def slots_of(model: GraphMachine, batch: Batch) -> int:
    """Edges that a sublayer sees of a node: made ones, given ones, an empty one."""
    graph, config = model.targets if batch.graph is None else batch.graph.targets, model.config
    given = graph.shape[-1] if model.any_degree and graph is not None else 0
    return config.num_edges + given + config.empty_edge


def bytes_of_source(config: ModelConfig, nodes: int, rounds: int, seen: int) -> tuple[int, int]:
    """At most how many bytes the quantities of one source node take in halves, and how many of
    them the addresses at the entrance of all edge sublayers; `seen` counts edges of all kinds."""
    slots, heads = config.num_edges, config.num_heads
    edge = config.edge_sublayers + rounds * config.core_edge_sublayers
    node = config.num_layers + rounds * config.core_layers
    addresses = 2 if config.separate_roles else 1
    # Referral: e2 weights of all pairs, four rows of factors and weights, addresses in and out.
    each = edge * slots * (seen + 4 + addresses + 1) + node * (3 * heads + slots)
    return 2 * nodes * each, 2 * nodes * edge * addresses * slots


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
                self.examples.append(Example(key, words, batch, self.task, known))
            self.rows.setdefault(key, row)

    def forward(self, example: Example, *, node: int = 0, room: int = ROOM) -> Forward:
        """What was recorded of an example."""
        del node, room
        if example.key not in self.rows:
            raise DataError(
                f"This example is not in the recording of {self.name}; it holds {len(self.rows)}."
            )
        return forward_of(self.record, self.rows[example.key])


Shown = LiveModel | ShownRecord


def _spec_of(recorded: Record) -> InputSpec:
    """The spec of a recorded model; of your own module, what its tensors show."""
    stored = recorded.meta["model"].get("spec")
    if stored:
        return InputSpec.from_dict(stored)
    tokens = recorded.tokens
    most = 1 if tokens is None else int(tokens.max(initial=0)) + 1
    grid, nodes = recorded.grid, recorded.nodes
    return InputSpec(
        num_tokens=max(2, most), num_outputs=max(1, most - 1), num_nodes=nodes, grid=grid
    )


def known_task(spec: InputSpec, config: Any) -> Task:
    """The task that a recording names; else what the spec says."""
    try:
        return task_of(TaskConfig.from_dict(config)) if config else PlainTask(spec)
    except ConfigError:  # a user's own task, which is not here
        return PlainTask(spec)


def batch_of(recorded: Record, row: int, task: Task) -> Batch:
    """One recorded sample as the batch that went in."""

    def held(name: str, dtype: torch.dtype = torch.long) -> torch.Tensor | None:
        value = recorded.inputs(name)
        return None if value is None else torch.from_numpy(value[row : row + 1]).to(dtype)

    tokens, answers, where = held("tokens"), held("solutions"), held("where", torch.bool)
    targets, types, given = held("targets"), held("categories"), task.spec.given_answers()
    if answers is None:
        answers = torch.zeros(1, recorded.nodes, dtype=torch.long)
    if where is None:
        where = torch.ones_like(answers, dtype=torch.bool)
        if given is not None and tokens is not None:
            where = torch.tensor(given)[tokens] < 0
    graph = None
    if targets is not None and types is not None:
        features = held("edge_features", torch.float)
        graph = InputGraph(targets, types, task.spec.num_edge_categories, features)
    return Batch(
        tokens,
        answers,
        where,
        graph=graph,
        node_mask=held("node_mask", torch.bool),
        features=held("features", torch.float),
        pairs=held("pairs"),
    )


def open_shown(name: str | Path, rounds: int | None = None) -> Shown:
    """A recording, or any model that `open_model` knows; a recurrent core runs `rounds` times."""
    path = Path(name)
    if path.is_file():
        found = ShownRecord(Record.load(path))
        refuse_rounds(rounds, name)
        return found
    is_file_name = path.is_absolute() or path.suffix == ".safetensors"
    if is_file_name and not path.exists():
        raise CheckpointError(f"There is no such checkpoint or recording: {path}")
    found = open_model(name)
    # A shipped model or one of the Hub has a name of its own, a run its condition and seed.
    named = found.condition != HANDMADE and not path.exists()
    shown = found.given_name if named else found.name
    return LiveModel(found.model, shown, found.task, rounds)
