"""Boards: box shapes, the symbols of a cell, text <-> array, and drawing in a terminal.

A board is a row-major array of `n = side * side` cells in uint8: 0 is a blank, 1..side a digit.
In text, digits past 9 are letters (10 is A); `.` or `0` is a blank.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, Int64, UInt8
from rich.text import Text

from graph_machine.errors import DataError
from graph_machine.lab.config import MAX_SIDE, parse_box
from graph_machine.lab.tasks.digits import SYMBOLS, VALUE_OF_BYTE, FilledBoard, format_board


@dataclass(frozen=True)
class BoxShape:
    """A box of `rows` by `cols` cells; the board has side `rows * cols`. `2x3` is the usual 6x6.

    >>> box = BoxShape(2, 3)
    >>> box.side
    6
    """

    rows: int
    cols: int

    def __post_init__(self) -> None:
        parse_box(str(self), DataError)

    @classmethod
    def parse(cls, text: "str | BoxShape") -> "BoxShape":
        """Read `3x3` or `2x3` (rows by columns of one box)."""
        if isinstance(text, BoxShape):
            return text
        return cls(*parse_box(text, DataError))

    @classmethod
    def candidates(cls, cells: int) -> "list[BoxShape]":
        """Every box shape of a board of `cells` cells, the most usual first (2x3 before 3x2)."""
        side = round(cells**0.5)
        if cells < 16 or side * side != cells or side > MAX_SIDE:
            return []
        shapes = [cls(r, side // r) for r in range(2, side // 2 + 1) if side % r == 0]
        return sorted(shapes, key=lambda box: (abs(box.rows - box.cols), box.rows))

    @classmethod
    def of_cells(cls, cells: int) -> "BoxShape":
        """The most usual box shape of a board of `cells` cells."""
        shapes = cls.candidates(cells)
        if not shapes:
            raise DataError(
                f"A board of {cells} cells has no box shape: expected 16, 36, 64, 81, 100, 144, "
                "225, 256, ... cells."
            )
        return shapes[0]

    @property
    def side(self) -> int:
        """Rows (and columns) of a board."""
        return self.rows * self.cols

    @property
    def cells(self) -> int:
        """Cells of a board."""
        return self.side * self.side

    @property
    def is_square(self) -> bool:
        """Whether a box has as many rows as columns."""
        return self.rows == self.cols

    @cached_property
    def units(self) -> Int64[np.ndarray, "units side"]:
        """The cells of every row, then of every column, then of every box."""
        grid = np.arange(self.cells).reshape(self.side, self.side)
        boxes = grid.reshape(self.cols, self.rows, self.rows, self.cols).swapaxes(1, 2)
        return np.concatenate([grid, grid.T, boxes.reshape(self.side, self.side)])

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}"


def parse_board(text: str, box: BoxShape | None = None) -> UInt8[np.ndarray, "n"]:
    """Cells of a board written as text; white space and the lines of a drawing are ignored.

    >>> parse_board("..3...4..4...2..")[:4]
    array([0, 0, 3, 0], dtype=uint8)
    """
    compact = re.sub(r"[\s|+│─┌┬┐├┼┤└┴┘-]", "", text)
    if box is None:
        box = BoxShape.of_cells(len(compact))
    if len(compact) != box.cells:
        raise DataError(f"Board of {len(compact)} cells: expected {box.cells} for box {box}.")
    values = VALUE_OF_BYTE[np.frombuffer(compact.encode("latin-1", "replace"), dtype=np.uint8)]
    bad = np.flatnonzero(values > box.side)
    if bad.size:
        where = int(bad[0])
        raise DataError(
            f"Board symbol '{compact[where]}' in {cell_words(where, box)} (cell {where + 1} of "
            f"{box.cells}): expected {SYMBOLS[1]}..{SYMBOLS[box.side]}, or '.' for a blank (box "
            f"{box})."
        )
    return values


def cell_words(cell: int, box: BoxShape) -> str:
    """`row 1, column 3`, both counted from 1."""
    row, column = divmod(cell, box.side)
    return f"row {row + 1}, column {column + 1}"


def contradiction(cells: UInt8[np.ndarray, "n"], box: BoxShape) -> str | None:
    """Two givens that exclude each other, in words; None where there are none."""
    for unit in box.units:
        seen: dict[int, int] = {}
        for cell in unit.tolist():
            digit = int(cells[cell])
            if digit and digit in seen:
                first, second = (cell_words(one, box) for one in (seen[digit], cell))
                return (
                    f"The givens contradict each other: {SYMBOLS[digit]} in {first} and {second}."
                )
            seen[digit] = cell
    return None


def valid_grids(grids: UInt8[np.ndarray, "b n"], box: BoxShape) -> Bool[np.ndarray, "b"]:
    """Which boards hold every digit once in every row, column and box.

    >>> grids = np.stack([parse_board("4132234114233214"), parse_board("4132234114233241")])  # b n
    >>> valid_grids(grids, BoxShape(2, 2))
    array([ True, False])
    """
    side = box.side
    # A cell that is blank or out of range sets a bit outside of `full` or leaves one unset.
    bit_of_value = np.zeros(256, dtype=np.uint32)
    bit_of_value[1 : side + 1] = np.uint32(1) << np.arange(side, dtype=np.uint32)
    full = np.uint32((1 << side) - 1)
    dtype = np.uint16 if side <= 16 else np.uint32
    bits = bit_of_value.astype(dtype)[grids].reshape(-1, side, side)
    rows_ok = (np.bitwise_or.reduce(bits, axis=2) == full).all(axis=1)
    columns_ok = (np.bitwise_or.reduce(bits, axis=1) == full).all(axis=1)
    boxed = bits.reshape(-1, box.cols, box.rows, box.rows, box.cols)
    boxes = np.bitwise_or.reduce(np.bitwise_or.reduce(boxed, axis=4), axis=2)
    return rows_ok & columns_ok & (boxes == full).all(axis=(1, 2))


def draw_board(
    puzzle: UInt8[np.ndarray, "n"],
    box: BoxShape,
    *,
    filled: UInt8[np.ndarray, "n"] | None = None,
    wrong: Bool[np.ndarray, "n"] | None = None,
    confidence: Float[np.ndarray, "n"] | None = None,
    marks: bool = True,
) -> Text:
    """A board with box lines, for `rich`; `.plain` is the same without colour.

    `filled` gives the values of the blanks, `wrong` marks cells, `confidence` (0..1) is shown in
    percent beside each filled cell. With `marks`, filled cells carry ' and wrong ones !, so that
    the drawing can be read without colour.

    >>> print(draw_board(parse_board("..3...4..4...2.."), BoxShape(2, 2)).plain)
    ┌─────┬─────┐
    │ . . │ 3 . │
    │ . . │ 4 . │
    ├─────┼─────┤
    │ . 4 │ . . │
    │ . 2 │ . . │
    └─────┴─────┘
    """
    values = puzzle if filled is None else np.where(puzzle > 0, puzzle, filled)
    marks = marks and values is not puzzle
    width = 2 + marks + 3 * (confidence is not None)
    line = "─" * (width * box.cols + 1)
    text = Text()

    def rule(left: str, middle: str, right: str) -> None:
        text.append(left + middle.join([line] * box.rows) + right + "\n", style="dim")

    rule("┌", "┬", "┐")
    for row in range(box.side):
        if row and row % box.rows == 0:
            rule("├", "┼", "┤")
        for column in range(box.side):
            if column % box.cols == 0:
                text.append("│ ", style="dim")
            cell = row * box.side + column
            given = bool(puzzle[cell])
            bad = wrong is not None and bool(wrong[cell])
            text.append(*_cell(int(values[cell]), given, bad, marks))
            if confidence is not None:
                shown = "   " if given else f"{min(99, round(100 * float(confidence[cell]))):2d} "
                text.append(shown, style="dim")
        text.append("│\n", style="dim")
    rule("└", "┴", "┘")
    text.right_crop(1)
    return text


def _cell(value: int, given: bool, wrong: bool, marks: bool) -> tuple[str, str]:
    """Text and style of one cell."""
    mark = "!" if wrong else "'" if value and not given else " "
    style = "bold red reverse" if wrong else "bold" if given else "cyan" if value else "dim"
    return SYMBOLS[value] + (mark if marks else "") + " ", style


@dataclass(frozen=True, kw_only=True)
class BoardAnswer(FilledBoard):
    """A filled board whose regions are boxes."""

    box: BoxShape

    @property
    def units(self) -> Int[np.ndarray, "units side"]:
        return self.box.units

    @property
    def puzzle_text(self) -> str:
        return format_board(self.puzzle)

    def draw(self, *, confidence: bool = False) -> Text:
        return draw_board(
            self.puzzle,
            self.box,
            filled=self.filled,
            wrong=self.wrong,
            confidence=self.confidence if confidence else None,
        )
