"""Edge-centric referral as in the paper's listing (section 2.3, appendix A.2).

b batch, h head = new edge slot, n source node n1, k edge slot of n1 (e1), m intermediate node n2,
l edge slot of n2 (e2), a address target n3, d feature. The listing writes the n2 axis of an
address as `a` in one place; here it is always `m`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from graph_machine.ops.attention.reference import (
    edge_raw_factors,
    factor_entropies,
    scale_by,
    slot_softmax,
    sum_factors,
)
from graph_machine.ops.inputs import NO_EDGE, FactorEntropies, ListedReferral, expanded
from graph_machine.ops.numerics import Tap, in_float32, masked_softmax, silent


@dataclass(frozen=True)
class ReferralFactors:
    """Results of the early stage that referral shares with attention, for the later stages."""

    e1_weights: Float[Tensor, "b h n k"]
    n2_edge_factors: Float[Tensor, "b h n m"] | None
    n2_node_factors: Float[Tensor, "b h n m"] | None

    @property
    def n2_factors(self) -> Float[Tensor, "b h n m"]:
        return sum_factors(self.n2_edge_factors, self.n2_node_factors)


def referral_factors(inputs: ListedReferral, tap: Tap = silent) -> ReferralFactors:
    """e1 weights and the two n2 factors. An expert that is absent is None."""
    queries = inputs.n1_queries
    scale = queries.shape[-1] ** -0.5
    e1_scores = torch.einsum("bhnd,bhnkd->bhnk", queries, inputs.e1_keys) * scale  # b h n k
    e1_weights = tap("e1_weights", slot_softmax(e1_scores, inputs.e1_slots))  # b h n k
    edge_factors = node_factors = None
    if inputs.edge_expert:
        assert inputs.e1_addresses is not None
        raw = edge_raw_factors(
            e1_weights, inputs.e1_addresses, eps=inputs.eps, logit_space=inputs.logit_space
        )
        edge_factors = tap("n2_edge_factors", scale_by(raw, inputs.n2_edge_factor_temps))  # b h n m
    if inputs.n2_keys is not None:
        raw = in_float32(torch.einsum("bhnd,bhmd->bhnm", queries, inputs.n2_keys)) * scale
        node_factors = tap("n2_node_factors", scale_by(raw, inputs.n2_node_factor_temps))  # b h n m
    return ReferralFactors(e1_weights, edge_factors, node_factors)


def e2_factors(inputs: ListedReferral) -> Float[Tensor, "b h n m l"]:
    """F_e2 after its temperature."""
    queries = inputs.n1_queries
    raw = torch.einsum("bhnd,bhmld->bhnml", queries, inputs.e2_keys)
    factors = scale_by(in_float32(raw) * queries.shape[-1] ** -0.5, inputs.e2_factor_temps)
    if inputs.e2_slots is None:
        return factors
    return factors.masked_fill(~inputs.e2_slots[:, None, None], NO_EDGE)


def joint_e2_weights(
    n2_factors: Float[Tensor, "b h n m"],
    e2_factors: Float[Tensor, "b h n m l"],
    mask: Bool[Tensor, "#b #n m"] | None,
) -> Float[Tensor, "b h n m l"]:
    """A_e2: one softmax over all (n2, e2) pairs."""
    e2_logits = n2_factors.unsqueeze(-1) + e2_factors  # b h n m l
    pairs = None
    if mask is not None:
        pairs = mask[:, None, :, :, None].expand(-1, -1, -1, -1, e2_logits.shape[-1]).flatten(-2)
    return masked_softmax(e2_logits.flatten(-2), pairs).reshape(e2_logits.shape)


def conditional_e2_weights(
    n2_factors: Float[Tensor, "b h n m"],
    e2_factors: Float[Tensor, "b h n m l"],
    mask: Bool[Tensor, "#b #n m"] | None,
) -> Float[Tensor, "b h n m l"]:
    """The variant of section 2.3: weights over n2, times weights over e2 given n2."""
    n2_weights = masked_softmax(n2_factors, None if mask is None else mask.unsqueeze(-3))
    return n2_weights.unsqueeze(-1) * e2_factors.softmax(dim=-1)


def collect(
    inputs: ListedReferral,
    e2_weights: Float[Tensor, "b h n m l"],
    n2_weights: Float[Tensor, "b h n m"],
    e1_weights: Float[Tensor, "b h n k"],
) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b h n a"]]:
    """Z_x and Z_p: the values of the chosen chain, and where its last edges point."""
    e1_feature_outs = torch.einsum("bhnk,bhnkd->bhnd", e1_weights, inputs.e1_values)
    n2_feature_outs = torch.einsum("bhnm,bhmd->bhnd", n2_weights, inputs.n2_values)
    e2_feature_outs = torch.einsum("bhnml,bhmld->bhnd", e2_weights, inputs.e2_values)
    feature_outs = e1_feature_outs + n2_feature_outs + e2_feature_outs  # b h n e
    address_outs = torch.einsum("bhnml,bmla->bhna", e2_weights, inputs.e2_addresses)  # b h n a
    return feature_outs, address_outs


def preaggregate(
    inputs: ListedReferral, tap: Tap = silent
) -> tuple[Float[Tensor, "b h m d"], Float[Tensor, "b h m e"], Float[Tensor, "b h m a"]]:
    """Every n2 mixes its own k edges per head, as e1 aggregation does (paper, end of 2.5).

    The weights compare n2's own query with its own e2 keys.
    """
    queries = inputs.n1_queries
    scores = torch.einsum("bhmd,bhmld->bhml", queries, inputs.e2_keys) * queries.shape[-1] ** -0.5
    own_weights = tap("e2_own_weights", slot_softmax(scores, inputs.e2_slots))  # b h m l
    keys = torch.einsum("bhml,bhmld->bhmd", own_weights, inputs.e2_keys)
    values = torch.einsum("bhml,bhmld->bhmd", own_weights, inputs.e2_values)
    addresses = torch.einsum("bhml,bmla->bhma", own_weights, inputs.e2_addresses)
    return keys, values, addresses


def preaggregated_referral(
    inputs: ListedReferral, factors: ReferralFactors, tap: Tap = silent
) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b h n a"]]:
    """Referral over n2 only, where each n2 offers one mixed edge per head: k times less work."""
    keys, values, addresses = preaggregate(inputs, tap)
    queries, mask = inputs.n1_queries, inputs.mask
    raw = torch.einsum("bhnd,bhmd->bhnm", queries, keys)
    e2 = scale_by(in_float32(raw) * queries.shape[-1] ** -0.5, inputs.e2_factor_temps)
    e2 = tap("e2_factors", e2)  # b h n m
    logits = factors.n2_factors + e2
    n2_weights = masked_softmax(logits, None if mask is None else mask.unsqueeze(-3))
    n2_weights = tap("n2_weights", n2_weights)  # b h n m
    e1_feature_outs = torch.einsum("bhnk,bhnkd->bhnd", factors.e1_weights, inputs.e1_values)
    n2_feature_outs = torch.einsum("bhnm,bhmd->bhnd", n2_weights, inputs.n2_values + values)
    address_outs = torch.einsum("bhnm,bhma->bhna", n2_weights, addresses)
    return e1_feature_outs + n2_feature_outs, address_outs


def reference_referral(
    inputs: ListedReferral, tap: Tap = silent
) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b h n a"], FactorEntropies]:
    """The whole op, stage by stage; features and addresses of the new edges, one per head.

    Joint and conditional peak at b*h*n*m*l numbers: 107 MB in float32 at b = 64, n = 81, k = 8.
    """
    inputs = expanded(inputs)
    factors = referral_factors(inputs, tap)
    if inputs.kind == "preaggregated":
        found = preaggregated_referral(inputs, factors, tap)
    else:
        weigh = joint_e2_weights if inputs.kind == "joint" else conditional_e2_weights
        e2 = tap("e2_factors", e2_factors(inputs))  # b h n m l
        e2_weights = tap("e2_weights", weigh(factors.n2_factors, e2, inputs.mask))  # b h n m l
        n2_weights = tap("n2_weights", e2_weights.sum(dim=-1))  # b h n m
        found = collect(inputs, e2_weights, n2_weights, factors.e1_weights)
    both = factors.n2_edge_factors, factors.n2_node_factors
    temps = inputs.n2_edge_factor_temps, inputs.n2_node_factor_temps
    return *found, factor_entropies(inputs, both, temps)
