"""Tasks whose examples are boards in a few arrays: read from a file, or generated and cached."""

import os
from abc import abstractmethod
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from jaxtyping import Int64, Shaped, UInt64
from rich.text import Text

from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.tasks.base import SPLITS, Split, Task
from graph_machine.lab.tasks.batch import Batch, Batches
from graph_machine.lab.tasks.csv_files import cached_arrays, identity_of
from graph_machine.lab.tasks.rows import Keys, R, RowArrays, RowOrder, Splits, split_rows

B = TypeVar("B", bound="BoardTask")

CHUNK = 65_536  # boards that are looked at together


class BoardTask(Task, Generic[R]):
    """Implement the abstract methods; data, splits and batches follow.

    The split is 0.9 / 0.05 / 0.05, redrawn for each seed.
    """

    count_field: ClassVar[str] = "puzzles"  # of the config: how many boards are generated
    kept: ClassVar[type[RowArrays]]  # what the cache holds of them
    store: R
    splits: Splits
    _order: RowOrder | None = None

    # Files

    @abstractmethod
    def read(self, path: str, limit: int | None = None) -> R:
        """The boards of a file, or the first ones of it, checked."""

    @abstractmethod
    def write(self, path: str | os.PathLike[str], store: R) -> None:
        """A file that `read` reads."""

    @abstractmethod
    def rows_of(self, text: str, size: str | None = None) -> R:
        """One board of any side as `parse` reads it, without its solution; `size` is the box in
        Sudoku, where it is not the usual one."""

    @abstractmethod
    def picture(
        self, store: R, row: int, *, solution: bool = False, marks: bool = True
    ) -> tuple[Text, str | None, str]:
        """A board, drawn; with `solution`, that as text, and a line where it is not the only one.
        `marks` are for drawings without colour."""

    def rate(self, store: R, **how: Any) -> Shaped[np.ndarray, "count"]:
        """How hard each board of a store is, where the task has such a rating."""
        raise DataError(f"The task {self.name} has no rating.")

    def contents(
        self, path: str, *, verify: bool = False
    ) -> tuple[dict[str, Any], dict[str, Shaped[np.ndarray, "count"]]]:
        """Facts about a file, and the groups of all its boards."""
        if verify:
            raise ConfigError(f"--verify is for stores of Sudoku; {self.name} has none.")
        store = self.read(path)
        starts = range(0, len(store), CHUNK)
        parts = [self.batch_of(store.take(slice(at, at + CHUNK))).groups for at in starts]
        groups = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return {"side": store.side, "identity": self.identity_of(store)}, groups

    # Data

    @abstractmethod
    def generate(self) -> R:
        """As many boards as the config says."""

    @property
    @abstractmethod
    def cache_name(self) -> str:
        """The name of a file of generated boards: all that they depend on."""

    def generated(self) -> Any:
        """What `generate` makes, from the cache if it was made before."""
        kinds = {item.name: item.type for item in fields(self.kept)}
        count, cells = getattr(self.config, self.count_field), self.spec.num_nodes

        def fits(arrays: dict[str, np.ndarray]) -> bool:
            """Types as annotated, as many rows and cells as expected."""
            return all(
                isinstance(values, kinds[key])  # pyrefly: ignore[invalid-argument]
                and values.shape in ((count,), (count, cells))
                for key, values in arrays.items()
            )

        make = lambda: self.generate().arrays  # noqa: E731
        return self.kept(**cached_arrays(self.cache_name, tuple(kinds), make, fits))

    @abstractmethod
    def batch_of(self, rows: Any) -> Batch:
        """Rows of the store as tensors."""

    @abstractmethod
    def keys(self, rows: Any) -> Keys:
        """A key per board that training and test must not share; see `seen_in_training`."""

    def split(self, store: R, seed: int) -> Splits:
        return split_rows(len(store), seed)

    def augmented(self, rows: Any, seed: int, step: int, progress: float) -> Any:
        """Training rows of a step, changed as the config says."""
        return rows

    def load(self, data: str) -> R:
        """The store of a file."""
        return self.read(data)

    def size_of(self, store: R) -> tuple[str, Any, Any]:
        """The setting that data must agree with, and its value in the store and in the task."""
        return "side", store.side, self.config.side

    def identity_of(self, store: R) -> str:
        return identity_of(store.arrays)

    @property
    def label(self) -> str:
        return f"{self.name}-{self.config.side}x{self.config.side}"

    def open(self: B, data: str | None = None, seed: int = 0) -> B:
        store = self.generated() if data is None else self.load(data)
        source = "generated" if data is None else str(Path(data).absolute())
        return self.use(store, seed=seed, source=source)

    def use(
        self: B, store: Any, *, seed: int = 0, splits: Splits | None = None, source: str = ""
    ) -> B:
        """Boards of a store, split by `seed` or as given."""
        name, found, expected = self.size_of(store)
        if found != expected:
            raise DataError(
                f"The data has {self.examples_word} of {name} {found}, the task expects "
                f"{expected}; set task.{name}={found}: {source}"
            )
        self.store, self.source, self.identity = store, source, self.identity_of(store)
        self.splits = self.split(store, seed) if splits is None else splits
        self.sizes = {split: len(getattr(self.splits, split)) for split in SPLITS}
        return self

    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        order = self._order
        if order is None or order.seed != seed or order.rows is not self.splits.train:
            order = self._order = RowOrder(self.splits.train, seed)
        rows = self.store.take(order(step, batch_size))
        return self.batch_of(self.augmented(rows, seed, step, progress))

    def split_batches(self, split: Split, batch_size: int, limit: int | None = None) -> Batches:
        rows: np.ndarray = getattr(self.splits, split)[:limit]
        for start in range(0, len(rows), batch_size):
            yield self.batch_of(self.store.take(rows[start : start + batch_size]))

    def few(self: B, count: int) -> B:
        fewer = min(getattr(self.config, self.count_field), count)
        return type(self)(self.config.replace(**{self.count_field: fewer}))

    def of_side(self: B, side: int) -> B:
        """This task, without data, for boards of another side."""
        return self if side == self.config.side else type(self)(self.config.replace(side=side))

    def of_store(self: B, store: Any) -> B:
        """This task, without data, for the boards of a store, where a model can read them: if
        places have no embeddings, they may have another side."""
        return type(self)((self if self.spec.learned_places else self.of_side(store.side)).config)

    def fitting_data(self: B, data: str) -> B:
        return self if self.spec.learned_places else self.of_store(self.load(data))

    def held_out(self, data: str, trained_on: str | None, seed: int) -> tuple[Task, str]:
        """Every board of a file that the model did not learn from; else the file's test split."""
        store, source = self.load(data), str(Path(data).absolute())
        task = self.of_store(store)
        if trained_on == self.identity_of(store):
            words = f"the test split of {data} (the model was trained on the rest)"
            return task.use(store, seed=seed, source=source), words
        return task.use(store, splits=Splits.tests(len(store)), source=source), f"all of {data}"

    def seen_in_training(self, other: Task, limit: int | None) -> int | None:
        if not isinstance(other, type(self)):
            return None
        known = other._keys(other.splits.train)
        return int(np.isin(self._keys(self.splits.test[:limit]), known).sum())

    def _keys(self, rows: Int64[np.ndarray, "r"]) -> UInt64[np.ndarray, "r"]:
        starts = range(0, len(rows), CHUNK)
        parts = [self.keys(self.store.take(rows[at : at + CHUNK])) for at in starts]
        return np.concatenate([*parts, np.zeros(0, dtype=np.uint64)])
