"""Examples to choose from, examples at random, and their right answers."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_machine.errors import DataError
from graph_machine.explorer.pictures import key_of
from graph_machine.tasks.base import Task
from graph_machine.tasks.batch import Batch

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
        return {"puzzle": self.key, "label": self.label}


def label_of(task: Task, batch: Batch, name: str) -> str:
    """`example 3: 24 clues`, from the groups that metrics are told by."""
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
        if len(text) > MAX_TEXT:
            raise DataError(f"A text of {len(text)} characters: expected at most {MAX_TEXT}.")
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
