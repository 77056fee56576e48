"""Edge-augmented attention over candidates: cost and memory per node do not depend on n.

The stages are those of `reference.py`, with the axis c of a node's own candidates instead of the
axis m of all nodes. Only products with node keys and values need gathering; they are here.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from graph_machine.ops.inputs import AttentionInputs, ReferralInputs, absorb
from graph_machine.ops.native import eager_function, kernels, served
from graph_machine.ops.numerics import in_float32, masked_softmax, without_autocast
from graph_machine.ops.own_edges import own_edges, slots_there


def flat_rows(indices: Int[Tensor, "b n *c"], num_nodes: int) -> Int[Tensor, "b n *c"]:
    """Rows of a (b * n, ...) table for local targets; unused entries (-1) read row 0 of theirs."""
    starts = torch.arange(indices.shape[0], device=indices.device) * num_nodes
    return indices.clamp_min(0) + starts.reshape(-1, *([1] * (indices.ndim - 1)))


# i nodes, h heads, c candidates, d the width of a head; a table of keys or values is (m, h, d), and
# `rows` (i, c) holds the places of a node's candidates in it.


def _in_c(name: str, sizes: tuple[int, ...], *tensors: Tensor) -> Tensor:
    lib: Any = kernels(tensors[0])
    whole = [tensor.contiguous() for tensor in tensors[:-1]]  # the last one is written to
    pointers = [tensor.data_ptr() for tensor in (*whole, tensors[-1])]
    getattr(lib, name)(*sizes, *pointers, torch.get_num_threads())
    return tensors[-1]


def _dots(left: Tensor, table: Tensor, rows: Tensor) -> tuple[Tensor]:
    """left[i, h] . table[rows[i, c], h]"""
    (i, h, d), c = left.shape, rows.shape[1]
    made = left.new_empty(i, h, c)
    return (_in_c("gm_gathered_dots", (i, h, c, d), left, table, rows, made),)


def _sums(weights: Tensor, table: Tensor, rows: Tensor) -> tuple[Tensor]:
    """sum_c weights[i, h, c] table[rows[i, c], h]"""
    (i, h, c), d = weights.shape, table.shape[-1]
    made = weights.new_empty(i, h, d)
    return (_in_c("gm_gathered_sums", (i, h, c, d), weights, table, rows, made),)


def _scattered(weights: Tensor, left: Tensor, rows: Tensor, like: Tensor) -> Tensor:
    """A table to whose rows weights[i, h, c] left[i, h] are added."""
    (i, h, c), d = weights.shape, left.shape[-1]
    table = torch.zeros_like(like, memory_format=torch.contiguous_format)
    return _in_c("gm_scattered_sums", (i, h, c, d), weights, left, rows, table)


def _dots_backward(
    outs: Any, grads: Any, left: Tensor, table: Tensor, rows: Tensor
) -> tuple[Tensor | None, Tensor | None, None]:
    (above,) = grads
    if above is None:
        return None, None, None
    return _sums(above, table, rows)[0], _scattered(above, left, rows, table), None


def _sums_backward(
    outs: Any, grads: Any, weights: Tensor, table: Tensor, rows: Tensor
) -> tuple[Tensor | None, Tensor | None, None]:
    (above,) = grads
    if above is None:
        return None, None, None
    return _dots(above, table, rows)[0], _scattered(weights, above, rows, table), None


_gathered_dots = eager_function(_dots, _dots_backward, kept=0)
_gathered_sums = eager_function(_sums, _sums_backward, kept=0)


def _gathered(left: Tensor, table: Tensor, indices: Tensor, dots: bool, fused: bool) -> Tensor:
    """One of the two products, by its kernel (if it can be used) or in torch.

    The torch code avoids matrix products, because a backward pass inside autocast would round them.
    """
    rows = flat_rows(indices, table.shape[2]).flatten(0, 1)
    left, table = (in_float32(x).transpose(1, 2).flatten(0, 1).contiguous() for x in (left, table))
    if fused and table.shape[-1] % 8 == 0 and rows.numel() and served(table, left):
        (found,) = (_gathered_dots if dots else _gathered_sums)((left, table, rows))
    else:
        picked = table.index_select(0, rows.flatten()).unflatten(0, rows.shape)  # i c h d
        if dots:
            found = (left.unsqueeze(1) * picked).sum(dim=-1).mT
        else:
            found = (left.mT.unsqueeze(-1) * picked).sum(dim=1)
    return found.unflatten(0, indices.shape[:2]).transpose(1, 2)


@without_autocast
def gathered_scores(
    queries: Float[Tensor, "b h n d"],
    keys: Float[Tensor, "b h m d"],
    indices: Int[Tensor, "b n c"],
    *,
    fused: bool = False,
) -> Float[Tensor, "b h n c"]:
    """Dot products of each query with the keys of its node's candidates only."""
    return _gathered(queries, keys, indices, True, fused)


@without_autocast
def gathered_mix(
    weights: Float[Tensor, "b h n c"],
    values: Float[Tensor, "b h m v"],
    indices: Int[Tensor, "b n c"],
    *,
    fused: bool = False,
) -> Float[Tensor, "b h n v"]:
    """Values of each node's candidates, summed by weight. Unused candidates need weight 0."""
    return _gathered(weights, values, indices, False, fused)


def edge_slots(
    call: AttentionInputs | ReferralInputs, features: Float[Tensor, "b n t e"]
) -> Bool[Tensor, "b n t"] | None:
    """Which slots hold an edge; None: all of them."""
    found = slots_there(call.given_targets, features, call.empty_edge)
    return None if found is None else found.squeeze(2)


def slot_order(
    call: ReferralInputs, features: Float[Tensor, "b n t e"]
) -> Int[Tensor, "b n t"] | None:
    """Slots with given edges sorted by target, so a cut among equal ones ignores their order.

    None without given edges: slots are as they are.
    """
    if call.given_targets is None:
        return None
    made = features.shape[2] - call.given_targets.shape[2] - call.empty_edge
    keys = functional.pad(call.given_targets, (made, 0), value=-2)  # made edges come first
    keys = functional.pad(keys, (0, int(call.empty_edge)), value=features.shape[1])
    return keys.argsort(dim=-1, stable=True)


def own_edge_weights(
    call: AttentionInputs | ReferralInputs,
    features: Float[Tensor, "b n t e"],
    key_weights: Float[Tensor, "h d e"],
    *,
    fused: bool = False,
) -> Float[Tensor, "b h n t"]:
    """Softmax of each node's queries against the keys of its own edges, without making the keys."""
    queries, given, empty = call.n1_queries, call.given_targets, call.empty_edge
    if fused:
        settings = {"node": False, "mix": False, "given": given, "empty": empty}
        return own_edges(queries, features, key_weights, **settings).weights.transpose(1, 2)
    absorbed = absorb(queries, key_weights)
    scores = torch.einsum("bhne,bnke->bhnk", absorbed, features) * queries.shape[-1] ** -0.5
    there = edge_slots(call, features)
    return masked_softmax(in_float32(scores), None if there is None else there.unsqueeze(1))
