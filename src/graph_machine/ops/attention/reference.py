"""Edge-augmented attention as in the paper's listing (section 2.2, appendix A.1).

b batch, h head, n source node n1, k edge slot of n1, m attended node n2, d feature.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from graph_machine.ops.address.dense import factor_entropy, to_logits
from graph_machine.ops.inputs import AttentionInputs, DenseCall, FactorEntropies, expanded
from graph_machine.ops.numerics import ADDRESS_EPS, Tap, in_float32, masked_softmax, silent


def edge_raw_factors(
    e1_weights: Float[Tensor, "b h n k"],
    e1_addresses: Float[Tensor, "b n k m"],
    *,
    eps: float = ADDRESS_EPS,
    logit_space: bool = False,
) -> Float[Tensor, "b h n m"]:
    """F_edge: the mixture of edge addresses, in logit space.

    Logit addresses are mixed directly, which is a product of experts instead of a mixture.
    """
    mixed = torch.einsum("bhnk,bnkm->bhnm", e1_weights, e1_addresses)
    return in_float32(mixed) if logit_space else to_logits(mixed, eps)


def scale_by(
    raw_factors: Float[Tensor, "b h n *rest"], temps: Float[Tensor, "b h n"] | None
) -> Float[Tensor, "b h n *rest"]:
    """Factors after their temperatures; without temperatures, the raw factors."""
    if temps is None:
        return raw_factors
    return raw_factors * temps.reshape(*temps.shape, *([1] * (raw_factors.ndim - temps.ndim)))


def slot_softmax(
    scores: Float[Tensor, "b h n k"], slots: Bool[Tensor, "b n k"] | None
) -> Float[Tensor, "b h n k"]:
    """Weights over those of a node's own slots that hold an edge."""
    return masked_softmax(in_float32(scores), None if slots is None else slots.unsqueeze(1))


def own_edge_values(
    inputs: AttentionInputs, e1_weights: Float[Tensor, "b h n k"]
) -> Float[Tensor, "b h n v"]:
    """What a node reads from its own edges, in addition to the values of n2."""
    assert inputs.e1_features is not None
    assert inputs.e1_value_weights is not None
    mixed = torch.einsum("bhnk,bnke->bhne", e1_weights, in_float32(inputs.e1_features))
    return torch.einsum("bhne,hve->bhnv", mixed, in_float32(inputs.e1_value_weights))


def attention_factors(
    inputs: AttentionInputs, tap: Tap = silent
) -> tuple[
    Float[Tensor, "b h n k"] | None,
    Float[Tensor, "b h n m"] | None,
    Float[Tensor, "b h n m"] | None,
]:
    """e1 weights, then edge and node factors after their temperatures.

    An expert without keys is None.
    """
    queries, e1_keys = inputs.n1_queries, inputs.listed_e1_keys
    scale = queries.shape[-1] ** -0.5
    e1_weights = edge_factors = node_factors = None
    if e1_keys is not None and inputs.e1_addresses is not None:
        e1_scores = torch.einsum("bhnd,bhnkd->bhnk", queries, e1_keys) * scale  # b h n k
        e1_weights = tap("e1_weights", slot_softmax(e1_scores, inputs.e1_slots))  # b h n k
        raw = edge_raw_factors(
            e1_weights, inputs.e1_addresses, eps=inputs.eps, logit_space=inputs.logit_space
        )
        edge_factors = tap("edge_factors", scale_by(raw, inputs.edge_factor_temps))  # b h n m
    if inputs.n2_keys is not None:
        raw = in_float32(torch.einsum("bhnd,bhmd->bhnm", queries, inputs.n2_keys)) * scale
        node_factors = tap("node_factors", scale_by(raw, inputs.node_factor_temps))  # b h n m
    return e1_weights, edge_factors, node_factors


def attention_weights(
    edge_factors: Float[Tensor, "b h n m"] | None,
    node_factors: Float[Tensor, "b h n m"] | None,
    mask: Bool[Tensor, "#b #n m"] | None,
) -> Float[Tensor, "b h n m"]:
    """The product of experts: softmax of the summed factors."""
    logits = sum_factors(edge_factors, node_factors)  # b h n m
    return masked_softmax(logits, None if mask is None else mask.unsqueeze(-3))


def sum_factors(
    edge_factors: Float[Tensor, "b h n m"] | None, node_factors: Float[Tensor, "b h n m"] | None
) -> Float[Tensor, "b h n m"]:
    if edge_factors is None:
        assert node_factors is not None, "attention needs at least one expert"
        return node_factors
    return edge_factors if node_factors is None else edge_factors + node_factors


def reference_attention(
    inputs: AttentionInputs, tap: Tap = silent
) -> tuple[Float[Tensor, "b h n v"], FactorEntropies]:
    """The whole op, stage by stage."""
    inputs = expanded(inputs)
    e1_weights, edge_factors, node_factors = attention_factors(inputs, tap)
    weights = tap("weights", attention_weights(edge_factors, node_factors, inputs.mask))
    outs = torch.einsum("bhnm,bhmd->bhnd", weights, inputs.n2_values)
    if inputs.e1_value_weights is not None and e1_weights is not None:
        outs = outs + own_edge_values(inputs, e1_weights)
    temps = inputs.edge_factor_temps, inputs.node_factor_temps
    return outs, factor_entropies(inputs, (edge_factors, node_factors), temps)


def factor_entropies(
    inputs: DenseCall, factors: tuple[Tensor | None, ...], temps: tuple[Tensor | None, ...]
) -> FactorEntropies:
    """Entropies of the edge and the node factors after their temperatures, or before (`raw`).

    Temperatures are divided out again, because taps get (and may replace) factors after them.
    """
    if not inputs.entropies:
        return FactorEntropies()
    found = []
    for factor, temp in zip(factors, temps):
        if factor is not None and temp is not None and inputs.raw_entropies:
            factor = factor / in_float32(temp).unsqueeze(-1)
        found.append(
            None if factor is None else factor_entropy(factor, inputs.mask, inputs.sources)
        )
    return FactorEntropies(*found)
