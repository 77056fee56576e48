"""Attention and referral over compressed addresses (paper, 2.5, first direction).

An address is a vector of width c; its logit at node m is the dot product with row m of a decoder.
So edge and node factors of all pairs are one dot product of concatenated queries and keys, and
`scaled_dot_product_attention` does the rest without any tensor of n x n. Referral is one such call:
keys are all (e2, n2) pairs, slot by slot, and values carry what a chain brings: n2's value, e2's
raw features, and e2's compressed address. Mixing addresses is then mixing vectors of width c.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from graph_machine.ops.address.dense import factor_entropy
from graph_machine.ops.attention.reference import scale_by
from graph_machine.ops.attention.sparse import own_edge_weights
from graph_machine.ops.inputs import ReferralInputs, absorb
from graph_machine.ops.numerics import in_float32

# Added to the logit of a padded node; exp of it is exactly 0 in every dtype.
PADDING_LOGIT = -1e4
# Queries per block where a mask or an entropy needs blocks: memory O(block * n).
BLOCK_QUERIES = 64


def padding_column(
    node_mask: Bool[Tensor, "b n"] | None, like: Float[Tensor, "b h n d"]
) -> list[Float[Tensor, "b h n 1"]]:
    """A key feature that is 0 at real nodes and very low at padding; queries meet it with 1.

    In this form padding needs no mask, which is free to be causal. Empty without padding.
    """
    if node_mask is None:
        return []
    column = torch.where(node_mask, 0.0, PADDING_LOGIT).to(like.dtype)
    return [column[:, None, :, None].expand(*like.shape[:3], 1)]


def ones_column(
    node_mask: Bool[Tensor, "b n"] | None, like: Float[Tensor, "b h n d"]
) -> list[Float[Tensor, "b h n 1"]]:
    """What queries hold opposite `padding_column`."""
    return [] if node_mask is None else [like.new_ones(*like.shape[:3], 1)]


def dot_product_attention(
    queries: Float[Tensor, "b h n d"],
    keys: Float[Tensor, "b h m d"],
    values: Float[Tensor, "b h m v"],
    *,
    causal: bool,
    slots: int = 1,
) -> Float[Tensor, "b h n v"]:
    """softmax(queries . keys) values, only with `scaled_dot_product_attention`.

    Keys are n nodes, or slot by slot `slots` times the n nodes. Widths are padded with zeros to the
    same number, without which the fused kernels decline. A causal mask over several slots is not
    triangular: queries then go in blocks, each with keys up to its last node and its own mask.
    """
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
        outs.append(
            attend(
                queries[:, :, start:stop],
                keys[:, :, :, :stop].flatten(2, 3),
                values[:, :, :, :stop].flatten(2, 3),
                attn_mask=allowed,
                scale=1.0,
            )
        )
    return torch.cat(outs, dim=2)[..., :v]


def product_entropy(
    queries: Float[Tensor, "b h n d"],
    keys: Float[Tensor, "b h m d"],
    node_mask: Bool[Tensor, "b n"] | None,
    causal: bool,
) -> Float[Tensor, ""]:
    """Mean normalised entropy of softmax(queries . keys), in blocks of queries.

    Equals `factor_entropy` of the whole product. Backward makes each block again, so memory is
    O(n) and time the same as attention's.
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


def expand_heads(x: Float[Tensor, "b n d"], heads: int) -> Float[Tensor, "b h n d"]:
    return x.unsqueeze(1).expand(-1, heads, -1, -1)


def slot_major(x: Float[Tensor, "b h n d"], slots: int) -> Float[Tensor, "b h ln d"]:
    """The same node features for every slot."""
    return x.repeat(1, 1, slots, 1)


def edges_slot_major(x: Float[Tensor, "b n l d"], heads: int) -> Float[Tensor, "b h ln d"]:
    return expand_heads(x.transpose(1, 2).flatten(1, 2), heads)


def n2_queries_and_keys(
    inputs: ReferralInputs,
    mixed: Float[Tensor, "b h n c"],
    decoder: Float[Tensor, "b m c"],
) -> tuple[list[Tensor], list[Tensor]]:
    """Parts of queries and keys whose dot products are the n2 factors, edge expert first."""
    queries, keys = [], []
    heads, scale = inputs.n1_queries.shape[1], inputs.n1_queries.shape[-1] ** -0.5
    if inputs.edge_expert:
        queries.append(scale_by(mixed, inputs.n2_edge_factor_temps))
        keys.append(expand_heads(decoder, heads))
    if inputs.n2_keys is not None:
        raw = in_float32(inputs.n1_queries) * scale
        queries.append(scale_by(raw, inputs.n2_node_factor_temps))
        keys.append(in_float32(inputs.n2_keys))
    return queries, keys


def refer_compressed(
    inputs: ReferralInputs,
    mixed: Float[Tensor, "b h n c"],
    collected: Float[Tensor, "b m l c"],
    decoder: Float[Tensor, "b m c"],
    *,
    node_mask: Bool[Tensor, "b n"] | None,
    causal: bool,
) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b h n c"]]:
    """What n2 and e2 bring to each new edge, and its compressed address.

    `mixed` are the addresses of e1 mixed by its weights. Conditional referral normalises over the
    edges of every n2 apart, which is not a dot product: callers refuse it.
    """
    queries, keys = n2_queries_and_keys(inputs, mixed, decoder)
    queries = queries + ones_column(node_mask, queries[0])
    keys = keys + padding_column(node_mask, keys[0])
    if inputs.kind == "joint":
        return _refer_joint(inputs, queries, keys, collected, causal)
    return _refer_preaggregated(inputs, queries, keys, collected, causal)


def _refer_joint(
    inputs: ReferralInputs,
    queries: list[Tensor],
    keys: list[Tensor],
    collected: Tensor,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """Joint referral: all (e2, n2) pairs are keys, met by absorbed queries in raw e2 features."""
    features, values = in_float32(inputs.edge_features), in_float32(inputs.n2_values)
    heads, (slots, d_edge) = values.shape[1], features.shape[2:]
    scaled = in_float32(inputs.n1_queries) * inputs.n1_queries.shape[-1] ** -0.5
    absorbed = in_float32(absorb(scaled, inputs.e2_key_weights.to(scaled.dtype)))
    e2_values = edges_slot_major(torch.cat([features, collected], dim=-1), heads)
    outs = dot_product_attention(
        torch.cat([*queries, scale_by(absorbed, inputs.e2_factor_temps)], dim=-1),
        torch.cat(
            [slot_major(torch.cat(keys, dim=-1), slots), edges_slot_major(features, heads)], dim=-1
        ),
        torch.cat([slot_major(values, slots), e2_values], dim=-1),
        causal=causal,
        slots=slots,
    )
    n2_outs, e2_outs, addresses = outs.tensor_split((d_edge, 2 * d_edge), dim=-1)
    weights = in_float32(inputs.e2_value_weights)
    return n2_outs + torch.einsum("bhne,hde->bhnd", e2_outs, weights), addresses


def _refer_preaggregated(
    inputs: ReferralInputs,
    queries: list[Tensor],
    keys: list[Tensor],
    collected: Tensor,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """Pre-aggregated referral: the keys are those of n2, each with one mixed edge per head."""
    features, values = in_float32(inputs.edge_features), in_float32(inputs.n2_values)
    d_edge, scale = features.shape[-1], inputs.n1_queries.shape[-1] ** -0.5
    own = own_edge_weights(inputs.n1_queries, inputs.edge_features, inputs.e2_key_weights)
    offered = torch.einsum("bhml,bmlx->bhmx", own, torch.cat([features, collected], dim=-1))
    edges, addresses = offered.tensor_split((d_edge,), dim=-1)
    e2_keys = torch.einsum("bhme,hde->bhmd", edges, in_float32(inputs.e2_key_weights))
    e2_values = torch.einsum("bhme,hde->bhmd", edges, in_float32(inputs.e2_value_weights))
    scaled = scale_by(in_float32(inputs.n1_queries) * scale, inputs.e2_factor_temps)
    outs = dot_product_attention(
        torch.cat([*queries, scaled], dim=-1),
        torch.cat([*keys, e2_keys], dim=-1),
        torch.cat([values + e2_values, addresses], dim=-1),
        causal=causal,
    )
    n2_outs, new = outs.tensor_split((d_edge,), dim=-1)
    return n2_outs, new
