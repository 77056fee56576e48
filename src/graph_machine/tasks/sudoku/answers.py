"""A model's answer to one puzzle."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from rich.text import Text

from graph_machine.tasks.filled_board import FilledBoard
from graph_machine.tasks.sudoku.board import BoxShape, draw_board, format_board


@dataclass(frozen=True, kw_only=True)
class BoardAnswer(FilledBoard):
    """A filled board whose regions are boxes."""

    box: BoxShape

    @property
    def units(self) -> Int[np.ndarray, "units side"]:
        return self.box.units

    @property
    def puzzle_text(self) -> str:
        return format_board(self.puzzle)

    def draw(self, *, confidence: bool = False) -> Text:
        return draw_board(
            self.puzzle,
            self.box,
            filled=self.filled,
            wrong=self.wrong,
            confidence=self.confidence if confidence else None,
        )
