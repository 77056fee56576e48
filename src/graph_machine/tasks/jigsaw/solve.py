"""Exact solver, singles and ratings of jigsaw puzzles, each with its own regions.

The kernels are those of Sudoku boards of any shape: they ask for the units of a board and do not
care what their shape is. Needs the extra `data`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, UInt8, UInt64

from graph_machine.errors import DataError
from graph_machine.tasks.hashing import stream, stream_key
from graph_machine.tasks.jigsaw.regions import side_of, unit_tables
from graph_machine.tasks.sudoku.rate import DATASET_ATTEMPTS
from graph_machine.tasks.sudoku.solve import NO_BUDGET, Solved, kernels

# Ratings and solutions of a block share the memory of one table of units.
BLOCK = 4096


def states(general: Any, regions: UInt8[np.ndarray, "b n"], count: int = 1) -> Iterator[Any]:
    """Per board `count` solver states (one alone where that is 1), on memory that is used again."""
    side = side_of(regions.shape[1])
    lines = np.arange(side * side).reshape(side, side)
    blank = [general.make_state(np.concatenate([lines, lines.T, lines])) for _ in range(count)]
    for start in range(0, len(regions), BLOCK):
        for cells, units, places in zip(*unit_tables(regions[start : start + BLOCK])):
            made = [state._replace(cells=cells, units=units, places=places) for state in blank]
            yield made[0] if count == 1 else made


def checked(
    puzzles: UInt8[np.ndarray, "b n"], regions: UInt8[np.ndarray, "b n"]
) -> UInt8[np.ndarray, "b n"]:
    """A copy of the puzzles that the kernels take: contiguous and writable."""
    side = side_of(regions.shape[1])
    if puzzles.shape != regions.shape:
        raise DataError(f"Puzzles of shape {puzzles.shape} with regions of {regions.shape}.")
    if puzzles.max(initial=0) > side:
        raise DataError(f"Puzzles hold {puzzles.max()}: expected 0 to {side}.")
    return np.array(puzzles, dtype=np.uint8, order="C")


def solve(
    puzzles: UInt8[np.ndarray, "b n"], regions: UInt8[np.ndarray, "b n"], limit: int = 2
) -> Solved:
    """Solve every puzzle exactly, counting solutions up to `limit`; 0s where there is none."""
    general = kernels("general", "Solving jigsaw puzzles")
    cells = checked(puzzles, regions)
    solutions, counts = np.zeros_like(cells), np.zeros(len(cells), dtype=np.int64)
    for i, state in enumerate(states(general, regions)):
        one = slice(i, i + 1)
        general.solve_all(state, cells[one], limit, NO_BUDGET, solutions[one], counts[one])
    return Solved(solutions, np.minimum(counts, 255).astype(np.uint8))


def solve_singles(
    puzzles: UInt8[np.ndarray, "b n"], regions: UInt8[np.ndarray, "b n"]
) -> UInt8[np.ndarray, "b n"]:
    """Fill in what naked and hidden singles give, without a guess; other cells stay 0."""
    general = kernels("general", "Solving jigsaw puzzles")
    cells = checked(puzzles, regions)
    filled = np.zeros_like(cells)
    for i, state in enumerate(states(general, regions)):
        general.singles_all(state, cells[i : i + 1], filled[i : i + 1])
    return filled


def rate(
    puzzles: UInt8[np.ndarray, "b n"],
    regions: UInt8[np.ndarray, "b n"],
    solutions: UInt8[np.ndarray, "b n"],
    seeds: UInt64[np.ndarray, "b"] | None = None,
    attempts: int = DATASET_ATTEMPTS,
) -> Float32[np.ndarray, "b"]:
    """The rating of Sudoku (tasks/sudoku/rate.py): 0 where singles suffice, else mean guesses."""
    general = kernels("general", "Rating jigsaw puzzles")
    cells, full = checked(puzzles, regions), checked(solutions, regions)
    seeds = stream(stream_key("rate"), len(cells)) if seeds is None else np.array(seeds)
    ratings = np.zeros(len(cells), dtype=np.float32)
    for i, (state, saved) in enumerate(states(general, regions, 2)):
        one = slice(i, i + 1)
        general.rate_all(state, saved, cells[one], full[one], seeds[one], attempts, ratings[one])
    return ratings


def valid_grids(
    grids: UInt8[np.ndarray, "b n"], regions: UInt8[np.ndarray, "b n"]
) -> Bool[np.ndarray, "b"]:
    """Which boards hold every digit once in every row, column and region.

    Written without the kernels, so that each checks the other.
    """
    side = side_of(grids.shape[1])
    row, col = np.divmod(np.arange(side * side), side)
    good = np.ones(len(grids), dtype=bool)
    digits = np.arange(1, side + 1)
    for units in (np.broadcast_to(row, grids.shape), np.broadcast_to(col, grids.shape), regions):
        order = np.argsort(units.astype(np.int64) * 256 + grids, axis=1)
        sorted_digits = np.take_along_axis(grids, order, axis=1).reshape(-1, side, side)
        good &= (sorted_digits == digits).all(axis=(1, 2))
    return good
