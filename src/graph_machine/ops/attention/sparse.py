"""Edge-augmented attention over candidates: cost and memory per node do not depend on n.

The stages are those of `reference.py` with the axis m of all nodes replaced by the axis c of a
node's own candidates; only products with node keys and values need gathering, and that is here.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.ops.attention import gathered
from graph_machine.ops.inputs import absorb
from graph_machine.ops.native.autograd import refusing
from graph_machine.ops.numerics import in_float32
from graph_machine.ops.own_edges import prepare

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


def first_derivative(
    backward: Callable[..., Sequence[Tensor | None]],
) -> Callable[..., Sequence[Tensor | None]]:
    """Gradients in the precision of the forward pass, wherever `backward()` is called.

    What writes into given memory can neither be cast by autocast nor be differentiated again.
    `backward(saved, grad)` gets the saved tensors: a checkpointed part gives them only once.
    """

    @wraps(backward)
    def called(ctx: Any, *grads: Tensor) -> Sequence[Tensor | None]:
        saved = ctx.saved_tensors
        with torch.no_grad(), torch.autocast(grads[0].device.type, enabled=False):
            found = backward(saved, *grads)
        return refusing(found, *grads, *saved)

    return called


class GatheredScores(torch.autograd.Function):
    """scores[i, h, c] = queries[i, h] . table[rows[i, c], h]; nothing gathered is kept."""

    @staticmethod
    def forward(ctx, queries: Tensor, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(queries, table, rows)
        num, width = rows.shape
        scores = queries.new_empty(num, queries.shape[1], width)
        for start in range(0, num, BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            keys = table.index_select(0, rows[part].flatten()).unflatten(0, (-1, width))  # i c hd
            torch.bmm(block_diagonal(queries[part]).mT, keys.mT, out=scores[part])
        return scores

    @staticmethod
    @first_derivative
    def backward(saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, Tensor, None]:
        queries, table, rows = saved
        grad_queries, grad_table = torch.empty_like(queries), torch.zeros_like(table)
        num, width = rows.shape
        for start in range(0, num, BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            flat = rows[part].flatten()
            keys = table.index_select(0, flat).unflatten(0, (-1, width))
            at = grad[part]  # i h c
            grad_queries[part] = diagonal_blocks(torch.bmm(at, keys).mT, queries.shape[1])
            grad_keys = torch.bmm(at.mT, block_diagonal(queries[part]).mT)  # i c hd
            grad_table.index_add_(0, flat, grad_keys.flatten(0, 1))
        return grad_queries, grad_table, None


class GatheredMix(torch.autograd.Function):
    """outs[i, h] = sum_c weights[i, h, c] table[rows[i, c], h]; nothing gathered is kept."""

    @staticmethod
    def forward(ctx, weights: Tensor, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(weights, table, rows)
        num, width = rows.shape
        heads = weights.shape[1]
        outs = weights.new_empty(num, heads, table.shape[-1] // heads)
        for start in range(0, num, BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            values = table.index_select(0, rows[part].flatten()).unflatten(0, (-1, width))
            outs[part] = diagonal_blocks(torch.bmm(weights[part], values).mT, heads)
        return outs

    @staticmethod
    @first_derivative
    def backward(saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, table, rows = saved
        grad_weights, grad_table = torch.empty_like(weights), torch.zeros_like(table)
        num, width = rows.shape
        for start in range(0, num, BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            flat = rows[part].flatten()
            values = table.index_select(0, flat).unflatten(0, (-1, width))
            spread = block_diagonal(grad[part])  # i hv h
            torch.bmm(spread.mT, values.mT, out=grad_weights[part])
            grad_values = torch.bmm(weights[part].mT, spread.mT)  # i c hv
            grad_table.index_add_(0, flat, grad_values.flatten(0, 1))
        return grad_weights, grad_table, None


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
        if fused and gathered.serves(rows, table, left):
            (scores,) = gathered.dots((left, table, rows))
        else:
            scores = GatheredScores.apply(left, table.flatten(1), rows)
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
        if fused and gathered.serves(rows, table, left):
            (outs,) = gathered.sums((left, table, rows))
        else:
            outs = GatheredMix.apply(left, table.flatten(1), rows)
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
        return prepare(queries, features, key_weights, node=False, mix=False).weights.transpose(
            1, 2
        )
    absorbed = absorb(queries, key_weights)
    scores = torch.einsum("bhne,bnke->bhnk", absorbed, features) * queries.shape[-1] ** -0.5
    return in_float32(scores).softmax(dim=-1)
