"""Jigsaw Sudoku as a task: a token per cell, edges that hint at the regions, digits as answers."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from rich.text import Text
from torch import Tensor

from graph_machine.config import InputSpec, JigsawConfig
from graph_machine.errors import DataError, MissingExtraError
from graph_machine.tasks.answers import NOT_COMPARED, Solution
from graph_machine.tasks.base import Baseline, Task
from graph_machine.tasks.batch import Batch
from graph_machine.tasks.boards import BoardTask
from graph_machine.tasks.disguise import Disguise, of_digits
from graph_machine.tasks.filled_board import conflicts
from graph_machine.tasks.hashing import stream, stream_key
from graph_machine.tasks.jigsaw.answers import JigsawAnswer
from graph_machine.tasks.jigsaw.augment import augment, changed, draw
from graph_machine.tasks.jigsaw.draw import draw_jigsaw
from graph_machine.tasks.jigsaw.generate import Jigsaws, generate, generate_few
from graph_machine.tasks.jigsaw.neighbours import (
    CATEGORIES,
    batch_puzzles,
    batch_regions,
    jigsaw_batch,
)
from graph_machine.tasks.jigsaw.regions import layout_keys, unit_tables
from graph_machine.tasks.jigsaw.solve import rate as guesses
from graph_machine.tasks.jigsaw.solve import solve as exact_solutions
from graph_machine.tasks.jigsaw.solve import solve_singles
from graph_machine.tasks.jigsaw.text import (
    COLUMNS,
    HEADER,
    format_puzzle,
    parse_puzzle,
    read_csv,
    write_csv,
)
from graph_machine.tasks.rows import split_by_key
from graph_machine.tasks.scores import Grouping, Metric
from graph_machine.tasks.sudoku.board import SYMBOLS, format_board
from graph_machine.tasks.sudoku.ratings import RATING_BANDS
from graph_machine.tasks.sudoku.splits import Splits

QUICK_SIDE = 9  # larger boards take long to solve or to generate while somebody waits
WAYS = {"none": "", "relabel": ", digits relabelled", "all": ", digits relabelled, boards turned"}


class JigsawTask(BoardTask):
    """Puzzles from a .csv file, or generated and cached.

    The split (0.9 / 0.05 / 0.05, redrawn for each seed) is by regions: no partition of an eval or
    test board occurs in training, not even rotated or mirrored.
    """

    name = "jigsaw"
    examples_word = "puzzles"
    contents_word = "digits"
    text_hint = "PUZZLE/REGIONS; . or 0 is a blank"
    groupings = (Grouping("rating", "rating", RATING_BANDS), Grouping("clues", "clues"))
    store_class = Jigsaws
    count_field = "puzzles"
    seen_part = "regions"
    config: JigsawConfig

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

    def read(self, path: str) -> Jigsaws:
        return read_csv(path)

    def write(self, path: str | os.PathLike[str], store: Jigsaws) -> None:
        write_csv(path, store)

    @classmethod
    def picture(cls, text: str, *, solve: bool = False) -> tuple[Text, str | None, str]:
        puzzle, regions = parse_puzzle(text)
        if not solve:
            return draw_jigsaw(puzzle, regions), None, ""
        found = exact_solutions(puzzle[None], regions[None])
        if not found.counts[0]:
            raise DataError("The puzzle has no solution.")
        filled = found.solutions[0]
        several = "The puzzle has more than one solution; this is one of them."
        note = several if found.counts[0] > 1 else ""
        return draw_jigsaw(puzzle, regions, filled=filled), format_board(filled), note

    def rate(self, store: Jigsaws, *, attempts: int, seed: int) -> np.ndarray:
        seeds = stream(stream_key("rate", seed), len(store))
        return guesses(store.puzzles, store.regions, store.solutions, seeds, attempts)

    def store_of(self, text: str) -> Jigsaws:
        puzzle, regions = parse_puzzle(text)
        found = exact_solutions(puzzle[None], regions[None])
        if found.counts[0] != 1:
            how_many = "more than one" if found.counts[0] else "no"
            raise DataError(f"Cannot rate this puzzle: it has {how_many} solution.")
        return replace(_unsolved(puzzle[None], regions[None]), solutions=found.solutions)

    @property
    def cache_name(self) -> str:
        c = self.config
        return f"jigsaw-{c.side}-{c.puzzles}-extra{c.clues_extra}-seed{c.data_seed}"

    def generate(self) -> Jigsaws:
        c, workers = self.config, os.cpu_count() or 1
        return generate(c.side, c.puzzles, c.data_seed, extra=c.clues_extra, workers=workers)

    def split(self, store: Jigsaws, seed: int) -> Splits:
        return split_by_key(layout_keys(store.regions), seed)

    def augmented(self, rows: Jigsaws, seed: int, step: int) -> Jigsaws:
        if self.config.augment == "none":
            return rows
        key = stream_key("augment", seed, step)
        return augment(rows, key, turn=self.config.augment == "all")

    def batch_of(self, rows: Jigsaws) -> Batch:
        return jigsaw_batch(rows, told=self.config.told)

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
            found = exact_solutions(self.puzzles(batch), batch_regions(batch), limit=1).solutions
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
        return self.batch_of(_unsolved(puzzle[None], regions[None]))

    def token_words(self, example: Batch) -> list[str]:
        return [SYMBOLS[digit] for digit in self.puzzles(example)[0]]

    def text(self, example: Batch) -> str:
        return format_puzzle(self.puzzles(example)[0], batch_regions(example)[0])

    def examples_in(self, text: str) -> Iterator[tuple[int, str]]:
        """A row of a puzzle file has puzzle and regions in its second and third column."""
        for number, line in super().examples_in(text):
            if line != HEADER:
                parts = line.split(",")
                yield number, "/".join(parts[1:3]) if len(parts) == len(COLUMNS) else line

    def disguise(self, batch: Batch, key: int) -> Disguise:
        """Digits relabelled, the board turned or mirrored."""
        cells, names = draw(len(batch), self.config.side, key, turn=True)
        rows = _unsolved(self.puzzles(batch), batch_regions(batch))
        return of_digits(self.batch_of(changed(rows, cells, names)), cells, names)

    def show(
        self,
        example: Batch,
        answers: Int[np.ndarray, "n"],
        confidences: Float[np.ndarray, "n"],
        *,
        check: bool = False,
    ) -> JigsawAnswer:
        puzzle, regions = self.puzzles(example)[0], batch_regions(example)[0]
        found = exact_solutions(puzzle[None], regions[None]) if check else None
        return JigsawAnswer.of(puzzle, answers + 1, confidences, found, regions=regions)

    def sample(self, count: int, seed: int) -> Batch | None:
        """Puzzles like those that are trained on, but not rated."""
        if self.config.side > QUICK_SIDE:
            return None
        try:
            made = generate_few(self.config.side, count, seed, extra=self.config.clues_extra)
        except MissingExtraError:
            return None
        return self.batch_of(made)

    def solve(self, example: Batch) -> Solution:
        puzzle, regions = self.puzzles(example)[0], batch_regions(example)[0]
        if conflicts(puzzle, unit_tables(regions[None])[0][0]).any():
            return Solution(notes=("The givens contradict each other.",))
        if self.config.side > QUICK_SIDE:
            return Solution()
        try:
            return Solution.of_solver(exact_solutions(puzzle[None], regions[None]))
        except MissingExtraError:
            return Solution(notes=(NOT_COMPARED,))

    def broken(self, example: Batch, answers: Int[np.ndarray, "n"]) -> list[int]:
        puzzle, regions = self.puzzles(example)[0], batch_regions(example)[0]
        filled = np.where(puzzle == 0, answers + 1, puzzle).astype(np.uint8)
        bad = conflicts(filled, unit_tables(regions[None])[0][0])
        return np.flatnonzero(bad & (puzzle == 0)).tolist()

    def example_regions(self, batch: Batch) -> dict[str, np.ndarray]:
        return {"region": batch_regions(batch)}


def _unsolved(puzzles: np.ndarray, regions: np.ndarray) -> Jigsaws:
    """Boards with a solution that nobody looks at, and no rating."""
    return Jigsaws(
        puzzles, regions, np.ones_like(puzzles), np.full(len(puzzles), np.nan, dtype=np.float32)
    )
