"""Puzzles of digits, whatever their regions: symbols, solved boards, and a model's answer."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer, UInt8, UInt64

from graph_machine.errors import count_of
from graph_machine.lab.tasks.answers import Answer
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.disguise import Disguise

SYMBOLS = ".123456789ABCDEFGHIJKLMNOP"
BAD_SYMBOL = 255


def _symbol_table() -> UInt8[np.ndarray, "256"]:
    table = np.full(256, BAD_SYMBOL, dtype=np.uint8)
    for value, symbol in enumerate(SYMBOLS):
        table[ord(symbol)] = value
        table[ord(symbol.lower())] = value
    table[ord("0")] = 0
    return table


# byte of a text file -> cell value, BAD_SYMBOL for other bytes
VALUE_OF_BYTE = _symbol_table()
BYTE_OF_VALUE = np.frombuffer(SYMBOLS.encode(), dtype=np.uint8)


def format_board(cells: UInt8[np.ndarray, "n"]) -> str:
    """One line of text, `.` for a blank.

    >>> format_board(np.array([0, 0, 3, 0], dtype=np.uint8))
    '..3.'
    """
    return BYTE_OF_VALUE[cells].tobytes().decode()


NO_BUDGET = np.iinfo(np.int64).max


class Solved(NamedTuple):
    """A solution of each puzzle (0s if there is none) and how many it has, up to the limit.

    >>> from graph_machine.lab.tasks.sudoku.board import BoxShape, parse_board
    >>> from graph_machine.lab.tasks.sudoku.solve import solve
    >>> solve(parse_board("..3...4..4...2..")[None], BoxShape(2, 2)).counts
    array([1], dtype=uint8)
    """

    solutions: UInt8[np.ndarray, "b n"]
    counts: UInt8[np.ndarray, "b"]


@dataclass(frozen=True)
class FilledBoard(Answer):
    """Givens stay as they are; the model fills the blanks."""

    puzzle: UInt8[np.ndarray, "n"]
    filled: UInt8[np.ndarray, "n"]
    confidence: Float[np.ndarray, "n"]  # probability of the digit; 1 at givens
    solutions: int | None = None  # of the puzzle, counted up to 2, where it was checked
    exact: UInt8[np.ndarray, "n"] | None = None  # the solution, where there is exactly one

    @classmethod
    def of(
        cls,
        puzzle: UInt8[np.ndarray, "n"],
        digits: Integer[np.ndarray, "n"],
        confidence: Float[np.ndarray, "n"],
        found: Solved | None,
        **kind: Any,
    ) -> Any:
        """`digits` are the model's, 1 to side, at every cell; `found` is what an exact solver says
        of the puzzle, if it was asked; `kind` are the fields of a subclass, which is returned."""
        blank = puzzle == 0
        filled = np.where(blank, digits, puzzle).astype(np.uint8)
        count = None if found is None else int(found.counts[0])
        exact = found.solutions[0] if found is not None and count == 1 else None
        return cls(puzzle, filled, np.where(blank, confidence, 1.0), count, exact, **kind)

    @property
    @abstractmethod
    def units(self) -> Int[np.ndarray, "units side"]:
        """The cells of every row, column and region."""

    @property
    @abstractmethod
    def puzzle_text(self) -> str:
        """The puzzle as `Task.parse` reads it."""

    @property
    def text(self) -> str:
        return format_board(self.filled)

    @property
    def valid(self) -> bool:
        """Every row, column and region holds every digit once."""
        side = self.units.shape[1]
        return bool((np.sort(self.filled[self.units], axis=1) == np.arange(1, side + 1)).all())

    @property
    def wrong(self) -> Bool[np.ndarray, "n"]:
        """Cells that differ from the exact solution if it is known, else cells in conflict."""
        if self.exact is not None:
            return self.filled != self.exact
        return conflicts(self.filled, self.units)

    @property
    def lowest(self) -> int | None:
        """The blank cell that the model is least sure of."""
        blanks = np.flatnonzero(self.puzzle == 0)
        return int(blanks[self.confidence[blanks].argmin()]) if blanks.size else None

    def verdict(self) -> str:
        text = "a valid solution" if self.valid else "not a valid solution"
        if self.solutions is not None:
            counts = {0: "has no solution", 1: "has one solution"}
            text += f"; the puzzle {counts.get(self.solutions, 'has more than one solution')}"
        if self.exact is not None:
            wrong = int(self.wrong.sum())
            differs = f"from which this differs in {count_of(wrong, 'cells')}"
            text += f", {differs if wrong else 'which this is'}"
        if self.lowest is not None:
            row, column = divmod(self.lowest, self.units.shape[1])
            blanks = self.confidence[self.puzzle == 0]
            text += (
                f". Confidence: mean {blanks.mean():.1%}, lowest {blanks.min():.1%} "
                f"(row {row + 1}, column {column + 1})"
            )
        return text + "."

    def to_dict(self) -> dict[str, Any]:
        return {
            "puzzle": self.puzzle_text,
            "answer": self.text,
            "valid": self.valid,
            "confidence": [round(float(value), 6) for value in self.confidence],
            "wrong": np.flatnonzero(self.wrong).tolist(),
            "solutions": self.solutions,
            "exact": None if self.exact is None else format_board(self.exact),
        }


def conflicts(
    cells: UInt8[np.ndarray, "n"], units: Int[np.ndarray, "units side"]
) -> Bool[np.ndarray, "n"]:
    """Cells whose digit stands twice in a row, column or region."""
    bad = np.zeros(len(cells), dtype=bool)
    for unit in units:
        digits = cells[unit]
        bad[unit] |= (np.bincount(digits)[digits] > 1) & (digits > 0)
    return bad


def digit_names(draws: UInt64[np.ndarray, "b side"]) -> Int[np.ndarray, "b names"]:
    """A random new name for each digit, from random numbers; a blank (0) stays a blank."""
    names = np.argsort(draws, axis=1) + 1
    return np.concatenate([np.zeros_like(names[:, :1]), names], axis=1)


def of_digits(
    batch: Batch, cells: Int[np.ndarray, "b n"], names: Int[np.ndarray, "b names"]
) -> Disguise:
    """A disguised batch of boards whose outputs are digits."""
    return Disguise(batch, torch.from_numpy(cells), torch.from_numpy(names[:, 1:] - 1))
