"""Puzzles to choose from, puzzles at random, and their solutions."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_machine.errors import DataError, MissingExtraError
from graph_machine.explorer.boards import Board
from graph_machine.tasks.base import Task
from graph_machine.tasks.sudoku.store import SudokuStore

NUM_EXAMPLES = 12
# Larger boards take too long to solve or to generate while somebody waits.
MAX_SIDE = 10


@dataclass(frozen=True)
class Example:
    """A puzzle with the words of the list it is chosen from."""

    puzzle: str
    label: str

    def to_json(self) -> dict[str, Any]:
        return {"puzzle": self.puzzle, "label": self.label}


class Puzzles:
    """Where puzzles come from: a data set, recordings, or a generator."""

    def __init__(
        self,
        board: Board,
        *,
        store: SudokuStore | None = None,
        given: Sequence[Example] = (),
        task: Task | None = None,
    ) -> None:
        self.board = board
        self.store = store
        self.task = task
        self.random = random.Random()
        if store is not None and (board.box is None or store.box.side != board.box.side):
            raise DataError(f"The data has boards of box {store.box}, the model has {board}.")
        self.examples = list(given) if given else self._first_examples()

    @property
    def can_draw(self) -> bool:
        return self.store is not None or self._can_generate

    @property
    def _can_generate(self) -> bool:
        return self.board.box is not None and self.board.box.side <= MAX_SIDE

    def _first_examples(self) -> list[Example]:
        if self.store is not None:
            return [self._stored(row) for row in range(min(NUM_EXAMPLES, len(self.store)))]
        made = self._generate(NUM_EXAMPLES, seed=0) or self._of_task()
        return made or [Example(self.board.symbols[0] * self.board.cells, "blank board")]

    def _stored(self, row: int) -> Example:
        assert self.store is not None
        rating = float(self.store.ratings[row])
        rated = "" if np.isnan(rating) else f", rating {rating:.1f}"
        label = f"data {row}: {int(self.store.clues[row])} clues{rated}"
        return Example(self.board.format(self.store.puzzles[row]), label)

    def _generate(self, count: int, seed: int) -> list[Example]:
        """Made here; none where the generator's package is missing or the board too large."""
        if not self._can_generate or self.board.box is None:
            return []
        from graph_machine.tasks.sudoku.generate import generate

        try:
            # As in the puzzles that the model learned from.
            extra = getattr(self.task and self.task.config, "clues_extra", 0)
            store = generate(self.board.box, count, seed, extra=extra, rated=False, workers=1)
        except MissingExtraError:
            return []
        return [
            Example(self.board.format(puzzle), f"example {row}: {int(clues)} clues")
            for row, (puzzle, clues) in enumerate(zip(store.puzzles, store.clues, strict=True))
        ]

    def _of_task(self) -> list[Example]:
        """The first test examples of a task that is no Sudoku, whose own generator is quicker."""
        if self.task is None or self.board.box is not None:
            return []
        batches = self.task.open().split_batches("test", NUM_EXAMPLES, NUM_EXAMPLES)
        rows = [row for b in batches if b.tokens is not None for row in b.tokens.numpy()]
        return [Example(self.board.format(row), f"test example {n}") for n, row in enumerate(rows)]

    def draw(self) -> Example:
        """A puzzle of the data set at random, or a new one."""
        if self.store is not None:
            return self._stored(self.random.randrange(len(self.store)))
        made = self._generate(1, seed=self.random.randrange(2**31))
        return made[0] if made else self.random.choice(self.examples)

    def solution(
        self, tokens: np.ndarray, known: np.ndarray | None = None
    ) -> tuple[np.ndarray | None, list[str]]:
        """The one solution (digits from 1) and remarks on the puzzle; None if it is not unique.

        `known` are answers that a recording brought along.
        """
        if known is not None:
            return known + 1, []
        box = self.board.box
        if box is None:
            return None, []
        if self.board.clashes(tokens):
            return None, ["The givens contradict each other."]
        if box.side > MAX_SIDE:
            return None, []
        from graph_machine.tasks.sudoku.solve import solve

        try:
            solved = solve(tokens[None].astype(np.uint8), box)
        except MissingExtraError:
            return None, ["Without the extra 'data' answers are not compared with the solution."]
        count = int(solved.counts[0])
        if count == 0:
            return None, ["This puzzle has no solution."]
        if count > 1:
            return None, ["This puzzle has several solutions: cells that break rules are marked."]
        return solved.solutions[0].astype(np.int64), []
