"""Edge-centric referral by the fused ops; equals `reference.py`.

In a layer, keys and values of edges are never made: queries are projected down to edge features,
and what the weights collect is raw edge features, projected afterwards (one small product each).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from graph_machine.ops.attention.dense import entropies_of, listed_slot_weights
from graph_machine.ops.fused import fused_attention, fused_referral
from graph_machine.ops.fused.heads import entropy_weights, node_major_temps, scaled
from graph_machine.ops.fused.native.calls import rows
from graph_machine.ops.fused.slots import collect, prepare
from graph_machine.ops.inputs import FactorEntropies, ReferralInputs
from graph_machine.ops.numerics import ADDRESS_EPS, in_float32, without_autocast
from graph_machine.ops.referral.reference import ReferralKind


@without_autocast
def refer(
    inputs: ReferralInputs,
    e1_addresses: Float[Tensor, "b n k m"],
    e2_addresses: Float[Tensor, "b m l a"],
    mask: Bool[Tensor, "#b #n m"] | None,
    *,
    kind: ReferralKind = "joint",
    eps: float = ADDRESS_EPS,
    logit_space: bool = False,
    entropies: bool = False,
    sources: Bool[Tensor, "b n"] | None = None,
) -> tuple[Float[Tensor, "b n h e"], Float[Tensor, "b n h a"], FactorEntropies]:
    """Referral of a layer. Features and addresses come with the new slots last but one."""
    queries, keys = inputs.n1_queries, inputs.n2_keys
    b, h, n, _ = queries.shape
    features = in_float32(inputs.edge_features)
    ready = prepare(
        queries,
        features,
        inputs.e1_key_weights,
        node=keys is not None,
        node_temps=inputs.n2_node_factor_temps,
        e2_weights=inputs.e2_key_weights,
        e2_temps=inputs.e2_factor_temps,
        own=kind == "preaggregated",
    )
    assert ready.e2_queries is not None
    values = rows(in_float32(inputs.n2_values))
    ask = None
    if entropies:
        ask = entropy_weights((b, h, n, e1_addresses.shape[-1]), mask, sources, values)
    factors = (
        ready.weights if inputs.edge_expert else None,
        in_float32(e1_addresses).contiguous() if inputs.edge_expert else None,
        node_major_temps(inputs.n2_edge_factor_temps) if inputs.edge_expert else None,
        ready.queries,
        None if keys is None else rows(in_float32(keys)),
    )
    e2_addresses = in_float32(e2_addresses).contiguous()
    if kind == "preaggregated":
        assert ready.own_mixed is not None
        carried = collect(values.transpose(1, 2), ready.own_mixed, inputs.e2_value_weights)
        # A mixed key is W (own mix of edges), so the absorbed query meets the mix itself.
        outs, addresses, found, _ = fused_attention(
            *factors,
            carried.transpose(1, 2),
            ready.e2_queries.transpose(1, 2),
            ready.own_mixed.transpose(1, 2),
            ready.own_weights,
            e2_addresses,
            mask,
            ask,
            eps,
            logit_space,
        )
        features = collect(outs, ready.mixed, inputs.e1_value_weights)
    else:
        flat = features.unsqueeze(1).contiguous()  # b 1 m l e
        addresses, outs, e2_found, found, _ = fused_referral(
            *factors,
            ready.e2_queries,
            flat,
            flat,
            values,
            e2_addresses,
            mask,
            ask,
            kind == "conditional",
            eps,
            logit_space,
        )
        weights = (inputs.e1_value_weights, e2_found, inputs.e2_value_weights)
        features = collect(outs, ready.mixed, *weights)
    return features, addresses, entropies_of(found, entropies, inputs.edge_expert, keys is not None)


@without_autocast
def edge_centric_referral(
    *,
    n1_queries: Float[Tensor, "b h n d"],
    n2_edge_factor_temps: Float[Tensor, "b h n"] | None,
    n2_node_factor_temps: Float[Tensor, "b h n"] | None,
    e2_factor_temps: Float[Tensor, "b h n"] | None,
    e1_keys: Float[Tensor, "b h n k d"],
    e1_values: Float[Tensor, "b h n k e"],
    e1_addresses: Float[Tensor, "b n k m"],
    n2_keys: Float[Tensor, "b h m d"],
    n2_values: Float[Tensor, "b h m e"],
    e2_keys: Float[Tensor, "b h m l d"],
    e2_values: Float[Tensor, "b h m l e"],
    e2_addresses: Float[Tensor, "b m l a"],
    mask: Bool[Tensor, "#b #n m"] | None,
    kind: ReferralKind,
    eps: float,
) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b h n a"]]:
    """The listing's interface, with keys and values given per edge and head."""
    scale = n1_queries.shape[-1] ** -0.5
    e1_weights = listed_slot_weights(n1_queries, e1_keys)  # b n h k
    factors = (
        e1_weights,
        in_float32(e1_addresses).contiguous(),
        node_major_temps(n2_edge_factor_temps),
        scaled(n1_queries, n2_node_factor_temps, scale),
        in_float32(n2_keys).contiguous(),
    )
    e2_queries = scaled(n1_queries, e2_factor_temps, scale)
    e2_keys, e2_values = in_float32(e2_keys), in_float32(e2_values)
    n2_values, e2_addresses = in_float32(n2_values), in_float32(e2_addresses).contiguous()
    if kind == "preaggregated":
        own_weights = listed_slot_weights(n1_queries, e2_keys)  # b m h l
        mixed_keys = torch.einsum("bmhl,bhmld->bhmd", own_weights, e2_keys).contiguous()
        values = n2_values + torch.einsum("bmhl,bhmle->bhme", own_weights, e2_values)
        outs, addresses, *_ = fused_attention(
            *factors,
            values.contiguous(),
            e2_queries,
            mixed_keys,
            own_weights,
            e2_addresses,
            mask,
            None,
            eps,
            False,
        )
    else:
        addresses, n2_outs, e2_outs, *_ = fused_referral(
            *factors,
            e2_queries.transpose(1, 2).contiguous(),
            e2_keys.contiguous(),
            e2_values.contiguous(),
            n2_values.contiguous(),
            e2_addresses,
            mask,
            None,
            kind == "conditional",
            eps,
            False,
        )
        outs = n2_outs + e2_outs
    e1_outs = torch.einsum("bnhk,bhnke->bnhe", e1_weights, in_float32(e1_values))
    return (outs + e1_outs).transpose(1, 2), addresses.transpose(1, 2)
