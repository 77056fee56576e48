"""Sudoku as a task: a token per cell (0 is a blank), the missing digits as answers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from graph_machine.config import InputSpec, SudokuConfig, TaskConfig
from graph_machine.errors import DataError
from graph_machine.tasks.base import Band, Batch, Split, Task
from graph_machine.tasks.sudoku import batches
from graph_machine.tasks.sudoku.augment import Augment
from graph_machine.tasks.sudoku.board import SYMBOLS, BoxShape
from graph_machine.tasks.sudoku.cache import generated_data
from graph_machine.tasks.sudoku.curriculum import curriculum_key, most_clues, put_back
from graph_machine.tasks.sudoku.metrics import BANDS
from graph_machine.tasks.sudoku.splits import Splits, split_rows
from graph_machine.tasks.sudoku.store import SudokuStore, open_data

RATING_BANDS = tuple(
    Band(label, low, high)
    for label, low, high in zip(BANDS, [0.0, *BANDS.values()], BANDS.values(), strict=False)
)


def sudoku_batch(rows: batches.Batch) -> Batch:
    """Rows of a store as tensors; ratings and clue counts go along as groups."""
    puzzles = torch.from_numpy(rows.puzzles).long()
    return Batch(
        tokens=puzzles,
        answers=torch.from_numpy(rows.solutions).long() - 1,
        where=puzzles == 0,
        groups={"rating": rows.ratings, "clues": rows.clues},
    )


class SudokuTask(Task):
    """Puzzles from a file, a store, or generated for the config's box shape and cached.

    The split (0.9 / 0.05 / 0.05) is redrawn for each seed, training rows are reshuffled for each
    epoch; both as the paper does.
    """

    name = "sudoku"
    band_group = "rating"
    bands = RATING_BANDS
    store: SudokuStore

    def __init__(
        self,
        config: TaskConfig,
        *,
        data: str | None = None,
        seed: int = 0,
        store: SudokuStore | None = None,
        splits: Splits | None = None,
    ) -> None:
        assert isinstance(config, SudokuConfig)
        self.config = config
        self.spec = self.spec_for(config)
        self.box = BoxShape.parse(config.box)
        everything = config.augment == "all"
        self.augment = (
            None
            if config.augment == "none"
            else Augment(self.box, lines=everything, transpose=everything)
        )
        if store is None:
            store = generated_data(config) if data is None else open_data(data)
        if store.box != self.box:
            raise DataError(
                f"The data has boards of {store.box.side}x{store.box.side} (box {store.box}), the "
                f"task expects box {config.box}; set task.box={store.box}: {data}"
            )
        self.store = store
        self.identity = store.identity
        self.source = "generated" if data is None else str(Path(data).absolute())
        self.splits = split_rows(len(store), seed) if splits is None else splits
        self.sizes = {name: len(getattr(self.splits, name)) for name in ("train", "eval", "test")}
        self._stream: batches.BatchStream | None = None

    @classmethod
    def of_rows(cls, store: SudokuStore, rows: np.ndarray | None = None) -> "SudokuTask":
        """Some rows of a store (by default all) as a test split, with nothing to train on."""
        rows = np.arange(len(store)) if rows is None else rows
        splits = Splits(rows[:0], rows[:0], rows)
        return cls(SudokuConfig(box=str(store.box)), store=store, splits=splits)

    @classmethod
    def spec_for(cls, config: TaskConfig) -> InputSpec:
        assert isinstance(config, SudokuConfig)
        side = BoxShape.parse(config.box).side
        return InputSpec(
            num_tokens=side + 1,
            num_outputs=side,
            num_nodes=side * side,
            grid=(side, side),
            alphabet=SYMBOLS[: side + 1],
            answers=SYMBOLS[1 : side + 1],
        )

    @classmethod
    def label_for(cls, config: TaskConfig) -> str:
        assert isinstance(config, SudokuConfig)
        side = BoxShape.parse(config.box).side
        return f"{side}x{side}"

    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        stream = self._stream
        if stream is None or (stream.batch_size, stream.seed) != (batch_size, seed):
            stream = batches.BatchStream(
                self.store, self.splits.train, batch_size, seed, augment=self.augment
            )
            self._stream = stream
        rows = stream.fetch(step)
        most = self.clues_put_back(progress)
        if most:
            key = curriculum_key(seed, step)
            rows = rows._replace(puzzles=put_back(rows.puzzles, rows.solutions, most, key))
        return sudoku_batch(rows)

    def clues_put_back(self, progress: float) -> int:
        """Most clues put back into a training puzzle when that share of the training is done."""
        assert isinstance(self.config, SudokuConfig)
        return most_clues(self.config.clues_start, self.config.clues_ramp, progress)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        rows: np.ndarray = getattr(self.splits, split)
        for part in batches.sequential_batches(self.store, rows[:limit], batch_size):
            yield sudoku_batch(part)
