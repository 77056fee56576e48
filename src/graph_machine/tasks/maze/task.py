"""Mazes as a task: a token per cell, whether it is on the shortest way as its answer.

The input edges are those of any grid: each cell's four neighbours, walls or not. Whether a
neighbour is a wall is for the model to look up.
"""

from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.config import InputSpec, MazeConfig, TaskConfig
from graph_machine.errors import DataError
from graph_machine.graphs import GRID_CATEGORIES
from graph_machine.tasks.arrays import cached_arrays, identity_of
from graph_machine.tasks.base import SPLITS, Baseline, Split, Task
from graph_machine.tasks.batch import Batch
from graph_machine.tasks.maze.answers import MazeAnswer
from graph_machine.tasks.maze.files import HEADER, read_csv
from graph_machine.tasks.maze.mazes import (
    ON_PATH,
    OPEN,
    SYMBOLS,
    Mazes,
    generate,
    parse_maze,
    solve,
    without_dead_ends,
)
from graph_machine.tasks.rows import RowOrder
from graph_machine.tasks.scores import Band, Grouping, Metric
from graph_machine.tasks.sudoku.splits import Splits, split_rows

ARRAYS = tuple(item.name for item in fields(Mazes))
EDGES = (0, 10, 15, 20, 30, 50, 80)
STEP_BANDS = (
    *(Band(f"{low}-{high - 1}", low, high) for low, high in pairwise(EDGES)),
    Band(f"{EDGES[-1]} or more", EDGES[-1], float("inf")),
)


def maze_batch(rows: Mazes) -> Batch:
    """Mazes as tensors. Start and goal are on the way in any case: they do not count."""
    cells = torch.from_numpy(rows.cells).long()
    return Batch(
        tokens=cells,
        answers=torch.from_numpy(rows.paths).long(),
        where=cells == OPEN,
        groups={"steps": rows.steps},
    )


class MazeTask(Task):
    """Mazes from a .csv file, or generated and cached; split 0.9 / 0.05 / 0.05 for each seed."""

    name = "maze"
    examples_word = "mazes"
    groupings = (Grouping("steps", "steps", STEP_BANDS),)
    store: Mazes
    splits: Splits

    def __init__(self, config: TaskConfig) -> None:
        assert isinstance(config, MazeConfig)
        super().__init__(config)
        self._order: RowOrder | None = None

    def make_spec(self) -> InputSpec:
        side = self.config.side
        return InputSpec(
            num_tokens=len(SYMBOLS),
            num_outputs=2,
            num_nodes=side * side,
            grid=(side, side),
            graph="grid",
            num_edge_categories=len(GRID_CATEGORIES),
            alphabet=SYMBOLS,
            answers="-" + ON_PATH,
            keeps_givens=False,
        )

    @property
    def label(self) -> str:
        return f"maze-{self.config.side}x{self.config.side}"

    def open(self, data: str | None = None, seed: int = 0) -> "MazeTask":
        store = self._generated() if data is None else read_csv(data)
        source = "generated" if data is None else str(Path(data).absolute())
        return self.use(store, seed=seed, source=source)

    def use(
        self, store: Mazes, *, seed: int = 0, splits: Splits | None = None, source: str = ""
    ) -> "MazeTask":
        """Mazes in memory, split by `seed` or as given."""
        if store.side != self.config.side:
            raise DataError(
                f"The data has mazes of side {store.side}, the task expects {self.config.side}; "
                f"set task.side={store.side}: {source}"
            )
        self.store, self.source = store, source
        self.identity = identity_of({name: getattr(store, name) for name in ARRAYS})
        self.splits = split_rows(len(store), seed) if splits is None else splits
        self.sizes = {split: len(getattr(self.splits, split)) for split in SPLITS}
        self._order = None
        return self

    def _generated(self) -> Mazes:
        c = self.config
        what = f"{c.side}-{c.mazes}-loops{c.loops:g}-steps{c.fewest_steps}-seed{c.data_seed}"

        def make() -> dict[str, np.ndarray]:
            made = generate(c.side, c.mazes, c.data_seed, loops=c.loops, fewest=c.fewest_steps)
            return {name: getattr(made, name) for name in ARRAYS}

        return Mazes(**cached_arrays(f"maze-{what}", ARRAYS, make))

    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        if self._order is None or self._order.seed != seed:
            self._order = RowOrder(self.splits.train, seed)
        return maze_batch(self.store.take(self._order(step, batch_size)))

    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        rows: np.ndarray = getattr(self.splits, split)[:limit]
        for start in range(0, len(rows), batch_size):
            yield maze_batch(self.store.take(rows[start : start + batch_size]))

    def few(self, count: int) -> "MazeTask":
        return MazeTask(self.config.replace(mazes=min(self.config.mazes, count)))

    def held_out(self, data: str, trained_on: str | None, seed: int) -> tuple[Task, str]:
        """Every maze of a file that the model did not learn from; else the file's test split."""
        task = MazeTask(self.config).open(data, seed)
        if trained_on == task.identity:
            return task, f"the test split of {data} (the model was trained on the rest)"
        rows = np.arange(len(task.store))
        return task.use(task.store, splits=Splits(rows[:0], rows[:0], rows)), f"all of {data}"

    def seen_in_training(self, other: Task, limit: int | None) -> int | None:
        if not isinstance(other, MazeTask):
            return None
        known = {row.tobytes() for row in other.store.cells[other.splits.train]}
        tested = self.store.cells[self.splits.test[:limit]]
        return sum(row.tobytes() in known for row in tested)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("maze_accuracy", "mazes", "example_right"),
            Metric("cell_accuracy", "cells", "nodes_right", "nodes"),
        )

    def baselines(self) -> dict[str, Baseline]:
        """Filling dead ends leaves the way and all loops: right where there is no loop."""

        def exact(batch: Batch) -> Tensor:
            return torch.from_numpy(solve(_cells(batch)).paths).long()

        def dead_ends(batch: Batch) -> Tensor:
            return torch.from_numpy(without_dead_ends(_cells(batch))).long()

        return {"dead ends filled": dead_ends, "breadth-first search": exact}

    def parse(self, text: str) -> Batch:
        """Cells row by row: # wall, . open, S start, G goal; line breaks are ignored."""
        cells = parse_maze(text)
        if len(cells) != self.spec.num_nodes:
            raise DataError(f"Expected mazes of {self.spec.num_nodes} cells, got {len(cells)}.")
        tokens = torch.from_numpy(cells[None]).long()
        return Batch(tokens, torch.zeros_like(tokens), tokens == OPEN)

    def examples_in(self, text: str) -> Iterator[str]:
        """A row of a maze file has the maze in its second column."""
        for line in super().examples_in(text):
            if line != HEADER:
                yield line.split(",")[1] if "," in line else line

    def show(
        self,
        example: Batch,
        answers: Int[np.ndarray, "n"],
        confidences: Float[np.ndarray, "n"],
        *,
        check: bool = False,
    ) -> MazeAnswer:
        del check  # a maze is searched in no time: always checked
        cells = _cells(example)[0]
        marked = np.where(cells == OPEN, answers, 0).astype(np.uint8)
        return MazeAnswer(cells, marked, confidences)


def _cells(batch: Batch) -> np.ndarray:
    assert batch.tokens is not None
    return batch.tokens.cpu().numpy().astype(np.uint8)
