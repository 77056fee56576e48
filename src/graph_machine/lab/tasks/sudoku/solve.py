"""Exact solver, singles, and the data set's difficulty rating (needs the extra `data`)."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float32, Int64, Real, UInt8, UInt64

from graph_machine.errors import DataError
from graph_machine.lab.tasks import load_kernels
from graph_machine.lab.tasks.digits import NO_BUDGET, Solved
from graph_machine.lab.tasks.rows import stream, stream_key
from graph_machine.lab.tasks.scores import Band
from graph_machine.lab.tasks.sudoku.board import BoxShape, contradiction

NINE = BoxShape(3, 3)


def as_cells(puzzles: UInt8[np.ndarray, "b n"], box: BoxShape) -> UInt8[np.ndarray, "b n"]:
    """A copy that the kernels take: checked, contiguous, writable (else numba compiles anew)."""
    if puzzles.ndim != 2 or puzzles.shape[1] != box.cells:
        raise DataError(
            f"Puzzles of shape {puzzles.shape}: expected (b, {box.cells}) for box {box}."
        )
    if puzzles.max(initial=0) > box.side:
        raise DataError(f"Puzzles hold {puzzles.max()}: expected 0 to {box.side} for box {box}.")
    return np.array(puzzles, dtype=np.uint8, order="C")


def solve(puzzles: UInt8[np.ndarray, "b n"], box: BoxShape, limit: int = 2) -> Solved:
    """Solve every puzzle exactly, counting solutions up to `limit`.

    >>> from graph_machine.lab.tasks.digits import format_board
    >>> from graph_machine.lab.tasks.sudoku.board import parse_board
    >>> found = solve(parse_board("..3...4..4...2..")[None], BoxShape(2, 2))  # b n
    >>> format_board(found.solutions[0])
    '4132234114233214'
    """
    cells = as_cells(puzzles, box)
    solutions = np.zeros_like(cells)
    counts = np.zeros(len(cells), dtype=np.int64)
    if box == NINE:
        load_kernels("sudoku.kernels_nine", "Solving Sudoku").solve_all(
            cells, limit, solutions, counts
        )
    else:
        general = load_kernels("sudoku.kernels_any", "Solving Sudoku")
        state = general.make_state(box.units)
        general.solve_all(state, cells, limit, NO_BUDGET, solutions, counts)
    return Solved(solutions, np.minimum(counts, 255).astype(np.uint8))


def count_solutions(
    puzzles: UInt8[np.ndarray, "b n"], box: BoxShape, limit: int = 2
) -> UInt8[np.ndarray, "b"]:
    """The number of solutions of every puzzle, at most `limit`.

    >>> empty = np.zeros((1, 16), dtype=np.uint8)  # b n
    >>> count_solutions(empty, BoxShape(2, 2), limit=200)
    array([200], dtype=uint8)
    """
    return solve(puzzles, box, limit).counts


def solve_singles(puzzles: UInt8[np.ndarray, "b n"], box: BoxShape) -> UInt8[np.ndarray, "b n"]:
    """Fill in what naked and hidden singles give, without a guess; other cells stay 0.

    >>> from graph_machine.lab.tasks.digits import format_board
    >>> from graph_machine.lab.tasks.sudoku.board import parse_board
    >>> format_board(solve_singles(parse_board("..3...4..4...2..")[None], BoxShape(2, 2))[0])
    '4132234114233214'
    """
    cells = as_cells(puzzles, box)
    general = load_kernels("sudoku.kernels_any", "Solving Sudoku")
    filled = np.zeros_like(cells)
    general.singles_all(general.make_state(box.units), cells, filled)
    return filled


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

    >>> from graph_machine.lab.tasks.sudoku.board import parse_board
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
    general = load_kernels("sudoku.kernels_any", "Rating Sudoku")
    ratings = np.zeros(len(puzzles), dtype=np.float32)
    state, saved = general.make_state(box.units), general.make_state(box.units)
    cells, full = as_cells(puzzles, box), as_cells(solutions, box)
    general.rate_all(state, saved, cells, full, np.array(seeds), attempts, ratings)
    return ratings


# Bands of the rating: name -> its largest rating. Ratings have one decimal.
BANDS: dict[str, float] = {"0.0": 0.05, "1.0-2.0": 2.05, "2.1-4.0": 4.05, "4.1-8.5": float("inf")}
UNRATED = "unrated"
# Share of each band in the full data set of three million puzzles.
DATASET_SHARES = dict(zip(BANDS, (0.431, 0.295, 0.252, 0.022), strict=True))
RATING_BANDS = tuple(
    Band(label, low, high)
    for label, low, high in zip(BANDS, [0.0, *BANDS.values()], BANDS.values(), strict=False)
)


# Where a file's ratings count backtracks (sudoku-extreme), which is another quantity.
BACKTRACK_BANDS = (
    Band("0", 0.0, 0.5),
    Band("1-10", 0.5, 10.5),
    Band("11-100", 10.5, 100.5),
    Band("over 100", 100.5, float("inf")),
)


def band_of(
    ratings: Real[np.ndarray, "b"], bands: Sequence[Band] = RATING_BANDS
) -> Int64[np.ndarray, "b"]:
    """The number of each rating's band; that after the last where the rating is unknown."""
    found = np.searchsorted([band.high for band in bands], ratings)
    return np.where(np.isnan(ratings), len(bands), found)


def band_counts(
    ratings: Real[np.ndarray, "b"], bands: Sequence[Band] = RATING_BANDS
) -> dict[str, int]:
    """How many ratings there are in each band; unrated rows are named only if there are some."""
    counts = np.bincount(band_of(ratings, bands), minlength=len(bands) + 1).tolist()
    named = dict(zip([*(band.label for band in bands), UNRATED], counts, strict=True))
    if not named[UNRATED]:
        del named[UNRATED]
    return named
