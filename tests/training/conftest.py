"""One small store for all tests of this folder."""

from pathlib import Path

import pytest

from support.runs import write_puzzles


@pytest.fixture(scope="session")
def puzzles(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_puzzles(tmp_path_factory.mktemp("data") / "puzzles.store"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"
