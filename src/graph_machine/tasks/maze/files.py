"""Files of mazes: .csv with the columns of `HEADER`, a maze as one line of cells."""

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np

from graph_machine.errors import DataError
from graph_machine.files import atomic_path
from graph_machine.tasks.board_files import read_rows
from graph_machine.tasks.maze.mazes import Mazes, format_maze, format_path, parse_maze, solve

COLUMNS = ("id", "maze", "path", "steps")
HEADER = ",".join(COLUMNS)


def write_csv(path: str | os.PathLike[str], mazes: Mazes) -> None:
    """Write mazes to a file that appears whole.

    >>> from graph_machine.tasks.maze.mazes import generate
    >>> write_csv("mazes.csv", generate(side=9, count=2))
    """
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(HEADER + "\n")
        for row, cells in enumerate(mazes.cells):
            marked = format_path(cells, mazes.paths[row])
            file.write(f"{row + 1},{format_maze(cells)},{marked},{mazes.steps[row]}\n")


def read_csv(path: str | os.PathLike[str]) -> Mazes:
    """Read mazes and search each; the columns `path` and `steps` are not trusted.

    A maze needs exactly one shortest path: with several, a model could not know which to mark.

    >>> from graph_machine.tasks.maze.mazes import generate
    >>> write_csv("mazes.csv", generate(side=9, count=2))
    >>> read_csv("mazes.csv").side
    9
    """
    path = Path(path)
    rows = read_rows(path)
    if not rows or tuple(rows[0][1][:2]) != COLUMNS[:2]:
        raise DataError(f"Not a file of mazes (its first line should be {HEADER}): {path}")
    cells = [_row(path, number, fields) for number, fields in rows[1:]]
    if not cells:
        raise DataError(f"There are no mazes in this file: {path}")
    if len({len(row) for row in cells}) > 1:
        raise DataError(f"All mazes in a file should have the same size: {path}")
    found = solve(np.stack(cells))
    if (found.counts != 1).any():
        row = int(np.flatnonzero(found.counts != 1)[0])
        how_many = "no path" if found.counts[row] == 0 else "more than one shortest path"
        raise DataError(f"Line {rows[row + 1][0]} of {path}: the maze has {how_many}.")
    return Mazes(np.stack(cells), found.paths, found.steps.astype(np.uint16))


def _row(path: Path, number: int, fields: list[str]) -> np.ndarray:
    try:
        if len(fields) < 2:
            raise DataError(f"expected {len(COLUMNS)} columns, got {len(fields)}.")
        return parse_maze(fields[1])
    except DataError as error:
        raise DataError(f"Line {number} of {path}: {error}") from None


def mazes_in(text: str) -> Iterator[tuple[int, str]]:
    """Mazes of a text with the numbers of their first lines: one a line, or one on several.

    A blank line ends a maze on several lines, and so does a full square.

    >>> list(mazes_in("S.#G\\n\\nS.\\n#G\\nSG\\n.#"))
    [(1, 'S.#G'), (3, 'S.#G'), (5, 'SG.#')]
    """
    lines = [line.strip() for line in text.splitlines()]
    start = 0
    for blank, run in groupby(lines, key=lambda line: not line):
        block = list(run)
        size = 0 if blank else _lines_of_one(block)
        for first in range(0, len(block) if size else 0, size or 1):
            yield start + first + 1, "".join(block[first : first + size])
        start += len(block)


def _lines_of_one(block: list[str]) -> int:
    """How many lines a maze has in lines without a blank one between them."""
    whole = [{"S", "G"} <= set(line.upper()) for line in block]
    side = len(block[0])
    square = {len(line) for line in block} == {side} and len(block) % side == 0
    if square and not all(whole):
        return side
    # Lines that are no maze each are one, even if it is not square: `parse` says so.
    return 1 if any(whole) or "," in block[0] else len(block)
