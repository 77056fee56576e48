"""Jigsaw puzzles: solver, generator, changes that keep a puzzle one, files (extra `data`).

The solver is that of Sudoku boards of any shape: its kernels take the units of a board.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt8, UInt16, UInt64

from graph_machine.errors import DataError
from graph_machine.files import atomic_path
from graph_machine.lab.tasks import load_kernels
from graph_machine.lab.tasks.csv_files import read_rows
from graph_machine.lab.tasks.digits import NO_BUDGET, Solved, digit_names, format_board
from graph_machine.lab.tasks.disguise import symmetries
from graph_machine.lab.tasks.jigsaw.board import (
    format_regions,
    in_reading_order,
    parse_cells,
    parse_puzzle,
    side_of,
    unit_tables,
)
from graph_machine.lab.tasks.rows import (
    RowArrays,
    in_threads,
    join_rows,
    mix,
    stream,
    stream_key,
)
from graph_machine.lab.tasks.sudoku.augment import canonical
from graph_machine.lab.tasks.sudoku.generate import BUDGET
from graph_machine.lab.tasks.sudoku.solve import DATASET_ATTEMPTS

# Ratings and solutions of a block share the memory of one table of units.
STATES_BLOCK = 4096


def solver_states(general: Any, regions: UInt8[np.ndarray, "b n"], count: int = 1) -> Iterator[Any]:
    """Per board `count` solver states (one alone where that is 1), on memory that is used again."""
    side = side_of(regions.shape[1])
    lines = np.arange(side * side).reshape(side, side)
    blank = [general.make_state(np.concatenate([lines, lines.T, lines])) for _ in range(count)]
    for start in range(0, len(regions), STATES_BLOCK):
        for cells, units, places in zip(*unit_tables(regions[start : start + STATES_BLOCK])):
            made = [state._replace(cells=cells, units=units, places=places) for state in blank]
            yield made[0] if count == 1 else made


def checked_jigsaws(
    puzzles: UInt8[np.ndarray, "b n"], regions: UInt8[np.ndarray, "b n"]
) -> UInt8[np.ndarray, "b n"]:
    """A copy of the puzzles that the kernels take: contiguous and writable."""
    side = side_of(regions.shape[1])
    if puzzles.shape != regions.shape:
        raise DataError(f"Puzzles of shape {puzzles.shape} with regions of {regions.shape}.")
    if puzzles.max(initial=0) > side:
        raise DataError(f"Puzzles hold {puzzles.max()}: expected 0 to {side}.")
    return np.array(puzzles, dtype=np.uint8, order="C")


def solve_jigsaws(
    puzzles: UInt8[np.ndarray, "b n"], regions: UInt8[np.ndarray, "b n"], limit: int = 2
) -> Solved:
    """Solve every puzzle exactly, counting solutions up to `limit`; 0s where there is none."""
    general = load_kernels("sudoku.kernels_any", "Solving jigsaw puzzles")
    cells = checked_jigsaws(puzzles, regions)
    solutions, counts = np.zeros_like(cells), np.zeros(len(cells), dtype=np.int64)
    for i, state in enumerate(solver_states(general, regions)):
        one = slice(i, i + 1)
        general.solve_all(state, cells[one], limit, NO_BUDGET, solutions[one], counts[one])
    return Solved(solutions, np.minimum(counts, 255).astype(np.uint8))


def jigsaw_singles(
    puzzles: UInt8[np.ndarray, "b n"], regions: UInt8[np.ndarray, "b n"]
) -> UInt8[np.ndarray, "b n"]:
    """Fill in what naked and hidden singles give, without a guess; other cells stay 0."""
    general = load_kernels("sudoku.kernels_any", "Solving jigsaw puzzles")
    cells = checked_jigsaws(puzzles, regions)
    filled = np.zeros_like(cells)
    for i, state in enumerate(solver_states(general, regions)):
        general.singles_all(state, cells[i : i + 1], filled[i : i + 1])
    return filled


def rate_jigsaws(
    puzzles: UInt8[np.ndarray, "b n"],
    regions: UInt8[np.ndarray, "b n"],
    solutions: UInt8[np.ndarray, "b n"],
    seeds: UInt64[np.ndarray, "b"] | None = None,
    attempts: int = DATASET_ATTEMPTS,
) -> Float32[np.ndarray, "b"]:
    """The rating of Sudoku (tasks/sudoku/solve.py): 0 where singles suffice, else mean guesses."""
    general = load_kernels("sudoku.kernels_any", "Rating jigsaw puzzles")
    cells, full = checked_jigsaws(puzzles, regions), checked_jigsaws(solutions, regions)
    seeds = stream(stream_key("rate"), len(cells)) if seeds is None else np.array(seeds)
    ratings = np.zeros(len(cells), dtype=np.float32)
    for i, (state, saved) in enumerate(solver_states(general, regions, 2)):
        one = slice(i, i + 1)
        general.rate_all(state, saved, cells[one], full[one], seeds[one], attempts, ratings[one])
    return ratings


def valid_jigsaws(
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
class Jigsaws(RowArrays):
    """Puzzles (0 is a blank), their regions (in reading order) and solutions.

    >>> generate_jigsaws(side=4, count=3, seed=0).regions.shape  # count n
    (3, 16)
    """

    puzzles: UInt8[np.ndarray, "count n"]
    regions: UInt8[np.ndarray, "count n"]
    solutions: UInt8[np.ndarray, "count n"]
    ratings: Float32[np.ndarray, "count"]  # NaN if unknown

    @property
    def clues(self) -> UInt16[np.ndarray, "count"]:
        """Given cells of every puzzle."""
        return np.count_nonzero(self.puzzles, axis=1).astype(np.uint16)


def draw_regions(side: int, seeds: UInt64[np.ndarray, "b"]) -> UInt8[np.ndarray, "b n"]:
    """Random partitions into connected regions of `side` cells, in reading order."""
    side_of(side * side)
    kernels = load_kernels("jigsaw.kernels", "Generating jigsaw puzzles")
    regions = np.zeros((len(seeds), side * side), dtype=np.uint8)
    kernels.partitions(np.array(seeds), RECOMBINATIONS * side, SWAPS * side**3, regions)
    return in_reading_order(regions)


def generate_jigsaws(
    side: int, count: int, seed: int = 0, *, extra: int = 0, workers: int = 1
) -> Jigsaws:
    """`count` distinct puzzles; up to `extra` clues are put back into each minimal one.

    >>> generate_jigsaws(side=4, count=3, seed=0).puzzles.shape  # count n
    (3, 16)
    """
    if count < 1 or extra < 0:
        raise DataError(f"Cannot make {count} puzzles with up to {extra} clues put back.")
    parts: list[Jigsaws] = []
    seen: set[bytes] = set()
    made = barren = 0
    key = stream_key("jigsaw", seed, side)
    for block in in_threads(lambda seeds: _attempt(side, seeds, extra), key, BLOCK, workers):
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
    return join_rows(parts)


def few_jigsaws(side: int, count: int, seed: int = 0, *, extra: int = 0) -> Jigsaws:
    """`count` puzzles, quickly: not rated, and no more are made than needed.

    >>> len(few_jigsaws(side=4, count=3))
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
    return join_rows(parts)


def _attempt(
    side: int, seeds: UInt64[np.ndarray, "b"], extra: int, *, rated: bool = True
) -> Jigsaws:
    """One puzzle per seed, without those whose regions have no grid."""
    general = load_kernels("sudoku.kernels_any", "Generating jigsaw puzzles")
    regions = draw_regions(side, seeds)
    puzzles, solutions = np.zeros_like(regions), np.zeros_like(regions)
    clues = np.zeros(len(seeds), dtype=np.int64)
    limits = (NO_BUDGET if side <= STRICT_SIDE else BUDGET, RESTARTS)
    fresh = mix(seeds)
    for i, state in enumerate(solver_states(general, regions)):
        one = slice(i, i + 1)
        found = puzzles[one], solutions[one], clues[one]
        general.generate_all(state, fresh[one], 0, side * side, extra, limits, *found)
    hits = np.flatnonzero(clues)
    puzzles, regions, solutions = puzzles[hits], regions[hits], solutions[hits]
    ratings = np.full(len(hits), np.nan, dtype=np.float32)
    if rated:
        ratings = rate_jigsaws(puzzles, regions, solutions, mix(fresh[hits]))
    return Jigsaws(puzzles, regions, solutions, ratings)


def _marks(block: Jigsaws) -> list[bytes]:
    """Two puzzles are the same if these are: regions, and cells with digits named in the order of
    the solution's first row."""
    named = canonical(block.puzzles, block.solutions, block.side)
    return [row.tobytes() for row in np.concatenate([block.regions, named], axis=1)]


def augment_jigsaws(rows: Jigsaws, key: int, *, turn: bool) -> Jigsaws:
    """Every board gets its own draw, decided only by the key; `turn` also moves cells."""
    return changed_jigsaws(rows, *random_changes(len(rows.puzzles), rows.side, key, turn=turn))


def random_changes(
    count: int, side: int, key: int, *, turn: bool
) -> tuple[Int64[np.ndarray, "b n"], Int64[np.ndarray, "b names"]]:
    """Per board, for each new cell the old cell that moves there; and the new names of digits."""
    draws = stream(key, count * (side + 1)).reshape(count, side + 1)
    which = (draws[:, side] >> np.uint64(61)).astype(np.int64) if turn else np.zeros(count, int)
    return symmetries(side)[which], digit_names(draws[:, :side])


def changed_jigsaws(
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


COLUMNS = ("id", "puzzle", "regions", "solution", "clues", "difficulty")
HEADER = ",".join(COLUMNS)


def write_jigsaws(path: str | os.PathLike[str], puzzles: Jigsaws) -> None:
    """Write puzzles to a file that appears whole; an unknown rating is an empty field.

    >>> write_jigsaws("puzzles.csv", generate_jigsaws(side=4, count=3))
    """
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(HEADER + "\n")
        for row in range(len(puzzles)):
            rating = puzzles.ratings[row]
            fields = (
                str(row + 1),
                format_board(puzzles.puzzles[row]),
                format_regions(puzzles.regions[row]),
                format_board(puzzles.solutions[row]),
                str(puzzles.clues[row]),
                "" if np.isnan(rating) else f"{rating:.1f}",
            )
            file.write(",".join(fields) + "\n")


def read_jigsaws(path: str | os.PathLike[str]) -> Jigsaws:
    """Read and check a file: regions, solutions, and that no puzzle has a second solution.

    >>> write_jigsaws("puzzles.csv", generate_jigsaws(side=4, count=3))
    >>> len(read_jigsaws("puzzles.csv"))
    3
    """
    path = Path(path)
    lines = read_rows(path)
    if not lines or tuple(lines[0][1]) != COLUMNS:
        raise DataError(f"Not a file of jigsaw puzzles (its first line should be {HEADER}): {path}")
    rows = [_row(path, number, fields) for number, fields in lines[1:]]
    if not rows:
        raise DataError(f"There are no puzzles in this file: {path}")
    if len({len(row[0]) for row in rows}) > 1:
        raise DataError(f"All boards in a file should have the same size: {path}")
    puzzles, regions, solutions, ratings = zip(*rows, strict=True)
    found = Jigsaws(
        np.stack(puzzles), np.stack(regions), np.stack(solutions), np.array(ratings, np.float32)
    )
    _check(path, found, [number for number, _ in lines[1:]])
    return found


def _row(
    path: Path, number: int, fields: list[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    try:
        if len(fields) != len(COLUMNS):
            raise DataError(f"expected {len(COLUMNS)} columns, got {len(fields)}.")
        puzzle, regions = parse_puzzle(f"{fields[1]}/{fields[2]}")
        solution = parse_cells(fields[3])
        if len(solution) != len(puzzle):
            raise DataError(f"The solution has {len(solution)} cells, the puzzle {len(puzzle)}.")
        return puzzle, regions, solution, float(fields[5] or "nan")
    except (DataError, ValueError) as error:
        raise DataError(f"Line {number} of {path}: {error}") from None


def _check(path: Path, found: Jigsaws, lines: list[int]) -> None:
    given = (found.puzzles == 0) | (found.puzzles == found.solutions)
    good = valid_jigsaws(found.solutions, found.regions) & given.all(axis=1)
    if not good.all():
        line = lines[int(np.flatnonzero(~good)[0])]
        raise DataError(f"Line {line} of {path}: the solution does not fit puzzle and regions.")
    unique = solve_jigsaws(found.puzzles, found.regions).counts == 1
    if not unique.all():
        line = lines[int(np.flatnonzero(~unique)[0])]
        raise DataError(f"Line {line} of {path}: the puzzle has more than one solution.")
