"""Golden first losses: a refactor leaves them equal, a change of numerics says why it does not.

To renew them after such a change: `python tests/golden/test_losses.py`, and a changelog line under
Numerics.
"""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from graph_machine.conditions.registry import CONDITIONS
from graph_machine.tasks.sudoku.task import SudokuTask
from graph_machine.training.trainer import Trainer
from support.runs import puzzle_store, tiny

FILE = Path(__file__).parent / "losses.json"
NAMES = ("gm", "transformer", "transformer-static", "gm-sin-pe", "gm-logit-space", "gm-top-4")
STEPS = 5


def first_losses(name: str) -> list[float]:
    """Of the plain implementation: the fast ones are tested against it elsewhere."""
    assert name in CONDITIONS
    config = tiny(name, backend="reference", steps=50)
    task = SudokuTask(config.task).use(puzzle_store())
    trainer = Trainer(config, task, seed=0, device=torch.device("cpu"))
    stats = [trainer.step(step) for step in range(STEPS)]
    return [stat["loss"] / stat["examples"] for stat in stats]


@pytest.mark.parametrize("name", NAMES)
def test_first_losses(name: str) -> None:
    golden = json.loads(FILE.read_text())[name]
    # Exact on one machine; other CPUs sum in another order.
    assert first_losses(name) == pytest.approx(golden, rel=1e-4)


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: first_losses(name) for name in NAMES}, indent=2) + "\n")
