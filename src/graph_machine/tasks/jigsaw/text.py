"""Jigsaw puzzles as text: one as `PUZZLE/REGIONS`, many as a .csv file.

A file has the columns of `HEADER`. A cell is a digit (10 is A) or `.`, a region is a letter.
"""

import os
import re
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from graph_machine.errors import DataError
from graph_machine.files import atomic_path
from graph_machine.tasks.board_files import read_rows
from graph_machine.tasks.jigsaw.generate import Jigsaws
from graph_machine.tasks.jigsaw.regions import format_regions, parse_regions, side_of
from graph_machine.tasks.jigsaw.solve import solve, valid_grids
from graph_machine.tasks.sudoku.board import SYMBOLS, VALUE_OF_BYTE, format_board

COLUMNS = ("id", "puzzle", "regions", "solution", "clues", "difficulty")
HEADER = ",".join(COLUMNS)


def parse_cells(text: str) -> UInt8[np.ndarray, "n"]:
    """The cells of a square board of any side, one symbol each."""
    compact = "".join(text.split())
    side = side_of(len(compact))
    values = VALUE_OF_BYTE[np.frombuffer(compact.encode("latin-1", "replace"), dtype=np.uint8)]
    bad = np.flatnonzero(values > side)
    if bad.size:
        where = int(bad[0])
        raise DataError(
            f"Board symbol '{compact[where]}' in row {where // side + 1}, column "
            f"{where % side + 1}: expected {SYMBOLS[1]}..{SYMBOLS[side]}, or '.' for a blank."
        )
    return values


def parse_puzzle(text: str) -> tuple[UInt8[np.ndarray, "n"], UInt8[np.ndarray, "n"]]:
    """Puzzle and regions of `PUZZLE/REGIONS`; a comma or white space separates them as well."""
    parts = [part for part in re.split(r"[/,\s]+", text.strip()) if part]
    if len(parts) != 2:
        raise DataError(f"A jigsaw puzzle is PUZZLE/REGIONS, got {len(parts)} parts: {text}")
    puzzle, regions = parse_cells(parts[0]), parse_regions(parts[1])
    if len(puzzle) != len(regions):
        raise DataError(f"The puzzle has {len(puzzle)} cells, its regions {len(regions)}: {text}")
    return puzzle, regions


def format_puzzle(puzzle: UInt8[np.ndarray, "n"], regions: UInt8[np.ndarray, "n"]) -> str:
    return f"{format_board(puzzle)}/{format_regions(regions)}"


def write_csv(path: str | os.PathLike[str], puzzles: Jigsaws) -> None:
    """Write puzzles to a file that appears whole; an unknown rating is an empty field.

    >>> from graph_machine.tasks.jigsaw.generate import generate
    >>> write_csv("puzzles.csv", generate(side=4, count=3))
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


def read_csv(path: str | os.PathLike[str]) -> Jigsaws:
    """Read and check a file: regions, solutions, and that no puzzle has a second solution.

    >>> from graph_machine.tasks.jigsaw.generate import generate
    >>> write_csv("puzzles.csv", generate(side=4, count=3))
    >>> len(read_csv("puzzles.csv"))
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
    good = valid_grids(found.solutions, found.regions) & given.all(axis=1)
    if not good.all():
        line = lines[int(np.flatnonzero(~good)[0])]
        raise DataError(f"Line {line} of {path}: the solution does not fit puzzle and regions.")
    unique = solve(found.puzzles, found.regions).counts == 1
    if not unique.all():
        line = lines[int(np.flatnonzero(~unique)[0])]
        raise DataError(f"Line {line} of {path}: the puzzle has more than one solution.")
