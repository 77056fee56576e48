"""Triton kernels for GPUs: attention and referral, forward and backward, online softmax.

Nothing of n·l x n numbers per head is ever stored: weights are computed again from the log-sum-exp
of their row. Scratch memory is one b x h x n x m tensor (n2 factors), and one more in the backward
pass (gradients of mixed addresses): each as large as the addresses themselves.

Tested so far: the interpreter (equal to the reference in outputs and every gradient) and the
compiler (sm_80, sm_89, sm_90). They have not been run on a GPU yet, so the first use on one
compares them with the reference (`check.py`). What fails to launch later is computed by torch.
"""

import torch
from torch import Tensor

from graph_machine.ops import torch_code
from graph_machine.ops.backend import Implementation, triton_serves
from graph_machine.ops.core import KernelInputs, KernelOuts
from graph_machine.ops.triton import check

HALF_OR_SINGLE = (torch.float32, torch.bfloat16, torch.float16)
# Rows of keys and values are whole in a tile, and a source's slots are unrolled.
MOST_WIDTH = 128
MOST_SLOTS = 32


def fits(x: KernelInputs) -> bool:
    """Whether the kernels take inputs of these dtypes and sizes."""
    floats = [y for y in x if isinstance(y, Tensor) and y.is_floating_point()]
    rows = (x.n1_queries, x.n2_values, x.e2_queries, x.e2_keys)
    made, collected = x.e1_addresses, x.e2_addresses
    pairs = x.e2_values is not None and collected is not None
    return (
        all(tensor.dtype in HALF_OR_SINGLE for tensor in floats)
        and all(row is None or row.shape[-1] <= MOST_WIDTH for row in rows)
        and (made is None or made.shape[2] <= MOST_SLOTS)
        # Weights over pairs need a slot of e2 that is always there.
        and not (pairs and collected.shape[2] == 0 and not x.empty)
    )


def serves(x: KernelInputs) -> bool:
    device = x.n2_values.device
    return fits(x) and triton_serves(device) and check.trusted(device)


def forward(x: KernelInputs) -> KernelOuts:
    from graph_machine.ops.triton import launch  # Triton is an extra, and slow to import

    device = x.n2_values.device
    return check.or_torch(device, lambda: launch.forward(x), lambda: torch_code.forward(x))


def backward(x: KernelInputs, outs: KernelOuts, grads: KernelOuts) -> KernelInputs:
    from graph_machine.ops.triton import launch

    given = (x, outs, grads)  # torch code uses nothing of `outs`: who made them does not matter
    return check.or_torch(
        x.n2_values.device,
        lambda: launch.backward(*given),
        lambda: torch_code.backward(*given),
    )


ATTEND = Implementation(forward, backward, serves)
