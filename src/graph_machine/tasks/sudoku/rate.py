"""The data set's difficulty rating (needs the extra `data`).

0 if naked and hidden singles solve the puzzle; else the mean depth of the guess stack of a
randomised solver: it guesses where the fewest choices are left, over cells and over the places of
a digit in a row, column or box, ties at random.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float32, UInt8, UInt64

from graph_machine.errors import DataError
from graph_machine.tasks.hashing import stream, stream_key
from graph_machine.tasks.sudoku.board import BoxShape, contradiction
from graph_machine.tasks.sudoku.solve import as_cells, kernels, solve

# The data set averages 10 attempts; files that we make do the same. Two such ratings of the same
# puzzles correlate at 0.89 only; with more attempts the same quantity has less noise.
DATASET_ATTEMPTS = 10
ATTEMPTS = 40
_BLOCK = 1000


def rate(
    puzzles: UInt8[np.ndarray, "b n"],
    box: BoxShape,
    solutions: UInt8[np.ndarray, "b n"] | None = None,
    *,
    seed: int = 0,
    attempts: int = ATTEMPTS,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Float32[np.ndarray, "b"]:
    """Rate puzzles that have a solution; the same seed gives the same ratings.

    >>> from graph_machine.tasks.sudoku.board import parse_board
    >>> rate(parse_board("..3...4..4...2..")[None], BoxShape(2, 2))  # b n -> b
    array([0.], dtype=float32)
    """
    cells = as_cells(puzzles, box)
    if solutions is None:
        solved = solve(cells, box)
        if (solved.counts != 1).any():
            row = int(np.flatnonzero(solved.counts != 1)[0])
            how_many = "no" if solved.counts[row] == 0 else "more than one"
            why = contradiction(cells[row], box) or f"It has {how_many} solution."
            raise DataError(f"Cannot rate puzzle {row + 1} of {len(cells)}. {why}")
        solutions = solved.solutions
    seeds = stream(stream_key("rate", seed), len(cells))
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(cells), _BLOCK)]
    ratings = np.zeros(len(cells), dtype=np.float32)

    def run(block: slice) -> None:
        ratings[block] = rate_seeded(cells[block], solutions[block], box, seeds[block], attempts)

    with ThreadPoolExecutor(max(1, workers)) as pool:
        for done, _ in enumerate(pool.map(run, blocks), start=1):
            if progress is not None:
                progress(min(done * _BLOCK, len(cells)))
    return ratings


def rate_seeded(
    puzzles: UInt8[np.ndarray, "b n"],
    solutions: UInt8[np.ndarray, "b n"],
    box: BoxShape,
    seeds: UInt64[np.ndarray, "b"],
    attempts: int,
) -> Float32[np.ndarray, "b"]:
    """Rate solved puzzles, each with its own random seed."""
    general = kernels("general", "Rating Sudoku")
    ratings = np.zeros(len(puzzles), dtype=np.float32)
    state, saved = general.make_state(box.units), general.make_state(box.units)
    cells, full = as_cells(puzzles, box), as_cells(solutions, box)
    general.rate_all(state, saved, cells, full, np.array(seeds), attempts, ratings)
    return ratings
