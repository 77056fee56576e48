"""Mazes: a seeded generator, exact search, and the text form.

A generated maze has exactly one shortest path from start to goal, although it has loops: start and
goal are drawn so. An answer to a maze is right if it marks a shortest path, whichever it is.
Needs the extra `data`.
"""

from dataclasses import dataclass, fields
from types import ModuleType
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64, Integer, UInt8, UInt16

from graph_machine.errors import DataError
from graph_machine.tasks.hashing import stream, stream_key
from graph_machine.tasks.sudoku.solve import kernels

SYMBOLS = "#.SG"
WALL, OPEN, START, GOAL = range(4)
ON_PATH, OFF_PATH = "o", "-"
BLOCK = 1024
PATIENCE = 50  # blocks without a new maze before the search for more is given up


@dataclass(frozen=True)
class Mazes:
    """Mazes with their shortest paths.

    `cells`: 0 wall, 1 open, 2 start, 3 goal. `paths`: 1 on the shortest path, ends included.
    `steps`: its length.

    >>> generate(side=9, count=2, seed=0).cells.shape  # count n
    (2, 81)
    """

    cells: UInt8[np.ndarray, "count n"]
    paths: UInt8[np.ndarray, "count n"]
    steps: UInt16[np.ndarray, "count"]

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def side(self) -> int:
        """Rows (and columns) of a maze."""
        return round(self.cells.shape[1] ** 0.5)

    def take(self, rows: np.ndarray | slice) -> "Mazes":
        """Some rows, copied."""
        return Mazes(*(np.asarray(getattr(self, item.name)[rows]) for item in fields(self)))


class ShortestPaths(NamedTuple):
    """A shortest path through each maze (0s if there is none), its steps, and how many there are:
    0, 1, or 2 for more than one."""

    paths: UInt8[np.ndarray, "b n"]
    steps: Int64[np.ndarray, "b"]
    counts: Int64[np.ndarray, "b"]


def _kernels(what: str) -> ModuleType:
    kernels("bits", what)  # says so where numba is missing
    from graph_machine.tasks.maze import kernels as found

    return found


def generate(
    side: int, count: int, seed: int = 0, *, loops: float = 0.05, fewest: int | None = None
) -> Mazes:
    """`count` distinct mazes whose path takes at least `fewest` steps (default: the side).

    >>> bool((generate(side=9, count=2, seed=0, fewest=12).steps >= 12).all())
    True
    """
    made = _kernels("Generating mazes")
    fewest = side if fewest is None else fewest
    key = stream_key("maze", seed, side)
    seen: set[bytes] = set()
    parts: list[Mazes] = []
    total = barren = start = 0
    while total < count:
        seeds = stream(key, BLOCK, start)
        start += BLOCK
        cells = np.zeros((BLOCK, side * side), dtype=np.uint8)
        paths, steps = np.zeros_like(cells), np.zeros(BLOCK, dtype=np.int64)
        made.generate_all(seeds, round(1e6 * loops), fewest, cells, paths, steps)
        new = []
        for row in np.flatnonzero(steps).tolist():
            mark = cells[row].tobytes()
            if mark not in seen:
                seen.add(mark)
                new.append(row)
        rows = np.array(new[: count - total], dtype=np.int64)
        parts.append(Mazes(cells[rows], paths[rows], steps[rows].astype(np.uint16)))
        total += len(rows)
        barren = 0 if len(rows) else barren + 1
        if barren >= PATIENCE:
            raise DataError(
                f"Only {total:,} of {count:,} mazes of side {side} with a path of at least "
                f"{fewest} steps found: ask for fewer, or for shorter paths (task.shortest)."
            )
    return Mazes(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Mazes)))


def solve(cells: UInt8[np.ndarray, "b n"]) -> ShortestPaths:
    """Search every maze breadth first."""
    found = _kernels("Solving mazes")
    cells = np.array(cells, dtype=np.uint8, order="C")
    paths = np.zeros_like(cells)
    steps, counts = np.zeros(len(cells), dtype=np.int64), np.zeros(len(cells), dtype=np.int64)
    found.solve_all(cells, paths, steps, counts)
    return ShortestPaths(paths, steps, counts)


def without_dead_ends(cells: UInt8[np.ndarray, "b n"]) -> UInt8[np.ndarray, "b n"]:
    """1 at what is left of the passages when dead ends are filled: all loops, and the path."""
    left = np.zeros(cells.shape, dtype=np.uint8)
    _kernels("Solving mazes").fill_dead_ends(np.array(cells, dtype=np.uint8, order="C"), left)
    return left


def is_path(cells: UInt8[np.ndarray, "n"], marked: Integer[np.ndarray, "n"]) -> bool:
    """Whether the marked open cells and the two ends are one path without detours, and nothing
    more; there may be shorter ones.

    >>> maze = parse_maze("S......#G")
    >>> is_path(maze, np.array([0, 1, 1, 0, 0, 1, 0, 0, 0]))
    True
    """
    inside = (marked > 0) | (cells == START) | (cells == GOAL)
    alone = solve(np.where(inside & (cells != WALL), cells, WALL)[None])
    return bool(alone.counts[0] and alone.steps[0] == inside.sum() - 1)


def is_shortest(cells: UInt8[np.ndarray, "n"], marked: Integer[np.ndarray, "n"]) -> bool:
    """Whether the marked open cells and the two ends are one shortest path, and nothing more."""
    steps = int(((marked > 0) & (cells == OPEN)).sum()) + 1
    return is_path(cells, marked) and steps == int(solve(cells[None]).steps[0])


def off_path(
    cells: UInt8[np.ndarray, "n"], marked: Integer[np.ndarray, "n"]
) -> Bool[np.ndarray, "n"]:
    """Marked open cells that are inside no path without detours: those have exactly two neighbours
    that are marked, the start or the goal.

    >>> off_path(parse_maze("S..#..#.G"), np.array([0, 1, 1, 0, 0, 1, 0, 0, 0])).any().item()
    False
    """
    side = round(len(cells) ** 0.5)
    ends = (cells == START) | (cells == GOAL)
    inside = ((marked > 0) & (cells == OPEN)) | ends
    board = np.pad(inside.reshape(side, side), 1).astype(np.int64)
    around = board[:-2, 1:-1] + board[2:, 1:-1] + board[1:-1, :-2] + board[1:-1, 2:]
    return inside & ~ends & (around.reshape(-1) != 2)


def parse_maze(text: str) -> UInt8[np.ndarray, "n"]:
    """Cells of a maze written as text, `#` wall, `.` open, `S` start, `G` goal; lines may break."""
    compact = "".join(text.split()).upper()
    side = round(len(compact) ** 0.5)
    if side * side != len(compact) or side < 2:
        raise DataError(f"A maze should be a square of cells, got {len(compact)} of them.")
    bad = [symbol for symbol in compact if symbol not in SYMBOLS]
    if bad:
        raise DataError(f"Maze symbol '{bad[0]}': expected # wall, . open, S start or G goal.")
    if compact.count("S") != 1 or compact.count("G") != 1:
        raise DataError(
            f"A maze has one start S and one goal G, got {compact.count('S')} and "
            f"{compact.count('G')}."
        )
    return np.array([SYMBOLS.index(symbol) for symbol in compact], dtype=np.uint8)


def format_maze(cells: UInt8[np.ndarray, "n"]) -> str:
    """One line, row by row."""
    return "".join(SYMBOLS[cell] for cell in cells)


def format_path(cells: UInt8[np.ndarray, "n"], path: UInt8[np.ndarray, "n"]) -> str:
    """One line; `o` at the open cells of the path."""
    return "".join(
        ON_PATH if on and cell == OPEN else SYMBOLS[cell] for cell, on in zip(cells, path)
    )
