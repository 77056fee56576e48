"""Triton kernels for GPUs: attention and referral, forward and backward, online softmax.

Nothing of n·l x n numbers per head is ever stored: weights are computed again from the log-sum-exp
of their row. Scratch memory is one b x h x n x m tensor (n2 factors), and one more in the backward
pass (gradients of mixed addresses): each as large as the addresses themselves.

What stands behind them so far: the interpreter (equal to the reference in outputs and every
gradient) and the compiler (sm_80, sm_89, sm_90). They have not been run on a GPU yet.
"""

from importlib import import_module
from typing import Any

from graph_machine.ops.backend import Implementation
from graph_machine.ops.core import AttendInputs, ReferInputs
from graph_machine.ops.policy import triton_serves
from graph_machine.ops.triton.fit import fits


def _serves(inputs: AttendInputs | ReferInputs) -> bool:
    return fits(inputs) and triton_serves(inputs.device)


def _implementation(op: str) -> Implementation:
    """Triton is an extra, and slow to import: the kernels wait until they are asked for."""

    def forward(inputs: Any) -> Any:
        return import_module(f"graph_machine.ops.triton.{op}").forward(inputs)

    def backward(inputs: Any, outs: Any, grads: Any) -> Any:
        return import_module(f"graph_machine.ops.triton.{op}").backward(inputs, outs, grads)

    return Implementation(forward, backward, _serves)


ATTENTION = _implementation("attention")
REFERRAL = _implementation("referral")
