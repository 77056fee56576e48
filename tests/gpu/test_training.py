"""On a GPU: a training step by kernels and by the listings agree, and nothing waits inside it.

Skipped without one; nobody has run these yet. `make gpu-test`.
"""

import pytest
import torch

from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training.trainer import Trainer
from graph_machine.ops import backend
from support.runs import puzzle_store, tiny
from tolerances import assert_close

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="there is no GPU here; on one, it is tested"
    ),
]


def trainer(**train: object) -> Trainer:
    config = tiny("gm", **train)
    task = SudokuTask(config.task).use(puzzle_store())
    return Trainer(config, task, seed=0, device=torch.device("cuda"))


@pytest.mark.parametrize("order", [("triton", "torch"), ("torch",)])
def test_losses_equal_the_reference(
    order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backend.ORDER, "cuda", order)
    ours, theirs = trainer(precision="float32"), trainer(precision="float32", backend="reference")
    for step in range(3):
        found, expected = ours.step(step)["loss"], theirs.step(step)["loss"]
        assert_close(torch.tensor(found), torch.tensor(expected))


def test_nothing_waits_but_the_report() -> None:
    """torch.cuda's own watch: a warning for every wait."""
    ours = trainer()
    ours.step(0)
    batch = ours._batch(1)
    loss = ours._loss(batch, 1)[0]
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss = ours._loss(batch, 1)[0]
        loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
