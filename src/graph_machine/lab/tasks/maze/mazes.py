"""Mazes: a seeded generator, exact search, the text form, and the task.

A generated maze has exactly one shortest path from start to goal, although it has loops: start and
goal are drawn so. An answer to a maze is right if it marks a shortest path, whichever it is. A
model is given a token per cell and the edges of any grid: each cell's four neighbours, walls or
not. Whether a neighbour is a wall is for the model to look up. Needs the extra `data`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64, Integer, UInt8, UInt16
from rich.text import Text
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.errors import DataError, MissingExtraError, count_of
from graph_machine.graphs import GRID_CATEGORIES
from graph_machine.lab.config import LARGEST_MAZE, SMALLEST_MAZE, MazeConfig
from graph_machine.lab.tasks import load_kernels
from graph_machine.lab.tasks.answers import NOT_COMPARED, Answer, Answers, Disguise, Solution, Sure
from graph_machine.lab.tasks.base import Baseline
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.boards import BoardTask
from graph_machine.lab.tasks.csv_files import read_boards, write_rows
from graph_machine.lab.tasks.rows import (
    Boards,
    Cells,
    Keys,
    RowArrays,
    distinct,
    in_threads,
    join_rows,
    stream_key,
    symmetries,
    symmetry_keys,
)
from graph_machine.lab.tasks.scores import Band, Grouping
from graph_machine.lab.tasks.view import Mark

SYMBOLS = "#.SG"
WALL, OPEN, START, GOAL = range(4)
ON_PATH, OFF_PATH = "o", "-"
BLOCK = 1024
PATIENCE = 50  # blocks without a new maze before the search for more is given up


@dataclass(frozen=True)
class Mazes(RowArrays):
    """Mazes with their shortest paths.

    `cells`: 0 wall, 1 open, 2 start, 3 goal. `paths`: 1 on the shortest path, ends included.
    `steps`: its length.

    >>> generate_mazes(side=9, count=2, seed=0).cells.shape  # count n
    (2, 81)
    """

    cells: UInt8[np.ndarray, "count n"]
    paths: UInt8[np.ndarray, "count n"]
    steps: UInt16[np.ndarray, "count"]


class ShortestPaths(NamedTuple):
    """A shortest path through each maze (0s if there is none), its steps, and how many there are:
    0, 1, or 2 for more than one."""

    paths: Boards
    steps: Int64[np.ndarray, "b"]
    counts: Int64[np.ndarray, "b"]


def generate_mazes(
    side: int, count: int, seed: int = 0, *, loops: float = 0.05, fewest: int | None = None
) -> Mazes:
    """`count` distinct mazes whose path takes at least `fewest` steps (default: the side).

    >>> bool((generate_mazes(side=9, count=2, seed=0, fewest=12).steps >= 12).all())
    True
    """
    kernels = load_kernels("maze.kernels", "Generating mazes")
    least = side if fewest is None else fewest

    def attempt(seeds: Keys) -> Mazes:
        cells = np.zeros((len(seeds), side * side), dtype=np.uint8)
        paths, steps = np.zeros_like(cells), np.zeros(len(seeds), dtype=np.int64)
        kernels.generate_all(seeds, round(1e6 * loops), least, cells, paths, steps)
        return Mazes(cells, paths, steps.astype(np.uint16)).take(steps > 0)

    def failure(made: int, barren: int) -> str | None:
        if barren < PATIENCE:
            return None
        return (
            f"mazes of side {side} with a path of at least {least} steps found: ask for fewer, or "
            "for shorter paths (task.shortest)."
        )

    blocks = in_threads(attempt, stream_key("maze", seed, side), BLOCK, 1)
    marks = lambda block: [row.tobytes() for row in block.cells]  # noqa: E731
    return join_rows([*distinct(blocks, marks, count, failure)])


def shortest_paths(cells: Boards) -> ShortestPaths:
    """Search every maze breadth first."""
    found = load_kernels("maze.kernels", "Solving mazes")
    cells = np.array(cells, dtype=np.uint8, order="C")
    paths = np.zeros_like(cells)
    steps, counts = np.zeros(len(cells), dtype=np.int64), np.zeros(len(cells), dtype=np.int64)
    found.solve_all(cells, paths, steps, counts)
    return ShortestPaths(paths, steps, counts)


def without_dead_ends(cells: Boards) -> Boards:
    """1 at what is left of the passages when dead ends are filled: all loops, and the path."""
    left = np.zeros(cells.shape, dtype=np.uint8)
    load_kernels("maze.kernels", "Solving mazes").fill_dead_ends(
        np.array(cells, dtype=np.uint8, order="C"), left
    )
    return left


def is_path(cells: Cells, marked: Integer[np.ndarray, "n"]) -> bool:
    """Whether the marked open cells and the two ends are one path without detours, and nothing
    more; there may be shorter ones.

    >>> maze = parse_maze("S......#G")
    >>> is_path(maze, np.array([0, 1, 1, 0, 0, 1, 0, 0, 0]))
    True
    """
    inside = (marked > 0) | (cells == START) | (cells == GOAL)
    alone = shortest_paths(np.where(inside & (cells != WALL), cells, WALL)[None])
    return bool(alone.counts[0] and alone.steps[0] == inside.sum() - 1)


def is_shortest(cells: Cells, marked: Integer[np.ndarray, "n"]) -> bool:
    """Whether the marked open cells and the two ends are one shortest path, and nothing more."""
    steps = int(((marked > 0) & (cells == OPEN)).sum()) + 1
    return is_path(cells, marked) and steps == int(shortest_paths(cells[None]).steps[0])


def off_path(cells: Cells, marked: Integer[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
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


def parse_maze(text: str) -> Cells:
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


def format_maze(cells: Cells) -> str:
    """One line, row by row."""
    return "".join(SYMBOLS[cell] for cell in cells)


def format_path(cells: Cells, path: Cells) -> str:
    """One line; `o` at the open cells of the path."""
    return "".join(
        ON_PATH if on and cell == OPEN else SYMBOLS[cell] for cell, on in zip(cells, path)
    )


COLUMNS = ("id", "maze", "path", "steps")
HEADER = ",".join(COLUMNS)


def write_mazes(path: str | os.PathLike[str], mazes: Mazes) -> None:
    """Write mazes to a file that appears whole.

    >>> write_mazes("mazes.csv", generate_mazes(side=9, count=2))
    """
    rows = zip(mazes.cells, mazes.paths, mazes.steps)
    lines = (f"{format_maze(cells)},{format_path(cells, path)},{n}" for cells, path, n in rows)
    write_rows(path, HEADER, lines)


def read_mazes(path: str | os.PathLike[str]) -> Mazes:
    """Read mazes and search each; the columns `path` and `steps` are not trusted.

    A maze needs exactly one shortest path: with several, a model could not know which to mark.

    >>> write_mazes("mazes.csv", generate_mazes(side=9, count=2))
    >>> read_mazes("mazes.csv").side
    9
    """
    lines, (cells,) = read_boards(
        path, COLUMNS[:2], "mazes", lambda fields: (parse_maze(fields[1]),)
    )
    found = shortest_paths(cells)
    for row in np.flatnonzero(found.counts != 1).tolist():
        how_many = "more than one shortest path" if found.counts[row] else "no path"
        raise DataError(f"Line {lines[row]} of {path}: the maze has {how_many}.")
    return Mazes(cells, found.paths, found.steps.astype(np.uint16))


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
        whole = [{"S", "G"} <= set(line.upper()) for line in block]
        side = max(1, len(block[0]))
        # Lines that are no maze each are one, even if it is not square: `parse` says so.
        size = 1 if any(whole) or "," in block[0] else len(block)
        if {len(line) for line in block} == {side} and len(block) % side == 0 and not all(whole):
            size = side
        for first in range(0, 0 if blank else len(block), size):
            yield start + first + 1, "".join(block[first : first + size])
        start += len(block)


def draw_maze(cells: Cells, path: Cells | None = None, wrong: np.ndarray | None = None) -> Text:
    """Walls as blocks, the path as dots.

    Cells where `wrong` (n,) is True are red: they should be marked, or should not be.

    >>> mazes = generate_mazes(side=5, count=1)
    >>> print(draw_maze(mazes.cells[0], mazes.paths[0]).plain)
    ██████████████
    ██      ██  ██
    ██  ████    ██
    ██  ██  ██  ██
    ██• • • ██G ██
    ██S ██• • • ██
    ██████████████
    """
    side = round(len(cells) ** 0.5)
    frame = "██" * (side + 2)
    text = Text(frame + "\n", style="dim")
    for row in range(side):
        text.append("██", style="dim")
        for cell in range(row * side, (row + 1) * side):
            kind, bad = cells[cell], wrong is not None and bool(wrong[cell])
            if kind == WALL:
                text.append("██", style="dim")
            elif kind in (START, GOAL):
                text.append("S " if kind == START else "G ", style="bold")
            else:
                marked = path is not None and bool(path[cell])
                shown = ("x " if marked else "! ") if bad else ("• " if marked else "  ")
                text.append(shown, style="bold red" if bad else "cyan")
        text.append("██\n", style="dim")
    return text.append(frame, style="dim")


@dataclass(frozen=True)
class MazeAnswer(Answer):
    """The cells that the model marks; any shortest path is right."""

    cells: Cells
    marked: Cells
    confidence: Float[np.ndarray, "n"]

    @property
    def text(self) -> str:
        return format_path(self.cells, self.marked)

    @property
    def valid(self) -> bool:
        return is_shortest(self.cells, self.marked)

    @property
    def obeys(self) -> bool:
        """A path without detours, shortest or not: only a search could decide that."""
        return is_path(self.cells, self.marked)

    @property
    def wrong(self) -> np.ndarray:
        """Open cells that differ from a shortest path: none, if the answer is one."""
        if self.valid:
            return np.zeros(len(self.cells), dtype=bool)
        return (self.marked != shortest_paths(self.cells[None]).paths[0]) & (self.cells == OPEN)

    def draw(self, *, confidence: bool = False) -> Text:
        return draw_maze(self.cells, self.marked, self.wrong)

    def verdict(self) -> str:
        if not shortest_paths(self.cells[None]).counts[0]:
            return "there is no path through this maze."
        if self.valid:
            return "a shortest path."
        cells = count_of(int(self.wrong.sum()), "cells")
        return f"not a shortest path: it differs from one in {cells}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "maze": format_maze(self.cells),
            "answer": self.text,
            "valid": self.valid,
            "wrong": np.flatnonzero(self.wrong).tolist(),
            "confidence": [round(float(value), 6) for value in self.confidence],
        }


QUICK_SIDE = 40  # larger mazes take too long to generate while a user waits
EDGES = (0, 10, 15, 20, 30, 50, 80)
STEP_BANDS = (
    *(Band(f"{low}-{high - 1}", low, high) for low, high in pairwise(EDGES)),
    Band(f"{EDGES[-1]} or more", EDGES[-1], float("inf")),
)


class MazeTask(BoardTask[Mazes]):
    """Mazes from a .csv file, or generated and cached."""

    name = "maze"
    kept = Mazes
    examples_word = "mazes"
    counted = ("maze", "cell")
    groupings = (Grouping("steps", "steps", STEP_BANDS),)
    count_field = "mazes"
    marks = {  # noqa: RUF012
        SYMBOLS[WALL]: Mark("filled", "wall"),
        SYMBOLS[OPEN]: Mark("empty", "open"),
        OFF_PATH: Mark("empty", "off the path"),
        ON_PATH: Mark("dot", "on the path"),
    }
    contents_word = "start and goal"
    text_hint = "# wall, . open, S start, G goal"
    config: MazeConfig

    def make_spec(self) -> InputSpec:
        side = self.config.side
        return InputSpec(
            num_tokens=len(SYMBOLS),
            num_outputs=2,
            num_nodes=side * side,
            learned_places=self.config.learned_places,
            grid=(side, side),
            graph="grid",
            num_edge_categories=len(GRID_CATEGORIES),
            alphabet=SYMBOLS,
            answers=OFF_PATH + ON_PATH,
            keeps_givens=False,
        )

    def read(self, path: str, limit: int | None = None) -> Mazes:
        return read_mazes(path).take(slice(limit))

    def write(self, path: str | os.PathLike[str], store: Mazes) -> None:
        write_mazes(path, store)

    def rows_of(self, text: str, size: str | None = None) -> Mazes:
        cells = parse_maze(text)[None]
        return Mazes(cells, np.zeros_like(cells), np.zeros(1, dtype=np.uint16))

    def picture(
        self, store: Mazes, row: int, *, solution: bool = False, marks: bool = True
    ) -> tuple[Text, str | None, str]:
        cells = store.cells[row]
        if not solution:
            return draw_maze(cells), None, ""
        found = shortest_paths(cells[None])
        if not found.counts[0]:
            raise DataError("There is no path through this maze.")
        several = "The maze has more than one shortest path; this is one of them."
        note = several if found.counts[0] > 1 else ""
        return draw_maze(cells, found.paths[0]), format_path(cells, found.paths[0]), note

    def generate(self) -> Mazes:
        c = self.config
        return generate_mazes(c.side, c.mazes, c.data_seed, loops=c.loops, fewest=c.fewest_steps)

    @property
    def cache_name(self) -> str:
        c = self.config
        return f"maze-{c.side}-{c.mazes}-loops{c.loops:g}-steps{c.fewest_steps}-seed{c.data_seed}"

    def batch_of(self, rows: Mazes) -> Batch:
        """Mazes as tensors. Start and goal are on the path in any case: they do not count."""
        cells = torch.from_numpy(rows.cells).long()
        paths = torch.from_numpy(rows.paths).long()
        return Batch(cells, paths, cells == OPEN, groups={"steps": rows.steps})

    def keys(self, rows: Mazes) -> Keys:
        """Of mazes, however rotated or mirrored."""
        return symmetry_keys(rows.cells)

    def baselines(self) -> dict[str, Baseline]:
        """Filling dead ends leaves the path and all loops: right if there is no loop."""

        def exact(batch: Batch) -> Tensor:
            return torch.from_numpy(shortest_paths(batch.cells).paths).long()

        def dead_ends(batch: Batch) -> Tensor:
            return torch.from_numpy(without_dead_ends(batch.cells)).long()

        return {"dead ends filled": dead_ends, "breadth-first search": exact}

    def parse(self, text: str) -> Batch:
        """Cells row by row: # wall, . open, S start, G goal; line breaks are ignored."""
        rows, side = self.rows_of(text), self.config.side
        if rows.side != side:
            raise DataError(
                f"Expected mazes of {side**2} cells ({side}x{side}), got {rows.side**2}."
            )
        return replace(self.batch_of(rows), groups={})

    def fitting(self, text: str) -> "MazeTask":
        """Where places have no embeddings, a maze may have any side."""
        try:
            side = round(len(parse_maze(text)) ** 0.5)
        except DataError:
            return self  # `parse` says what is wrong
        return self if self.spec.learned_places else self.of_side(side)

    def of_side(self, side: int) -> "MazeTask":
        if side == self.config.side:
            return self
        if not SMALLEST_MAZE <= side <= LARGEST_MAZE:
            raise DataError(
                f"Expected mazes of {SMALLEST_MAZE}x{SMALLEST_MAZE} to {LARGEST_MAZE}x"
                f"{LARGEST_MAZE} cells, got {side}x{side}."
            )
        # How long paths are is about mazes to train on; a smaller side might not allow it.
        return MazeTask(self.config.replace(side=side, shortest=None))

    def sample(self, count: int, seed: int) -> Batch | None:
        """Mazes like those that are trained on."""
        c = self.config
        if c.side > QUICK_SIDE:
            return None
        try:
            made = generate_mazes(c.side, count, seed, loops=c.loops, fewest=c.fewest_steps)
            return self.batch_of(made)
        except (DataError, MissingExtraError):  # such mazes are too rare to wait for
            return None

    def solve(self, example: Batch) -> Solution:
        try:
            found = shortest_paths(example.cells[:1])
        except MissingExtraError:
            return Solution(notes=(NOT_COMPARED,))
        if found.counts[0] == 0:
            return Solution(notes=("There is no path through this maze.",))
        if found.counts[0] > 1:
            note = "This maze has several shortest paths: marks that make no path are wrong."
            return Solution(notes=(note,))
        return Solution(found.paths[0].astype(np.int64))

    def broken(self, example: Batch, answers: Int[np.ndarray, "n"]) -> list[int]:
        """Marked cells that no path can go through: it enters and leaves by one cell each."""
        return np.flatnonzero(off_path(example.cells[0], answers)).tolist()

    def examples_in(self, text: str) -> Iterator[tuple[int, str]]:
        """A row of a maze file has the maze in its second column; else see `mazes_in`."""
        for number, line in mazes_in(text):
            if line != HEADER:
                yield number, line.split(",")[1] if "," in line else line

    def disguise(self, batch: Batch, number: int) -> Disguise | None:
        """The maze turned or mirrored: each of the eight symmetries once, as it is first."""
        ways = symmetries(self.config.side)
        if number > len(ways):
            return None
        cells = torch.from_numpy(np.repeat(ways[number - 1][None], len(batch), axis=0))
        tokens = batch.known_tokens.cpu().gather(1, cells)
        return Disguise(Batch(tokens, torch.zeros_like(tokens), tokens == OPEN), cells)

    def show(
        self, example: Batch, answers: Answers, sure: Sure, *, check: bool = False
    ) -> MazeAnswer:
        # a maze is searched in no time: always checked
        cells = example.cells[0]
        marked = np.where(cells == OPEN, answers, 0).astype(np.uint8)
        return MazeAnswer(cells, marked, sure)
