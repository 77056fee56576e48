"""A seeded generator of jigsaw puzzles with exactly one solution (needs the extra `data`).

Each attempt draws its own regions, then a grid, takes clues away until none can go, and puts some
back. Attempts come from numbered random streams and are looked at in order, so the same seed gives
the same puzzles. Regions that have no grid are drawn again.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float32, UInt8, UInt16, UInt64

from graph_machine.errors import DataError
from graph_machine.tasks.hashing import mix, stream, stream_key
from graph_machine.tasks.jigsaw.regions import in_reading_order, side_of
from graph_machine.tasks.jigsaw.solve import rate, states
from graph_machine.tasks.sudoku.generate import BUDGET
from graph_machine.tasks.sudoku.solve import NO_BUDGET, kernels

# Recombinations and proposed swaps of a chain of partitions, per side and per side cubed: with
# more of either, neither distinct partitions nor the length of borders change by one per cent.
RECOMBINATIONS, SWAPS = 5, 3
# Up to this side a puzzle is minimal in the strict sense; on larger boards a clue also stays where
# the proof that it can go takes more than BUDGET guesses: a few proofs would take for ever.
STRICT_SIDE = 6
# A search for a grid that gets lost starts again this often; then the regions are given up.
RESTARTS = 20
BLOCK = 256
# That many attempts in a row without a new puzzle end the search for more.
PATIENCE = 20_000


@dataclass(frozen=True)
class Jigsaws:
    """Puzzles (0 is a blank), their regions (in reading order) and solutions.

    >>> generate(side=4, count=3, seed=0).regions.shape  # count n
    (3, 16)
    """

    puzzles: UInt8[np.ndarray, "count n"]
    regions: UInt8[np.ndarray, "count n"]
    solutions: UInt8[np.ndarray, "count n"]
    ratings: Float32[np.ndarray, "count"]  # NaN if unknown

    def __len__(self) -> int:
        return len(self.puzzles)

    @property
    def side(self) -> int:
        """Rows (and columns) of a board."""
        return side_of(self.puzzles.shape[1])

    @property
    def clues(self) -> UInt16[np.ndarray, "count"]:
        """Given cells of every puzzle."""
        return np.count_nonzero(self.puzzles, axis=1).astype(np.uint16)

    def take(self, rows: np.ndarray | slice) -> "Jigsaws":
        """Some rows, copied."""
        return Jigsaws(*(np.asarray(getattr(self, item.name)[rows]) for item in fields(self)))

    @classmethod
    def join(cls, parts: "list[Jigsaws]") -> "Jigsaws":
        """Several sets of puzzles as one."""
        names = [item.name for item in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def draw_regions(side: int, seeds: UInt64[np.ndarray, "b"]) -> UInt8[np.ndarray, "b n"]:
    """Random partitions into connected regions of `side` cells, in reading order."""
    side_of(side * side)
    kernels("bits", "Generating jigsaw puzzles")  # says so where numba is missing
    from graph_machine.tasks.jigsaw.kernels import partitions

    regions = np.zeros((len(seeds), side * side), dtype=np.uint8)
    partitions(np.array(seeds), RECOMBINATIONS * side, SWAPS * side**3, regions)
    return in_reading_order(regions)


def generate(side: int, count: int, seed: int = 0, *, extra: int = 0, workers: int = 1) -> Jigsaws:
    """`count` distinct puzzles; up to `extra` clues are put back into each minimal one.

    >>> generate(side=4, count=3, seed=0).puzzles.shape  # count n
    (3, 16)
    """
    if count < 1 or extra < 0:
        raise DataError(f"Cannot make {count} puzzles with up to {extra} clues put back.")
    parts: list[Jigsaws] = []
    seen: set[bytes] = set()
    made = barren = 0
    for block in _blocks(side, seed, extra, workers):
        new = []
        for row, mark in enumerate(_marks(block)):
            if mark not in seen:
                seen.add(mark)
                new.append(row)
        found = block.take(np.array(new[: count - made], dtype=np.int64))
        made += len(found)
        barren = 0 if len(found) else barren + BLOCK
        parts.append(found)
        if made == count:
            break
        if barren >= PATIENCE:
            raise DataError(
                f"Only {made:,} of {count:,} distinct jigsaw puzzles of side {side} found, none "
                f"in the last {PATIENCE:,} attempts: ask for at most {made:,}, or allow more "
                "clues to be put back."
            )
    return Jigsaws.join(parts)


def generate_few(side: int, count: int, seed: int = 0, *, extra: int = 0) -> Jigsaws:
    """`count` puzzles for somebody who waits: not rated, and no more are made than needed.

    >>> len(generate_few(side=4, count=3))
    3
    """
    key = stream_key("few jigsaws", seed, side)
    parts: list[Jigsaws] = []
    start = made = 0
    while made < count and start < PATIENCE:
        block = _attempt(side, stream(key, count, start), extra, rated=False)
        parts.append(block.take(slice(count - made)))
        made, start = made + len(parts[-1]), start + count
    if made < count:
        raise DataError(f"Only {made:,} of {count:,} jigsaw puzzles of side {side} found.")
    return Jigsaws.join(parts)


def _blocks(side: int, seed: int, extra: int, workers: int) -> Iterator[Jigsaws]:
    """Blocks of attempts in order, made by threads (the kernels release the GIL)."""
    key = stream_key("jigsaw", seed, side)
    pending: deque[Future[Jigsaws]] = deque()
    pool = ThreadPoolExecutor(max(1, workers))
    start = 0
    try:
        while True:
            while len(pending) <= max(1, workers):
                pending.append(pool.submit(_attempt, side, stream(key, BLOCK, start), extra))
                start += BLOCK
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _attempt(
    side: int, seeds: UInt64[np.ndarray, "b"], extra: int, *, rated: bool = True
) -> Jigsaws:
    """One puzzle per seed, without those whose regions have no grid."""
    general = kernels("general", "Generating jigsaw puzzles")
    regions = draw_regions(side, seeds)
    puzzles, solutions = np.zeros_like(regions), np.zeros_like(regions)
    clues = np.zeros(len(seeds), dtype=np.int64)
    limits = (NO_BUDGET if side <= STRICT_SIDE else BUDGET, RESTARTS)
    fresh = mix(seeds)
    for i, state in enumerate(states(general, regions)):
        one = slice(i, i + 1)
        found = puzzles[one], solutions[one], clues[one]
        general.generate_all(state, fresh[one], 0, side * side, extra, limits, *found)
    hits = np.flatnonzero(clues)
    puzzles, regions, solutions = puzzles[hits], regions[hits], solutions[hits]
    ratings = np.full(len(hits), np.nan, dtype=np.float32)
    if rated:
        ratings = rate(puzzles, regions, solutions, mix(fresh[hits]))
    return Jigsaws(puzzles, regions, solutions, ratings)


def _marks(block: Jigsaws) -> list[bytes]:
    """What tells puzzles apart: regions, and cells whose digits are named as the solution's first
    row reads."""
    names = np.zeros((len(block), block.side + 1), dtype=np.uint8)
    order = np.arange(1, block.side + 1, dtype=np.uint8)[None]
    np.put_along_axis(names, block.solutions[:, : block.side].astype(np.int64), order, axis=1)
    named = np.take_along_axis(names, block.puzzles.astype(np.int64), axis=1)
    return [row.tobytes() for row in np.concatenate([block.regions, named], axis=1)]
