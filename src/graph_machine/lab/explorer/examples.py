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


@dataclass(frozen=True)
class Example:
    """One example, what it is asked for with, and the words of the list it is chosen from."""

    key: str
    label: str
    batch: Batch  # of one
    known: bool = True  # whether the batch brings the right answers
    task: Task | None = None  # of its size, where that is not the size of all others

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
    return Example(key_of(fitting, batch, text), label, batch, known=False, task=fitting)


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
            yield from self._of((made.rows([row]) for row in range(len(made))), "example")
            return
        opened = self.task.few(FEW).open()
        yield from self._of(opened.split_batches("test", 1, NUM_EXAMPLES), "test example")

    def _of(self, batches: Iterator[Batch], name: str) -> Iterator[Example]:
        for number, batch in enumerate(batches):
            words = f"{name} {number}"
            task = self.task if self.data is None else self.data  # a file may have another size
            label = label_of(task, batch, words)
            yield Example(key_of(task, batch, words), label, batch, task=task)

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
            (drawn,) = self._of(iter([pool.rows([row])]), f"data {row}, drawn as")
        else:
            made = self.task.sample(1, seed)
            assert made is not None
            (drawn,) = self._of(iter([made]), f"drawn {seed}")
        return self.by_key.setdefault(drawn.key, drawn)

    def solution(self, example: Example) -> tuple[np.ndarray | None, list[str]]:
        """The right answers, if they are known or can be found, and remarks on the example."""
        if example.known and not example.batch.answers.is_floating_point():
            return example.batch.answers[0].numpy(), []
        found = (example.task or self.task).solve(example.batch)
        return found.answers, list(found.notes)


def size_of(example: Batch) -> int:
    """Nodes of an example, without padding."""
    if example.node_mask is not None:
        return int(example.node_mask[0].sum())
    given = example.features if example.tokens is None else example.tokens
    assert given is not None
    return given.shape[1]


def key_of(task: Task, example: Batch, otherwise: str) -> str:
    """What an example is asked for with: its text, or a name where the task has no text form."""
    try:
        return task.text(example)
    except DataError:
        return otherwise


def layout_of(task: Task, example: Batch) -> dict[str, Any]:
    """For the page: a board (`rows`, `cols`, `regions`) or nodes (`places`, `links`)."""
    nodes, grid = size_of(example), task.spec.grid
    in_lines = task.spec.graph == "sequence" or (grid is None and example.graph is None)
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
            "regions": regions_of(task, example),
        }
    links = links_of(example)
    places = task.places(example)
    places = graph_layout(nodes, links) if places is None else np.asarray(places)[:nodes]
    return {
        "kind": "nodes",
        "nodes": nodes,
        "places": np.round(places, 4).tolist(),
        "radius": round(node_radius(places), 4),
        "links": links.tolist(),
        **graph_words(task, example, links),
    }


def graph_words(task: Task, example: Batch, links: Int[np.ndarray, "e 2"]) -> dict[str, Any]:
    """What stands beside nodes and links: who stands out, and numbers that they carry."""
    nodes, carried = size_of(example), task.link_values(example)
    values = task.node_values(example)
    return {
        "marked": [node for node in task.marked_nodes(example) if node < nodes],
        "values": None if values is None else values[:nodes],
        "linkValues": None
        if carried is None
        else [carried.get((a, b), "") for a, b in links.tolist()],
    }


def regions_of(task: Task, example: Batch) -> list[int] | None:
    """The region of every cell, where the board has lines between regions."""
    own = task.example_regions(example)
    if own:
        return [int(region) for region in next(iter(own.values()))[0]]
    if task.blocks is None or task.spec.grid is None:
        return None
    (rows, cols), (tall, wide) = task.spec.grid, task.blocks
    row, col = np.divmod(np.arange(rows * cols), cols)
    return (row // tall * -(-cols // wide) + col // wide).tolist()


def links_of(example: Batch) -> Int[np.ndarray, "e 2"]:
    """The input edges: (from, to). Of those from a node to itself, such that not all nodes have."""
    assert example.graph is not None
    targets = example.graph.expand(1).targets[0, : size_of(example)].cpu().numpy()
    source = np.broadcast_to(np.arange(len(targets))[:, None], targets.shape)
    loops = targets == source
    real = (targets >= 0) & ~(loops & (np.cumsum(loops, axis=1) <= loops.sum(axis=1).min()))
    return np.unique(np.stack([source[real], targets[real]], axis=1), axis=0).astype(np.int64)


def answer_names(
    task: Task, example: Batch, answers: Shaped[np.ndarray, "q *o"]
) -> list[str] | None:
    """An answer of every node, in a word; None where answers are not of nodes."""
    nodes, spec = size_of(example), task.spec
    if spec.output not in ("node", "slot", "pointer"):
        return None
    if spec.output_kind == "numbers":
        return [" ".join(f"{x:.3g}" for x in np.atleast_1d(a)) for a in answers[:nodes]]
    found = [int(answer) for answer in answers[:nodes]]
    if spec.output == "pointer":
        return [f"→{answer}" for answer in found]
    if spec.output == "slot" and example.graph is not None:
        targets = example.graph.expand(1).targets[0]
        return [f"→{int(targets[node, slot])}" for node, slot in enumerate(found)]
    return task.answer_words(found)


def start_of(task: Task, example: Batch) -> int:
    """The source to begin with: a node that is asked, nearest to the middle of a board."""
    where, grid = np.flatnonzero(asked(task, example)), task.spec.grid
    if not where.size:
        return 0
    if task.spec.graph == "sequence" or grid is None:
        return int(where[0 if example.graph is not None else len(where) // 2])
    row, col = np.divmod(where, grid[1])
    return int(where[np.hypot(row - grid[0] // 2, col - grid[1] // 2).argmin()])


def asked(task: Task, example: Batch) -> list[bool]:
    """Which nodes have an answer that counts."""
    nodes = size_of(example)
    if task.spec.output not in ("node", "slot", "pointer"):
        return [False] * nodes
    return example.where[0, :nodes].tolist()
