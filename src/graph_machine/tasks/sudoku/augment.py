"""Changes of a board that keep it a valid Sudoku: relabelling and moving of whole lines."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt8, UInt64

from graph_machine.tasks.disguise import digit_names
from graph_machine.tasks.hashing import stream
from graph_machine.tasks.sudoku.board import BoxShape


@dataclass(frozen=True)
class Augment:
    """Relabel digits, permute bands, rows, stacks and columns, transpose; each can be left out.

    Every board of a batch gets its own draw, decided only by the key. Transposing would turn
    the boxes of a non-square shape, so it happens for square ones only. Ratings and clue counts
    do not change under any of these.

    >>> from graph_machine.tasks.sudoku.board import parse_board, valid_grids
    >>> puzzle, solution = parse_board("..3...4..4...2.."), parse_board("4132234114233214")
    >>> puzzles, solutions = Augment(BoxShape(2, 2))(puzzle[None], solution[None], 7)  # b n each
    >>> valid_grids(solutions, BoxShape(2, 2))
    array([ True])
    """

    box: BoxShape
    relabel: bool = True
    lines: bool = True
    transpose: bool = True

    def __call__(
        self, puzzles: UInt8[np.ndarray, "b n"], solutions: UInt8[np.ndarray, "b n"], key: int
    ) -> tuple[UInt8[np.ndarray, "b n"], UInt8[np.ndarray, "b n"]]:
        cells, names = self.draw(len(puzzles), key)
        puzzles = np.take_along_axis(puzzles, cells, axis=1)
        solutions = np.take_along_axis(solutions, cells, axis=1)
        if not self.relabel:
            return puzzles, solutions
        labels = names.astype(np.uint8)
        return (
            np.take_along_axis(labels, puzzles.astype(np.int64), axis=1),
            np.take_along_axis(labels, solutions.astype(np.int64), axis=1),
        )

    def draw(
        self, count: int, key: int
    ) -> tuple[Int64[np.ndarray, "b n"], Int64[np.ndarray, "b names"]]:
        """Per board, for each new cell the old cell that moves there; and the new name of a blank
        (always 0) and of each digit."""
        side = self.box.side
        # Per board: side numbers for digits, then 2 * (side lines + side groups), then one.
        width = 5 * side + 1
        draws = stream(key, count * width).reshape(count, width)
        return self._cells(draws[:, side:]), digit_names(draws[:, :side])

    def _cells(self, draws: UInt64[np.ndarray, "b d"]) -> Int64[np.ndarray, "b n"]:
        """For each new cell, the old cell that moves there."""
        count, side = len(draws), self.box.side
        rows = np.broadcast_to(np.arange(side), (count, side))
        columns = rows
        if self.lines:
            rows = _line_order(draws[:, : 2 * side], self.box.rows)
            columns = _line_order(draws[:, 2 * side : 4 * side], self.box.cols)
        cells = rows[:, :, None] * side + columns[:, None, :]  # b side side
        if self.transpose and self.box.is_square:
            turn = (draws[:, -1] >> np.uint64(63)).astype(bool)
            cells = np.where(turn[:, None, None], cells.swapaxes(1, 2), cells)
        return cells.reshape(count, side * side)


def _line_order(draws: UInt64[np.ndarray, "b d"], size: int) -> Int64[np.ndarray, "b side"]:
    """A random order of lines that keeps groups of `size` neighbours together."""
    count, side = len(draws), draws.shape[1] // 2
    groups = np.argsort(draws[:, : side // size], axis=1)  # b groups
    inside = np.argsort(draws[:, side:].reshape(count, side // size, size), axis=2)
    return (groups[:, :, None] * size + inside).reshape(count, side)
