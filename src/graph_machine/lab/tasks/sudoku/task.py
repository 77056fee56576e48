"""Sudoku as a task: a token per cell (0 is a blank), the missing digits as answers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Integer

from graph_machine.config import InputSpec
from graph_machine.errors import DataError
from graph_machine.graphs import GRID_CATEGORIES
from graph_machine.lab.config import SudokuConfig, TaskConfig
from graph_machine.lab.tasks.base import Split, Task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.boards import DigitTask
from graph_machine.lab.tasks.digits import SYMBOLS, Solved, of_digits
from graph_machine.lab.tasks.disguise import Disguise
from graph_machine.lab.tasks.rows import Splits, split_rows, stream_key
from graph_machine.lab.tasks.scores import Grouping
from graph_machine.lab.tasks.sudoku.augment import (
    Augment,
    curriculum_key,
    most_clues,
    put_back,
    seen_in,
)
from graph_machine.lab.tasks.sudoku.batches import BatchStream
from graph_machine.lab.tasks.sudoku.board import BoardAnswer, BoxShape, contradiction, parse_board
from graph_machine.lab.tasks.sudoku.generate import generate, generated_data
from graph_machine.lab.tasks.sudoku.reader import BACKTRACKS, Rows, find_layout
from graph_machine.lab.tasks.sudoku.solve import (
    BACKTRACK_BANDS,
    DATASET_SHARES,
    RATING_BANDS,
    solve,
    solve_singles,
)
from graph_machine.lab.tasks.sudoku.store import SudokuStore, open_data


def sudoku_batch(rows: Rows) -> Batch:
    """Rows of a store as tensors; ratings and clue counts go along as groups."""
    puzzles = torch.from_numpy(rows.puzzles).long()
    return Batch(
        tokens=puzzles,
        answers=torch.from_numpy(rows.solutions).long() - 1,
        where=puzzles == 0,
        groups={"rating": rows.ratings, "clues": rows.clues},
    )


class SudokuTask(DigitTask):
    """Puzzles from a file, a store, or generated for the config's box shape and cached.

    The split (0.9 / 0.05 / 0.05) is redrawn for each seed, training rows are reshuffled for each
    epoch; both as the paper does.
    """

    name = "sudoku"
    text_hint = ". or 0 is a blank"
    quick_side = 10
    made_words = ("minimal puzzles", "up to")
    augment_words = {  # noqa: RUF012
        "none": "",
        "relabel": ", digits relabelled",
        "all": ", digits relabelled, lines moved",
    }
    groupings = (
        Grouping("rating", "rating", RATING_BANDS, DATASET_SHARES, "Sudoku-3M"),
        Grouping("clues", "clues"),
    )
    store: SudokuStore
    splits: Splits

    def __init__(self, config: TaskConfig) -> None:
        assert isinstance(config, SudokuConfig)
        super().__init__(config)
        self.box = BoxShape.parse(config.box)
        everything = config.augment == "all"
        self.augment = (
            None
            if config.augment == "none"
            else Augment(self.box, lines=everything, transpose=everything)
        )
        self._stream: BatchStream | None = None

    def make_spec(self) -> InputSpec:
        side = self.box.side
        return InputSpec(
            num_tokens=side + 1,
            num_outputs=side,
            num_nodes=side * side,
            grid=(side, side),
            graph="grid",
            num_edge_categories=len(GRID_CATEGORIES),
            alphabet=SYMBOLS[: side + 1],
            answers=SYMBOLS[1 : side + 1],
        )

    @property
    def label(self) -> str:
        return f"{self.box.side}x{self.box.side}"

    def open(self, data: str | None = None, seed: int = 0) -> "SudokuTask":
        store = generated_data(self.config) if data is None else open_data(data)
        source = "generated" if data is None else str(Path(data).absolute())
        return self.use(store, seed=seed, source=source)

    def use(
        self, store: SudokuStore, *, seed: int = 0, splits: Splits | None = None, source: str = ""
    ) -> "SudokuTask":
        """Puzzles of an opened store, split by `seed` or as given."""
        if store.box != self.box:
            raise DataError(
                f"The data has boards of {store.box.side}x{store.box.side} (box {store.box}), the "
                f"task expects box {self.box}; set task.box={store.box}: {source or store.path}"
            )
        self.store, self.identity, self.source = store, store.identity, source
        if store.meta.get("rating_scale") == BACKTRACKS:
            rating = Grouping("rating", "backtracks", BACKTRACK_BANDS)
            self.groupings = (rating, *SudokuTask.groupings[1:])
        self.splits = split_rows(len(store), seed) if splits is None else splits
        self.sizes = {name: len(getattr(self.splits, name)) for name in ("train", "eval", "test")}
        return self

    @classmethod
    def of_rows(cls, store: SudokuStore, rows: np.ndarray | None = None) -> "SudokuTask":
        """Some rows of a store (by default all) as a test split, with nothing to train on."""
        rows = np.arange(len(store)) if rows is None else rows
        splits = Splits(rows[:0], rows[:0], rows)
        return cls(SudokuConfig(box=str(store.box))).use(store, splits=splits)

    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        stream = self._stream
        if stream is None or (stream.batch_size, stream.seed) != (batch_size, seed):
            stream = BatchStream(
                self.store, self.splits.train, batch_size, seed, augment=self.augment
            )
            self._stream = stream
        rows = stream.fetch(step)
        most = self.clues_put_back(progress)
        if most:
            key = curriculum_key(seed, step)
            rows = replace(rows, puzzles=put_back(rows.puzzles, rows.solutions, most, key))
        return sudoku_batch(rows)

    def clues_put_back(self, progress: float) -> int:
        """Most clues put back into a training puzzle when that share of the training is done."""
        config = self.config
        return most_clues(config.clues_start, config.clues_end, config.clues_ramp, progress)

    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        rows: np.ndarray = getattr(self.splits, split)[:limit]
        for start in range(0, len(rows), batch_size):
            yield sudoku_batch(self.store.take(rows[start : start + batch_size]))

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def few(self, count: int) -> "SudokuTask":
        return SudokuTask(self.config.replace(puzzles=min(self.config.puzzles, count)))

    def held_out(self, data: str, trained_on: str | None, seed: int) -> tuple[Task, str]:
        """Every puzzle of a file that the model did not learn from; else the file's test split."""
        store = open_data(data)
        if store.box.cells != self.box.cells:
            raise DataError(
                f"The model reads boards of {self.box.cells} cells, the data has "
                f"{store.box.cells} (box {store.box}): {data}"
            )
        if trained_on == store.identity:
            task = SudokuTask(SudokuConfig(box=str(store.box)))
            words = f"the test split of {data} (the model was trained on the rest)"
            return task.use(store, seed=seed), words
        return SudokuTask.of_rows(store), f"all of {data}"

    def seen_in_training(self, other: Task, limit: int | None) -> int | None:
        if not isinstance(other, SudokuTask):
            return None
        rows = self.splits.test[:limit]
        return int(seen_in(self.store, rows, other.store, other.splits.train).sum())

    def puzzles(self, batch: Batch) -> np.ndarray:
        assert batch.tokens is not None
        return batch.tokens.cpu().numpy().astype(np.uint8)

    def solved(self, batch: Batch, limit: int = 2) -> Solved:
        return solve(self.puzzles(batch), self.box, limit)

    def singles(self, batch: Batch) -> np.ndarray:
        return solve_singles(self.puzzles(batch), self.box)

    def board(
        self,
        example: Batch,
        digits: Integer[np.ndarray, "n"],
        confidences: Float[np.ndarray, "n"],
        found: Solved | None = None,
    ) -> BoardAnswer:
        return BoardAnswer.of(self.puzzles(example)[0], digits, confidences, found, box=self.box)

    def few_puzzles(self, count: int, seed: int) -> Batch:
        extra = self.config.clues_extra
        return sudoku_batch(
            generate(self.box, count, seed, extra=extra, rated=False).take(np.arange(count))
        )

    def parse(self, text: str) -> Batch:
        example = self.parse_any(text)
        if (clash := contradiction(self.puzzles(example)[0], self.box)) is not None:
            raise DataError(clash)
        return example

    def parse_any(self, text: str) -> Batch:
        tokens = torch.from_numpy(parse_board(text, self.box)[None]).long()
        return Batch(tokens, torch.zeros_like(tokens), tokens == 0)

    def examples_in(self, text: str) -> Iterator[tuple[int, str]]:
        """One puzzle per line, or rows of a puzzle file: its first line names the column."""
        lines = list(super().examples_in(text))
        layout = find_layout(lines[0][1]) if lines else None
        header = layout is not None and layout.has_header
        for number, line in lines[header:]:
            fields = line.split(",")
            if layout is not None and len(fields) == layout.columns:
                yield number, fields[layout.puzzle]
            else:
                yield number, fields[1] if len(fields) > 2 else fields[0]

    def disguise(self, batch: Batch, number: int) -> Disguise:
        """Digits relabelled, lines moved, the board mirrored."""
        cells, names = Augment(self.box).random_moves(len(batch), stream_key("tries", number))
        moved = np.take_along_axis(self.puzzles(batch).astype(np.int64), cells, axis=1)
        tokens = torch.from_numpy(np.take_along_axis(names, moved, axis=1))
        return of_digits(Batch(tokens, torch.zeros_like(tokens), tokens == 0), cells, names)

    @property
    def blocks(self) -> tuple[int, int]:
        return self.box.rows, self.box.cols
