"""Mazes as a task: a token per cell, and whether it is on the shortest path as its answer.

The input edges are those of any grid: each cell's four neighbours, walls or not. Whether a
neighbour is a wall is for the model to look up.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Int, UInt64
from rich.text import Text
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.errors import DataError, MissingExtraError
from graph_machine.graphs import GRID_CATEGORIES
from graph_machine.lab.config import LARGEST_MAZE, SMALLEST_MAZE, MazeConfig
from graph_machine.lab.tasks.answers import NOT_COMPARED, Answers, Solution, Sure
from graph_machine.lab.tasks.base import Baseline
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.boards import BoardTask, cached_store
from graph_machine.lab.tasks.disguise import Disguise, symmetries, symmetry_keys
from graph_machine.lab.tasks.maze.mazes import (
    HEADER,
    OFF_PATH,
    ON_PATH,
    OPEN,
    SYMBOLS,
    WALL,
    MazeAnswer,
    Mazes,
    draw_maze,
    format_path,
    generate_mazes,
    mazes_in,
    off_path,
    parse_maze,
    read_mazes,
    shortest_paths,
    without_dead_ends,
    write_mazes,
)
from graph_machine.lab.tasks.scores import Band, Grouping, Metric
from graph_machine.lab.tasks.view import Mark

QUICK_SIDE = 40  # larger mazes take too long to generate while a user waits
EDGES = (0, 10, 15, 20, 30, 50, 80)
STEP_BANDS = (
    *(Band(f"{low}-{high - 1}", low, high) for low, high in pairwise(EDGES)),
    Band(f"{EDGES[-1]} or more", EDGES[-1], float("inf")),
)


class MazeTask(BoardTask[Mazes]):
    """Mazes from a .csv file, or generated and cached."""

    name = "maze"
    examples_word = "mazes"
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

    def generated(self) -> Mazes:
        c = self.config
        what = f"{c.side}-{c.mazes}-loops{c.loops:g}-steps{c.fewest_steps}-seed{c.data_seed}"
        return cached_store(Mazes, f"maze-{what}", c.mazes, c.side, self.generate)

    def batch_of(self, rows: Mazes) -> Batch:
        """Mazes as tensors. Start and goal are on the path in any case: they do not count."""
        cells = torch.from_numpy(rows.cells).long()
        paths = torch.from_numpy(rows.paths).long()
        return Batch(cells, paths, cells == OPEN, groups={"steps": rows.steps})

    def keys(self, rows: Mazes) -> UInt64[np.ndarray, "b"]:
        """Of mazes, however rotated or mirrored."""
        return symmetry_keys(rows.cells)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("maze_accuracy", "mazes", "example_right"),
            Metric("cell_accuracy", "cells", "nodes_right", "nodes"),
        )

    def baselines(self) -> dict[str, Baseline]:
        """Filling dead ends leaves the path and all loops: right where there is no loop."""

        def exact(batch: Batch) -> Tensor:
            return torch.from_numpy(shortest_paths(_cells(batch)).paths).long()

        def dead_ends(batch: Batch) -> Tensor:
            return torch.from_numpy(without_dead_ends(_cells(batch))).long()

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
            found = shortest_paths(_cells(example)[:1])
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
        return np.flatnonzero(off_path(_cells(example)[0], answers)).tolist()

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
        assert batch.tokens is not None
        tokens = batch.tokens.cpu().gather(1, cells)
        return Disguise(Batch(tokens, torch.zeros_like(tokens), tokens == OPEN), cells)

    def show(
        self, example: Batch, answers: Answers, sure: Sure, *, check: bool = False
    ) -> MazeAnswer:
        # a maze is searched in no time: always checked
        cells = _cells(example)[0]
        marked = np.where(cells == OPEN, answers, 0).astype(np.uint8)
        return MazeAnswer(cells, marked, sure)


def _cells(batch: Batch) -> np.ndarray:
    assert batch.tokens is not None
    return batch.tokens.cpu().numpy().astype(np.uint8)
