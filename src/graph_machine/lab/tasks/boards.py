"""Tasks whose boards are a few arrays in memory: read from a .csv file, or generated and cached."""

import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer, UInt8
from rich.text import Text
from torch import Tensor

from graph_machine.errors import DataError, MissingExtraError
from graph_machine.lab.config import TaskConfig
from graph_machine.lab.tasks.answers import NOT_COMPARED, Solution
from graph_machine.lab.tasks.base import SPLITS, Baseline, Split, Task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.csv_files import cached_arrays, identity_of
from graph_machine.lab.tasks.digits import FilledBoard, Solved, conflicts
from graph_machine.lab.tasks.rows import RowArrays, RowOrder, Splits, split_rows
from graph_machine.lab.tasks.scores import Metric


class BoardTask(Task):
    """Implement `read`, `generate` and `batch_of`; data, splits and batches follow.

    `open`, `use` and `few` return a task of the subclass.
    The split is 0.9 / 0.05 / 0.05, redrawn for each seed.
    """

    store_class: ClassVar[type[RowArrays]]
    count_field: ClassVar[str]  # of the config: how many boards are generated
    store: Any
    splits: Splits

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        self._order: RowOrder | None = None

    @abstractmethod
    def read(self, path: str) -> Any:
        """The boards of a file, checked."""

    @abstractmethod
    def write(self, path: str | os.PathLike[str], store: Any) -> None:
        """A file that `read` reads."""

    @classmethod
    @abstractmethod
    def picture(cls, text: str, *, solve: bool = False) -> tuple[Text, str | None, str]:
        """One board of any side as `parse` reads it, drawn; with `solve`, its solution as text,
        and a line where it is not the only one."""

    @abstractmethod
    def generate(self) -> Any:
        """As many boards as the config says."""

    @property
    @abstractmethod
    def cache_name(self) -> str:
        """Names what `generate` gives."""

    @abstractmethod
    def batch_of(self, rows: Any) -> Batch:
        """Rows of the store as tensors."""

    def rate(self, store: Any, *, attempts: int, seed: int) -> np.ndarray:
        """How hard each board of a store is, where the task has such a rating."""
        del store, attempts, seed
        raise DataError(f"The task {self.name} has no rating.")

    def store_of(self, text: str) -> Any:
        """One board as `parse` reads it, of any side, with its solution; for `rate`."""
        del text
        raise DataError(f"The task {self.name} has no rating.")

    def split(self, store: Any, seed: int) -> Splits:
        return split_rows(len(store), seed)

    def augmented(self, rows: Any, seed: int, step: int) -> Any:
        """Training rows of a step, changed as the config says."""
        del seed, step
        return rows

    @property
    def label(self) -> str:
        return f"{self.name}-{self.config.side}x{self.config.side}"

    def open(self, data: str | None = None, seed: int = 0) -> Any:
        store = self._generated() if data is None else self.read(data)
        source = "generated" if data is None else str(Path(data).absolute())
        return self.use(store, seed=seed, source=source)

    def use(
        self, store: Any, *, seed: int = 0, splits: Splits | None = None, source: str = ""
    ) -> Any:
        """Boards in memory, split by `seed` or as given."""
        if store.side != self.config.side:
            raise DataError(
                f"The data has {self.examples_word} of side {store.side}, the task expects "
                f"{self.config.side}; set task.side={store.side}: {source}"
            )
        self.store, self.source = store, source
        self.identity = identity_of(store.arrays())
        self.splits = self.split(store, seed) if splits is None else splits
        self.sizes = {split: len(getattr(self.splits, split)) for split in SPLITS}
        self._order = None
        return self

    def whole(self, data: str) -> Any:
        """Every board of a file, whatever their side, as the test split: few need not be split."""
        store = self.read(data)
        rows = np.arange(len(store))
        task = type(self)(self.config.replace(side=store.side))
        return task.use(store, splits=Splits(rows[:0], rows[:0], rows), source=data)

    def _generated(self) -> Any:
        kinds = {item.name: item.type for item in fields(self.store_class)}
        count, cells = getattr(self.config, self.count_field), self.config.side**2

        def fits(arrays: dict[str, np.ndarray]) -> bool:
            """Types as annotated, as many rows and cells as the config says."""
            return all(
                isinstance(values, kinds[name])  # pyrefly: ignore[invalid-argument]
                and values.shape in ((count,), (count, cells))
                for name, values in arrays.items()
            )

        made = cached_arrays(self.cache_name, tuple(kinds), lambda: self.generate().arrays(), fits)
        return self.store_class(**made)

    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        if self._order is None or self._order.seed != seed:
            self._order = RowOrder(self.splits.train, seed)
        rows = self.store.take(self._order(step, batch_size))
        return self.batch_of(self.augmented(rows, seed, step))

    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        rows: np.ndarray = getattr(self.splits, split)[:limit]
        for start in range(0, len(rows), batch_size):
            yield self.batch_of(self.store.take(rows[start : start + batch_size]))

    def few(self, count: int) -> Any:
        fewer = min(getattr(self.config, self.count_field), count)
        return type(self)(self.config.replace(**{self.count_field: fewer}))

    def fitting_data(self, data: str) -> Any:
        """Where places have no embeddings, boards of a file may have another side."""
        if self.spec.learned_places:
            return self
        return self.of_side(self.read(data).side)

    def of_side(self, side: int) -> Any:
        """This task, without data, for boards of another side."""
        return self if side == self.config.side else type(self)(self.config.replace(side=side))

    def held_out(self, data: str, trained_on: str | None, seed: int) -> tuple[Task, str]:
        """Every board of a file that the model did not learn from; else the file's test split.

        Where places have no embeddings, boards of the file may have another side.
        """
        store = self.read(data)
        fitting = self if self.spec.learned_places else self.of_side(store.side)
        task = type(self)(fitting.config)
        task.use(store, seed=seed, source=str(Path(data).absolute()))
        if trained_on == task.identity:
            return task, f"the test split of {data} (the model was trained on the rest)"
        rows = np.arange(len(task.store))
        return task.use(task.store, splits=Splits(rows[:0], rows[:0], rows)), f"all of {data}"


class DigitTask(Task):
    """Puzzles of digits in rows, columns and regions: blanks are filled in, a solver knows how."""

    examples_word = "puzzles"
    contents_word = "digits"
    quick_side: ClassVar[int]  # larger boards take too long to solve or make while a user waits
    made_words: ClassVar[tuple[str, str]]  # what is generated, and how clues are put back
    augment_words: ClassVar[dict[str, str]]
    store: Any

    @abstractmethod
    def puzzles(self, batch: Batch) -> UInt8[np.ndarray, "b n"]:
        """Cells, 0 at blanks."""

    @abstractmethod
    def solved(self, batch: Batch, limit: int = 2) -> Solved:
        """What an exact solver finds, counting solutions up to `limit`."""

    @abstractmethod
    def singles(self, batch: Batch) -> UInt8[np.ndarray, "b n"]:
        """What naked and hidden singles fill in; 0 elsewhere."""

    @abstractmethod
    def board(
        self,
        example: Batch,
        digits: Integer[np.ndarray, "n"],
        confidences: Float[np.ndarray, "n"],
        found: Solved | None = None,
    ) -> FilledBoard:
        """The first puzzle, its blanks filled with `digits`."""

    @abstractmethod
    def few_puzzles(self, count: int, seed: int) -> Batch:
        """Puzzles like those that are trained on, but not rated."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("board_accuracy", "boards", "example_right"),
            Metric("cell_accuracy", "cells", "nodes_right", "nodes"),
        )

    @property
    def data_words(self) -> str:
        size, extra = f"{len(self.store):,}", self.config.clues_extra
        text = f"{size} puzzles of {Path(self.source).name}"
        if self.source == "generated":
            made, back = self.made_words
            kind = f" with {back} {extra} clues put back" if extra else ""
            text = f"{size} generated {made}{kind}"
        return f"{text}, 90% of them for training{self.augment_words[self.config.augment]}"

    def baselines(self) -> dict[str, Baseline]:
        """The symbolic reference rows of every report.

        A blank that singles do not settle counts as wrong: 0 is not a digit.
        """

        def answers(digits: UInt8[np.ndarray, "b n"]) -> Tensor:
            return torch.from_numpy(digits).long() - 1

        return {
            "singles only": lambda batch: answers(self.singles(batch)),
            "exact solver": lambda batch: answers(self.solved(batch, limit=1).solutions),
        }

    def show(
        self,
        example: Batch,
        answers: Int[np.ndarray, "n"],
        confidences: Float[np.ndarray, "n"],
        *,
        check: bool = False,
    ) -> FilledBoard:
        found = self.solved(example.part(0, 1)) if check else None
        return self.board(example, answers + 1, confidences, found)

    def sample(self, count: int, seed: int) -> Batch | None:
        try:
            return self.few_puzzles(count, seed) if self._is_quick else None
        except MissingExtraError:
            return None

    def solve(self, example: Batch) -> Solution:
        puzzle = self.puzzles(example)[0]
        if self._broken(example, puzzle).any():
            return Solution(notes=("The givens contradict each other.",))
        if not self._is_quick:
            return Solution()
        try:
            return Solution.of_solver(self.solved(example.part(0, 1)))
        except MissingExtraError:
            return Solution(notes=(NOT_COMPARED,))

    def broken(self, example: Batch, answers: Int[np.ndarray, "n"]) -> list[int]:
        blank = self.puzzles(example)[0] == 0
        return np.flatnonzero(self._broken(example, answers + 1) & blank).tolist()

    @property
    def _is_quick(self) -> bool:
        return self.spec.num_outputs <= self.quick_side

    def _broken(self, example: Batch, digits: Integer[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
        """Cells in conflict, with the blanks filled with `digits`."""
        board = self.board(example, digits, np.ones(len(digits)))
        return conflicts(board.filled, board.units)
