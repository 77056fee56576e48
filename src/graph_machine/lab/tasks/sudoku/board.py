"""Boards of boxes: box shapes, text -> cells."""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from graph_machine.errors import DataError
from graph_machine.lab.config import MAX_SIDE, parse_box
from graph_machine.lab.tasks.digits import parse_cells, units_of, valid_boards
from graph_machine.lab.tasks.rows import Boards, Cells


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
        return text if isinstance(text, BoxShape) else cls(*parse_box(text, DataError))

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

    @cached_property
    def regions(self) -> Cells:
        """The box of every cell."""
        row, col = np.divmod(np.arange(self.cells), self.side)
        return (row // self.rows * self.rows + col // self.cols).astype(np.uint8)

    @property
    def units(self) -> Int[np.ndarray, "units side"]:
        """The cells of every row, then of every column, then of every box."""
        return units_of(self.regions)

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}"


Shape = BoxShape | Boards  # boxes, or the regions of every board


def regions_at(shape: Shape, row: int) -> Cells:
    """The regions of one board."""
    return shape.regions if isinstance(shape, BoxShape) else shape[row]


def parse_board(text: str, box: BoxShape | None = None) -> Cells:
    """Cells of a board written as text; white space and the lines of a drawing are ignored.

    >>> parse_board("..3...4..4...2..")[:4]
    array([0, 0, 3, 0], dtype=uint8)
    """
    compact = re.sub(r"[\s|+│─┌┬┐├┼┤└┴┘-]", "", text)
    box = box or BoxShape.of_cells(len(compact))
    if len(compact) != box.cells:
        raise DataError(f"Board of {len(compact)} cells: expected {box.cells} for box {box}.")
    return parse_cells(compact, box.side)


def valid_grids(grids: Boards, box: BoxShape) -> Bool[np.ndarray, "b"]:
    """Which boards hold every digit once in every row, column and box.

    >>> grids = np.stack([parse_board("4132234114233214"), parse_board("4132234114233241")])  # b n
    >>> valid_grids(grids, BoxShape(2, 2))
    array([ True, False])
    """
    return valid_boards(grids, box.regions[None])
