"""Reading puzzle files in the layouts of layouts.py, as .csv, .csv.gz or .zip.

The bytes are parsed block by block with numpy (no Python loop over rows), every row is checked,
and a bad row is either an error that names file, line and reason, or left out and counted.
"""

import codecs
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Int64, Shaped, UInt8, UInt16

from graph_machine.errors import DataError, count_of
from graph_machine.tasks.sudoku.board import VALUE_OF_BYTE, BoxShape, valid_grids
from graph_machine.tasks.sudoku.containers import BLOCK_BYTES, open_bytes
from graph_machine.tasks.sudoku.layouts import Layout, layout_of

# A row of the largest board (side 25) takes less than 1,500 bytes.
LINE_BYTES = 1 << 16
FIRST_BYTES = 4000
OnBad = Literal["error", "skip"]

# Why a row is refused: the first reason that holds, in this order.
REASONS = {
    "columns": "the row does not have {columns} columns ({layout})",
    "puzzle length": "the puzzle does not have {cells} cells (box {box})",
    "solution length": "the solution does not have {cells} cells (box {box})",
    "puzzle symbol": "the puzzle holds a symbol that is neither a digit of box {box} nor a blank",
    "solution symbol": "the solution holds a symbol that is no digit of box {box}",
    "invalid solution": "the solution repeats a digit in a row, column or box of {box}",
    "givens differ": "the solution disagrees with a given of the puzzle",
    "clues": "the clues column is not the number of givens",
    "difficulty": "the difficulty column is not a number of at least 0",
    "no solution": "the puzzle has no solution",
    "several solutions": "the puzzle has more than one solution",
}
_CODES = {reason: code for code, reason in enumerate(REASONS, start=1)}


@dataclass(frozen=True)
class Rows:
    """Checked rows of one block."""

    puzzles: UInt8[np.ndarray, "b n"]
    solutions: UInt8[np.ndarray, "b n"]
    clues: UInt16[np.ndarray, "b"]
    ratings: Float32[np.ndarray, "b"]

    def take(self, rows: Shaped[np.ndarray, "r"]) -> "Rows":
        """Some of the rows, by number or by mask."""
        return Rows(self.puzzles[rows], self.solutions[rows], self.clues[rows], self.ratings[rows])


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
        line = 1
        for block in self._blocks():
            assert self.layout is not None
            if line == 1 and self.layout.has_header:
                line = 2
            ends = np.flatnonzero(block == ord("\n"))
            starts = np.concatenate([[0], ends[:-1] + 1])
            numbers = line + np.arange(len(ends))
            long = np.flatnonzero(ends - starts > LINE_BYTES)
            if long.size:
                raise DataError(
                    f"Line {numbers[long[0]]} is longer than {LINE_BYTES:,} bytes, which no row of "
                    f"puzzles is: {self.path}"
                )
            line += len(ends)
            ends = ends - (block[np.maximum(ends - 1, 0)] == ord("\r")) * (ends > starts)
            used = ends > starts  # blank lines are no rows
            yield self._parse(block, starts[used], ends[used], numbers[used])

    def _blocks(self) -> Iterator[UInt8[np.ndarray, "bytes"]]:
        """Blocks of whole lines after the header, each ending in a newline."""
        with open_bytes(self.path) as file:
            first = file.readline(FIRST_BYTES)
            if not first.strip():
                raise DataError(f"The data file is empty: {self.path}")
            self.layout = layout_of(first.decode("utf-8-sig", "replace"), self.path)
            rest = b"" if self.layout.has_header else first.removeprefix(codecs.BOM_UTF8)
            while data := file.read(BLOCK_BYTES):
                whole, newline, tail = data.rpartition(b"\n")
                if newline:
                    yield np.frombuffer(rest + whole + newline, dtype=np.uint8)
                    rest = tail
                else:
                    rest += data
                if len(rest) > LINE_BYTES:
                    break  # what has been read of this line is enough to refuse it
            if rest:
                yield np.frombuffer(rest + b"\n", dtype=np.uint8)

    def _parse(
        self,
        block: UInt8[np.ndarray, "bytes"],
        starts: Int64[np.ndarray, "r"],
        ends: Int64[np.ndarray, "r"],
        lines: Int64[np.ndarray, "r"],
    ) -> Rows:
        layout = self.layout
        assert layout is not None
        edges, codes = _edges(block, starts, ends, layout.columns)
        if self.box is None:
            self.box = _infer_box(block, edges[codes == 0], layout, self.path)
        box = self.box
        _mark(codes, "puzzle length", _length(edges, layout.puzzle) != box.cells)
        if layout.solution is not None:
            _mark(codes, "solution length", _length(edges, layout.solution) != box.cells)
        good = np.flatnonzero(codes == 0)
        edges = edges[good]
        puzzles = VALUE_OF_BYTE[_windows(block, edges[:, layout.puzzle] + 1, box.cells)]
        clues = np.count_nonzero(puzzles, axis=1).astype(np.uint16)
        ratings = np.full(len(good), np.nan, dtype=np.float32)

        found = np.zeros(len(good), dtype=np.uint8)
        _mark(found, "puzzle symbol", puzzles.max(axis=1, initial=0) > box.side)
        if layout.solution is None:
            solutions = self._solved(found, puzzles)
        else:
            solutions = VALUE_OF_BYTE[_windows(block, edges[:, layout.solution] + 1, box.cells)]
            _mark(found, "solution symbol", (solutions - 1).max(axis=1, initial=0) >= box.side)
            _mark(found, "invalid solution", ~valid_grids(solutions, box))
            _mark(found, "givens differ", ((puzzles != solutions) & (puzzles > 0)).any(axis=1))
        if layout.clues is not None:
            _mark(found, "clues", _column(block, edges, layout.clues) != clues)
        if layout.rating is not None:
            ratings = _column(block, edges, layout.rating)
            empty = _length(edges, layout.rating) == 0
            _mark(found, "difficulty", ~(np.isfinite(ratings) & (ratings >= 0)) & ~empty)
        if self.check_unique and layout.solution is not None:
            self._mark_solutions(found, puzzles)
        codes[good] = found
        self._report(codes, lines)
        rows = Rows(puzzles, solutions, clues, ratings)
        return rows.take(found == 0) if found.any() else rows

    def _solved(
        self, codes: UInt8[np.ndarray, "b"], puzzles: UInt8[np.ndarray, "b n"]
    ) -> UInt8[np.ndarray, "b n"]:
        """Solutions of puzzles that came without; what has none or several is marked."""
        from graph_machine.tasks.sudoku.solve import solve

        assert self.box is not None
        solutions = np.zeros_like(puzzles)
        rows = np.flatnonzero(codes == 0)
        solved = solve(puzzles[rows], self.box)
        solutions[rows] = solved.solutions
        codes[rows[solved.counts == 0]] = _CODES["no solution"]
        codes[rows[solved.counts > 1]] = _CODES["several solutions"]
        return solutions

    def _mark_solutions(
        self, codes: UInt8[np.ndarray, "b"], puzzles: UInt8[np.ndarray, "b n"]
    ) -> None:
        from graph_machine.tasks.sudoku.solve import count_solutions

        assert self.box is not None
        # Rows that are good so far have a solution: the one they come with.
        rows = np.flatnonzero(codes == 0)
        counts = count_solutions(puzzles[rows], self.box)
        codes[rows[counts > 1]] = _CODES["several solutions"]

    def _report(self, codes: UInt8[np.ndarray, "r"], lines: Int64[np.ndarray, "r"]) -> None:
        bad = np.flatnonzero(codes)
        if not bad.size:
            return
        reasons = list(REASONS)
        if self.on_bad == "error":
            assert self.box is not None
            assert self.layout is not None
            about = {"columns": self.layout.columns, "layout": self.layout, "box": self.box}
            text = REASONS[reasons[codes[bad[0]] - 1]].format(cells=self.box.cells, **about)
            raise DataError(
                f"Line {lines[bad[0]]}: {text}. To leave such rows out, prepare the file with "
                f"'graph-machine data prepare FILE --on-bad skip' and name its store: {self.path}"
            )
        for code, count in zip(*np.unique(codes[bad], return_counts=True)):
            self.bad[reasons[code - 1]] += int(count)


def _mark(codes: UInt8[np.ndarray, "b"], reason: str, bad: Bool[np.ndarray, "b"]) -> None:
    codes[(codes == 0) & bad] = _CODES[reason]


def _windows(
    block: UInt8[np.ndarray, "bytes"], starts: Int64[np.ndarray, "r"], width: int
) -> UInt8[np.ndarray, "r width"]:
    """`width` bytes from each start, copied row by row."""
    if not len(starts):
        return np.zeros((0, width), dtype=np.uint8)
    return np.lib.stride_tricks.sliding_window_view(block, width)[starts]


def _edges(
    block: UInt8[np.ndarray, "bytes"],
    starts: Int64[np.ndarray, "r"],
    ends: Int64[np.ndarray, "r"],
    columns: int,
) -> tuple[Int64[np.ndarray, "r edges"], UInt8[np.ndarray, "r"]]:
    """Edges of fields (field j of a row lies between edges j and j + 1), and marks of bad rows."""
    commas = np.flatnonzero(block == ord(","))
    first = np.searchsorted(commas, starts)
    count = np.searchsorted(commas, ends) - first
    codes = np.where(count == columns - 1, 0, _CODES["columns"]).astype(np.uint8)
    # Rows with another number of commas are given made-up cuts; they are bad already.
    first = np.minimum(first, max(len(commas) - columns + 1, 0))
    if len(commas) < columns - 1:
        commas = np.zeros(columns - 1, dtype=np.int64)
    cuts = commas[first[:, None] + np.arange(columns - 1)]
    return np.concatenate([starts[:, None] - 1, cuts, ends[:, None]], axis=1), codes


def _length(edges: Int64[np.ndarray, "r edges"], column: int) -> Int64[np.ndarray, "r"]:
    return edges[:, column + 1] - edges[:, column] - 1


def _column(
    block: UInt8[np.ndarray, "bytes"], edges: Int64[np.ndarray, "r edges"], column: int
) -> Float32[np.ndarray, "r"]:
    """The numbers of a column."""
    return _decimals(block, edges[:, column] + 1, edges[:, column + 1])


def _infer_box(
    block: UInt8[np.ndarray, "bytes"],
    edges: Int64[np.ndarray, "r edges"],
    layout: Layout,
    path: str | os.PathLike[str],
) -> BoxShape:
    """The box shape of the most frequent board size, under which most solutions are valid.

    6x6 boards may be of 2x3 or 3x2 boxes: only their solutions tell.
    """
    sizes = _length(edges, layout.puzzle)
    line = 2 if layout.has_header else 1
    if not len(sizes):
        text = REASONS["columns"].format(columns=layout.columns, layout=layout)
        raise DataError(f"Line {line}: {text}. File: {path}")
    values, counts = np.unique(sizes, return_counts=True)
    cells = int(values[counts.argmax()])
    shapes = BoxShape.candidates(cells)
    if not shapes:
        raise DataError(
            f"Line {line}: the puzzle has {count_of(int(sizes[0]), 'cells')}, which no box shape "
            f"has (81 for 3x3, 36 for 2x3). File: {path}"
        )
    if layout.solution is None:
        return shapes[0]
    whole = (sizes == cells) & (_length(edges, layout.solution) == cells)
    sample = VALUE_OF_BYTE[_windows(block, edges[whole, layout.solution][:1000] + 1, cells)]
    return max(shapes, key=lambda box: int(valid_grids(sample, box).sum()))


def _decimals(
    block: UInt8[np.ndarray, "bytes"], starts: Int64[np.ndarray, "r"], ends: Int64[np.ndarray, "r"]
) -> Float32[np.ndarray, "r"]:
    """The numbers between `starts` and `ends`, NaN for what is none (or empty).

    Plain decimals such as 25 or 3.4 are read digit by digit for all rows at once; anything else
    (1e-3, a sign, blanks) is left to Python's float, row by row.
    """
    lengths = ends - starts
    mantissa = np.zeros(len(starts), dtype=np.int64)
    decimals = np.zeros(len(starts), dtype=np.int64)
    points = np.zeros(len(starts), dtype=np.int64)
    plain = (lengths > 0) & (lengths <= 12)
    for at in range(int(lengths[plain].max(initial=0))):
        inside = plain & (at < lengths)
        symbol = block[np.where(inside, starts + at, 0)]
        digit = inside & (symbol >= ord("0")) & (symbol <= ord("9"))
        point = inside & (symbol == ord("."))
        plain &= digit | point | ~inside
        mantissa = np.where(digit, mantissa * 10 + (symbol.astype(np.int64) - ord("0")), mantissa)
        points += point
        decimals += digit & (points > 0)
    plain &= (points <= 1) & (lengths > points)
    values = (mantissa / np.power(10.0, decimals)).astype(np.float32)
    for row in np.flatnonzero(~plain):
        values[row] = _float(block[starts[row] : ends[row]])
    return values


def _float(field_bytes: Shaped[np.ndarray, "bytes"]) -> float:
    try:
        return float(field_bytes.tobytes())
    except ValueError:
        return float("nan")
