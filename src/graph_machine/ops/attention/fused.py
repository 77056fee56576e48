"""Edge-augmented attention without its large intermediate tensors; equals `reference.py`.

Queries are projected to the edge features, not edges to keys; then one operator does the rest.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from graph_machine.ops import operators, triton
from graph_machine.ops.attention import chunked
from graph_machine.ops.backend import register
from graph_machine.ops.core import AttendInputs
from graph_machine.ops.inputs import AttentionInputs, FactorEntropies, entropy_weights
from graph_machine.ops.native import calls
from graph_machine.ops.native.calls import rows
from graph_machine.ops.numerics import in_float32, without_autocast
from graph_machine.ops.own_edges import prepare, scaled

register("attention", "native", calls.ATTENTION)
register("attention", "triton", triton.ATTENTION)
register("attention", "chunked", chunked.ATTENTION)


def listed_slot_weights(
    queries: Float[Tensor, "b h n d"], keys: Float[Tensor, "b h n k d"]
) -> Float[Tensor, "b n h k"]:
    """Weights over a node's own slots from materialised keys."""
    scores = torch.einsum("bhnd,bhnkd->bnhk", in_float32(queries), in_float32(keys))
    return (scores * queries.shape[-1] ** -0.5).softmax(dim=-1).contiguous()


def node_major_temps(temps: Float[Tensor, "b h n"] | None) -> Float[Tensor, "b n h"] | None:
    return None if temps is None else in_float32(temps).transpose(1, 2)


@without_autocast
def attend(inputs: AttentionInputs) -> tuple[Float[Tensor, "b h n v"], FactorEntropies]:
    queries, keys = inputs.n1_queries, inputs.n2_keys
    e1_weights = scaled_queries = None
    if inputs.e1_features is not None and inputs.e1_key_weights is not None:
        ready = prepare(
            queries,
            inputs.e1_features,
            inputs.e1_key_weights,
            node=keys is not None,
            node_temps=inputs.node_factor_temps,
            mix=False,
        )
        e1_weights, scaled_queries = ready.weights, ready.queries
    else:
        if inputs.e1_keys is not None:
            e1_weights = listed_slot_weights(queries, inputs.e1_keys)
        if keys is not None:
            scaled_queries = scaled(queries, inputs.node_factor_temps, queries.shape[-1] ** -0.5)
    edge, addresses = e1_weights is not None, inputs.e1_addresses
    values = rows(in_float32(inputs.n2_values))
    found = operators.attention(
        AttendInputs(
            e1_weights=e1_weights,
            e1_addresses=None if addresses is None else in_float32(addresses).contiguous(),
            edge_temps=node_major_temps(inputs.edge_factor_temps) if edge else None,
            n1_queries=scaled_queries,
            n2_keys=None if keys is None else rows(in_float32(keys)),
            n2_values=values,
            mask=inputs.mask,
            entropy_weights=entropy_weights(inputs, values),
            eps=inputs.eps,
            logit_space=inputs.logit_space,
        )
    )
    entropies = entropies_of(found.entropies, inputs.entropies, edge, keys is not None)
    return found.features.transpose(1, 2), entropies


def entropies_of(found: Float[Tensor, "2"], asked: bool, edge: bool, node: bool) -> FactorEntropies:
    return FactorEntropies(
        found[0] if asked and edge else None, found[1] if asked and node else None
    )
