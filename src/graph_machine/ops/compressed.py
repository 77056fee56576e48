"""Attention and referral over compressed addresses (paper, 2.5, first direction).

An address is a vector of width c; its logit at node m is the dot product with row m of a decoder.
So edge and node factors of all pairs are one dot product of concatenated queries and keys, and
`scaled_dot_product_attention` does the rest without any n x n tensor. Referral is one such call:
keys are all (e2, n2) pairs, slot by slot. Values hold n2's value, e2's raw features and e2's
compressed address. Mixing addresses means mixing vectors of width c.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from graph_machine.ops.address.dense import factor_entropy
from graph_machine.ops.attention.reference import scale_by
from graph_machine.ops.attention.sparse import edge_slots, own_edge_weights
from graph_machine.ops.inputs import ReferralInputs
from graph_machine.ops.numerics import in_float32
from graph_machine.ops.referral.sparse import e2_queries, project

# Added to the logit of a padded node; exp of it is exactly 0 in every dtype.
PADDING_LOGIT = -1e4
# Queries per block where a mask or an entropy needs blocks: memory O(block * n).
BLOCK_QUERIES = 64


def dot_product_attention(
    query_parts: list[Float[Tensor, "b h n _"]],
    key_parts: list[Float[Tensor, "b h m _"]],
    values: Float[Tensor, "b h m v"],
    *,
    real: Bool[Tensor, "b m"] | None,
    causal: bool,
    slots: int = 1,
) -> Float[Tensor, "b h n v"]:
    """softmax(queries . keys) values, only with `scaled_dot_product_attention`.

    Keys are n nodes or, slot by slot, `slots` times the n nodes. Keys have one more feature, which
    is very low where they are not `real` and meets a 1 in queries; so the mask is free for
    causality. Widths are padded with zeros to the same number, which the fused kernels need. A
    causal mask over several slots is not triangular: queries then go in blocks, each with its own
    mask and with keys up to its last node.
    """
    if real is not None:
        low = torch.where(real, 0.0, PADDING_LOGIT).to(values.dtype)[:, None, :, None]
        key_parts = [*key_parts, low.expand(*values.shape[:3], 1)]
        query_parts = [*query_parts, query_parts[0].new_ones(*query_parts[0].shape[:3], 1)]
    queries, keys = torch.cat(query_parts, dim=-1), torch.cat(key_parts, dim=-1)
    width = max(queries.shape[-1], values.shape[-1])
    width = math.ceil(width / 8) * 8  # the alignment that GPU kernels ask for
    v = values.shape[-1]
    queries, keys, values = (
        functional.pad(x, (0, width - x.shape[-1])) for x in (queries, keys, values)
    )
    attend = functional.scaled_dot_product_attention
    if slots == 1 or not causal:
        return attend(queries, keys, values, is_causal=causal, scale=1.0)[..., :v]
    n = queries.shape[2]
    keys, values = (x.unflatten(2, (slots, n)) for x in (keys, values))
    places = torch.arange(n, device=queries.device)
    outs = []
    for start in range(0, n, BLOCK_QUERIES):
        stop = min(start + BLOCK_QUERIES, n)
        allowed = places[start:stop, None] >= places[:stop].repeat(slots)  # i (l m)
        here = (x[:, :, :, :stop].flatten(2, 3) for x in (keys, values))
        outs.append(attend(queries[:, :, start:stop], *here, attn_mask=allowed, scale=1.0))
    return torch.cat(outs, dim=2)[..., :v]


def product_entropy(
    queries: Float[Tensor, "b h n d"],
    keys: Float[Tensor, "b h m d"],
    node_mask: Bool[Tensor, "b n"] | None,
    causal: bool,
) -> Float[Tensor, ""]:
    """Mean normalised entropy of softmax(queries . keys), in blocks of queries.

    Equals `factor_entropy` of the whole product. The backward pass recomputes each block, so memory
    is O(n) and time the same as attention's.
    """
    queries, keys = in_float32(queries), in_float32(keys)
    n = queries.shape[2]
    total = queries.new_zeros(())
    for start in range(0, n, BLOCK_QUERIES):
        part = slice(start, min(start + BLOCK_QUERIES, n))
        arguments = queries[:, :, part], keys, node_mask, causal, part
        total = total + checkpoint(_entropy_block, *arguments, use_reentrant=False)
    sources = queries.shape[0] * n if node_mask is None else node_mask.sum().clamp_min(1)
    return total / (sources * queries.shape[1])


def _entropy_block(
    queries: Tensor, keys: Tensor, node_mask: Tensor | None, causal: bool, part: slice
) -> Tensor:
    """Sum of the normalised entropies of a block of queries, over real sources."""
    places = torch.arange(keys.shape[2], device=keys.device)
    mask = None if node_mask is None else node_mask.unsqueeze(-2)  # b 1 m
    if causal:
        past = (places <= places[part, None]).unsqueeze(0)  # 1 i m
        mask = past if mask is None else mask & past
    sources = None if node_mask is None else node_mask[:, part]
    count = queries.shape[0] * queries.shape[2] if sources is None else sources.sum()
    return factor_entropy(queries @ keys.mT, mask, sources) * count * queries.shape[1]


def factor_parts(
    queries: Float[Tensor, "b h n d"],
    keys: Float[Tensor, "b h m d"] | None,
    mixed: Float[Tensor, "b h n c"] | None,
    decoder: Float[Tensor, "b m c"],
    edge_temps: Float[Tensor, "b h n"] | None,
    node_temps: Float[Tensor, "b h n"] | None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Parts of queries and keys whose dot products are the factors, edge expert first."""
    found = []
    if mixed is not None:
        heads = decoder.unsqueeze(1).expand(-1, queries.shape[1], -1, -1)
        found.append((scale_by(mixed, edge_temps), heads))
    if keys is not None:
        raw = in_float32(queries) * queries.shape[-1] ** -0.5
        found.append((scale_by(raw, node_temps), in_float32(keys)))
    query_parts, key_parts = zip(*found)
    return list(query_parts), list(key_parts)


def refer_compressed(
    inputs: ReferralInputs,
    queries: list[Float[Tensor, "b h n _"]],
    keys: list[Float[Tensor, "b h m _"]],
    collected: Float[Tensor, "b m l c"],
    *,
    node_mask: Bool[Tensor, "b m"] | None,
    causal: bool,
) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b h n c"]]:
    """What n2 and e2 contribute to each new edge, and its compressed address.

    `queries` and `keys` are those of `factor_parts`. Joint: all (e2, n2) pairs are keys, met by
    absorbed queries in raw e2 features. Pre-aggregated: the keys are those of n2, each with one
    mixed edge per head. Conditional referral normalises over the edges of each n2 separately, which
    is not a dot product, so callers raise an error.
    """
    features, values = in_float32(inputs.edge_features), in_float32(inputs.n2_values)
    (b, heads, n, _), (slots, d_edge), real = values.shape, features.shape[2:], node_mask
    offered = torch.cat([features, collected], dim=-1)  # b m l x
    if inputs.kind == "preaggregated":
        own = own_edge_weights(inputs, inputs.edge_features, inputs.e2_key_weights)
        offered, slots = torch.einsum("bhml,bmlx->bhmx", own, offered), 1
    else:
        there = edge_slots(inputs, features)
        if there is not None or real is not None:
            both = [
                x for x in (there, None if real is None else real.unsqueeze(-1)) if x is not None
            ]
            real = torch.stack([x.expand(b, n, slots) for x in both]).all(dim=0)
            real = real.transpose(1, 2).flatten(1)  # b lm
        offered = offered.transpose(1, 2).flatten(1, 2).unsqueeze(1).expand(-1, heads, -1, -1)
    outs = dot_product_attention(
        [*queries, e2_queries(inputs)],
        [torch.cat(keys, dim=-1).repeat(1, 1, slots, 1), offered[..., :d_edge]],
        torch.cat([values.repeat(1, 1, slots, 1), offered], dim=-1),
        real=real,
        causal=causal,
        slots=slots,
    )
    n2_outs, e2_outs, addresses = outs.tensor_split((d_edge, 2 * d_edge), dim=-1)
    return n2_outs + project(e2_outs, inputs.e2_value_weights), addresses
