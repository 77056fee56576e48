"""Exact solver, singles, and the data set's difficulty rating (needs the extra `data`).

Boards have boxes (a `BoxShape`), or each of them its own regions (jigsaw Sudoku).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float32, UInt8

from graph_machine.errors import DataError
from graph_machine.lab.tasks import load_kernels
from graph_machine.lab.tasks.digits import Solved, contradiction
from graph_machine.lab.tasks.rows import Boards, Keys, stream, stream_key
from graph_machine.lab.tasks.scores import Band
from graph_machine.lab.tasks.sudoku.board import BoxShape, Shape, regions_at

NINE = BoxShape(3, 3)


def kernel_inputs(puzzles: Boards, shape: Shape) -> tuple[UInt8[np.ndarray, "r n"], Boards]:
    """Regions and puzzles as the kernels take them: checked, and copies that are contiguous and
    writable (else numba compiles anew)."""
    boxes = isinstance(shape, BoxShape)
    regions = shape.regions[None] if isinstance(shape, BoxShape) else shape
    side = round(regions.shape[1] ** 0.5)
    kind = f" for box {shape}" if boxes else ""
    if puzzles.ndim != 2 or puzzles.shape != (len(puzzles) if boxes else len(regions), side**2):
        raise DataError(f"Puzzles of shape {puzzles.shape}: expected (b, {side**2}){kind}.")
    if puzzles.max(initial=0) > side:
        raise DataError(f"Puzzles hold {puzzles.max()}: expected 0 to {side}{kind}.")
    return np.array(regions, np.uint8, order="C"), np.array(puzzles, np.uint8, order="C")


def solve(puzzles: Boards, box: Shape, limit: int = 2) -> Solved:
    """Solve every puzzle exactly, counting solutions up to `limit`.

    >>> from graph_machine.lab.tasks.digits import format_board
    >>> from graph_machine.lab.tasks.sudoku.board import parse_board
    >>> found = solve(parse_board("..3...4..4...2..")[None], BoxShape(2, 2))  # b n
    >>> format_board(found.solutions[0])
    '4132234114233214'
    """
    regions, cells = kernel_inputs(puzzles, box)
    solutions = np.zeros_like(cells)
    counts = np.zeros(len(cells), dtype=np.int64)
    if isinstance(box, BoxShape) and box == NINE:
        nine = load_kernels("sudoku.kernels_nine", "Solving puzzles")
        nine.solve_all(cells, limit, solutions, counts)
    else:
        general = load_kernels("sudoku.kernels_any", "Solving puzzles")
        general.solve_all(regions, cells, limit, solutions, counts)
    return Solved(solutions, np.minimum(counts, 255).astype(np.uint8))


def solve_singles(puzzles: Boards, box: Shape) -> Boards:
    """Fill in what naked and hidden singles give, without a guess; other cells stay 0.

    >>> from graph_machine.lab.tasks.digits import format_board
    >>> from graph_machine.lab.tasks.sudoku.board import parse_board
    >>> format_board(solve_singles(parse_board("..3...4..4...2..")[None], BoxShape(2, 2))[0])
    '4132234114233214'
    """
    regions, cells = kernel_inputs(puzzles, box)
    filled = np.zeros_like(cells)
    load_kernels("sudoku.kernels_any", "Solving puzzles").singles_all(regions, cells, filled)
    return filled


# The data set averages 10 attempts; files that we make do the same. Two such ratings of the same
# puzzles correlate at 0.89 only; with more attempts the same quantity has less noise.
DATASET_ATTEMPTS = 10
ATTEMPTS = 40
_BLOCK = 1000


def rate(
    puzzles: Boards,
    box: Shape,
    solutions: Boards | None = None,
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
    if solutions is None:
        found = solve(puzzles, box)
        for row in np.flatnonzero(found.counts != 1)[:1].tolist():
            how_many = "no" if found.counts[row] == 0 else "more than one"
            clash = contradiction(puzzles[row], regions_at(box, row))
            why = clash or f"It has {how_many} solution."
            raise DataError(f"Cannot rate puzzle {row + 1} of {len(puzzles)}. {why}")
        solutions = found.solutions
    seeds = stream(stream_key("rate", seed), len(puzzles))
    ratings = np.zeros(len(puzzles), dtype=np.float32)

    def run(start: int) -> None:
        part = slice(start, start + _BLOCK)
        shape = box if isinstance(box, BoxShape) else box[part]
        ratings[part] = rate_seeded(puzzles[part], solutions[part], shape, seeds[part], attempts)

    with ThreadPoolExecutor(max(1, workers)) as pool:
        for done, _ in enumerate(pool.map(run, range(0, len(puzzles), _BLOCK)), start=1):
            if progress is not None:
                progress(min(done * _BLOCK, len(puzzles)))
    return ratings


def rate_seeded(
    puzzles: Boards, solutions: Boards, box: Shape, seeds: Keys, attempts: int
) -> Float32[np.ndarray, "b"]:
    """Rate solved puzzles, each with its own random seed."""
    general = load_kernels("sudoku.kernels_any", "Rating puzzles")
    ratings = np.zeros(len(puzzles), dtype=np.float32)
    (regions, cells), (_, full) = kernel_inputs(puzzles, box), kernel_inputs(solutions, box)
    general.rate_all(regions, cells, full, np.array(seeds), attempts, ratings)
    return ratings


# The data set's bands of ratings, which have one decimal, and the share of each in its puzzles.
RATING_BANDS = (
    Band("0.0", 0.0, 0.05),
    Band("1.0-2.0", 0.05, 2.05),
    Band("2.1-4.0", 2.05, 4.05),
    Band("4.1-8.5", 4.05, float("inf")),
)
DATASET_SHARES = {"0.0": 0.431, "1.0-2.0": 0.295, "2.1-4.0": 0.252, "4.1-8.5": 0.022}
# Where a file's ratings count backtracks (sudoku-extreme), which is another quantity.
BACKTRACK_BANDS = (
    Band("0", 0.0, 0.5),
    Band("1-10", 0.5, 10.5),
    Band("11-100", 10.5, 100.5),
    Band("over 100", 100.5, float("inf")),
)
