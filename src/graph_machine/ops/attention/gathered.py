"""Scores and sums over candidates in C: for `sparse.py`, which computes the same in torch.

i nodes, h heads, c candidates, d the width of a head; a table of keys or values is (m, h, d), and
`rows` (i, c) says where the candidates of a node stand in it.
"""

from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.native import kernels
from graph_machine.ops.native.autograd import eager_function, served


def serves(rows: Tensor, table: Tensor, other: Tensor) -> bool:
    """The kernels take eager float32 on a CPU, and widths in steps of 8."""
    return table.shape[-1] % 8 == 0 and rows.numel() > 0 and served(table, other)


def _run(name: str, sizes: tuple[int, ...], *tensors: Tensor) -> None:
    lib: Any = kernels(tensors[0])
    whole = [tensor.contiguous() for tensor in tensors[:-1]]  # the last one is written to
    pointers = [tensor.data_ptr() for tensor in (*whole, tensors[-1])]
    getattr(lib, name)(*sizes, *pointers, torch.get_num_threads())


def _dots(left: Tensor, table: Tensor, rows: Tensor) -> tuple[Tensor]:
    """left[i, h] . table[rows[i, c], h]"""
    (i, h, d), c = left.shape, rows.shape[1]
    dots = left.new_empty(i, h, c)
    _run("gm_gathered_dots", (i, h, c, d), left, table, rows, dots)
    return (dots,)


def _sums(weights: Tensor, table: Tensor, rows: Tensor) -> tuple[Tensor]:
    """sum_c weights[i, h, c] table[rows[i, c], h]"""
    (i, h, c), d = weights.shape, table.shape[-1]
    sums = weights.new_empty(i, h, d)
    _run("gm_gathered_sums", (i, h, c, d), weights, table, rows, sums)
    return (sums,)


def _scattered(weights: Tensor, left: Tensor, rows: Tensor, like: Tensor) -> Tensor:
    """A table to whose rows weights[i, h, c] left[i, h] are added."""
    (i, h, c), d = weights.shape, left.shape[-1]
    table = torch.zeros_like(like, memory_format=torch.contiguous_format)
    _run("gm_scattered_sums", (i, h, c, d), weights, left, rows, table)
    return table


def _dots_backward(
    outs: Any, grads: Any, left: Tensor, table: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor, None]:
    (above,) = grads
    return _sums(above, table, rows)[0], _scattered(above, left, rows, table), None


def _sums_backward(
    outs: Any, grads: Any, weights: Tensor, table: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor, None]:
    (above,) = grads
    return _dots(above, table, rows)[0], _scattered(weights, above, rows, table), None


dots = eager_function(_dots, _dots_backward, kept=0)
sums = eager_function(_sums, _sums_backward, kept=0)
