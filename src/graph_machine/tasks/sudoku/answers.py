"""A model's answer to one puzzle: the filled board, and what is wrong with it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8
from rich.text import Text

from graph_machine.tasks.base import Answer
from graph_machine.tasks.sudoku.board import BoxShape, draw_board, format_board, valid_grids
from graph_machine.tasks.sudoku.solve import solve


@dataclass(frozen=True)
class BoardAnswer(Answer):
    """Givens stay as they are; the model fills the blanks."""

    box: BoxShape
    puzzle: UInt8[np.ndarray, "n"]
    filled: UInt8[np.ndarray, "n"]
    confidence: Float[np.ndarray, "n"]  # probability of the digit; 1 at givens
    solutions: int | None = None  # of the puzzle, counted up to 2, where it was checked
    exact: UInt8[np.ndarray, "n"] | None = None  # the solution, where there is exactly one

    @property
    def text(self) -> str:
        return format_board(self.filled)

    @property
    def valid(self) -> bool:
        """Every row, column and box holds every digit once."""
        return bool(valid_grids(self.filled[None], self.box)[0])

    @property
    def wrong(self) -> Bool[np.ndarray, "n"]:
        """Cells that differ from the exact solution if it is known, else cells in conflict."""
        if self.exact is not None:
            return self.filled != self.exact
        return conflicts(self.filled, self.box)

    @property
    def lowest(self) -> int | None:
        """The blank cell that the model is least sure of."""
        blanks = np.flatnonzero(self.puzzle == 0)
        return int(blanks[self.confidence[blanks].argmin()]) if blanks.size else None

    def verdict(self) -> str:
        text = "a valid solution" if self.valid else "not a valid solution"
        if self.solutions is not None:
            count = {0: "has no solution", 1: "has one solution"}.get(
                self.solutions, "has more than one solution"
            )
            text += f"; the puzzle {count}"
            if self.exact is not None:
                wrong = int(self.wrong.sum())
                text += ", which this is" if not wrong else f", {wrong} cells differ from it"
        if self.lowest is not None:
            row, column = divmod(self.lowest, self.box.side)
            blanks = self.confidence[self.puzzle == 0]
            text += (
                f". Confidence: mean {blanks.mean():.1%}, lowest {blanks.min():.1%} "
                f"(row {row + 1}, column {column + 1})"
            )
        return text + "."

    def draw(self, *, confidence: bool = False) -> Text:
        return draw_board(
            self.puzzle,
            self.box,
            filled=self.filled,
            wrong=self.wrong,
            confidence=self.confidence if confidence else None,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "puzzle": format_board(self.puzzle),
            "answer": self.text,
            "valid": self.valid,
            "confidence": [round(float(value), 6) for value in self.confidence],
            "wrong": np.flatnonzero(self.wrong).tolist(),
            "solutions": self.solutions,
            "exact": None if self.exact is None else format_board(self.exact),
        }


def conflicts(cells: UInt8[np.ndarray, "n"], box: BoxShape) -> Bool[np.ndarray, "n"]:
    """Cells whose digit stands twice in a row, column or box."""
    bad = np.zeros(len(cells), dtype=bool)
    for unit in box.units:
        digits = cells[unit]
        counts = np.bincount(digits, minlength=box.side + 1)
        bad[unit] |= (counts[digits] > 1) & (digits > 0)
    return bad


def make_answer(
    puzzle: UInt8[np.ndarray, "n"],
    digits: np.ndarray,
    confidence: Float[np.ndarray, "n"],
    box: BoxShape,
    *,
    check: bool = False,
) -> BoardAnswer:
    """`digits` are the model's, 1 to side, at every cell; `check` asks the exact solver."""
    blank = puzzle == 0
    filled = np.where(blank, digits, puzzle).astype(np.uint8)
    sure = np.where(blank, confidence, 1.0)
    if not check:
        return BoardAnswer(box, puzzle, filled, sure)
    found = solve(puzzle[None], box)
    count = int(found.counts[0])
    return BoardAnswer(box, puzzle, filled, sure, count, found.solutions[0] if count == 1 else None)
