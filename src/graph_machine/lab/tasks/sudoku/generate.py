"""Making puzzles: a random full grid, clues taken away in random order until none can go.

Attempt number i of a seed is a function of only (box, seed, i). Attempts are made in blocks by
any number of threads (the kernels release the GIL) and looked at in order, so the same seed gives
the same puzzles whatever the number of workers. Needs the extra `data`.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool

from graph_machine.errors import DataError
from graph_machine.lab.tasks import load_kernels
from graph_machine.lab.tasks.rows import Keys, distinct, in_threads, join_rows, mix, stream_key
from graph_machine.lab.tasks.sudoku.augment import fingerprints
from graph_machine.lab.tasks.sudoku.board import BoxShape, Shape
from graph_machine.lab.tasks.sudoku.reader import PuzzleRows
from graph_machine.lab.tasks.sudoku.solve import DATASET_ATTEMPTS, NINE, rate_seeded
from graph_machine.lab.tasks.sudoku.store import SudokuStore

# Up to this side a puzzle is minimal in the strict sense. On larger boards a clue also stays if
# the proof that it can go takes more guesses than BUDGET: a few proofs would take for ever.
STRICT_SIDE = 10
BUDGET = 1000
NO_BUDGET = np.iinfo(np.int64).max
# That many attempts in a row without a new puzzle end the search for more.
PATIENCE = 50_000


def parse_clues(text: str) -> tuple[int, int]:
    """Read `23-26` or `24`."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if match is None:
        raise DataError(f"Clue range '{text}': expected LOW-HIGH, for example 23-26.")
    return int(match[1]), int(match[2] or match[1])


def generate(box: BoxShape, count: int, seed: int = 0, **how: Any) -> SudokuStore:
    """`count` distinct puzzles, as a store in memory; `how` is as in `generate_rows`.

    >>> generate(BoxShape(2, 2), count=5, seed=0, clues=(5, 5)).clues
    array([5, 5, 5, 5, 5], dtype=uint16)
    """
    rows = join_rows([*generate_rows(box, count, seed, **how)])
    return SudokuStore.from_arrays(rows.puzzles, rows.solutions, rows.ratings, box)


def generate_rows(
    box: BoxShape,
    count: int,
    seed: int = 0,
    *,
    clues: tuple[int, int] | None = None,
    extra: int = 0,
    rated: bool = True,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Iterator[PuzzleRows]:
    """Yield `count` puzzles in parts, no two equal up to a relabelling of their digits.

    `clues` are the fewest and the most givens; up to `extra` are put back into minimal puzzles.
    """
    low, high = bounds = clues or (0, box.cells)
    if not 0 <= low <= high:
        raise DataError(f"Clue range {low}-{high}: the first must not exceed the second.")
    if extra < 0:
        raise DataError(f"Extra clues must be at least 0, got {extra}.")
    key = stream_key("generate", seed, box.rows, box.cols)
    # A block takes a fraction of a second, so that the progress bar moves.
    size = min(max(4, count), 4 if box.side > STRICT_SIDE else 32768 // box.cells)

    def failure(made: int, barren: int) -> str | None:
        if barren * size < PATIENCE:
            return None
        wish = "" if clues is None else f" with {low} to {high} clues"
        fewer = f"ask for at most {made:,}, or " if made else ""
        return (
            f"distinct puzzles{wish} found for box {box}, none in the last {PATIENCE:,} attempts: "
            f"{fewer}allow more with --clues or --max-clues-extra."
        )

    limits = (NO_BUDGET if box.side <= STRICT_SIDE else BUDGET, NO_BUDGET)

    def attempt(seeds: Keys) -> PuzzleRows:
        return made_puzzles(box, seeds, bounds, extra, limits, rated=rated)[1]

    blocks = in_threads(attempt, key, size, workers)
    done = 0
    for rows in distinct(blocks, lambda r: fingerprints(r.puzzles).tolist(), count, failure):
        yield rows
        done += len(rows)
        if progress is not None:
            progress(done)


def made_puzzles(
    shape: Shape,
    seeds: Keys,
    bounds: tuple[int, int],
    extra: int,
    limits: tuple[int, int],
    *,
    rated: bool = True,
) -> tuple[Bool[np.ndarray, "b"], PuzzleRows]:
    """A puzzle per seed: which attempts have succeeded, and their puzzles.

    `limits`: guesses that a proof may take, and how often the search for a grid may start anew.
    """
    boxes = isinstance(shape, BoxShape)
    regions = shape.regions[None] if isinstance(shape, BoxShape) else shape
    puzzles = np.zeros((len(seeds), regions.shape[1]), dtype=np.uint8)
    solutions, clues = np.zeros_like(puzzles), np.zeros(len(seeds), dtype=np.int64)
    made = puzzles, solutions, clues
    if boxes and shape == NINE:
        nine = load_kernels("sudoku.kernels_nine", "Generating puzzles")
        nine.generate_all(seeds, *bounds, extra, *made)
    else:
        general = load_kernels("sudoku.kernels_any", "Generating puzzles")
        general.generate_all(np.array(regions), seeds, *bounds, extra, limits, *made)
    hits = clues > 0
    puzzles, solutions = puzzles[hits], solutions[hits]
    ratings = np.full(len(puzzles), np.nan, dtype=np.float32)
    if rated:
        own = shape if isinstance(shape, BoxShape) else shape[hits]
        ratings = rate_seeded(puzzles, solutions, own, mix(seeds[hits]), DATASET_ATTEMPTS)
    return hits, PuzzleRows(puzzles, solutions, clues[hits].astype(np.uint16), ratings)
