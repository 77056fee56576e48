"""Puzzles of digits, whatever their regions: symbols, rules, pictures, and a model's answer.

A board is a row-major array of `n = side * side` cells in uint8: 0 is a blank, 1..side a digit.
In text, digits past 9 are letters (10 is A); `.` or `0` is a blank. `regions` holds the label of
each cell: its box in Sudoku.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer, UInt8, UInt64
from rich.text import Text

from graph_machine.errors import DataError, count_of
from graph_machine.lab.tasks.answers import Answer, Disguise
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.rows import Boards, Cells, Moves, Names

SYMBOLS = ".123456789ABCDEFGHIJKLMNOP"
# byte of a text file -> cell value, 255 for other bytes
VALUE_OF_BYTE = np.full(256, 255, dtype=np.uint8)
for _symbols in (SYMBOLS, SYMBOLS.lower(), "0"):
    VALUE_OF_BYTE[[ord(symbol) for symbol in _symbols]] = range(len(_symbols))
BYTE_OF_VALUE = np.frombuffer(SYMBOLS.encode(), dtype=np.uint8)


def cell_values(text: str) -> UInt8[np.ndarray, "cells"]:
    """The value of each symbol; 255 for other characters."""
    return VALUE_OF_BYTE[np.frombuffer(text.encode("latin-1", "replace"), dtype=np.uint8)]


def parse_cells(text: str, side: int) -> Cells:
    """The cells of a board, one symbol each; an error names the first wrong one."""
    values = cell_values(text)
    for cell in np.flatnonzero(values > side)[:1].tolist():
        raise DataError(
            f"Board symbol '{text[cell]}' in {cell_words(cell, side)} (cell {cell + 1} of "
            f"{side * side}): expected {SYMBOLS[1]}..{SYMBOLS[side]}, or '.' for a blank."
        )
    return values


def format_board(cells: Cells) -> str:
    """One line of text, `.` for a blank.

    >>> format_board(np.array([0, 0, 3, 0], dtype=np.uint8))
    '..3.'
    """
    return BYTE_OF_VALUE[cells].tobytes().decode()


def cell_words(cell: int, side: int) -> str:
    """`row 1, column 3`, both counted from 1."""
    return f"row {cell // side + 1}, column {cell % side + 1}"


def units_of(regions: Cells) -> Int[np.ndarray, "units side"]:
    """The cells of every row, then of every column, then of every region."""
    side = round(len(regions) ** 0.5)
    grid = np.arange(len(regions)).reshape(side, side)
    return np.concatenate([grid, grid.T, regions.argsort(kind="stable").reshape(side, side)])


def valid_boards(grids: Boards, regions: UInt8[np.ndarray, "r n"]) -> Bool[np.ndarray, "b"]:
    """Which boards hold every digit once in every row, column and region.

    `regions` has one row for all boards, or one for each. Written without the kernels, so that each
    checks the other.
    """
    side = round(grids.shape[1] ** 0.5)
    bit_of_value = np.zeros(256, dtype=np.uint32)  # 0 at blanks: they leave a bit unset
    bit_of_value[1 : side + 1] = np.uint32(1) << np.arange(side, dtype=np.uint32)
    order = regions.argsort(axis=1, kind="stable")
    inside = grids[:, order[0]] if len(order) == 1 else np.take_along_axis(grids, order, axis=1)
    good = np.ones(len(grids), dtype=bool)
    for cells, axis in ((grids, 2), (grids, 1), (inside, 2)):
        bits = bit_of_value[cells].reshape(-1, side, side)
        found = np.bitwise_or.reduce(bits, axis=axis) == np.uint32((1 << side) - 1)
        good &= found.all(axis=1)
    return good


def conflicts(cells: Cells, regions: Cells) -> Bool[np.ndarray, "n"]:
    """Cells whose digit stands twice in a row, column or region."""
    bad = np.zeros(len(cells), dtype=bool)
    for unit in units_of(regions):
        digits = cells[unit]
        bad[unit] |= (np.bincount(digits)[digits] > 1) & (digits > 0)
    return bad


def contradiction(cells: Cells, regions: Cells) -> str | None:
    """Two givens that exclude each other, in words; None if there are none."""
    for unit in units_of(regions):
        seen: dict[int, int] = {}
        for cell in unit[cells[unit] > 0].tolist():
            digit = int(cells[cell])
            if digit in seen:
                first, second = (cell_words(one, unit.size) for one in (seen[digit], cell))
                return (
                    f"The givens contradict each other: {SYMBOLS[digit]} in {first} and {second}."
                )
            seen[digit] = cell
    return None


# By which of its four arms (up 1, down 2, left 4, right 8) a corner of cells has a border.
CORNERS = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"


def draw_digits(
    puzzle: Cells,
    regions: Cells,
    *,
    filled: Cells | None = None,
    wrong: Bool[np.ndarray, "n"] | None = None,
    confidence: Float[np.ndarray, "n"] | None = None,
    marks: bool = True,
) -> Text:
    """A board with the borders of its regions, for `rich`; `.plain` is the same without colour.

    `filled` gives the values of the blanks, `wrong` marks cells, `confidence` (0..1) is shown in
    percent beside each filled cell; all are (n,). With `marks`, filled cells carry ' and wrong
    ones !, so that the drawing can be read without colour.

    >>> regions = np.array([0, 0, 1, 1] * 2 + [2, 2, 3, 3] * 2, dtype=np.uint8)
    >>> draw_digits(np.zeros(16, dtype=np.uint8), regions).plain.splitlines()[0]
    '┌─────┬─────┐'
    """
    side = round(len(puzzle) ** 0.5)
    values = puzzle if filled is None else np.where(puzzle > 0, puzzle, filled)
    marks = marks and filled is not None
    width = 2 + marks + 3 * (confidence is not None)
    framed = np.pad(regions.reshape(side, side).astype(np.int64), 1, constant_values=-1)
    left = np.pad(framed[1:-1, 1:] != framed[1:-1, :-1], ((1, 1), (0, 0)))  # side + 2, side + 1
    above = np.pad(framed[1:, 1:-1] != framed[:-1, 1:-1], ((0, 0), (1, 1)))  # side + 1, side + 2
    # Between boxes, whose borders all go through, lines without a border are left out.
    boxes = (left[1:-1] == left[1]).all() and (above[:, 1:-1] == above[:, 1:2]).all()
    split = left[1] | ~boxes
    text = Text()
    for row in range(side + 1):
        if above[row].any() or not boxes:
            rule = ""
            for col in range(side + 1):
                arms = (left[row, col], left[row + 1, col], above[row, col], above[row, col + 1])
                corner = CORNERS[sum(1 << bit for bit, arm in enumerate(arms) if arm)]
                line = "─" if above[row, col + 1] else " "
                rule += (corner + line if split[col] else "") + line * width * (col < side)
            text.append(rule[:-1] + "\n", style="dim")
        for cell in range(row * side, (row + 1) * side) if row < side else ():
            value, given = int(values[cell]), bool(puzzle[cell])
            bad = wrong is not None and bool(wrong[cell])
            if split[cell % side]:
                text.append("│ " if left[row + 1, cell % side] else "  ", style="dim")
            style = "bold red reverse" if bad else "bold" if given else "cyan" if value else "dim"
            mark = "!" if bad else "'" if value and not given else " "
            text.append(SYMBOLS[value] + mark * marks + " ", style=style)
            if confidence is not None:
                shown = "   " if given else f"{min(99, round(100 * float(confidence[cell]))):2d} "
                text.append(shown, style="dim")
        if row < side:
            text.append("│\n", style="dim")
    text.right_crop(1)
    return text


class Solved(NamedTuple):
    """A solution of each puzzle (0s if there is none) and how many it has, up to the limit.

    >>> from graph_machine.lab.tasks.sudoku.board import BoxShape, parse_board
    >>> from graph_machine.lab.tasks.sudoku.solve import solve
    >>> solve(parse_board("..3...4..4...2..")[None], BoxShape(2, 2)).counts
    array([1], dtype=uint8)
    """

    solutions: Boards
    counts: UInt8[np.ndarray, "b"]


@dataclass(frozen=True)
class FilledBoard(Answer):
    """Givens stay as they are; the model fills the blanks."""

    puzzle: Cells
    regions: Cells
    puzzle_text: Callable[[], str]  # the puzzle as `Task.parse` reads it
    filled: Cells
    confidence: Float[np.ndarray, "n"]  # probability of the digit; 1 at givens
    solutions: int | None = None  # of the puzzle, counted up to 2, where it was checked
    exact: Cells | None = None  # the solution, where there is exactly one

    @property
    def text(self) -> str:
        return format_board(self.filled)

    @property
    def valid(self) -> bool:
        """Every row, column and region holds every digit once."""
        return bool(valid_boards(self.filled[None], self.regions[None])[0])

    @property
    def wrong(self) -> Bool[np.ndarray, "n"]:
        """Cells that differ from the exact solution if it is known, else cells in conflict."""
        if self.exact is not None:
            return self.filled != self.exact
        return conflicts(self.filled, self.regions)

    def draw(self, *, confidence: bool = False) -> Text:
        sure = self.confidence if confidence else None
        how = {"filled": self.filled, "wrong": self.wrong, "confidence": sure}
        return draw_digits(self.puzzle, self.regions, **how)

    def verdict(self) -> str:
        text = "a valid solution" if self.valid else "not a valid solution"
        if self.solutions is not None:
            counts = {0: "has no solution", 1: "has one solution"}
            text += f"; the puzzle {counts.get(self.solutions, 'has more than one solution')}"
        if self.exact is not None:
            wrong = int(self.wrong.sum())
            differs = f"from which this differs in {count_of(wrong, 'cells')}"
            text += f", {differs if wrong else 'which this is'}"
        blanks = np.flatnonzero(self.puzzle == 0)
        if blanks.size:
            sure = self.confidence[blanks]
            where = cell_words(int(blanks[sure.argmin()]), round(len(self.puzzle) ** 0.5))
            text += f". Confidence: mean {sure.mean():.1%}, lowest {sure.min():.1%} ({where})"
        return text + "."

    def to_dict(self) -> dict[str, Any]:
        return {
            "puzzle": self.puzzle_text(),
            "answer": self.text,
            "valid": self.valid,
            "confidence": [round(float(value), 6) for value in self.confidence],
            "wrong": np.flatnonzero(self.wrong).tolist(),
            "solutions": self.solutions,
            "exact": None if self.exact is None else format_board(self.exact),
        }


def digit_names(draws: UInt64[np.ndarray, "b side"]) -> Names:
    """A random new name for each digit, from random numbers; a blank (0) stays a blank."""
    names = np.argsort(draws, axis=1) + 1
    return np.concatenate([np.zeros_like(names[:, :1]), names], axis=1)


def moved(
    boards: Integer[np.ndarray, "b n"], cells: Moves, names: Names | None = None
) -> Integer[np.ndarray, "b n"]:
    """Boards with moved cells (for each new cell, the old one) and new names of digits."""
    boards = np.take_along_axis(boards, cells, axis=1)
    if names is None:
        return boards
    return np.take_along_axis(names.astype(boards.dtype), boards.astype(np.int64), axis=1)


def of_digits(batch: Batch, cells: Moves, names: Names) -> Disguise:
    """A disguised batch of boards whose outputs are digits."""
    return Disguise(batch, torch.from_numpy(cells), torch.from_numpy(names[:, 1:] - 1))
