"""The excerpt of the real data, as a file and as a store in memory."""

from pathlib import Path

import numpy as np
import pytest

from graph_machine.tasks.sudoku.reader import RowReader
from graph_machine.tasks.sudoku.store import SudokuStore

ASSET = Path(__file__).parents[2] / "assets" / "sudoku-sample.csv"


@pytest.fixture(scope="session")
def sample_file() -> Path:
    return ASSET


@pytest.fixture(scope="session")
def sample() -> SudokuStore:
    parts = list(RowReader(ASSET))
    return SudokuStore.from_arrays(
        np.concatenate([part.puzzles for part in parts]),
        np.concatenate([part.solutions for part in parts]),
        np.concatenate([part.ratings for part in parts]),
    )
