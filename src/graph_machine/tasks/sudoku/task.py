"""Sudoku as a task: a token per cell (0 is a blank), the missing digits as answers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.config import InputSpec, SudokuConfig, TaskConfig
from graph_machine.errors import DataError, MissingExtraError
from graph_machine.graphs import GRID_CATEGORIES
from graph_machine.tasks.answers import NOT_COMPARED, Solution
from graph_machine.tasks.base import Baseline, Split, Task
from graph_machine.tasks.batch import Batch
from graph_machine.tasks.disguise import Disguise, of_digits
from graph_machine.tasks.filled_board import conflicts
from graph_machine.tasks.scores import Grouping, Metric
from graph_machine.tasks.sudoku import batches
from graph_machine.tasks.sudoku.answers import BoardAnswer
from graph_machine.tasks.sudoku.augment import Augment
from graph_machine.tasks.sudoku.board import SYMBOLS, BoxShape, contradiction, parse_board
from graph_machine.tasks.sudoku.cache import generated_data
from graph_machine.tasks.sudoku.curriculum import curriculum_key, most_clues, put_back
from graph_machine.tasks.sudoku.generate import generate
from graph_machine.tasks.sudoku.layouts import BACKTRACKS, find_layout
from graph_machine.tasks.sudoku.overlap import seen_in
from graph_machine.tasks.sudoku.ratings import BACKTRACK_BANDS, DATASET_SHARES, RATING_BANDS
from graph_machine.tasks.sudoku.solve import solve, solve_singles
from graph_machine.tasks.sudoku.splits import Splits, split_rows
from graph_machine.tasks.sudoku.store import SudokuStore, open_data

QUICK_SIDE = 10  # larger boards take long to solve or to generate while somebody waits
WAYS = {"none": "", "relabel": ", digits relabelled", "all": ", digits relabelled, lines moved"}


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
    examples_word = "puzzles"
    contents_word = "digits"
    text_hint = ". or 0 is a blank"
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
        self._stream: batches.BatchStream | None = None

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
        config = self.config
        return most_clues(config.clues_start, config.clues_end, config.clues_ramp, progress)

    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        rows: np.ndarray = getattr(self.splits, split)
        for part in batches.sequential_batches(self.store, rows[:limit], batch_size):
            yield sudoku_batch(part)

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

    @property
    def data_words(self) -> str:
        size = f"{len(self.store):,}"
        extra = self.config.clues_extra
        if self.source == "generated":
            kind = f" with up to {extra} clues put back" if extra else ""
            text = f"{size} generated minimal puzzles{kind}"
        else:
            text = f"{size} puzzles of {Path(self.source).name}"
        return f"{text}, 90% of them for training{WAYS[self.config.augment]}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("board_accuracy", "boards", "example_right"),
            Metric("cell_accuracy", "cells", "nodes_right", "nodes"),
        )

    def baselines(self) -> dict[str, Baseline]:
        """The symbolic reference rows of every report.

        A blank that singles do not settle counts as wrong: 0 is no digit.
        """

        def exact(batch: Batch) -> Tensor:
            return torch.from_numpy(solve(_puzzles(batch), self.box, limit=1).solutions).long() - 1

        def singles(batch: Batch) -> Tensor:
            return torch.from_numpy(solve_singles(_puzzles(batch), self.box)).long() - 1

        return {"singles only": singles, "exact solver": exact}

    def parse(self, text: str) -> Batch:
        example = self.parse_any(text)
        if (clash := contradiction(_puzzles(example)[0], self.box)) is not None:
            raise DataError(clash)
        return example

    def parse_any(self, text: str) -> Batch:
        tokens = torch.from_numpy(parse_board(text, self.box)[None]).long()
        return Batch(tokens, torch.zeros_like(tokens), tokens == 0)

    def examples_in(self, text: str) -> Iterator[tuple[int, str]]:
        """One puzzle per line, or rows of a puzzle file: its first line tells the column."""
        lines = list(super().examples_in(text))
        layout = find_layout(lines[0][1]) if lines else None
        header = layout is not None and layout.has_header
        for number, line in lines[header:]:
            fields = line.split(",")
            if layout is not None and len(fields) == layout.columns:
                yield number, fields[layout.puzzle]
            else:
                yield number, fields[1] if len(fields) > 2 else fields[0]

    def show(
        self,
        example: Batch,
        answers: Int[np.ndarray, "n"],
        confidences: Float[np.ndarray, "n"],
        *,
        check: bool = False,
    ) -> BoardAnswer:
        puzzle = _puzzles(example)[0]
        found = solve(puzzle[None], self.box) if check else None
        return BoardAnswer.of(puzzle, answers + 1, confidences, found, box=self.box)

    def sample(self, count: int, seed: int) -> Batch | None:
        """Puzzles like those that are trained on, but not rated."""
        if self.box.side > QUICK_SIDE:
            return None
        extra = self.config.clues_extra
        try:
            store = generate(self.box, count, seed, extra=extra, rated=False, workers=1)
        except MissingExtraError:
            return None
        return next(SudokuTask.of_rows(store).split_batches("test", count))

    def solve(self, example: Batch) -> Solution:
        puzzle = _puzzles(example)[:1]
        if conflicts(puzzle[0], self.box.units).any():
            return Solution(notes=("The givens contradict each other.",))
        if self.box.side > QUICK_SIDE:
            return Solution()
        try:
            return Solution.of_solver(solve(puzzle, self.box))
        except MissingExtraError:
            return Solution(notes=(NOT_COMPARED,))

    def disguise(self, batch: Batch, key: int) -> Disguise:
        """Digits relabelled, lines moved, the board mirrored."""
        cells, names = Augment(self.box).draw(len(batch), key)
        moved = np.take_along_axis(_puzzles(batch).astype(np.int64), cells, axis=1)
        tokens = torch.from_numpy(np.take_along_axis(names, moved, axis=1))
        return of_digits(Batch(tokens, torch.zeros_like(tokens), tokens == 0), cells, names)

    def broken(self, example: Batch, answers: Int[np.ndarray, "n"]) -> list[int]:
        puzzle = _puzzles(example)[0]
        filled = np.where(puzzle == 0, answers + 1, puzzle).astype(np.uint8)
        return np.flatnonzero(conflicts(filled, self.box.units) & (puzzle == 0)).tolist()

    @property
    def blocks(self) -> tuple[int, int]:
        return self.box.rows, self.box.cols


def _puzzles(batch: Batch) -> np.ndarray:
    assert batch.tokens is not None
    return batch.tokens.cpu().numpy().astype(np.uint8)
