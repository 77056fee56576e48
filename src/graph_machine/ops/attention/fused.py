"""Edge-augmented attention without its large intermediate tensors; equals `reference.py`.

Queries are projected to edge features, not edges to keys; then one operator does the rest.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from graph_machine.ops import operators
from graph_machine.ops.core import KernelInputs, Packed
from graph_machine.ops.inputs import AttentionInputs, DenseCall, FactorEntropies, entropy_weights
from graph_machine.ops.native.calls import rows
from graph_machine.ops.numerics import in_float32, without_autocast
from graph_machine.ops.own_edges import add_edge_values, own_edges, scaled


def listed_slot_weights(
    queries: Float[Tensor, "b h n d"], keys: Float[Tensor, "b h n k d"]
) -> Float[Tensor, "b n h k"]:
    """Weights over a node's own slots, from projected keys."""
    scores = torch.einsum("bhnd,bhnkd->bnhk", in_float32(queries), in_float32(keys))
    return (scores * queries.shape[-1] ** -0.5).softmax(dim=-1).contiguous()


def node_major_temps(temps: Float[Tensor, "b h n"] | None) -> Float[Tensor, "b n h"] | None:
    return None if temps is None else in_float32(temps).transpose(1, 2)


@without_autocast
def fused_attention(
    inputs: AttentionInputs, packed: tuple[Float[Tensor, " s"], Packed] | None = None
) -> tuple[Float[Tensor, "b h n v"], FactorEntropies]:
    """`packed` are addresses of concatenated graphs; the inputs then have none."""
    queries, keys = inputs.n1_queries, inputs.n2_keys
    e1_weights = scaled_queries = mixed = None
    if inputs.e1_features is not None and inputs.e1_key_weights is not None:
        own = own_edges(
            queries,
            inputs.e1_features,
            inputs.e1_key_weights,
            node=keys is not None,
            node_temps=inputs.node_factor_temps,
            mix=inputs.e1_value_weights is not None,
            given=inputs.given_targets,
            empty=inputs.empty_edge,
        )
        e1_weights, scaled_queries, mixed = own.weights, own.queries, own.mixed
    else:
        if inputs.e1_keys is not None:
            e1_weights = listed_slot_weights(queries, inputs.e1_keys)
        if keys is not None:
            scaled_queries = scaled(queries, inputs.node_factor_temps, queries.shape[-1] ** -0.5)
    edge = e1_weights is not None
    addresses, graphs = (inputs.e1_addresses, None) if packed is None else packed
    values = rows(in_float32(inputs.n2_values))
    kernel = KernelInputs(
        n2_values=values,
        n1_queries=scaled_queries,
        n2_keys=None if keys is None else rows(in_float32(keys)),
        e1_weights=e1_weights,
        e1_addresses=None if addresses is None else in_float32(addresses).contiguous(),
        edge_temps=node_major_temps(inputs.edge_factor_temps) if edge else None,
        mask=inputs.mask,
        entropy_weights=entropy_weights(inputs, values),
        eps=inputs.eps,
        logit_space=inputs.logit_space,
        packed=graphs,
    )
    found = operators.core_attend(with_given(kernel, inputs))
    entropies = entropies_in(found.entropies, inputs.entropies, edge, keys is not None)
    outs = found.features
    if inputs.e1_value_weights is not None and mixed is not None:
        outs = add_edge_values(outs, mixed, inputs.e1_value_weights)
    return outs.transpose(1, 2), entropies


def with_given(kernel: KernelInputs, call: DenseCall) -> KernelInputs:
    """With the edges that have no dense address."""
    targets = call.given_targets
    return kernel._replace(
        given=None if targets is None else targets.to(torch.int32).contiguous(),
        empty=call.empty_edge,
        given_scale=call.given_scale,
    )


def entropies_in(found: Float[Tensor, "2"], asked: bool, edge: bool, node: bool) -> FactorEntropies:
    if not asked:
        return FactorEntropies()
    of_edge, of_node = found.unbind()
    return FactorEntropies(of_edge if edge else None, of_node if node else None)
