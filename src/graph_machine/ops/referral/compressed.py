"""Edge-centric referral over compressed addresses, as one attention call (paper, 2.5).

Keys are all (e2, n2) pairs, slot by slot, and values carry what a chain brings: n2's value, e2's
raw features, and e2's compressed address. Mixing addresses is then mixing vectors of width c.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from graph_machine.ops.attention.compressed import (
    dot_product_attention,
    ones_column,
    padding_column,
)
from graph_machine.ops.attention.reference import scale_by
from graph_machine.ops.attention.sparse import own_edge_weights
from graph_machine.ops.inputs import ReferralInputs, absorb
from graph_machine.ops.numerics import in_float32


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
    edges of every n2 apart, which is no dot product: callers refuse it.
    """
    queries, keys = n2_queries_and_keys(inputs, mixed, decoder)
    queries = queries + ones_column(node_mask, queries[0])
    keys = keys + padding_column(node_mask, keys[0])
    if inputs.kind == "joint":
        return refer_pairs(inputs, queries, keys, collected, causal)
    return refer_mixed(inputs, queries, keys, collected, causal)


def refer_pairs(
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


def refer_mixed(
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
