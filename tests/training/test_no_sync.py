"""A training step on torch code asks the device for nothing but its own report.

`torch.cuda.set_sync_debug_mode` needs a GPU; here a dispatch mode walks the ops of a step. Reading
a number (`.item()`, `bool()`), shapes that depend on numbers (`nonzero`, boolean indexing) and
tensors made of Python numbers (a copy from the host, which waits) would each stop the queue.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training.trainer import Trainer
from graph_machine.ops import backend, native
from support.runs import puzzle_store, tiny

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "unique", "equal.default")
READS = ("tolist", "numpy", "cpu")


class Walk(TorchDispatchMode):
    """Notes what would wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        self.ops += 1
        if name.startswith(WAITS) or (name.startswith("index.") and _by_mask(args[1])):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def _by_mask(indices: Any) -> bool:
    return any(index is not None and index.dtype == torch.bool for index in indices)


@contextmanager
def walking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Walk]:
    with Walk() as walk, monkeypatch.context() as patch:
        for name in READS:
            read = getattr(Tensor, name)

            def noted(self: Tensor, *args: Any, _name: str = name, _read: Any = read) -> Any:
                walk.found.append(_name)
                return _read(self, *args)

            patch.setattr(Tensor, name, noted)
        yield walk


@pytest.fixture(autouse=True)
def torch_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU without Triton: no C kernels."""
    monkeypatch.setitem(backend.ORDER, "cpu", ("torch",))
    monkeypatch.setattr(native, "library", lambda: None)


def step(config: ExperimentConfig, monkeypatch: pytest.MonkeyPatch) -> Walk:
    task = SudokuTask(config.task).use(puzzle_store())
    trainer = Trainer(config, task, seed=0, device=torch.device("cpu"))
    trainer.step(0)  # the optimiser makes its state in the first step
    batch = trainer._batch(1)
    monkeypatch.setattr(trainer, "_batch", lambda step: batch)
    with walking(monkeypatch) as walk:
        trainer.step(1)
    return walk


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["joint", "preaggregated"])
def test_one_transfer_per_step(kind: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses and the norm of the gradients, all in one, before the weights change."""
    config = tiny("gm", precision=precision).with_model(referral=kind)
    walk = step(config, monkeypatch)
    assert walk.ops > 300
    assert walk.found == ["tolist"]


def test_the_walk_sees_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(3)
    with walking(monkeypatch) as walk:
        bool(x.sum() > 0)
        x[x > 0.5]
        torch.tensor(1.0)
        x.nonzero()
        x.cpu()
    assert {name.split(".")[0] for name in walk.found} == {
        "_local_scalar_dense", "index", "lift_fresh", "nonzero", "cpu",
    }  # fmt: skip
