"""Jigsaw Sudoku as a task: a token per cell, edges that hint at the regions, digits as answers."""

import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.config import InputSpec, JigsawConfig, TaskConfig
from graph_machine.errors import DataError
from graph_machine.tasks.arrays import cached_arrays, identity_of
from graph_machine.tasks.base import SPLITS, Baseline, Split, Task
from graph_machine.tasks.batch import Batch
from graph_machine.tasks.hashing import stream_key
from graph_machine.tasks.jigsaw.answers import JigsawAnswer, make_answer
from graph_machine.tasks.jigsaw.augment import augment
from graph_machine.tasks.jigsaw.generate import Jigsaws, generate
from graph_machine.tasks.jigsaw.inputs import (
    CATEGORIES,
    batch_puzzles,
    batch_regions,
    jigsaw_batch,
)
from graph_machine.tasks.jigsaw.regions import layout_keys
from graph_machine.tasks.jigsaw.solve import solve, solve_singles
from graph_machine.tasks.jigsaw.text import COLUMNS, HEADER, format_puzzle, parse_puzzle, read_csv
from graph_machine.tasks.rows import RowOrder, split_by_key
from graph_machine.tasks.scores import Grouping, Metric
from graph_machine.tasks.sudoku.board import SYMBOLS
from graph_machine.tasks.sudoku.ratings import RATING_BANDS
from graph_machine.tasks.sudoku.splits import Splits

ARRAYS = tuple(item.name for item in fields(Jigsaws))
WAYS = {"none": "", "relabel": ", digits relabelled", "all": ", digits relabelled, boards turned"}


class JigsawTask(Task):
    """Puzzles from a .csv file, or generated and cached.

    The split (0.9 / 0.05 / 0.05, redrawn for each seed) is by regions: no partition of an eval or
    test board occurs in training, not even rotated or mirrored.
    """

    name = "jigsaw"
    examples_word = "puzzles"
    groupings = (Grouping("rating", "rating", RATING_BANDS), Grouping("clues", "clues"))
    store: Jigsaws
    splits: Splits

    def __init__(self, config: TaskConfig) -> None:
        assert isinstance(config, JigsawConfig)
        super().__init__(config)
        self._order: RowOrder | None = None

    def make_spec(self) -> InputSpec:
        side, told = self.config.side, self.config.told
        return InputSpec(
            num_tokens=(side + 1) * (side if told else 1),
            num_outputs=side,
            num_nodes=side * side,
            grid=(side, side),
            graph="given",
            num_edge_categories=len(CATEGORIES),
            alphabet=None if told else SYMBOLS[: side + 1],
            answers=SYMBOLS[1 : side + 1],
        )

    @property
    def label(self) -> str:
        return f"jigsaw-{self.config.side}x{self.config.side}"

    def open(self, data: str | None = None, seed: int = 0) -> "JigsawTask":
        store = self._generated() if data is None else read_csv(data)
        source = "generated" if data is None else str(Path(data).absolute())
        return self.use(store, seed=seed, source=source)

    def use(
        self, store: Jigsaws, *, seed: int = 0, splits: Splits | None = None, source: str = ""
    ) -> "JigsawTask":
        """Puzzles in memory, split by `seed` or as given."""
        if store.side != self.config.side:
            raise DataError(
                f"The data has boards of side {store.side}, the task expects {self.config.side}; "
                f"set task.side={store.side}: {source}"
            )
        self.store, self.source = store, source
        self.identity = identity_of({name: getattr(store, name) for name in ARRAYS})
        self.splits = split_by_key(layout_keys(store.regions), seed) if splits is None else splits
        self.sizes = {split: len(getattr(self.splits, split)) for split in SPLITS}
        self._order = None
        return self

    def _generated(self) -> Jigsaws:
        c = self.config
        name = f"jigsaw-{c.side}-{c.puzzles}-extra{c.clues_extra}-seed{c.data_seed}"

        def make() -> dict[str, np.ndarray]:
            workers = os.cpu_count() or 1
            made = generate(c.side, c.puzzles, c.data_seed, extra=c.clues_extra, workers=workers)
            return {name: getattr(made, name) for name in ARRAYS}

        return Jigsaws(**cached_arrays(name, ARRAYS, make))

    def batch(self, step: int, batch_size: int, seed: int, progress: float = 1.0) -> Batch:
        if self._order is None or self._order.seed != seed:
            self._order = RowOrder(self.splits.train, seed)
        rows = self.store.take(self._order(step, batch_size))
        if self.config.augment != "none":
            key = stream_key("augment", seed, step)
            rows = augment(rows, key, turn=self.config.augment == "all")
        return jigsaw_batch(rows, told=self.config.told)

    def split_batches(
        self, split: Split, batch_size: int, limit: int | None = None
    ) -> Iterator[Batch]:
        rows: np.ndarray = getattr(self.splits, split)[:limit]
        for start in range(0, len(rows), batch_size):
            part = self.store.take(rows[start : start + batch_size])
            yield jigsaw_batch(part, told=self.config.told)

    def few(self, count: int) -> "JigsawTask":
        return JigsawTask(self.config.replace(puzzles=min(self.config.puzzles, count)))

    def held_out(self, data: str, trained_on: str | None, seed: int) -> tuple[Task, str]:
        """Every puzzle of a file that the model did not learn from; else the file's test split."""
        task = JigsawTask(self.config).open(data, seed)
        if trained_on == task.identity:
            return task, f"the test split of {data} (the model was trained on the rest)"
        rows = np.arange(len(task.store))
        return task.use(task.store, splits=Splits(rows[:0], rows[:0], rows)), f"all of {data}"

    def seen_in_training(self, other: Task, limit: int | None) -> int | None:
        """Test puzzles whose regions, however rotated or mirrored, occur in training."""
        if not isinstance(other, JigsawTask):
            return None
        mine = layout_keys(self.store.regions[self.splits.test[:limit]])
        return int(np.isin(mine, layout_keys(other.store.regions[other.splits.train])).sum())

    @property
    def data_words(self) -> str:
        size, extra = f"{len(self.store):,}", self.config.clues_extra
        text = f"{size} puzzles of {Path(self.source).name}"
        if self.source == "generated":
            kind = f" with 0 to {extra} clues put back" if extra else ""
            text = f"{size} generated minimal jigsaw puzzles{kind}"
        return f"{text}, 90% of them for training{WAYS[self.config.augment]}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("board_accuracy", "boards", "example_right"),
            Metric("cell_accuracy", "cells", "nodes_right", "nodes"),
        )

    def baselines(self) -> dict[str, Baseline]:
        """A blank that singles do not settle counts as wrong: 0 is no digit."""

        def exact(batch: Batch) -> Tensor:
            found = solve(self.puzzles(batch), batch_regions(batch), limit=1).solutions
            return torch.from_numpy(found).long() - 1

        def singles(batch: Batch) -> Tensor:
            filled = solve_singles(self.puzzles(batch), batch_regions(batch))
            return torch.from_numpy(filled).long() - 1

        return {"singles only": singles, "exact solver": exact}

    def puzzles(self, batch: Batch) -> np.ndarray:
        return batch_puzzles(batch, told=self.config.told)

    def parse(self, text: str) -> Batch:
        """`PUZZLE/REGIONS`, a symbol per cell in both."""
        puzzle, regions = parse_puzzle(text)
        if len(puzzle) != self.spec.num_nodes:
            raise DataError(f"Expected boards of {self.spec.num_nodes} cells, got {len(puzzle)}.")
        blank = np.ones((1, len(puzzle)), dtype=np.uint8)  # a solution that nobody looks at
        rows = Jigsaws(puzzle[None], regions[None], blank, np.full(1, np.nan, dtype=np.float32))
        return jigsaw_batch(rows, told=self.config.told)

    def text(self, example: Batch) -> str:
        return format_puzzle(self.puzzles(example)[0], batch_regions(example)[0])

    def examples_in(self, text: str) -> Iterator[str]:
        """A row of a puzzle file has puzzle and regions in its second and third column."""
        for line in super().examples_in(text):
            if line != HEADER:
                parts = line.split(",")
                yield "/".join(parts[1:3]) if len(parts) == len(COLUMNS) else line

    def show(
        self,
        example: Batch,
        answers: Int[np.ndarray, "n"],
        confidences: Float[np.ndarray, "n"],
        *,
        check: bool = False,
    ) -> JigsawAnswer:
        puzzle, regions = self.puzzles(example)[0], batch_regions(example)[0]
        return make_answer(puzzle, regions, answers + 1, confidences, check=check)

    def example_regions(self, batch: Batch) -> dict[str, np.ndarray]:
        return {"region": batch_regions(batch)}
