"""Examples to choose from or at random, their right answers, and how one is drawn: a board where
the nodes form a grid, else nodes and links."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Shaped

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import CheckpointError, ConfigError, DataError, count_of
from graph_machine.graphs import InputGraph
from graph_machine.lab.config import TaskConfig
from graph_machine.lab.explorer.forward import COLLECTED, RECORDED, Forward, forward_of
from graph_machine.lab.opening import HANDMADE, open_model
from graph_machine.lab.records.drawing import graph_layout, node_radius
from graph_machine.lab.records.record import Record, refuse_rounds
from graph_machine.lab.records.recorder import give_back, record
from graph_machine.lab.tasks.base import Split, Task, task_of
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.generated import GeneratedTask
from graph_machine.models import GraphMachine

NUM_EXAMPLES = 12
FEW = 240  # enough for a test split of twelve, soon made
POOL = 1000  # of a data file, to draw from
MAX_TEXT = 16_384  # characters of an example as text
OF_NODES = ("node", "slot", "pointer")  # outputs that are of nodes


@dataclass(frozen=True)
class PageExample:
    """One example, the key that requests it, and its label in the list of examples."""

    key: str
    label: str
    batch: Batch  # of one
    task: Task  # of its size
    known: bool = True  # whether the batch brings the right answers

    @property
    def nodes(self) -> int:
        """Its nodes, without padding."""
        mask = self.batch.node_mask
        return self.batch.num_nodes if mask is None else int(mask[0].sum())

    @property
    def asked(self) -> list[bool]:
        """Which nodes have an answer that counts."""
        if self.task.spec.output not in OF_NODES:
            return [False] * self.nodes
        return self.batch.where[0, : self.nodes].tolist()

    @property
    def start(self) -> int:
        """The source to begin with: a node that is asked, nearest to the middle of a board."""
        where, spec = np.flatnonzero(self.asked), self.task.spec
        if not where.size:
            return 0
        if spec.graph == "sequence" or spec.grid is None:
            return int(where[0 if self.batch.graph is not None else len(where) // 2])
        (rows, cols), (row, col) = spec.grid, np.divmod(where, spec.grid[1])
        return int(where[np.hypot(row - rows // 2, col - cols // 2).argmin()])

    def solution(self) -> tuple[np.ndarray | None, list[str]]:
        """The right answers, if they are known or can be found, and remarks on the example."""
        if self.known and not self.batch.answers.is_floating_point():
            return self.batch.answers[0].numpy(), []
        found = self.task.solve(self.batch)
        return found.answers, list(found.notes)

    def wrong(self, answers: np.ndarray, solution: np.ndarray | None) -> list[int] | None:
        """Nodes with a wrong answer, or, without a solution, those that break the task's rules."""
        if solution is None:
            return self.task.broken(self.batch, answers)
        return np.flatnonzero(self.asked & (answers != solution)[: self.nodes]).tolist()

    def words(self, answers: Shaped[np.ndarray, "q *o"]) -> list[str] | None:
        """An answer of every node, in a word; None where answers are not of nodes."""
        spec = self.task.spec
        if spec.output not in OF_NODES:
            return None
        if spec.output_kind == "numbers":
            return [" ".join(f"{x:.3g}" for x in np.atleast_1d(a)) for a in answers[: self.nodes]]
        found = [int(answer) for answer in answers[: self.nodes]]
        if spec.output == "slot" and self.batch.graph is not None:
            targets = self.batch.graph.expand(1).targets[0]
            found = [int(targets[node, slot]) for node, slot in enumerate(found)]
        if spec.output == "node" or (spec.output == "slot" and self.batch.graph is None):
            return self.task.answer_words(found)
        return [f"→{answer}" for answer in found]

    def to_json(self) -> dict[str, Any]:
        return {"example": self.key, "label": self.label}


def label_of(task: Task, batch: Batch, name: str) -> str:
    """`example 3: 24 clues`, from the groups that metrics are reported by."""
    words = []
    for grouping in task.groupings:
        values = batch.groups.get(grouping.group)
        if values is not None and not np.isnan(value := float(values[0])):
            names = [band.label for band in grouping.bands if band.low <= value < band.high]
            is_name = bool(names) and names[0].isalpha()  # the kind of a graph
            title = grouping.title.removesuffix("s") if value == 1 else grouping.title
            words.append(names[0] if is_name else f"{value:.4g} {title}")
    return f"{name}: {', '.join(words)}" if words else name


def read_example(task: Task, text: str, label: str = "", *, strict: bool = False) -> PageExample:
    """The example in a text, of any size that the task takes; `strict` rejects contradictions."""
    if len(text) > MAX_TEXT:
        raise DataError(f"A text of {len(text)} characters: expected at most {MAX_TEXT}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"The text has no place in UTF-8: it holds half of a surrogate pair at character "
            f"{error.start}."
        ) from None
    fitting = task.fitting(text)
    batch = fitting.parse(text) if strict else fitting.parse_any(text)
    return PageExample(key_of(fitting, batch, text), label, batch, fitting, known=False)


class Examples:
    """Where examples come from: data, recordings, or the task's own generator."""

    def __init__(
        self, task: Task, *, data: str | None = None, given: Sequence[PageExample] = ()
    ) -> None:
        self.task = task
        self.random = random.Random()
        self.data = None if data is None else task.held_out(data, None, 0)[0]
        self.listed = list(given) or list(self._first())
        self.by_key: dict[str, PageExample] = {}
        for example in self.listed:
            self.by_key.setdefault(example.key, example)

    @property
    def can_draw(self) -> bool:
        return self.data is not None or self.task.sample(1, 0) is not None

    def _first(self) -> Iterator[PageExample]:
        if self.data is not None:
            return self._of(self.data.split_batches("test", 1, NUM_EXAMPLES), "data")
        made = self.task.sample(NUM_EXAMPLES, 0)
        if made is not None:
            return self._of((made[[row]] for row in range(len(made))), "example")
        opened = self.task.few(FEW).open()
        return self._of(opened.split_batches("test", 1, NUM_EXAMPLES), "test example")

    def _of(self, batches: Iterable[Batch], name: str) -> Iterator[PageExample]:
        task = self.task if self.data is None else self.data  # a file may have another size
        for number, batch in enumerate(batches):
            words = f"{name} {number}"
            yield PageExample(key_of(task, batch, words), label_of(task, batch, words), batch, task)

    def find(self, text: str) -> PageExample:
        """An example of the list by its key, or the one in a text."""
        if text in self.by_key:
            return self.by_key[text]
        made = read_example(self.task, text)
        return self.by_key.get(made.key) or made

    def draw(self) -> PageExample:
        """An example of the data at random, or a new one; it can be found by its key then."""
        seed = self.random.randrange(2**31)
        if self.data is not None:
            pool = next(self.data.split_batches("test", POOL, POOL))
            row = seed % len(pool)
            made, words = pool[[row]], f"data {row}, drawn as"
        else:
            made, words = self.task.sample(1, seed), f"drawn {seed}"
            assert made is not None
        (drawn,) = self._of([made], words)
        return self.by_key.setdefault(drawn.key, drawn)


def key_of(task: Task, example: Batch, otherwise: str) -> str:
    """The key that requests an example: its text, or a name if the task has no text form."""
    try:
        return task.text(example)
    except DataError:
        return otherwise


def page_layout(example: PageExample) -> dict[str, Any]:
    """For the page: a board (`rows`, `cols`, `regions`) or nodes (`places`, `links`), with who
    stands out, and numbers that nodes and links carry."""
    task, batch, nodes = example.task, example.batch, example.nodes
    grid = task.spec.grid
    in_lines = task.spec.graph == "sequence" or (grid is None and batch.graph is None)
    if in_lines:  # whatever grid the model has: one row of all would be a strip
        # Nearly square, and pairs are not torn apart.
        cols = min(nodes, 4 * int(np.ceil(np.sqrt(nodes) / 4)))
        grid = (-(-nodes // cols), cols)
    if grid is not None:
        return {
            "kind": "board",
            "isSequence": in_lines,
            "rows": grid[0],
            "cols": grid[1],
            "nodes": nodes,
            "regions": board_regions(task, batch),
        }
    links = links_of(example)
    places, values, carried = task.places(batch), task.node_values(batch), task.link_values(batch)
    places = graph_layout(nodes, links) if places is None else np.asarray(places)[:nodes]
    return {
        "kind": "nodes",
        "nodes": nodes,
        "places": np.round(places, 4).tolist(),
        "radius": round(node_radius(places), 4),
        "links": links.tolist(),
        "marked": [node for node in task.marked_nodes(batch) if node < nodes],
        "values": None if values is None else values[:nodes],
        "linkValues": carried and [carried.get((a, b), "") for a, b in links.tolist()],
    }


def board_regions(task: Task, batch: Batch) -> list[int] | None:
    """The region of every cell, where the board has lines between regions."""
    own = task.example_regions(batch)
    if own:
        return [int(region) for region in next(iter(own.values()))[0]]
    if task.blocks is None or task.spec.grid is None:
        return None
    (rows, cols), (tall, wide) = task.spec.grid, task.blocks
    row, col = np.divmod(np.arange(rows * cols), cols)
    return (row // tall * -(-cols // wide) + col // wide).tolist()


def links_of(example: PageExample) -> Int[np.ndarray, "e 2"]:
    """The input edges: (from, to). Of those from a node to itself, such that not all nodes have."""
    assert example.batch.graph is not None
    targets = example.batch.graph.expand(1).targets[0, : example.nodes].cpu().numpy()
    source = np.broadcast_to(np.arange(len(targets))[:, None], targets.shape)
    loops = targets == source
    real = (targets >= 0) & ~(loops & (np.cumsum(loops, axis=1) <= loops.sum(axis=1).min()))
    return np.unique(np.stack([source[real], targets[real]], axis=1), axis=0).astype(np.int64)


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
        self.model, self.rounds = model.eval(), rounds
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

    def forward(self, example: PageExample, *, node: int = 0, room: int = ROOM) -> Forward:
        """The quantities of an example.

        Where all of them take more than `room` bytes, those of the nodes in one block with `node`
        are kept, and addresses of all nodes if they fit.
        """
        model, nodes = self.fitted(example.task.spec), example.batch.num_nodes
        rounds = model.check_rounds(self.rounds)
        seen = seen_slots(model, example.batch)
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


def seen_slots(model: GraphMachine, batch: Batch) -> int:
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
        self.examples: list[PageExample] = []
        self.rows: dict[str, int] = {}
        for row, number in enumerate(recorded.samples):
            batch, words = batch_of(recorded, row, self.task), f"sample {number}"
            key = key_of(self.task, batch, words)
            if key not in self.rows:
                known = recorded.solutions is not None
                self.examples.append(PageExample(key, words, batch, self.task, known))
            self.rows.setdefault(key, row)

    def forward(self, example: PageExample, *, node: int = 0, room: int = ROOM) -> Forward:
        """The recorded quantities of an example."""
        del node, room
        if example.key not in self.rows:
            raise DataError(
                f"This example is not in the recording of {self.name}; it holds {len(self.rows)}."
            )
        return forward_of(self.record, self.rows[example.key])


Shown = LiveModel | ShownRecord


def _spec_of(recorded: Record) -> InputSpec:
    """The spec of a recorded model; of your own module, what its tensors show."""
    if recorded.spec:
        return InputSpec.from_dict(recorded.spec)
    most = 1 if recorded.tokens is None else int(recorded.tokens.max(initial=0)) + 1
    sizes = {"num_nodes": recorded.nodes, "grid": recorded.grid}
    return InputSpec(num_tokens=max(2, most), num_outputs=max(1, most - 1), **sizes)


def known_task(spec: InputSpec, config: Any) -> Task:
    """The task that a recording names; otherwise one that follows from the spec."""
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
    more = {"node_mask": held("node_mask", torch.bool), "features": held("features", torch.float)}
    return Batch(tokens, answers, where, graph=graph, pairs=held("pairs"), **more)


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
