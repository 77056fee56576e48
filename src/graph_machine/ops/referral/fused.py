"""Edge-centric referral without its large intermediate tensors; equals `reference.py`.

In a layer, keys and values of edges are never made: queries are projected down to edge features,
and what the weights collect is raw edge features, projected afterwards (one small product each).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from graph_machine.ops import operators, triton
from graph_machine.ops.attention.fused import entropies_of, listed_slot_weights, node_major_temps
from graph_machine.ops.backend import register
from graph_machine.ops.core import AttendInputs, ReferInputs
from graph_machine.ops.inputs import (
    FactorEntropies,
    ListedReferral,
    ReferralCall,
    ReferralInputs,
    entropy_weights,
)
from graph_machine.ops.native import calls
from graph_machine.ops.native.calls import rows
from graph_machine.ops.numerics import in_float32, without_autocast
from graph_machine.ops.own_edges import collect, prepare, scaled
from graph_machine.ops.referral import chunked

register("referral", "native", calls.REFERRAL)
register("referral", "triton", triton.REFERRAL)
register("referral", "chunked", chunked.REFERRAL)


@without_autocast
def refer(
    inputs: ReferralInputs | ListedReferral,
) -> tuple[Float[Tensor, "b n h e"], Float[Tensor, "b n h a"], FactorEntropies]:
    """Features and addresses come with the new slots last but one."""
    listed = isinstance(inputs, ListedReferral)
    features, addresses, found = _refer_listed(inputs) if listed else _refer(inputs)
    present = inputs.edge_expert, inputs.n2_keys is not None
    return features, addresses, entropies_of(found, inputs.entropies, *present)


def _refer(inputs: ReferralInputs) -> tuple[Tensor, Tensor, Tensor]:
    features = in_float32(inputs.edge_features)
    ready = prepare(
        inputs.n1_queries,
        features,
        inputs.e1_key_weights,
        node=inputs.n2_keys is not None,
        node_temps=inputs.n2_node_factor_temps,
        e2_weights=inputs.e2_key_weights,
        e2_temps=inputs.e2_factor_temps,
        own=inputs.kind == "preaggregated",
    )
    assert ready.e2_queries is not None
    assert ready.mixed is not None
    values = rows(in_float32(inputs.n2_values))
    factors = _factors(inputs, ready.weights, ready.queries)
    if inputs.kind == "preaggregated":
        assert ready.own_mixed is not None
        carried = collect(values.transpose(1, 2), ready.own_mixed, inputs.e2_value_weights)
        # A mixed key is W (own mix of edges), so the absorbed query meets the mix itself.
        found = operators.attention(
            AttendInputs(
                **factors,
                n2_values=carried.transpose(1, 2),
                e2_queries=ready.e2_queries.transpose(1, 2),
                e2_keys=ready.own_mixed.transpose(1, 2),
                own_weights=ready.own_weights,
            )
        )
        outs = collect(found.features, ready.mixed, inputs.e1_value_weights)
        return outs, found.addresses, found.entropies
    flat = features.unsqueeze(1).contiguous()  # b 1 m l e
    found = operators.referral(
        ReferInputs(
            **factors,
            e2_queries=ready.e2_queries,
            e2_keys=flat,
            e2_values=flat,
            n2_values=values,
            conditional=inputs.kind == "conditional",
        )
    )
    weights = (inputs.e1_value_weights, found.e2, inputs.e2_value_weights)
    return collect(found.n2, ready.mixed, *weights), found.addresses, found.entropies


def _factors(inputs: ReferralCall, e1_weights: Tensor, queries: Tensor | None) -> dict[str, Any]:
    """What the two cores have in common; `queries` are those of the node expert, scaled."""
    edge, keys, addresses = inputs.edge_expert, inputs.n2_keys, inputs.e1_addresses
    assert addresses is not None
    assert inputs.e2_addresses is not None
    return {
        "e1_weights": e1_weights if edge else None,
        "e1_addresses": in_float32(addresses).contiguous() if edge else None,
        "edge_temps": node_major_temps(inputs.n2_edge_factor_temps) if edge else None,
        "n1_queries": queries,
        "n2_keys": None if keys is None else rows(in_float32(keys)),
        "e2_addresses": in_float32(inputs.e2_addresses).contiguous(),
        "mask": inputs.mask,
        "entropy_weights": entropy_weights(inputs, in_float32(inputs.n2_values)),
        "eps": inputs.eps,
        "logit_space": inputs.logit_space,
    }


def _refer_listed(inputs: ListedReferral) -> tuple[Tensor, Tensor, Tensor]:
    """With keys and values given per edge and head."""
    queries, scale = inputs.n1_queries, inputs.n1_queries.shape[-1] ** -0.5
    e1_weights = listed_slot_weights(queries, inputs.e1_keys)  # b n h k
    node = inputs.n2_keys is not None
    n1_queries = scaled(queries, inputs.n2_node_factor_temps, scale) if node else None
    factors = _factors(inputs, e1_weights, n1_queries)
    e2_queries = scaled(queries, inputs.e2_factor_temps, scale)
    e2_keys, e2_values = in_float32(inputs.e2_keys), in_float32(inputs.e2_values)
    n2_values = in_float32(inputs.n2_values)
    if inputs.kind == "preaggregated":
        own_weights = listed_slot_weights(queries, e2_keys)  # b m h l
        values = n2_values + torch.einsum("bmhl,bhmle->bhme", own_weights, e2_values)
        found = operators.attention(
            AttendInputs(
                **factors,
                n2_values=values.contiguous(),
                e2_queries=e2_queries,
                e2_keys=torch.einsum("bmhl,bhmld->bhmd", own_weights, e2_keys).contiguous(),
                own_weights=own_weights,
            )
        )
        outs = found.features
    else:
        found = operators.referral(
            ReferInputs(
                **factors,
                e2_queries=e2_queries.transpose(1, 2).contiguous(),
                e2_keys=e2_keys.contiguous(),
                e2_values=e2_values.contiguous(),
                n2_values=n2_values.contiguous(),
                conditional=inputs.kind == "conditional",
            )
        )
        outs = found.n2 + found.e2
    e1_outs = torch.einsum("bnhk,bhnke->bnhe", e1_weights, in_float32(inputs.e1_values))
    return outs + e1_outs, found.addresses, found.entropies
