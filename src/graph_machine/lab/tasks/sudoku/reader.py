"""Puzzle files: which column holds what, reading with a check of every row, and writing."""

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float32, UInt8, UInt16

from graph_machine.errors import DataError, count_of
from graph_machine.lab.tasks.csv_files import read_rows, write_rows
from graph_machine.lab.tasks.digits import SYMBOLS, cell_values, format_board
from graph_machine.lab.tasks.rows import RowArrays
from graph_machine.lab.tasks.sudoku.board import BoxShape, valid_grids

HEADER = "id,puzzle,solution,clues,difficulty"
KNOWN = (HEADER, "puzzle,solution", "source,question,answer,rating")
# What a column is called in files that people have; columns of other names are not read.
NAMES = {
    "puzzle": ("puzzle", "puzzles", "quiz", "quizzes", "question"),
    "solution": ("solution", "solutions", "answer"),
    "clues": ("clues",),
    "rating": ("difficulty", "rating"),
}
# Columns that only files of another task have: what such a file holds, and who takes it.
OTHERS = {
    "regions": ("jigsaw puzzles", "'data info', 'data rate' and 'train' take it", "jigsaw"),
    "maze": ("mazes", "'data info' and 'train' take it", "maze"),
}
# Ratings of sudoku-extreme count the backtracks of one solver, ours are depths of guesses.
BACKTRACKS = "backtracks"
CELLS = frozenset(SYMBOLS + SYMBOLS.lower() + "0")
BLOCK_ROWS = 20_000  # that are checked together
OnBad = Literal["error", "skip"]
# Why a row is refused: the first reason that holds, in this order.
REASONS = {
    "columns": "the row does not have {columns} columns ({layout})",
    "puzzle length": "the puzzle does not have {cells} cells (box {box})",
    "solution length": "the solution does not have {cells} cells (box {box})",
    "puzzle symbol": "the puzzle holds a symbol that is neither a digit of box {box} nor a blank",
    "solution symbol": "the solution holds a symbol that is not a digit of box {box}",
    "invalid solution": "the solution repeats a digit in a row, column or box of {box}",
    "givens differ": "the solution disagrees with a given of the puzzle",
    "clues": "the clues column is not the number of givens",
    "difficulty": "the difficulty column is not a number of at least 0",
    "no solution": "the puzzle has no solution",
    "several solutions": "the puzzle has more than one solution",
}
Row = tuple[int, list[str]]  # the number of its line, and its fields


@dataclass(frozen=True)
class Layout:
    """Numbers of columns; None where a file has no such column."""

    names: tuple[str, ...]  # of all columns
    puzzle: int = 0
    solution: int | None = None
    clues: int | None = None
    rating: int | None = None
    has_header: bool = True

    @property
    def scale(self) -> str | None:
        """The quantity that the ratings measure, if it is not the data set's difficulty."""
        extreme = self.rating is not None and self.names[self.puzzle] == "question"
        return BACKTRACKS if extreme else None


def find_layout(line: str) -> Layout | None:
    """The layout of a file that begins with this line; None for an unknown one."""
    fields = [text.strip().strip('"') for text in line.split(",")]
    words = tuple(text.lower() for text in fields)
    found = {
        kind: [number for number, word in enumerate(words) if word in names]
        for kind, names in NAMES.items()
    }
    if len(found["puzzle"]) == 1 and all(len(numbers) <= 1 for numbers in found.values()):
        places = {kind: numbers[0] for kind, numbers in found.items() if numbers}
        return Layout(words, **places)  # pyrefly: ignore[bad-argument-type]
    same = len(set(map(len, fields))) == 1 and CELLS.issuperset("".join(fields))
    if len(fields) <= 2 and same and BoxShape.candidates(len(fields[0])):
        solution = 1 if len(fields) == 2 else None
        return Layout(("puzzle", "solution")[: len(fields)], 0, solution, has_header=False)
    return None


def file_layout(line: str, path: object) -> Layout:
    """The layout of a file by its first line; an error that lists the known ones."""
    for column, (what, who, task) in OTHERS.items():
        if column in line.split(","):
            raise DataError(f"A file of {what}, not of Sudoku; {who} with --task {task}: {path}")
    found = find_layout(line)
    if found is None:
        known = "', '".join(KNOWN)
        raise DataError(
            f"The first line should be '{known}' or a puzzle, got '{line.strip()[:80]}': {path}"
        )
    return found


@dataclass(frozen=True)
class PuzzleRows(RowArrays):
    """Checked rows of a file, or a batch of a store."""

    puzzles: UInt8[np.ndarray, "b n"]
    solutions: UInt8[np.ndarray, "b n"]
    clues: UInt16[np.ndarray, "b"]
    ratings: Float32[np.ndarray, "b"]


@dataclass
class RowReader:
    """Iterates over the checked rows of a file; afterwards `bad` counts the rows left out."""

    path: str | os.PathLike[str]
    box: BoxShape | None = None
    check_unique: bool = False
    on_bad: OnBad = "error"
    bad: Counter[str] = field(default_factory=Counter)
    layout: Layout | None = None  # found in the first line

    def __iter__(self) -> Iterator[PuzzleRows]:
        rows = read_rows(self.path)
        first = next(rows, None)
        if first is None:
            raise DataError(f"The data file is empty: {self.path}")
        self.layout = file_layout(",".join(first[1]), self.path)
        if not self.layout.has_header:
            rows = itertools.chain([first], rows)
        block = list(itertools.islice(rows, BLOCK_ROWS))
        if not block:
            raise DataError(f"The data file has a header but no rows: {self.path}")
        while block:
            yield self._checked(self.layout, block)
            block = list(itertools.islice(rows, BLOCK_ROWS))

    def _checked(self, layout: Layout, block: list[Row]) -> PuzzleRows:
        if self.box is None:
            self.box = self._infer_box(layout, block)
        box, faults, rows = self.box, dict[int, str](), list[Row]()
        for number, fields in block:
            if reason := _shape_fault(fields, layout, box.cells):
                faults[number] = reason
            else:
                rows.append((number, fields))
        puzzles = _cells_of(rows, layout.puzzle, box.cells)
        clues = np.count_nonzero(puzzles, axis=1).astype(np.uint16)
        ratings = np.full(len(rows), np.nan, dtype=np.float32)
        bad = {"puzzle symbol": puzzles.max(axis=1, initial=0) > box.side}
        solutions = np.zeros_like(puzzles)
        if layout.solution is not None:
            solutions = _cells_of(rows, layout.solution, box.cells)
            bad["solution symbol"] = (solutions - 1).max(axis=1, initial=0) >= box.side
            bad["invalid solution"] = ~valid_grids(solutions, box)
            bad["givens differ"] = ((puzzles != solutions) & (puzzles > 0)).any(axis=1)
        if layout.clues is not None:
            bad["clues"] = _numbers(rows, layout.clues) != clues
        if layout.rating is not None:
            ratings = _numbers(rows, layout.rating)
            filled = np.array([bool(fields[layout.rating]) for _, fields in rows], dtype=bool)
            bad["difficulty"] = ~(np.isfinite(ratings) & (ratings >= 0)) & filled
        if self.check_unique or layout.solution is None:
            from graph_machine.lab.tasks.sudoku.solve import solve

            good = np.flatnonzero(~np.logical_or.reduce(list(bad.values())))
            found = solve(puzzles[good], box)
            solutions[good], counts = found.solutions, np.ones(len(rows), dtype=np.uint8)
            counts[good] = found.counts
            bad |= {"no solution": counts == 0, "several solutions": counts > 1}
        kept = np.ones(len(rows), dtype=bool)
        for reason, rejected in bad.items():  # in the order of REASONS
            faults |= {rows[row][0]: reason for row in np.flatnonzero(kept & rejected)}
            kept &= ~rejected
        if faults and self.on_bad == "error":
            line = min(faults)
            raise DataError(
                f"Line {line}: {_words(faults[line], layout, box)}. To leave such rows out, "
                f"prepare the file with 'graph-machine data prepare FILE --on-bad skip' and name "
                f"its store: {self.path}"
            )
        self.bad.update(faults.values())
        checked = PuzzleRows(puzzles, solutions, clues, ratings)
        return checked if kept.all() else checked.take(kept)

    def _infer_box(self, layout: Layout, block: list[Row]) -> BoxShape:
        """The box shape of the most frequent board size, under which most solutions are valid.

        6x6 boards may be of 2x3 or 3x2 boxes: only their solutions show which.
        """
        rows = [(number, fields) for number, fields in block if len(fields) == len(layout.names)]
        if not rows:
            raise DataError(f"Line {block[0][0]}: {_words('columns', layout)}. File: {self.path}")
        sizes = [len(fields[layout.puzzle]) for _, fields in rows]
        cells = max(sorted(set(sizes)), key=sizes.count)
        shapes = BoxShape.candidates(cells)
        if not shapes:
            raise DataError(
                f"Line {block[0][0]}: the puzzle has {count_of(sizes[0], 'cells')}, which no box "
                f"shape has (81 for 3x3, 36 for 2x3). File: {self.path}"
            )
        if layout.solution is None:
            return shapes[0]
        whole = [row for row in rows if not _shape_fault(row[1], layout, cells)]
        sample = _cells_of(whole[:1000], layout.solution, cells)
        return max(shapes, key=lambda box: int(valid_grids(sample, box).sum()))


def _words(reason: str, layout: Layout, box: BoxShape | None = None) -> str:
    names, cells = layout.names, box and box.cells
    return REASONS[reason].format(columns=len(names), layout=",".join(names), box=box, cells=cells)


def _shape_fault(fields: list[str], layout: Layout, cells: int) -> str | None:
    if len(fields) != len(layout.names):
        return "columns"
    if len(fields[layout.puzzle]) != cells:
        return "puzzle length"
    if layout.solution is not None and len(fields[layout.solution]) != cells:
        return "solution length"
    return None


def _cells_of(rows: list[Row], column: int, cells: int) -> UInt8[np.ndarray, "r n"]:
    return cell_values("".join(fields[column] for _, fields in rows)).reshape(-1, cells)


def _numbers(rows: list[Row], column: int) -> Float32[np.ndarray, "r"]:
    """The numbers of a column, NaN for other text."""

    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            return float("nan")

    return np.array([number(fields[column]) for _, fields in rows], dtype=np.float32)


def write_puzzles(path: str | os.PathLike[str], parts: Iterable[PuzzleRows]) -> int:
    """Write rows as they come (gzipped if the name ends in .gz); returns how many there were.

    An unknown rating is an empty field.
    """

    def lines() -> Iterator[str]:
        for row in (row for rows in parts for row in zip(*rows.arrays.values())):
            puzzle, solution, clues, rating = row
            shown = "" if np.isnan(rating) else f"{rating:.1f}"
            yield f"{format_board(puzzle)},{format_board(solution)},{clues},{shown}"

    return write_rows(path, HEADER, lines())
