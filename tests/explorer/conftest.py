"""What the explorer's tests share: a hand-built GM, whose edges are known, and small models."""

from collections.abc import Callable
from pathlib import Path

import pytest

from graph_machine.explorer.session import Session
from graph_machine.models import GraphMachine
from graph_machine.models.handmade import handmade_gm
from support.explorer import session_of, small_model


@pytest.fixture
def make_model() -> Callable[..., GraphMachine]:
    return small_model


@pytest.fixture(scope="module")
def handmade_session() -> Session:
    return session_of(handmade_gm((2, 2)))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint folder with the notes that training leaves in it."""
    task = {"name": "sudoku", "box": "2x2", "clues_extra": 2}
    return small_model().save_pretrained(tmp_path / "gm", task=task, condition="gm")
