"""Tasks whose boards are a few arrays in memory: read from a .csv file, or generated and cached."""

import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.text import Text

from graph_machine.config import TaskConfig
from graph_machine.errors import DataError
from graph_machine.tasks.arrays import cached_arrays, identity_of
from graph_machine.tasks.base import SPLITS, Split, Task
from graph_machine.tasks.batch import Batch
from graph_machine.tasks.rows import RowOrder
from graph_machine.tasks.sudoku.splits import Splits, split_rows


class BoardTask(Task):
    """Implement `read`, `generate` and `batch_of`; data, splits and batches follow.

    `open`, `use` and `few` return a task of the subclass.
    `store_class` is a dataclass of arrays, a row each, with `side`, `len` and `take(rows)`. The
    split is 0.9 / 0.05 / 0.05, redrawn for each seed.
    """

    store_class: ClassVar[type]
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
        self.identity = identity_of(self._arrays(store))
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

    def _arrays(self, store: Any) -> dict[str, np.ndarray]:
        return {item.name: getattr(store, item.name) for item in fields(self.store_class)}

    def _generated(self) -> Any:
        names = tuple(item.name for item in fields(self.store_class))
        made = cached_arrays(self.cache_name, names, lambda: self._arrays(self.generate()))
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
