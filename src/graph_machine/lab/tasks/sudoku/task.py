"""Sudoku as a task: a token per cell (0 is a blank), the missing digits as answers."""

import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from rich.text import Text
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.errors import DataError, MissingExtraError
from graph_machine.graphs import GRID_CATEGORIES
from graph_machine.lab.config import SudokuConfig, TaskConfig
from graph_machine.lab.tasks.answers import NOT_COMPARED, Answers, Disguise, Solution, Sure
from graph_machine.lab.tasks.base import Baseline
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.boards import BoardTask
from graph_machine.lab.tasks.digits import (
    SYMBOLS,
    FilledBoard,
    Solved,
    conflicts,
    contradiction,
    draw_digits,
    format_board,
    moved,
    of_digits,
)
from graph_machine.lab.tasks.rows import Boards, Keys, R, join_rows, stream_key
from graph_machine.lab.tasks.scores import Grouping
from graph_machine.lab.tasks.sudoku import solve as solver
from graph_machine.lab.tasks.sudoku.augment import Augment, fingerprints, with_clues
from graph_machine.lab.tasks.sudoku.board import BoxShape, Shape, parse_board, regions_at
from graph_machine.lab.tasks.sudoku.generate import generate
from graph_machine.lab.tasks.sudoku.reader import (
    BACKTRACKS,
    PuzzleRows,
    RowReader,
    find_layout,
    write_puzzles,
)
from graph_machine.lab.tasks.sudoku.store import SudokuStore, open_data


class DigitTask(BoardTask[R]):
    """Puzzles of digits in rows, columns and regions: blanks are filled in, a solver knows how."""

    examples_word = "puzzles"
    counted = ("board", "cell")
    contents_word = "digits"
    quick_side: ClassVar[int]  # larger boards take too long to solve or make while a user waits
    made_words: ClassVar[tuple[str, str]]  # what is generated, and how clues are put back
    moved_words: ClassVar[str]  # what `augment=all` does besides new names of digits

    @abstractmethod
    def boards(self, batch: Batch) -> tuple[Boards, Shape]:
        """Cells, 0 at blanks; and the boxes of all boards, or the regions of each of them."""

    @abstractmethod
    def few_puzzles(self, count: int, seed: int) -> Batch:
        """Puzzles like those that are trained on, but not rated."""

    @property
    def side(self) -> int:
        """Rows and columns of a board."""
        return self.config.side

    def make_spec(self) -> InputSpec:
        side = self.side
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

    def batch_of(self, rows: Any) -> Batch:
        """Rows of a store as tensors; ratings and clue counts go along as groups."""
        puzzles = torch.from_numpy(rows.puzzles).long()
        return Batch(
            tokens=puzzles,
            answers=(torch.from_numpy(rows.solutions).long() - 1).clamp_min(0),
            where=puzzles == 0,
            groups={"rating": rows.ratings, "clues": rows.clues},
        )

    @property
    def data_words(self) -> str:
        size, extra = f"{len(self.store):,}", self.config.clues_extra
        text = f"{size} puzzles of {Path(self.source).name}"
        if self.source == "generated":
            made, back = self.made_words
            kind = f" with {back} {extra} clues put back" if extra else ""
            text = f"{size} generated {made}{kind}"
        changed = "" if self.config.augment == "none" else ", digits relabelled"
        changed += f", {self.moved_words}" if self.config.augment == "all" else ""
        return f"{text}, 90% of them for training{changed}"

    def baselines(self) -> dict[str, Baseline]:
        """The symbolic reference rows of every report.

        A blank that singles do not settle counts as wrong: 0 is not a digit.
        """

        def singles(batch: Batch) -> Tensor:
            return torch.from_numpy(solver.solve_singles(*self.boards(batch))).long() - 1

        def exact(batch: Batch) -> Tensor:
            return torch.from_numpy(self.solved(batch, limit=1).solutions).long() - 1

        return {"singles only": singles, "exact solver": exact}

    def solved(self, batch: Batch, limit: int = 2) -> Solved:
        """What an exact solver finds, counting solutions up to `limit`."""
        return solver.solve(*self.boards(batch), limit)

    def show(
        self, example: Batch, answers: Answers, sure: Sure, *, check: bool = False
    ) -> FilledBoard:
        found = self.solved(example[:1]) if check else None
        count = None if found is None else int(found.counts[0])
        exact = found.solutions[0] if found is not None and count == 1 else None
        puzzles, shape = self.boards(example)
        puzzle, regions = puzzles[0], regions_at(shape, 0)
        filled = np.where(puzzle == 0, answers + 1, puzzle).astype(np.uint8)
        sure = np.where(puzzle == 0, sure, 1.0)
        text = partial(self.text, example)
        return FilledBoard(puzzle, regions, text, filled, sure, count, exact)

    def token_words(self, example: Batch) -> list[str]:
        return [SYMBOLS[digit] for digit in self.boards(example)[0][0]]

    def sample(self, count: int, seed: int) -> Batch | None:
        try:
            return self.few_puzzles(count, seed) if self._is_quick else None
        except MissingExtraError:
            return None

    def solve(self, example: Batch) -> Solution:
        puzzles, shape = self.boards(example)
        if conflicts(puzzles[0], regions_at(shape, 0)).any():
            return Solution(notes=("The givens contradict each other.",))
        if not self._is_quick:
            return Solution()
        try:
            solved = self.solved(example[:1])
        except MissingExtraError:
            return Solution(notes=(NOT_COMPARED,))
        count = int(solved.counts[0])
        if count != 1:
            how_many = "several solutions: cells that break rules are marked" if count else ""
            return Solution(notes=(f"This puzzle has {how_many or 'no solution'}.",))
        return Solution(solved.solutions[0].astype(np.int64) - 1)

    def broken(self, example: Batch, answers: Int[np.ndarray, "n"]) -> list[int]:
        puzzles, shape = self.boards(example)
        puzzle = puzzles[0]
        filled = np.where(puzzle == 0, answers + 1, puzzle).astype(np.uint8)
        return np.flatnonzero(conflicts(filled, regions_at(shape, 0)) & (puzzle == 0)).tolist()

    @property
    def _is_quick(self) -> bool:
        return self.spec.num_outputs <= self.quick_side

    def rate(self, store: Any, **how: Any) -> np.ndarray:
        known = store.solutions if store.solutions.all() else None
        return solver.rate(store.puzzles, store.shape, known, **how)

    def picture(
        self, store: Any, row: int, *, solution: bool = False, marks: bool = True
    ) -> tuple[Text, str | None, str]:
        shape, puzzle, regions = store.shape, store.puzzles[row], regions_at(store.shape, row)
        if not solution:
            return draw_digits(puzzle, regions), None, ""
        found = solver.solve(puzzle[None], shape if isinstance(shape, BoxShape) else regions[None])
        if not found.counts[0]:
            raise DataError(contradiction(puzzle, regions) or "The puzzle has no solution.")
        several = "The puzzle has more than one solution; this is one of them."
        drawn = draw_digits(puzzle, regions, filled=found.solutions[0], marks=marks)
        text = format_board(found.solutions[0])
        return drawn, text, several if found.counts[0] > 1 else ""


class SudokuTask(DigitTask[SudokuStore]):
    """Puzzles from a file, a store, or generated for the config's box shape and cached.

    The split (0.9 / 0.05 / 0.05) is redrawn for each seed, training rows are reshuffled for each
    epoch; both as the paper does.
    """

    name = "sudoku"
    kept = PuzzleRows
    text_hint = ". or 0 is a blank"
    quick_side = 10
    made_words = ("minimal puzzles", "up to")
    moved_words = "lines moved"
    groupings = (
        Grouping("rating", "rating", solver.RATING_BANDS, solver.DATASET_SHARES, "Sudoku-3M"),
        Grouping("clues", "clues"),
    )
    config: SudokuConfig

    def __init__(self, config: TaskConfig) -> None:
        assert isinstance(config, SudokuConfig)
        super().__init__(config)
        self.box = BoxShape(*config.box_shape)
        lines = config.augment == "all"
        self.augment = Augment(self.box, lines=lines, transpose=lines)

    @property
    def side(self) -> int:
        return self.box.side

    @property
    def label(self) -> str:
        return f"{self.side}x{self.side}"

    # Data

    def read(self, path: str, limit: int | None = None) -> SudokuStore:
        """A file is read without writing a store."""
        if Path(path).is_dir():
            store = SudokuStore.open(path)
            rows, box = store.take(slice(limit)), store.box
        else:
            reader, parts = RowReader(path), list[PuzzleRows]()
            for part in reader:
                parts.append(part)
                if limit is not None and sum(map(len, parts)) >= limit:
                    break
            rows, box = join_rows(parts).take(slice(limit)), reader.box
        return SudokuStore.from_arrays(rows.puzzles, rows.solutions, rows.ratings, box)

    def write(self, path: str | os.PathLike[str], store: SudokuStore) -> None:
        write_puzzles(path, [store])

    def rows_of(self, text: str, size: str | None = None) -> SudokuStore:
        box = BoxShape.parse(size) if size else None
        cells = parse_board(text, box)[None]
        return SudokuStore.from_arrays(cells, np.zeros_like(cells), box=box)

    def contents(
        self, path: str, *, verify: bool = False
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if Path(path).is_dir():
            store = SudokuStore.open(path, verify=verify)
            box, bad, identity = store.box, store.meta.get("bad_rows", {}), store.identity
            groups, scale = (store.ratings, store.clues), store.meta.get("rating_scale")
        else:
            reader = RowReader(path, on_bad="skip")
            parts = [(rows.ratings, rows.clues) for rows in reader]
            groups = [np.concatenate(values) for values in zip(*parts)]
            box, bad, identity = reader.box, dict(reader.bad), None
            scale = None if reader.layout is None else reader.layout.scale
        self._scale(scale)
        about = {"box": str(box), "bad_rows": bad, "identity": identity}
        return about, dict(zip(("rating", "clues"), map(np.asarray, groups)))

    def _scale(self, scale: str | None) -> None:
        """Ratings that count backtracks have other bands."""
        if scale == BACKTRACKS:
            rating = Grouping("rating", "backtracks", solver.BACKTRACK_BANDS)
            self.groupings = (rating, *SudokuTask.groupings[1:])

    def generate(self) -> SudokuStore:
        c, workers = self.config, os.cpu_count() or 1
        return generate(self.box, c.puzzles, c.data_seed, extra=c.clues_extra, workers=workers)

    @property
    def cache_name(self) -> str:
        c = self.config
        extra = f"-extra{c.clues_extra}" if c.clues_extra else ""
        return f"sudoku-{c.box}-{c.puzzles}{extra}-seed{c.data_seed}"

    def generated(self) -> SudokuStore:
        rows = super().generated()
        return SudokuStore.from_arrays(rows.puzzles, rows.solutions, rows.ratings, self.box)

    def load(self, data: str) -> SudokuStore:
        return open_data(data)

    def size_of(self, store: SudokuStore) -> tuple[str, str, str]:
        return "box", str(store.box), str(self.box)

    def identity_of(self, store: SudokuStore) -> str:
        return store.identity

    def use(self, store: SudokuStore, **how: Any) -> "SudokuTask":
        self._scale(store.meta.get("rating_scale"))
        return super().use(store, **how)

    def of_store(self, store: SudokuStore) -> "SudokuTask":
        if store.box.cells != self.box.cells:
            raise DataError(
                f"The model reads boards of {self.box.cells} cells, the data has "
                f"{store.box.cells} (box {store.box})."
            )
        return SudokuTask(self.config.replace(box=str(store.box)))

    def keys(self, rows: PuzzleRows) -> Keys:
        return fingerprints(rows.puzzles)

    def augmented(self, rows: PuzzleRows, seed: int, step: int, progress: float) -> PuzzleRows:
        if self.config.augment != "none":
            key = stream_key("augment", seed, step)
            puzzles, solutions = self.augment(rows.puzzles, rows.solutions, key)
            rows = replace(rows, puzzles=puzzles, solutions=solutions)
        if most := self.clues_put_back(progress):
            key = stream_key("curriculum", seed, step)
            rows = replace(rows, puzzles=with_clues(rows.puzzles, rows.solutions, most, key))
        return rows

    def clues_put_back(self, progress: float) -> int:
        """Most clues put back into a training puzzle when that share of the training is done."""
        start, end = self.config.clues_start, self.config.clues_end
        return round(end + (start - end) * max(0.0, 1.0 - progress / self.config.clues_ramp))

    def few_puzzles(self, count: int, seed: int) -> Batch:
        made = generate(self.box, count, seed, extra=self.config.clues_extra, rated=False)
        return self.batch_of(made)

    # Text

    def boards(self, batch: Batch) -> tuple[Boards, BoxShape]:
        return batch.cells, self.box

    def parse(self, text: str, *, strict: bool = True) -> Batch:
        cells = parse_board(text, self.box)
        if strict and (clash := contradiction(cells, self.box.regions)) is not None:
            raise DataError(clash)
        tokens = torch.from_numpy(cells[None]).long()
        return Batch(tokens, torch.zeros_like(tokens), tokens == 0)

    def parse_any(self, text: str) -> Batch:
        return self.parse(text, strict=False)

    def examples_in(self, text: str) -> Iterator[tuple[int, str]]:
        """One puzzle per line, or rows of a puzzle file: its first line names the column."""
        lines = list(super().examples_in(text))
        layout = find_layout(lines[0][1]) if lines else None
        header = layout is not None and layout.has_header
        for number, line in lines[header:]:
            fields = line.split(",")
            if layout is not None and len(fields) == len(layout.names):
                yield number, fields[layout.puzzle]
            else:
                yield number, fields[1] if len(fields) > 2 else fields[0]

    def disguise(self, batch: Batch, number: int) -> Disguise:
        """Digits relabelled, lines moved, the board mirrored."""
        cells, names = Augment(self.box).random_moves(len(batch), stream_key("tries", number))
        tokens = torch.from_numpy(moved(batch.known_tokens.cpu().numpy(), cells, names))
        return of_digits(Batch(tokens, torch.zeros_like(tokens), tokens == 0), cells, names)

    @property
    def blocks(self) -> tuple[int, int]:
        return self.box.rows, self.box.cols
