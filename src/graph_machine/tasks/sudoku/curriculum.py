"""Easier puzzles first: clues put back into training puzzles, fewer and fewer of them."""

import numpy as np
from jaxtyping import UInt8

from graph_machine.tasks.hashing import stream_key


def most_clues(start: int, end: int, ramp: float, progress: float) -> int:
    """Most clues to put back when a share `progress` of the training is done."""
    return round(end + (start - end) * max(0.0, 1.0 - progress / ramp))


def put_back(
    puzzles: UInt8[np.ndarray, "b n"], solutions: UInt8[np.ndarray, "b n"], most: int, key: int
) -> UInt8[np.ndarray, "b n"]:
    """Puzzles with 0 to `most` of their blanks filled in, as many as chance and `key` say."""
    random = np.random.Generator(np.random.PCG64(key))
    counts = random.integers(0, most + 1, size=(len(puzzles), 1))
    order = random.random(puzzles.shape)
    order[puzzles > 0] = 2.0  # givens come last, so that only blanks are filled in
    rank = order.argsort(axis=1).argsort(axis=1)
    return np.where((rank < counts) & (puzzles == 0), solutions, puzzles)


def curriculum_key(seed: int, step: int) -> int:
    return stream_key("curriculum", seed, step)
