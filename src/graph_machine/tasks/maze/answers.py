"""A model's answer to one maze, drawn for a terminal."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from rich.text import Text

from graph_machine.errors import count_of
from graph_machine.tasks.answers import Answer
from graph_machine.tasks.maze.mazes import (
    GOAL,
    OPEN,
    START,
    WALL,
    format_maze,
    format_path,
    is_path,
    is_shortest,
    solve,
)


def draw_maze(
    cells: UInt8[np.ndarray, "n"],
    path: UInt8[np.ndarray, "n"] | None = None,
    wrong: np.ndarray | None = None,
) -> Text:
    """Walls as blocks, the path as dots.

    Cells where `wrong` (n,) is True are red: they should be marked, or should not be.

    >>> from graph_machine.tasks.maze.mazes import generate
    >>> mazes = generate(side=5, count=1)
    >>> print(draw_maze(mazes.cells[0], mazes.paths[0]).plain)
    ██████████████
    ██      ██  ██
    ██  ████    ██
    ██  ██  ██  ██
    ██• • • ██G ██
    ██S ██• • • ██
    ██████████████
    """
    side = round(len(cells) ** 0.5)
    frame = "██" * (side + 2)
    text = Text(frame + "\n", style="dim")
    for row in range(side):
        text.append("██", style="dim")
        for cell in range(row * side, (row + 1) * side):
            kind, bad = cells[cell], wrong is not None and bool(wrong[cell])
            if kind == WALL:
                text.append("██", style="dim")
            elif kind in (START, GOAL):
                text.append("S " if kind == START else "G ", style="bold")
            else:
                marked = path is not None and bool(path[cell])
                shown = ("x " if marked else "! ") if bad else ("• " if marked else "  ")
                text.append(shown, style="bold red" if bad else "cyan")
        text.append("██\n", style="dim")
    return text.append(frame, style="dim")


@dataclass(frozen=True)
class MazeAnswer(Answer):
    """The cells that the model marks; any shortest path is right."""

    cells: UInt8[np.ndarray, "n"]
    marked: UInt8[np.ndarray, "n"]
    confidence: Float[np.ndarray, "n"]

    @property
    def text(self) -> str:
        return format_path(self.cells, self.marked)

    @property
    def valid(self) -> bool:
        return is_shortest(self.cells, self.marked)

    @property
    def obeys(self) -> bool:
        """A path without detours, shortest or not: only a search could tell that."""
        return is_path(self.cells, self.marked)

    @property
    def wrong(self) -> np.ndarray:
        """Open cells that differ from a shortest path: none, if the answer is one."""
        if self.valid:
            return np.zeros(len(self.cells), dtype=bool)
        return (self.marked != solve(self.cells[None]).paths[0]) & (self.cells == OPEN)

    def draw(self, *, confidence: bool = False) -> Text:
        del confidence
        return draw_maze(self.cells, self.marked, self.wrong)

    def verdict(self) -> str:
        if not solve(self.cells[None]).counts[0]:
            return "there is no path through this maze."
        if self.valid:
            return "a shortest path."
        cells = count_of(int(self.wrong.sum()), "cells")
        return f"not a shortest path: it differs from one in {cells}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "maze": format_maze(self.cells),
            "answer": self.text,
            "valid": self.valid,
            "wrong": np.flatnonzero(self.wrong).tolist(),
            "confidence": [round(float(value), 6) for value in self.confidence],
        }
