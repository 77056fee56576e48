"""Whether puzzles occur in the training data: a puzzle whose digits are renamed is the same one."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, UInt8

from graph_machine.tasks.sudoku.store import SudokuStore

CHUNK = 65_536


def canonical(
    puzzles: UInt8[np.ndarray, "b n"], solutions: UInt8[np.ndarray, "b n"], side: int
) -> UInt8[np.ndarray, "b n"]:
    """Puzzles with their digits renamed so that the solution's first row reads 1, 2, 3, ..."""
    names = np.zeros((len(puzzles), side + 1), dtype=np.uint8)  # 0 stays a blank
    order = np.arange(1, side + 1, dtype=np.uint8)
    np.put_along_axis(names, solutions[:, :side].astype(np.int64), order[None], axis=1)
    return np.take_along_axis(names, puzzles.astype(np.int64), axis=1)


def seen_in(
    rows: SudokuStore, chosen: np.ndarray, other: SudokuStore, among: np.ndarray
) -> Bool[np.ndarray, "b"]:
    """For each chosen row of a store, whether the same puzzle is among these rows of another."""
    side = rows.box.side

    def keys(store: SudokuStore, index: np.ndarray) -> Iterator[bytes]:
        for start in range(0, len(index), CHUNK):
            part = index[start : start + CHUNK]
            puzzles, solutions = np.asarray(store.puzzles[part]), np.asarray(store.solutions[part])
            yield from (row.tobytes() for row in canonical(puzzles, solutions, side))

    # The rows that are asked about are the fewer ones.
    asked = list(keys(rows, chosen))
    wanted = set(asked)
    known = {key for key in keys(other, among) if key in wanted}
    return np.array([key in known for key in asked], dtype=bool)
