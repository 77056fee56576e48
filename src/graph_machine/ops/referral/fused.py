"""Edge-centric referral without its large intermediate tensors; equals `reference.py`.

In a layer, keys and values of edges are never computed: queries are projected down to edge
features, and weights collect raw edge features, which are projected afterwards (one small product
each).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from graph_machine.ops import operators
from graph_machine.ops.attention.fused import (
    entropies_in,
    listed_slot_weights,
    node_major_temps,
    with_given,
)
from graph_machine.ops.core import KernelInputs, Packed
from graph_machine.ops.inputs import (
    FactorEntropies,
    ListedReferral,
    ReferralCall,
    ReferralInputs,
    entropy_weights,
)
from graph_machine.ops.native.calls import rows
from graph_machine.ops.numerics import in_float32, without_autocast
from graph_machine.ops.own_edges import add_edge_values, own_edges, scaled

PackedPair = tuple[Tensor, Tensor, Packed]  # addresses of e1 and of e2, of graphs in a row


@without_autocast
def fused_referral(
    inputs: ReferralInputs | ListedReferral, packed: PackedPair | None = None
) -> tuple[Float[Tensor, "b n h e"], Float[Tensor, "..."], FactorEntropies]:
    """Features and addresses (b, n, h, a) have the new slots as the second to last axis.

    With `packed` addresses, of which the inputs then have none, the new ones are packed, too.
    """
    listed = isinstance(inputs, ListedReferral)
    features, addresses, found = _refer_listed(inputs) if listed else _refer(inputs, packed)
    present = inputs.edge_expert, inputs.n2_keys is not None
    return features, addresses, entropies_in(found, inputs.entropies, *present)


def _refer(inputs: ReferralInputs, packed: PackedPair | None) -> tuple[Tensor, Tensor, Tensor]:
    features = in_float32(inputs.edge_features)
    own = own_edges(
        inputs.n1_queries,
        features,
        inputs.e1_key_weights,
        node=inputs.n2_keys is not None,
        node_temps=inputs.n2_node_factor_temps,
        e2_weights=inputs.e2_key_weights,
        e2_temps=inputs.e2_factor_temps,
        own=inputs.kind == "preaggregated",
        given=inputs.given_targets,
        empty=inputs.empty_edge,
    )
    assert own.mixed is not None
    given = _factors(inputs, own.weights, own.queries, packed)
    given = given._replace(e2_queries=own.e2_queries)
    if inputs.kind == "preaggregated":
        assert own.own_mixed is not None
        carried = add_edge_values(
            given.n2_values.transpose(1, 2), own.own_mixed, inputs.e2_value_weights
        )
        # A mixed key is W (own mix of edges), so the absorbed query meets the mix itself.
        kernel = given._replace(
            n2_values=carried.transpose(1, 2),
            e2_keys=own.own_mixed.transpose(1, 2).unsqueeze(3),
            own_weights=own.own_weights,
        )
        found = operators.core_attend(with_given(kernel, inputs))
        outs = add_edge_values(found.features, own.mixed, inputs.e1_value_weights)
        return outs, found.addresses, found.entropies
    flat = features.unsqueeze(1).contiguous()  # b 1 m l e
    kernel = given._replace(e2_keys=flat, e2_values=flat)
    found = operators.core_attend(with_given(kernel, inputs))
    weights = (inputs.e1_value_weights, found.e2, inputs.e2_value_weights)
    return add_edge_values(found.features, own.mixed, *weights), found.addresses, found.entropies


def _factors(
    inputs: ReferralCall,
    e1_weights: Tensor,
    queries: Tensor | None,
    packed: PackedPair | None = None,
) -> KernelInputs:
    """All but e2; `queries` are those of the node expert, scaled."""
    edge, keys = inputs.edge_expert, inputs.n2_keys
    addresses, collected, graphs = packed or (inputs.e1_addresses, inputs.e2_addresses, None)
    assert addresses is not None
    assert collected is not None
    values = rows(in_float32(inputs.n2_values))
    return KernelInputs(
        n2_values=values,
        n1_queries=queries,
        n2_keys=None if keys is None else rows(in_float32(keys)),
        e1_weights=e1_weights if edge else None,
        e1_addresses=in_float32(addresses).contiguous() if edge else None,
        edge_temps=node_major_temps(inputs.n2_edge_factor_temps) if edge else None,
        e2_addresses=in_float32(collected).contiguous(),
        mask=inputs.mask,
        entropy_weights=entropy_weights(inputs, values),
        eps=inputs.eps,
        logit_space=inputs.logit_space,
        conditional=inputs.kind == "conditional",
        packed=graphs,
    )


def _refer_listed(inputs: ListedReferral) -> tuple[Tensor, Tensor, Tensor]:
    """With keys and values given per edge and head."""
    queries, scale = inputs.n1_queries, inputs.n1_queries.shape[-1] ** -0.5
    e1_weights = listed_slot_weights(queries, inputs.e1_keys)  # b n h k
    node = inputs.n2_keys is not None
    n1_queries = scaled(queries, inputs.n2_node_factor_temps, scale) if node else None
    e2_queries = scaled(queries, inputs.e2_factor_temps, scale).transpose(1, 2).contiguous()
    given = _factors(inputs, e1_weights, n1_queries)._replace(e2_queries=e2_queries)
    e2_keys, e2_values = in_float32(inputs.e2_keys), in_float32(inputs.e2_values)
    if inputs.kind == "preaggregated":
        own_weights = listed_slot_weights(queries, e2_keys)  # b m h l
        values = given.n2_values + torch.einsum("bmhl,bhmle->bhme", own_weights, e2_values)
        mixed_keys = torch.einsum("bmhl,bhmld->bhmd", own_weights, e2_keys).contiguous()
        found = operators.core_attend(
            given._replace(
                n2_values=values.contiguous(),
                e2_keys=mixed_keys.unsqueeze(3),
                own_weights=own_weights,
            )
        )
        outs = found.features
    else:
        found = operators.core_attend(
            given._replace(e2_keys=e2_keys.contiguous(), e2_values=e2_values.contiguous())
        )
        outs = found.features + found.e2
    e1_outs = torch.einsum("bnhk,bhnke->bnhe", e1_weights, in_float32(inputs.e1_values))
    return outs + e1_outs, found.addresses, found.entropies
