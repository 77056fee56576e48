"""Files of mazes: .csv with the columns of `HEADER`, a maze as one line of cells."""

import csv
import os
from pathlib import Path

import numpy as np

from graph_machine.errors import DataError
from graph_machine.files import atomic_path
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
            way = format_path(cells, mazes.paths[row])
            file.write(f"{row + 1},{format_maze(cells)},{way},{mazes.steps[row]}\n")


def read_csv(path: str | os.PathLike[str]) -> Mazes:
    """Read mazes and search each; the columns `path` and `steps` are not trusted.

    A maze needs exactly one shortest way: with several, a model could not know which to mark.

    >>> from graph_machine.tasks.maze.mazes import generate
    >>> write_csv("mazes.csv", generate(side=9, count=2))
    >>> read_csv("mazes.csv").side
    9
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no such data file: {path}")
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        if tuple(next(reader, ()))[:2] != COLUMNS[:2]:
            raise DataError(f"Not a file of mazes (its first line should be {HEADER}): {path}")
        cells = [_row(path, number, fields) for number, fields in enumerate(reader, start=2)]
    if not cells:
        raise DataError(f"There are no mazes in this file: {path}")
    if len({len(row) for row in cells}) > 1:
        raise DataError(f"All mazes in a file should have the same size: {path}")
    found = solve(np.stack(cells))
    if (found.counts != 1).any():
        row = int(np.flatnonzero(found.counts != 1)[0])
        how_many = "no way" if found.counts[row] == 0 else "more than one shortest way"
        raise DataError(f"Line {row + 2} of {path}: the maze has {how_many}.")
    return Mazes(np.stack(cells), found.paths, found.steps.astype(np.uint16))


def _row(path: Path, number: int, fields: list[str]) -> np.ndarray:
    try:
        if len(fields) < 2:
            raise DataError(f"{len(fields)} columns, expected {len(COLUMNS)}.")
        return parse_maze(fields[1])
    except DataError as error:
        raise DataError(f"Line {number} of {path}: {error}") from None
