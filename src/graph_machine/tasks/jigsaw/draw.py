"""Drawing a board with the borders of its regions, for a terminal."""

import numpy as np
from jaxtyping import Bool, Float, UInt8
from rich.text import Text

from graph_machine.tasks.jigsaw.regions import side_of
from graph_machine.tasks.sudoku.board import SYMBOLS

# By which of its four arms (up 1, down 2, left 4, right 8) a corner of cells has a border.
CORNERS = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"


def _borders(regions: UInt8[np.ndarray, "n"]) -> tuple[np.ndarray, np.ndarray]:
    """Whether there is a border left of each place of a row, and above each place of a column."""
    side = side_of(len(regions))
    framed = np.pad(regions.reshape(side, side).astype(np.int64), 1, constant_values=-1)
    upright = framed[1:-1, 1:] != framed[1:-1, :-1]  # side, side + 1
    level = framed[1:, 1:-1] != framed[:-1, 1:-1]  # side + 1, side
    return upright, level


def _rule(row: int, upright: np.ndarray, level: np.ndarray, width: int) -> str:
    """The line above a row of cells."""
    side = level.shape[1]
    parts = []
    for col in range(side + 1):
        arms = (
            row > 0 and upright[row - 1, col],
            row < side and upright[row, col],
            col > 0 and level[row, col - 1],
            col < side and level[row, col],
        )
        parts.append(CORNERS[sum(1 << bit for bit, arm in enumerate(arms) if arm)])
        if col < side:
            parts.append(("─" if level[row, col] else " ") * width)
    return "".join(parts)


def draw_jigsaw(
    puzzle: UInt8[np.ndarray, "n"],
    regions: UInt8[np.ndarray, "n"],
    *,
    filled: UInt8[np.ndarray, "n"] | None = None,
    wrong: Bool[np.ndarray, "n"] | None = None,
    confidence: Float[np.ndarray, "n"] | None = None,
) -> Text:
    """A board for `rich`; `.plain` is the same without colour.

    `filled` gives the values of the blanks, marked with ' (wrong ones with !); `confidence`
    (0..1) is shown in percent beside each filled cell.

    >>> from graph_machine.tasks.jigsaw.generate import generate
    >>> puzzles = generate(side=4, count=1)
    >>> print(draw_jigsaw(puzzles.puzzles[0], puzzles.regions[0]).plain)
    ┌───────┬───────┐
    │ .   . │ .   . │
    │       │       │
    │ .   . │ 4   2 │
    ├───┬───┴───────┤
    │ . │ .   .   . │
    │   └───────┐   │
    │ 4   3   . │ . │
    └───────────┴───┘
    """
    values = puzzle if filled is None else np.where(puzzle > 0, puzzle, filled)
    side = side_of(len(puzzle))
    upright, level = _borders(regions)
    width = 3 + 3 * (confidence is not None)
    text = Text()
    for row in range(side):
        text.append(_rule(row, upright, level, width) + "\n", style="dim")
        for col in range(side):
            cell = row * side + col
            value, given = int(values[cell]), bool(puzzle[cell])
            bad = wrong is not None and bool(wrong[cell])
            style = "bold red reverse" if bad else "bold" if given else "cyan" if value else "dim"
            mark = "!" if bad else "'" if value and not given else " "
            text.append("│ " if upright[row, col] else "  ", style="dim")
            text.append(SYMBOLS[value] + mark, style=style)
            if confidence is not None:
                shown = "   " if given else f"{min(99, round(100 * float(confidence[cell]))):2d} "
                text.append(shown, style="dim")
        text.append("│\n", style="dim")
    text.append(_rule(side, upright, level, width), style="dim")
    return text
