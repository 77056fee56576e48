"""Changes that keep a board a valid Sudoku, clues put back, puzzles that are equal up to names."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt64

from graph_machine.lab.tasks.digits import digit_names, moved
from graph_machine.lab.tasks.rows import Boards, Keys, Moves, Names, mix, stream, stream_key
from graph_machine.lab.tasks.sudoku.board import BoxShape


@dataclass(frozen=True)
class Augment:
    """Relabel digits, permute bands, rows, stacks and columns, transpose; each can be left out.

    Every board of a batch gets its own draw, decided only by the key. Transposing would turn
    the boxes of a non-square shape, so it happens for square ones only. Ratings and clue counts
    do not change under any of these.

    >>> from graph_machine.lab.tasks.sudoku.board import parse_board, valid_grids
    >>> puzzle, solution = parse_board("..3...4..4...2.."), parse_board("4132234114233214")
    >>> puzzles, solutions = Augment(BoxShape(2, 2))(puzzle[None], solution[None], 7)  # b n each
    >>> valid_grids(solutions, BoxShape(2, 2))
    array([ True])
    """

    box: BoxShape
    relabel: bool = True
    lines: bool = True
    transpose: bool = True

    def __call__(self, puzzles: Boards, solutions: Boards, key: int) -> tuple[Boards, Boards]:
        cells, names = self.random_moves(len(puzzles), key)
        labels = names if self.relabel else None
        return moved(puzzles, cells, labels), moved(solutions, cells, labels)

    def random_moves(self, count: int, key: int) -> tuple[Moves, Names]:
        """Per board, for each new cell the old cell that moves there; and the new name of a blank
        (always 0) and of each digit."""
        side = self.box.side
        # Per board: side numbers for digits, then 2 * (side lines + side groups), then one.
        width = 5 * side + 1
        draws = stream(key, count * width).reshape(count, width)
        return self._cells(draws[:, side:]), digit_names(draws[:, :side])

    def _cells(self, draws: UInt64[np.ndarray, "b d"]) -> Moves:
        """For each new cell, the old cell that moves there."""
        count, side = len(draws), self.box.side
        rows = np.broadcast_to(np.arange(side), (count, side))
        columns = rows
        if self.lines:
            rows = _line_order(draws[:, : 2 * side], self.box.rows)
            columns = _line_order(draws[:, 2 * side : 4 * side], self.box.cols)
        cells = rows[:, :, None] * side + columns[:, None, :]  # b side side
        if self.transpose and self.box.rows == self.box.cols:
            turn = (draws[:, -1] >> np.uint64(63)).astype(bool)
            cells = np.where(turn[:, None, None], cells.swapaxes(1, 2), cells)
        return cells.reshape(count, side * side)


def _line_order(draws: UInt64[np.ndarray, "b d"], size: int) -> Int64[np.ndarray, "b side"]:
    """A random order of lines that keeps groups of `size` neighbours together."""
    count, side = len(draws), draws.shape[1] // 2
    groups = np.argsort(draws[:, : side // size], axis=1)  # b groups
    inside = np.argsort(draws[:, side:].reshape(count, side // size, size), axis=2)
    return (groups[:, :, None] * size + inside).reshape(count, side)


def with_clues(puzzles: Boards, solutions: Boards, most: int, key: int) -> Boards:
    """Puzzles with 0 to `most` of their blanks filled in, as many as chance and `key` say."""
    random = np.random.Generator(np.random.PCG64(key))
    counts = random.integers(0, most + 1, size=(len(puzzles), 1))
    order = random.random(puzzles.shape)
    order[puzzles > 0] = 2.0  # givens come last, so that only blanks are filled in
    rank = order.argsort(axis=1).argsort(axis=1)
    return np.where((rank < counts) & (puzzles == 0), solutions, puzzles)


def fingerprints(puzzles: Boards) -> Keys:
    """64 bits of each puzzle that do not depend on how its digits are named.

    Digits are renamed in the order in which they first appear, then the cells are hashed. Two
    different puzzles that share a fingerprint (odds of 1 in 4 million among 3 million of them)
    would be taken for equal.
    """
    count, cells = puzzles.shape
    side = round(cells**0.5)
    labels = np.zeros((count, side + 1), dtype=np.uint64)
    first = np.full((count, side), cells)
    for digit in range(1, side + 1):
        hits = puzzles == digit
        first[:, digit - 1] = np.where(hits.any(axis=1), hits.argmax(axis=1), cells)
    labels[:, 1:] = np.argsort(np.argsort(first, axis=1, kind="stable"), axis=1) + 1
    named = np.take_along_axis(labels, puzzles.astype(np.int64), axis=1)
    weights = stream(stream_key("finger"), cells) | np.uint64(1)
    return (mix(named + np.uint64(1)) * weights).sum(axis=1, dtype=np.uint64)
