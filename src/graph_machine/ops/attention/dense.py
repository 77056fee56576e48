"""Edge-augmented attention by the fused ops; equals `reference.py`."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from graph_machine.ops.fused import fused_attention
from graph_machine.ops.fused.heads import entropy_weights, node_major_temps, scaled
from graph_machine.ops.fused.native.calls import rows
from graph_machine.ops.fused.slots import prepare
from graph_machine.ops.inputs import AttentionInputs, FactorEntropies
from graph_machine.ops.numerics import ADDRESS_EPS, in_float32, without_autocast


def listed_slot_weights(
    queries: Float[Tensor, "b h n d"], keys: Float[Tensor, "b h n k d"]
) -> Float[Tensor, "b n h k"]:
    """The same from materialised keys."""
    scores = torch.einsum("bhnd,bhnkd->bnhk", in_float32(queries), in_float32(keys))
    return (scores * queries.shape[-1] ** -0.5).softmax(dim=-1).contiguous()


def entropies_of(found: Float[Tensor, "2"], asked: bool, edge: bool, node: bool) -> FactorEntropies:
    return FactorEntropies(
        found[0] if asked and edge else None, found[1] if asked and node else None
    )


@without_autocast
def attend(
    inputs: AttentionInputs,
    addresses: Float[Tensor, "b n k m"] | None,
    mask: Bool[Tensor, "#b #n m"] | None,
    *,
    eps: float = ADDRESS_EPS,
    logit_space: bool = False,
    entropies: bool = False,
    sources: Bool[Tensor, "b n"] | None = None,
) -> tuple[Float[Tensor, "b h n v"], FactorEntropies]:
    """Attention of a layer: queries are projected to the edge features, not edges to keys."""
    queries, node = inputs.n1_queries, inputs.n2_keys is not None
    e1_weights = None
    if addresses is not None:
        assert inputs.e1_features is not None
        assert inputs.e1_key_weights is not None
        temps = inputs.node_factor_temps
        found = prepare(
            queries, inputs.e1_features, inputs.e1_key_weights, node=node, node_temps=temps
        )
        queries, e1_weights = found.queries, found.weights
    elif node:
        queries = scaled(queries, inputs.node_factor_temps, queries.shape[-1] ** -0.5)
    where = (e1_weights, queries if node else None)
    return _attend(*where, inputs, addresses, mask, eps, logit_space, entropies, sources)


def _attend(
    e1_weights: Tensor | None,
    queries: Tensor | None,
    inputs: AttentionInputs,
    addresses: Tensor | None,
    mask: Tensor | None,
    eps: float,
    logit_space: bool,
    entropies: bool,
    sources: Tensor | None,
) -> tuple[Tensor, FactorEntropies]:
    """`queries` are those of the node expert, scaled; None without it."""
    keys = inputs.n2_keys
    b, h, n, _ = inputs.n1_queries.shape
    values = rows(in_float32(inputs.n2_values))
    m = values.shape[2]
    ask = entropy_weights((b, h, n, m), mask, sources, values) if entropies else None
    outs, _, found, _ = fused_attention(
        e1_weights,
        None if addresses is None else in_float32(addresses).contiguous(),
        None if addresses is None else node_major_temps(inputs.edge_factor_temps),
        queries,
        None if keys is None else rows(in_float32(keys)),
        values,
        None,
        None,
        None,
        None,
        mask,
        ask,
        eps,
        logit_space,
    )
    return outs.transpose(1, 2), entropies_of(
        found, entropies, addresses is not None, keys is not None
    )


@without_autocast
def edge_augmented_attention(
    *,
    n1_queries: Float[Tensor, "b h n d"],
    edge_factor_temps: Float[Tensor, "b h n"] | None,
    node_factor_temps: Float[Tensor, "b h n"] | None,
    e1_keys: Float[Tensor, "b h n k d"] | None,
    e1_addresses: Float[Tensor, "b n k m"] | None,
    n2_keys: Float[Tensor, "b h m d"] | None,
    n2_values: Float[Tensor, "b h m v"],
    mask: Bool[Tensor, "#b #n m"] | None,
    eps: float,
) -> Float[Tensor, "b h n v"]:
    """The listing's interface, with keys given per edge and head."""
    inputs = AttentionInputs(
        n1_queries, n2_values, n2_keys, None, None, edge_factor_temps, node_factor_temps
    )
    e1_weights = None if e1_keys is None else listed_slot_weights(n1_queries, e1_keys)
    queries = None
    if n2_keys is not None:
        queries = scaled(n1_queries, node_factor_temps, n1_queries.shape[-1] ** -0.5)
    return _attend(e1_weights, queries, inputs, e1_addresses, mask, eps, False, False, None)[0]
