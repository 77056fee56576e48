"""Puzzle files: which column holds what, reading with a check of every row, and writing."""

import codecs
import gzip
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, UInt8, UInt16

from graph_machine.errors import DataError, count_of
from graph_machine.files import atomic_path
from graph_machine.lab.tasks.csv_files import BLOCK_BYTES, LINE_BYTES, long_line, open_bytes
from graph_machine.lab.tasks.digits import BYTE_OF_VALUE, SYMBOLS, VALUE_OF_BYTE
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


@dataclass(frozen=True)
class Layout:
    """Numbers of columns; None where a file has no such column."""

    names: tuple[str, ...]  # of all columns
    puzzle: int
    solution: int | None = None
    clues: int | None = None
    rating: int | None = None
    has_header: bool = True

    @property
    def columns(self) -> int:
        return len(self.names)

    @property
    def scale(self) -> str | None:
        """What the ratings measure, where that is not the data set's difficulty."""
        extreme = self.rating is not None and self.names[self.puzzle] == "question"
        return BACKTRACKS if extreme else None

    def __str__(self) -> str:
        return ",".join(self.names)


def find_layout(line: str) -> Layout | None:
    """The layout of a file that begins with this line; None for an unknown one."""
    words = tuple(word.strip().strip('"').lower() for word in line.strip().split(","))
    found = {
        kind: [number for number, word in enumerate(words) if word in names]
        for kind, names in NAMES.items()
    }
    if len(found["puzzle"]) == 1 and all(len(numbers) <= 1 for numbers in found.values()):
        place = {kind: numbers[0] if numbers else None for kind, numbers in found.items()}
        return Layout(words, **place)  # pyrefly: ignore[bad-argument-type]
    fields = [field.strip() for field in line.split(",")]
    if len(fields) <= 2 and len(set(map(len, fields))) == 1 and all(map(_is_board, fields)):
        if len(fields) == 1:
            return Layout(("puzzle",), 0, has_header=False)
        return Layout(("puzzle", "solution"), 0, 1, has_header=False)
    return None


def layout_of(line: str, path: object) -> Layout:
    """The layout of a file by its first line; an error that lists the known ones."""
    words = [word.strip() for word in line.split(",")]
    for column, (what, who, task) in OTHERS.items():
        if column in words:
            raise DataError(f"A file of {what}, not of Sudoku; {who} with --task {task}: {path}")
    found = find_layout(line)
    if found is None:
        known = "', '".join(KNOWN)
        raise DataError(
            f"The first line should be '{known}' or a puzzle, got '{line.strip()[:80]}': {path}"
        )
    return found


def _is_board(text: str) -> bool:
    return bool(BoxShape.candidates(len(text))) and CELLS.issuperset(text)


FIRST_BYTES = 4000
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
_CODES = {reason: code for code, reason in enumerate(REASONS, start=1)}


@dataclass(frozen=True)
class Rows(RowArrays):
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

    def __iter__(self) -> Iterator[Rows]:
        """The rows of about `BLOCK_BYTES` at a time."""
        with open_bytes(self.path) as file:
            first = file.readline(FIRST_BYTES)
            if not first.strip():
                raise DataError(f"The data file is empty: {self.path}")
            layout = layout_of(first.decode("utf-8-sig", "replace"), self.path)
            self.layout = layout
            rest = b"" if layout.has_header else first.removeprefix(codecs.BOM_UTF8)
            number, data = 1 + layout.has_header, b"-"
            while data:
                data = file.read(BLOCK_BYTES)
                lines = (rest + data).split(b"\n")
                for line, text in enumerate(lines, start=number):
                    if len(text) > LINE_BYTES:
                        raise long_line(line, self.path)
                rest = lines.pop() if data else b""  # the end of a block is inside of a line
                texts = [text.removesuffix(b"\r") for text in lines]
                used = [(line, text) for line, text in enumerate(texts, start=number) if text]
                number += len(lines)
                if used:
                    numbers, kept = zip(*used, strict=True)
                    yield self._parse(layout, [text.split(b",") for text in kept], numbers)

    def _parse(self, layout: Layout, rows: list[list[bytes]], lines: tuple[int, ...]) -> Rows:
        box = self.box or _infer_box([r for r in rows if len(r) == layout.columns], layout, self)
        self.box = box
        codes = np.array([_shape_code(row, layout, box) for row in rows], dtype=np.uint8)
        good = np.flatnonzero(codes == 0)
        rows = [rows[row] for row in good]
        puzzles = _boards(rows, layout.puzzle, box)
        clues = np.count_nonzero(puzzles, axis=1).astype(np.uint16)
        ratings = np.full(len(rows), np.nan, dtype=np.float32)

        found = np.zeros(len(rows), dtype=np.uint8)
        _mark(found, "puzzle symbol", puzzles.max(axis=1, initial=0) > box.side)
        if layout.solution is None:
            solutions = _solved(found, puzzles, box)
        else:
            solutions = _boards(rows, layout.solution, box)
            _mark(found, "solution symbol", (solutions - 1).max(axis=1, initial=0) >= box.side)
            _mark(found, "invalid solution", ~valid_grids(solutions, box))
            _mark(found, "givens differ", ((puzzles != solutions) & (puzzles > 0)).any(axis=1))
        if layout.clues is not None:
            _mark(found, "clues", _numbers(rows, layout.clues) != clues)
        if layout.rating is not None:
            ratings = _numbers(rows, layout.rating)
            filled = np.array([bool(row[layout.rating]) for row in rows], dtype=bool)
            _mark(found, "difficulty", ~(np.isfinite(ratings) & (ratings >= 0)) & filled)
        if self.check_unique and layout.solution is not None:
            _solved(found, puzzles, box)
        codes[good] = found
        self._report(codes, lines, layout, box)
        checked = Rows(puzzles, solutions, clues, ratings)
        return checked.take(found == 0) if found.any() else checked

    def _report(
        self, codes: UInt8[np.ndarray, "r"], lines: tuple[int, ...], layout: Layout, box: BoxShape
    ) -> None:
        bad = np.flatnonzero(codes)
        reasons = list(REASONS)
        if bad.size and self.on_bad == "error":
            about = {"columns": layout.columns, "layout": layout, "box": box, "cells": box.cells}
            text = REASONS[reasons[codes[bad[0]] - 1]].format(**about)
            raise DataError(
                f"Line {lines[bad[0]]}: {text}. To leave such rows out, prepare the file with "
                f"'graph-machine data prepare FILE --on-bad skip' and name its store: {self.path}"
            )
        self.bad.update(reasons[code - 1] for code in np.sort(codes[bad]))


def _shape_code(row: list[bytes], layout: Layout, box: BoxShape) -> int:
    if len(row) != layout.columns:
        return _CODES["columns"]
    if len(row[layout.puzzle]) != box.cells:
        return _CODES["puzzle length"]
    if layout.solution is not None and len(row[layout.solution]) != box.cells:
        return _CODES["solution length"]
    return 0


def _mark(codes: UInt8[np.ndarray, "b"], reason: str, bad: Bool[np.ndarray, "b"]) -> None:
    codes[(codes == 0) & bad] = _CODES[reason]


def _solved(
    codes: UInt8[np.ndarray, "b"], puzzles: UInt8[np.ndarray, "b n"], box: BoxShape
) -> UInt8[np.ndarray, "b n"]:
    """Solutions of the rows that are good so far; those with none or several are marked."""
    from graph_machine.lab.tasks.sudoku.solve import solve

    solutions = np.zeros_like(puzzles)
    rows = np.flatnonzero(codes == 0)
    found = solve(puzzles[rows], box)
    solutions[rows] = found.solutions
    codes[rows[found.counts == 0]] = _CODES["no solution"]
    codes[rows[found.counts > 1]] = _CODES["several solutions"]
    return solutions


def _boards(rows: list[list[bytes]], column: int, box: BoxShape) -> UInt8[np.ndarray, "r n"]:
    cells = np.frombuffer(b"".join(row[column] for row in rows), dtype=np.uint8)
    return VALUE_OF_BYTE[cells].reshape(-1, box.cells)


def _numbers(rows: list[list[bytes]], column: int) -> Float32[np.ndarray, "r"]:
    """The numbers of a column, NaN for other text."""

    def number(text: bytes) -> float:
        try:
            return float(text)
        except ValueError:
            return float("nan")

    return np.array([number(row[column]) for row in rows], dtype=np.float32)


def _infer_box(rows: list[list[bytes]], layout: Layout, reader: RowReader) -> BoxShape:
    """The box shape of the most frequent board size, under which most solutions are valid.

    6x6 boards may be of 2x3 or 3x2 boxes: only their solutions show which.
    """
    line = 2 if layout.has_header else 1
    if not rows:
        text = REASONS["columns"].format(columns=layout.columns, layout=layout)
        raise DataError(f"Line {line}: {text}. File: {reader.path}")
    sizes = [len(row[layout.puzzle]) for row in rows]
    cells = max(sorted(set(sizes)), key=sizes.count)
    shapes = BoxShape.candidates(cells)
    if not shapes:
        raise DataError(
            f"Line {line}: the puzzle has {count_of(sizes[0], 'cells')}, which no box shape "
            f"has (81 for 3x3, 36 for 2x3). File: {reader.path}"
        )
    if layout.solution is None:
        return shapes[0]
    whole = [row for row in rows if not _shape_code(row, layout, shapes[0])]
    sample = _boards(whole[:1000], layout.solution, shapes[0])
    return max(shapes, key=lambda box: int(valid_grids(sample, box).sum()))


def write_puzzles(path: str | os.PathLike[str], parts: Iterable[Rows]) -> int:
    """Write rows as they come (gzipped if the name ends in .gz); returns how many there were.

    The file gets its name when the last row is written. An unknown rating is an empty field.
    """
    count = 0
    with atomic_path(path) as temporary, ExitStack() as closing:
        file: io.BufferedIOBase = closing.enter_context(open(temporary, "wb"))
        if Path(path).suffix == ".gz":
            # No name and no time inside: the same rows give the same bytes.
            file = closing.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        file.write(f"{HEADER}\n".encode())
        for rows in parts:
            cells = rows.puzzles.shape[1]
            puzzles = BYTE_OF_VALUE[rows.puzzles].tobytes().decode()
            solutions = BYTE_OF_VALUE[rows.solutions].tobytes().decode()
            lines = []
            for row, (clues, rating) in enumerate(zip(rows.clues.tolist(), rows.ratings.tolist())):
                place = slice(row * cells, (row + 1) * cells)
                boards = f"{puzzles[place]},{solutions[place]}"
                shown = "" if np.isnan(rating) else f"{rating:.1f}"
                lines.append(f"{count + row + 1},{boards},{clues},{shown}\n")
            file.write("".join(lines).encode())
            count += len(lines)
    return count
