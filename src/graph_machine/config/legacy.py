"""Names that older files use for settings and results, translated to the current ones."""

from typing import Any

from graph_machine.config.spec import InputSpec
from graph_machine.config.task import SudokuConfig

# Settings of TrainConfig.
TRAIN = {"eval_puzzles": "eval_examples", "test_puzzles": "test_examples"}
# Sums since the last metric line, in state.json of a checkpoint.
WINDOW = {
    "boards": "examples",
    "boards_right": "example_right",
    "cells": "nodes",
    "cells_right": "nodes_right",
}
# The metrics of Sudoku, as result.json tells them.
BOARDS = {
    "board_accuracy": {"title": "boards", "share": True, "higher_is_better": True},
    "cell_accuracy": {"title": "cells", "share": True, "higher_is_better": True},
}


def task_of_spec(spec: InputSpec, puzzles: int) -> SudokuConfig | None:
    """The task of a model that does not say it: Sudoku, where its spec looks like that.

    That is a square grid with as many answers as its side; boxes are as square as can be.
    """
    grid = spec.grid
    if grid is None or grid[0] != grid[1] or spec.num_outputs != grid[0]:
        return None
    side = grid[0]
    rows = [r for r in range(2, side) if side % r == 0 and r * r <= side]
    return SudokuConfig(box=f"{rows[-1]}x{side // rows[-1]}", puzzles=puzzles) if rows else None


def modern_window(window: dict[str, float]) -> dict[str, float]:
    return {WINDOW.get(name, name): value for name, value in window.items()}


def modern_result(result: dict[str, Any]) -> dict[str, Any]:
    """The contents of a result.json as they are written today; Sudoku was the only task once."""
    if "metrics" in result or "board_accuracy" not in result:
        return result
    old = dict(result)
    groups = {"rating": old.pop("bands", {}), "clues": old.pop("by_clues", {})}
    return old | {
        "metrics": BOARDS,
        "label": old.pop("board", None),
        "test_examples": old.pop("test_puzzles", None),
        "groups": {name: _modern_parts(parts) for name, parts in groups.items()},
    }


def _modern_parts(parts: Any) -> Any:
    if not isinstance(parts, dict) or not all(isinstance(p, dict) for p in parts.values()):
        return parts  # damaged; whoever uses it says so
    return {
        label: {"examples" if key == "puzzles" else key: value for key, value in part.items()}
        for label, part in parts.items()
    }
