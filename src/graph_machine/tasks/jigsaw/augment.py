"""Changes of a jigsaw puzzle that keep it one: digits relabelled, the board turned or mirrored."""

import numpy as np

from graph_machine.tasks.hashing import stream
from graph_machine.tasks.jigsaw.generate import Jigsaws
from graph_machine.tasks.jigsaw.regions import in_reading_order, symmetries


def augment(rows: Jigsaws, key: int, *, turn: bool) -> Jigsaws:
    """Every board gets its own draw, decided only by the key; `turn` also moves cells."""
    count, side = rows.puzzles.shape[0], rows.side
    draws = stream(key, count * (side + 1)).reshape(count, side + 1)
    labels = np.zeros((count, side + 1), dtype=np.uint8)  # a blank stays a blank
    labels[:, 1:] = np.argsort(draws[:, :side], axis=1) + 1
    puzzles, solutions = (
        np.take_along_axis(labels, cells.astype(np.int64), axis=1)
        for cells in (rows.puzzles, rows.solutions)
    )
    regions = rows.regions
    if turn:
        moves = symmetries(side)[(draws[:, side] >> np.uint64(61)).astype(np.int64)]
        puzzles, solutions, regions = (
            np.take_along_axis(cells, moves, axis=1) for cells in (puzzles, solutions, regions)
        )
        regions = in_reading_order(regions)
    return Jigsaws(puzzles, regions, solutions, rows.ratings)
