"""The board of a page: its grid and boxes, its symbols, and what the rules say about answers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_machine.errors import ConfigError, DataError
from graph_machine.tasks.sudoku.board import SYMBOLS, BoxShape, format_board, parse_board


@dataclass(frozen=True)
class Board:
    """A grid of tokens. With a `box` it is a Sudoku board, whose rules are known."""

    rows: int
    cols: int
    cells: int
    symbols: str  # one character per token, blank first
    answers: str  # one character per answer
    box: BoxShape | None = None

    @classmethod
    def of(cls, spec: dict[str, Any] | None, grid: Any, nodes: int, box: Any) -> "Board":
        """The board that a model's spec or a record's header describes.

        A recording of nodes without a grid is laid out as a rectangle.
        """
        spec = spec or {}
        if grid is None:
            cols = int(np.ceil(np.sqrt(nodes)))
            rows = -(-nodes // cols)
        else:
            rows, cols = int(grid[0]), int(grid[1])
        tokens = int(spec.get("num_tokens") or (cols + 1))
        outputs = int(spec.get("num_outputs") or (tokens - 1))
        symbols, answers = spec.get("alphabet"), spec.get("answers")
        if (symbols is None and tokens > len(SYMBOLS)) or (
            answers is None and outputs >= len(SYMBOLS)
        ):
            raise ConfigError(
                f"The explorer writes one character per cell; this model has {tokens} tokens and "
                f"{outputs} answers, and its spec has no alphabet for them."
            )
        symbols = symbols or SYMBOLS[:tokens]
        answers = answers or SYMBOLS[1 : outputs + 1]
        shape = None
        is_square = rows == cols and nodes == rows * cols
        if is_square and tokens == rows + 1 and outputs == rows and symbols == SYMBOLS[:tokens]:
            shapes = BoxShape.candidates(nodes)
            shape = BoxShape(int(box[0]), int(box[1])) if box else (shapes or [None])[0]
        return cls(rows, cols, nodes, symbols, answers, shape)

    def layout(self) -> dict[str, int]:
        """For the page: the grid, and box sides (0: no boxes)."""
        return {
            "rows": self.rows,
            "cols": self.cols,
            "cells": self.cells,
            "boxRows": self.box.rows if self.box else 0,
            "boxCols": self.box.cols if self.box else 0,
        }

    def parse(self, text: str) -> np.ndarray:
        """Tokens of a puzzle as text; white space and drawn lines are ignored."""
        if self.box is not None:
            return parse_board(text, self.box)
        compact = "".join(text.split())
        if len(compact) != self.cells:
            raise DataError(f"Input of {len(compact)} characters: expected {self.cells}.")
        bad = [symbol for symbol in compact if symbol not in self.symbols]
        if bad:
            raise DataError(f"Symbol '{bad[0]}': expected one of {self.symbols}")
        return np.array([self.symbols.index(symbol) for symbol in compact], dtype=np.uint8)

    def format(self, tokens: np.ndarray) -> str:
        if self.box is not None:
            return format_board(np.asarray(tokens, dtype=np.uint8))
        return "".join(self.symbols[int(token)] for token in tokens)

    def clashes(self, values: np.ndarray) -> list[int]:
        """Cells whose digit is also elsewhere in their row, column or box."""
        if self.box is None:
            return []
        bad: set[int] = set()
        for unit in self.box.units:
            digits = values[unit]
            twice = [d for d in range(1, self.box.side + 1) if int((digits == d).sum()) > 1]
            bad.update(int(cell) for cell in unit[np.isin(digits, twice)])
        return sorted(bad)

    def wrong_cells(
        self, tokens: np.ndarray, answers: np.ndarray, solution: np.ndarray | None
    ) -> list[int] | None:
        """Predicted cells that differ from the solution, or, without one, break the rules.

        None where neither is known.
        """
        blank = tokens == 0
        if solution is not None:
            return [int(cell) for cell in np.flatnonzero(blank & (answers + 1 != solution))]
        if self.box is None:
            return None
        filled = np.where(blank, answers + 1, tokens)
        return [cell for cell in self.clashes(filled) if blank[cell]]

    def __str__(self) -> str:
        box = f" with boxes of {self.box}" if self.box else ""
        return f"a {self.rows}x{self.cols} board{box}"
