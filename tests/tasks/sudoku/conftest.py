"""The excerpt of the real data, as a file and as a store in memory."""

from pathlib import Path

import pytest

from graph_machine.lab.tasks.rows import join_rows
from graph_machine.lab.tasks.sudoku.reader import RowReader
from graph_machine.lab.tasks.sudoku.store import SudokuStore

ASSET = Path(__file__).parents[2] / "assets" / "sudoku-sample.csv"


@pytest.fixture(scope="session")
def sample_file() -> Path:
    return ASSET


@pytest.fixture(scope="session")
def sample() -> SudokuStore:
    rows = join_rows(list(RowReader(ASSET)))
    return SudokuStore.from_arrays(rows.puzzles, rows.solutions, rows.ratings)
