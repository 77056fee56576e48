"""Writing puzzle files in the data set's layout: `id,puzzle,solution,clues,difficulty`."""

import gzip
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from graph_machine.files import atomic_path
from graph_machine.tasks.sudoku.board import BYTE_OF_VALUE
from graph_machine.tasks.sudoku.layouts import HEADER
from graph_machine.tasks.sudoku.reader import Rows


def write_csv(path: str | os.PathLike[str], parts: Iterable[Rows]) -> int:
    """Write rows as they come (gzipped if the name ends in .gz); returns how many there were.

    The file gets its name when the last row is written. An unknown rating is an empty field.
    """
    count = 0
    with atomic_path(path) as temporary, open(temporary, "wb") as raw:
        if Path(path).suffix == ".gz":
            # No name and no time inside: the same rows give the same bytes.
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
                count = _write(packed.write, parts)
        else:
            count = _write(raw.write, parts)
    return count


def _write(write: Callable[[bytes], object], parts: Iterable[Rows]) -> int:
    write(f"{HEADER}\n".encode())
    count = 0
    for rows in parts:
        cells = rows.puzzles.shape[1]
        puzzles = BYTE_OF_VALUE[rows.puzzles].tobytes().decode()
        solutions = BYTE_OF_VALUE[rows.solutions].tobytes().decode()
        lines = []
        for row, (clues, rating) in enumerate(zip(rows.clues.tolist(), rows.ratings.tolist())):
            place = slice(row * cells, (row + 1) * cells)
            shown = "" if np.isnan(rating) else f"{rating:.1f}"
            lines.append(f"{count + row + 1},{puzzles[place]},{solutions[place]},{clues},{shown}\n")
        write("".join(lines).encode())
        count += len(lines)
    return count
