"""A model's answer to one jigsaw puzzle."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt8
from rich.text import Text

from graph_machine.tasks.filled_board import FilledBoard
from graph_machine.tasks.jigsaw.draw import draw_jigsaw
from graph_machine.tasks.jigsaw.regions import unit_tables
from graph_machine.tasks.jigsaw.text import format_puzzle


@dataclass(frozen=True, kw_only=True)
class JigsawAnswer(FilledBoard):
    """A filled board with regions of its own."""

    regions: UInt8[np.ndarray, "n"]

    @property
    def units(self) -> Int[np.ndarray, "units side"]:
        return unit_tables(self.regions[None])[0][0]

    @property
    def puzzle_text(self) -> str:
        return format_puzzle(self.puzzle, self.regions)

    def draw(self, *, confidence: bool = False) -> Text:
        return draw_jigsaw(
            self.puzzle,
            self.regions,
            filled=self.filled,
            wrong=self.wrong,
            confidence=self.confidence if confidence else None,
        )
