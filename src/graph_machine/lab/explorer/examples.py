"""Examples to choose from or at random, their right answers, and how one is drawn: a board where
the nodes form a grid, else nodes and links."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from graph_machine.errors import DataError
from graph_machine.lab.records.drawing import graph_layout, node_radius
from graph_machine.lab.tasks.base import Task
from graph_machine.lab.tasks.batch import Batch

NUM_EXAMPLES = 12
FEW = 240  # enough for a test split of twelve, soon made
POOL = 1000  # of a data file, to draw from
MAX_TEXT = 16_384  # characters of an example as text
OF_NODES = ("node", "slot", "pointer")  # outputs that are of nodes


@dataclass(frozen=True)
class Example:
    """One example, what it is asked for with, and the words of the list it is chosen from."""

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
        value = float(batch.groups[grouping.group][0]) if grouping.group in batch.groups else None
        if value is None or np.isnan(value):
            continue
        names = [band.label for band in grouping.bands if band.low <= value < band.high]
        is_name = bool(names) and names[0].isalpha()  # the kind of a graph
        title = grouping.title.removesuffix("s") if value == 1 else grouping.title
        words.append(names[0] if is_name else f"{value:.4g} {title}")
    return f"{name}: {', '.join(words)}" if words else name


def read_example(task: Task, text: str, label: str = "", *, strict: bool = False) -> Example:
    """What a task reads from a text, of any size that it takes; `strict` refuses what contradicts
    itself."""
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
    return Example(key_of(fitting, batch, text), label, batch, fitting, known=False)


class Examples:
    """Where examples come from: data, recordings, or the task's own generator."""

    def __init__(
        self, task: Task, *, data: str | None = None, given: Sequence[Example] = ()
    ) -> None:
        self.task = task
        self.random = random.Random()
        self.data = None if data is None else task.held_out(data, None, 0)[0]
        self.listed = list(given) or list(self._first())
        self.by_key: dict[str, Example] = {}
        for example in self.listed:
            self.by_key.setdefault(example.key, example)

    @property
    def can_draw(self) -> bool:
        return self.data is not None or self.task.sample(1, 0) is not None

    def _first(self) -> Iterator[Example]:
        if self.data is not None:
            yield from self._of(self.data.split_batches("test", 1, NUM_EXAMPLES), "data")
            return
        made = self.task.sample(NUM_EXAMPLES, 0)
        if made is not None:
            yield from self._of((made[[row]] for row in range(len(made))), "example")
            return
        opened = self.task.few(FEW).open()
        yield from self._of(opened.split_batches("test", 1, NUM_EXAMPLES), "test example")

    def _of(self, batches: Iterator[Batch], name: str) -> Iterator[Example]:
        for number, batch in enumerate(batches):
            words = f"{name} {number}"
            task = self.task if self.data is None else self.data  # a file may have another size
            label = label_of(task, batch, words)
            yield Example(key_of(task, batch, words), label, batch, task)

    def find(self, text: str) -> Example:
        """One of the list by its key, or what the task reads from a text."""
        if text in self.by_key:
            return self.by_key[text]
        made = read_example(self.task, text)
        return self.by_key.get(made.key) or made

    def draw(self) -> Example:
        """An example of the data at random, or a new one; it can be found by its key then."""
        seed = self.random.randrange(2**31)
        if self.data is not None:
            pool = next(self.data.split_batches("test", POOL, POOL))
            row = seed % len(pool)
            (drawn,) = self._of(iter([pool[[row]]]), f"data {row}, drawn as")
        else:
            made = self.task.sample(1, seed)
            assert made is not None
            (drawn,) = self._of(iter([made]), f"drawn {seed}")
        return self.by_key.setdefault(drawn.key, drawn)


def key_of(task: Task, example: Batch, otherwise: str) -> str:
    """What an example is asked for with: its text, or a name where the task has no text form."""
    try:
        return task.text(example)
    except DataError:
        return otherwise


def layout_of(example: Example) -> dict[str, Any]:
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
            "regions": regions_of(task, batch),
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


def regions_of(task: Task, batch: Batch) -> list[int] | None:
    """The region of every cell, where the board has lines between regions."""
    own = task.example_regions(batch)
    if own:
        return [int(region) for region in next(iter(own.values()))[0]]
    if task.blocks is None or task.spec.grid is None:
        return None
    (rows, cols), (tall, wide) = task.spec.grid, task.blocks
    row, col = np.divmod(np.arange(rows * cols), cols)
    return (row // tall * -(-cols // wide) + col // wide).tolist()


def links_of(example: Example) -> Int[np.ndarray, "e 2"]:
    """The input edges: (from, to). Of those from a node to itself, such that not all nodes have."""
    assert example.batch.graph is not None
    targets = example.batch.graph.expand(1).targets[0, : example.nodes].cpu().numpy()
    source = np.broadcast_to(np.arange(len(targets))[:, None], targets.shape)
    loops = targets == source
    real = (targets >= 0) & ~(loops & (np.cumsum(loops, axis=1) <= loops.sum(axis=1).min()))
    return np.unique(np.stack([source[real], targets[real]], axis=1), axis=0).astype(np.int64)
