"""A model's answer to one jigsaw puzzle: the filled board, and what is wrong with it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from rich.text import Text

from graph_machine.tasks.base import Answer
from graph_machine.tasks.jigsaw.draw import draw_jigsaw
from graph_machine.tasks.jigsaw.regions import unit_tables
from graph_machine.tasks.jigsaw.solve import solve, valid_grids
from graph_machine.tasks.jigsaw.text import format_puzzle
from graph_machine.tasks.sudoku.board import format_board


@dataclass(frozen=True)
class JigsawAnswer(Answer):
    """Givens stay as they are; the model fills the blanks."""

    puzzle: UInt8[np.ndarray, "n"]
    regions: UInt8[np.ndarray, "n"]
    filled: UInt8[np.ndarray, "n"]
    confidence: Float[np.ndarray, "n"]  # probability of the digit; 1 at givens
    solutions: int | None = None  # of the puzzle, counted up to 2, where it was checked
    exact: UInt8[np.ndarray, "n"] | None = None  # the solution, where there is exactly one

    @property
    def text(self) -> str:
        return format_board(self.filled)

    @property
    def valid(self) -> bool:
        """Every row, column and region holds every digit once."""
        return bool(valid_grids(self.filled[None], self.regions[None])[0])

    @property
    def wrong(self) -> Bool[np.ndarray, "n"]:
        """Cells that differ from the exact solution if it is known, else cells in conflict."""
        if self.exact is not None:
            return self.filled != self.exact
        bad = np.zeros(len(self.filled), dtype=bool)
        for unit in unit_tables(self.regions[None])[0][0]:
            digits = self.filled[unit]
            bad[unit] |= np.bincount(digits)[digits] > 1
        return bad

    def draw(self, *, confidence: bool = False) -> Text:
        return draw_jigsaw(
            self.puzzle,
            self.regions,
            filled=self.filled,
            wrong=self.wrong,
            confidence=self.confidence if confidence else None,
        )

    def verdict(self) -> str:
        text = "a valid solution" if self.valid else "not a valid solution"
        if self.solutions is not None:
            counts = {0: "has no solution", 1: "has one solution"}
            text += f"; the puzzle {counts.get(self.solutions, 'has more than one solution')}"
        if self.exact is not None:
            wrong = int(self.wrong.sum())
            text += ", which this is" if not wrong else f", {wrong} cells differ from it"
        return text + "."

    def to_dict(self) -> dict[str, Any]:
        return {
            "puzzle": format_puzzle(self.puzzle, self.regions),
            "answer": self.text,
            "valid": self.valid,
            "confidence": [round(float(value), 6) for value in self.confidence],
            "wrong": np.flatnonzero(self.wrong).tolist(),
            "solutions": self.solutions,
            "exact": None if self.exact is None else format_board(self.exact),
        }


def make_answer(
    puzzle: UInt8[np.ndarray, "n"],
    regions: UInt8[np.ndarray, "n"],
    digits: Int[np.ndarray, "n"],
    confidence: Float[np.ndarray, "n"],
    *,
    check: bool = False,
) -> JigsawAnswer:
    """`digits` are the model's, 1 to side, at every cell; `check` asks the exact solver."""
    blank = puzzle == 0
    filled = np.where(blank, digits, puzzle).astype(np.uint8)
    sure = np.where(blank, confidence, 1.0)
    if not check:
        return JigsawAnswer(puzzle, regions, filled, sure)
    found = solve(puzzle[None], regions[None])
    count = int(found.counts[0])
    exact = found.solutions[0] if count == 1 else None
    return JigsawAnswer(puzzle, regions, filled, sure, count, exact)
