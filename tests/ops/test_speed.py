"""A C kernel that is slower than the reference is a fault."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from support.cases import OPS, Sizes, needs_kernels
from support.gradients import outputs_and_gradients

# Measured: 1.5 to 3 times as fast (docs/fast.md). Generous, because other jobs may run beside.
MOST = 1.1
SIZE = Sizes(b=32, h=8, n=36, k=8, d=8, v=8)


def cpu_time(op: Callable[..., Any], case: dict[str, Any], backend: str) -> float:
    start = time.process_time()
    outputs_and_gradients(op, case, backend=backend)
    return time.process_time() - start


@needs_kernels
@pytest.mark.parametrize("op", ["joint", "attention", "sharpen"])
def test_kernels_are_not_slower_than_the_reference(op: str, unchecked: None) -> None:
    function, make = OPS[op]
    case = make(SIZE, torch.float32)
    times: dict[str, list[float]] = {"fused": [], "reference": []}
    for _ in range(7):
        for backend, found in times.items():
            found.append(cpu_time(function, case, backend))
    assert min(times["fused"]) <= MOST * min(times["reference"])
