"""Which inputs the kernels take; knows nothing of Triton."""

import torch
from torch import Tensor

from graph_machine.ops.core import AttendInputs, ReferInputs

HALF_OR_SINGLE = (torch.float32, torch.bfloat16, torch.float16)
# Rows of keys and values are whole in a tile, and a source's slots are unrolled.
MOST_WIDTH = 128
MOST_SLOTS = 32


def fits(x: AttendInputs | ReferInputs) -> bool:
    """Whether the kernels take inputs of these dtypes and sizes."""
    tensors = [value for value in vars(x).values() if isinstance(value, Tensor)]
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    rows = (x.n1_queries, x.n2_values, x.e2_queries, x.e2_keys)
    slots = (x.e1_weights, getattr(x, "own_weights", None))
    return (
        all(tensor.dtype in HALF_OR_SINGLE for tensor in floats)
        and all(row is None or row.shape[-1] <= MOST_WIDTH for row in rows)
        and all(slot is None or slot.shape[-1] <= MOST_SLOTS for slot in slots)
        and not getattr(x, "conditional", False)
    )
