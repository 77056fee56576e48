"""Edge-augmented attention over candidates: cost and memory per node do not depend on n.

The stages are those of `reference.py` with the axis m of all nodes replaced by the axis c of a
node's own candidates; only products with node keys and values need gathering, and that is here.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.ops.inputs import absorb
from graph_machine.ops.native import eager_function, kernels, served
from graph_machine.ops.numerics import in_float32, without_autocast
from graph_machine.ops.own_edges import own_edges

# Rows of gathered keys or values made at a time: few enough to stay near the cache.
BLOCK_ROWS = 512


def flat_rows(indices: Int[Tensor, "b n *c"], num_nodes: int) -> Int[Tensor, "b n *c"]:
    """Rows of a (b * n, ...) table for local targets; unused entries (-1) read row 0 of theirs."""
    starts = torch.arange(indices.shape[0], device=indices.device) * num_nodes
    return indices.clamp_min(0) + starts.reshape(-1, *([1] * (indices.ndim - 1)))


def block_diagonal(x: Float[Tensor, "n h d"]) -> Float[Tensor, "n hd h"]:
    """Head h's features in column h and zeros elsewhere.

    One product with gathered rows of all heads then serves every head without permuting the rows,
    which costs more than the wasted multiplications.
    """
    heads = x.shape[1]
    eye = torch.eye(heads, dtype=x.dtype, device=x.device)
    return (x.unsqueeze(-1) * eye.unsqueeze(1)).flatten(1, 2)


def diagonal_blocks(x: Float[Tensor, "n hd h"], heads: int) -> Float[Tensor, "n h d"]:
    return x.unflatten(1, (heads, -1)).diagonal(dim1=1, dim2=3).transpose(1, 2)


def _in_c(name: str, sizes: tuple[int, ...], *tensors: Tensor) -> None:
    lib: Any = kernels(tensors[0])
    whole = [tensor.contiguous() for tensor in tensors[:-1]]  # the last one is written to
    pointers = [tensor.data_ptr() for tensor in (*whole, tensors[-1])]
    getattr(lib, name)(*sizes, *pointers, torch.get_num_threads())


def _blocks(rows: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Few nodes at a time, with the flat rows of their candidates."""
    for start in range(0, len(rows), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        yield part, rows[part].flatten()


# i nodes, h heads, c candidates, d the width of a head; a table of keys or values is (m, h, d), and
# `rows` (i, c) holds the places of a node's candidates in it. Each in C (`kernel`) or in torch.


def _dots(left: Tensor, table: Tensor, rows: Tensor, kernel: bool) -> tuple[Tensor]:
    """left[i, h] . table[rows[i, c], h]"""
    (i, h, d), c = left.shape, rows.shape[1]
    dots = left.new_empty(i, h, c)
    if kernel:
        _in_c("gm_gathered_dots", (i, h, c, d), left, table, rows, dots)
        return (dots,)
    for part, flat in _blocks(rows):
        keys = table.flatten(1).index_select(0, flat).unflatten(0, (-1, c))  # i c hd
        torch.bmm(block_diagonal(left[part]).mT, keys.mT, out=dots[part])
    return (dots,)


def _sums(weights: Tensor, table: Tensor, rows: Tensor, kernel: bool) -> tuple[Tensor]:
    """sum_c weights[i, h, c] table[rows[i, c], h]"""
    (i, h, c), d = weights.shape, table.shape[-1]
    sums = weights.new_empty(i, h, d)
    if kernel:
        _in_c("gm_gathered_sums", (i, h, c, d), weights, table, rows, sums)
        return (sums,)
    for part, flat in _blocks(rows):
        values = table.flatten(1).index_select(0, flat).unflatten(0, (-1, c))
        sums[part] = diagonal_blocks(torch.bmm(weights[part], values).mT, h)
    return (sums,)


def _scattered(weights: Tensor, left: Tensor, rows: Tensor, like: Tensor, kernel: bool) -> Tensor:
    """A table to whose rows weights[i, h, c] left[i, h] are added."""
    (i, h, c), d = weights.shape, left.shape[-1]
    table = torch.zeros_like(like, memory_format=torch.contiguous_format)
    if kernel:
        _in_c("gm_scattered_sums", (i, h, c, d), weights, left, rows, table)
        return table
    for part, flat in _blocks(rows):
        found = torch.bmm(weights[part].mT, block_diagonal(left[part]).mT)  # i c hd
        table.flatten(1).index_add_(0, flat, found.flatten(0, 1))
    return table


@without_autocast
def _dots_backward(
    outs: Any, grads: Any, left: Tensor, table: Tensor, rows: Tensor, kernel: bool
) -> tuple[Tensor | None, Tensor | None, None]:
    (above,) = grads
    if above is None:
        return None, None, None
    table_grads = _scattered(above, left, rows, table, kernel)
    return _sums(above, table, rows, kernel)[0], table_grads, None


@without_autocast
def _sums_backward(
    outs: Any, grads: Any, weights: Tensor, table: Tensor, rows: Tensor, kernel: bool
) -> tuple[Tensor | None, Tensor | None, None]:
    (above,) = grads
    if above is None:
        return None, None, None
    table_grads = _scattered(weights, above, rows, table, kernel)
    return _dots(above, table, rows, kernel)[0], table_grads, None


_gathered_dots = eager_function(_dots, _dots_backward, kept=0)
_gathered_sums = eager_function(_sums, _sums_backward, kept=0)


def _kernel_serves(rows: Tensor, table: Tensor, other: Tensor) -> bool:
    """The kernels take eager float32 on a CPU, and widths in steps of 8."""
    return table.shape[-1] % 8 == 0 and rows.numel() > 0 and served(table, other)


def node_rows(x: Float[Tensor, "b h n d"]) -> Float[Tensor, "bn h d"]:
    """One row per node, heads side by side, in float32 (gathering gains nothing from less)."""
    return in_float32(x).transpose(1, 2).flatten(0, 1).contiguous()


def gathered_scores(
    queries: Float[Tensor, "b h n d"],
    keys: Float[Tensor, "b h m d"],
    indices: Int[Tensor, "b n c"],
    *,
    fused: bool = False,
) -> Float[Tensor, "b h n c"]:
    """Dot products of each query with the keys of its node's candidates only."""
    b, _, n, _ = queries.shape
    rows = flat_rows(indices, keys.shape[2]).flatten(0, 1)
    with torch.autocast(queries.device.type, enabled=False):
        left, table = node_rows(queries), node_rows(keys)
        kernel = fused and _kernel_serves(rows, table, left)
        (scores,) = _gathered_dots((left, table, rows), kernel)
    return scores.unflatten(0, (b, n)).transpose(1, 2)


def gathered_mix(
    weights: Float[Tensor, "b h n c"],
    values: Float[Tensor, "b h m v"],
    indices: Int[Tensor, "b n c"],
    *,
    fused: bool = False,
) -> Float[Tensor, "b h n v"]:
    """Values of each node's candidates, summed by weight. Unused candidates need weight 0."""
    b, _, n, _ = weights.shape
    rows = flat_rows(indices, values.shape[2]).flatten(0, 1)
    with torch.autocast(weights.device.type, enabled=False):
        left, table = node_rows(weights), node_rows(values)
        kernel = fused and _kernel_serves(rows, table, left)
        (outs,) = _gathered_sums((left, table, rows), kernel)
    return outs.unflatten(0, (b, n)).transpose(1, 2)


def own_edge_weights(
    queries: Float[Tensor, "b h n d"],
    features: Float[Tensor, "b n k e"],
    key_weights: Float[Tensor, "h d e"],
    *,
    fused: bool = False,
) -> Float[Tensor, "b h n k"]:
    """Softmax of each node's queries against the keys of its own edges, without making the keys."""
    if fused:
        return own_edges(queries, features, key_weights, node=False, mix=False).weights.transpose(
            1, 2
        )
    absorbed = absorb(queries, key_weights)
    scores = torch.einsum("bhne,bnke->bhnk", absorbed, features) * queries.shape[-1] ** -0.5
    return in_float32(scores).softmax(dim=-1)
