"""Changes of a jigsaw puzzle that keep it one: digits relabelled, the board turned or mirrored."""

import numpy as np
from jaxtyping import Int64

from graph_machine.tasks.disguise import digit_names, symmetries
from graph_machine.tasks.hashing import stream
from graph_machine.tasks.jigsaw.generate import Jigsaws
from graph_machine.tasks.jigsaw.regions import in_reading_order


def augment(rows: Jigsaws, key: int, *, turn: bool) -> Jigsaws:
    """Every board gets its own draw, decided only by the key; `turn` also moves cells."""
    return changed(rows, *draw(len(rows.puzzles), rows.side, key, turn=turn))


def draw(
    count: int, side: int, key: int, *, turn: bool
) -> tuple[Int64[np.ndarray, "b n"], Int64[np.ndarray, "b names"]]:
    """Per board, for each new cell the old cell that moves there; and the new names of digits."""
    draws = stream(key, count * (side + 1)).reshape(count, side + 1)
    which = (draws[:, side] >> np.uint64(61)).astype(np.int64) if turn else np.zeros(count, int)
    return symmetries(side)[which], digit_names(draws[:, :side])


def changed(
    rows: Jigsaws, cells: Int64[np.ndarray, "b n"], names: Int64[np.ndarray, "b names"]
) -> Jigsaws:
    """Boards with moved cells and other digits."""
    puzzles, solutions, regions = (
        np.take_along_axis(old, cells, axis=1)
        for old in (rows.puzzles, rows.solutions, rows.regions)
    )
    puzzles, solutions = (
        np.take_along_axis(names.astype(np.uint8), old.astype(np.int64), axis=1)
        for old in (puzzles, solutions)
    )
    return Jigsaws(puzzles, in_reading_order(regions), solutions, rows.ratings)
