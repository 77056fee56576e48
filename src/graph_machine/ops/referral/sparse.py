"""Edge-centric referral over sparse addresses: O(n) time and memory (paper, 2.5, second direction).

n1's candidates for n2 are the targets of its own edges. Referral chooses the best few chains per
head without gradients, then evaluates these with gradients, so the backward pass never sees the
other chains. A chain is a pair (n2, e2). In pre-aggregated referral, every n2 first mixes its edges
to one per head; head h of n1 then sees only slot h of n2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops.address.dense import best_indices, to_logits
from graph_machine.ops.address.sparse import Candidates, Entries, keep_best, merge
from graph_machine.ops.attention.reference import scale_by
from graph_machine.ops.attention.sparse import (
    edge_slots,
    flat_rows,
    gathered_scores,
    own_edge_weights,
    slot_order,
)
from graph_machine.ops.inputs import NO_EDGE, ReferralInputs, absorb
from graph_machine.ops.numerics import ADDRESS_EPS, Tap, in_float32, masked_softmax

# Logits of all chains that the choice may hold at a time: 32 MB in float32.
CHOICE_ELEMENTS = 1 << 23


@dataclass(frozen=True)
class SparseSettings:
    """How many entries each operation keeps; None: all stored entries.

    >>> SparseSettings(s=8).s_attention is None
    True
    """

    s: int  # entries of a stored address
    s_attention: int | None = None  # entries per edge that attention may look at
    s_referral: int | None = None  # entries per edge that referral may go through as n2
    chains: int | None = None  # (n2, e2) pairs (pre-aggregated: n2) per head in referral
    gumbel_tau: float = 0.0  # noise on the choice of entries
    eps: float = ADDRESS_EPS

    def __post_init__(self) -> None:
        for name in ("s", "s_attention", "s_referral", "chains"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"sparse space: {name} should be at least 1, got {value}.")
        if self.gumbel_tau < 0:
            raise ConfigError(
                f"sparse space: gumbel_tau should not be negative, got {self.gumbel_tau}."
            )

    def keep(self, entries: Entries) -> Entries:
        """The best entries of a new address."""
        return keep_best(entries, self.s, self.gumbel_tau, self.eps)


class SparseFactors(NamedTuple):
    """Early stage, over candidates. Factors have gradients only with `whole`."""

    mixed: Float[Tensor, "b h n c"] | None  # mass of each candidate, always with gradients
    edge: Float[Tensor, "b h n c"] | None
    node: Float[Tensor, "b h n c"] | None

    @property
    def summed(self) -> Float[Tensor, "b h n c"]:
        if self.edge is None or self.node is None:
            found = self.node if self.edge is None else self.edge
            assert found is not None, "referral needs at least one expert"
            return found
        return self.edge + self.node


class Chains(NamedTuple):
    """Chosen chains of every head and node."""

    slots: Int[Tensor, "b h n r"]  # which candidate is n2
    edges: Int[Tensor, "b h n r"]  # which edge of n2 is e2
    valid: Bool[Tensor, "b h n r"]


class Offered(NamedTuple):
    """The edges that every n2 offers: its own, or a mixture of its own for each head."""

    features: Float[Tensor, "b m l e"]
    addresses: Entries  # b m l s


# Shows a listener the weights (b, h, n, r) of chains; gives back those to continue with, and the
# weights of all n2 (b, h, n, m).
ChainReport = Callable[[Tensor, Chains], tuple[Tensor, Tensor]]


def sparse_factors(
    inputs: ReferralInputs,
    e1_weights: Float[Tensor, "b h n t"],
    e1: Candidates,
    *,
    eps: float,
    whole: bool,
    fused: bool = False,
) -> SparseFactors:
    """Both n2 factors over candidates.

    Without `whole` they only serve the choice and have no gradients; `chain_n2_factors` computes
    them again for the chosen chains.
    """
    edge = node = None
    mixed = e1.mix(e1_weights) if inputs.edge_expert else None
    with torch.set_grad_enabled(torch.is_grad_enabled() and whole):
        if mixed is not None:
            edge = scale_by(to_logits(mixed, eps), inputs.n2_edge_factor_temps)
        if inputs.n2_keys is not None:
            raw = gathered_scores(inputs.n1_queries, inputs.n2_keys, e1.indices, fused=fused)
            node = scale_by(raw * inputs.n1_queries.shape[-1] ** -0.5, inputs.n2_node_factor_temps)
    return SparseFactors(mixed, edge, node)


def e2_queries(inputs: ReferralInputs) -> Float[Tensor, "b h n e"]:
    """Queries that meet raw e2 features, with scale and temperature in them."""
    queries = in_float32(absorb(inputs.n1_queries, inputs.e2_key_weights))
    return scale_by(queries * inputs.n1_queries.shape[-1] ** -0.5, inputs.e2_factor_temps)


@torch.no_grad()
def choose_pairs(
    inputs: ReferralInputs,
    n2_factors: Float[Tensor, "b h n c"],
    queries: Float[Tensor, "b h n e"],
    e1: Candidates,
    limit: int | None,
) -> Chains:
    """The best `limit` pairs (n2, e2) per head by their logits; None takes all of them."""
    (b, h, n, c), features = n2_factors.shape, inputs.edge_features
    t, there, order = features.shape[2], edge_slots(inputs, features), slot_order(inputs, features)
    rows = flat_rows(e1.indices, features.shape[1]).flatten(0, 1)  # bn c
    pairs = edges = rows.new_zeros(0)
    if there is not None and order is not None:
        edges = order.flatten(0, 1)[rows]  # bn c l
        pairs = (e1.valid.flatten(0, 1).unsqueeze(-1) & there.flatten(0, 1)[rows]).gather(-1, edges)

    def chosen(best: Int[Tensor, "b h n r"]) -> Chains:
        slots = best // t
        if there is None:
            valid = e1.valid.unsqueeze(1).expand(b, h, n, c)
            return Chains(slots, best % t, valid.gather(-1, slots))
        found = (x.flatten(1).unflatten(0, (b, 1, n)).expand(b, h, n, -1) for x in (edges, pairs))
        return Chains(slots, *(x.gather(-1, best) for x in found))

    if limit is None or limit >= c * t:
        return chosen(torch.arange(c * t, device=features.device).expand(b, h, n, -1))
    table = in_float32(features).flatten(0, 1).flatten(1)  # bn le
    factors = n2_factors.masked_fill(~e1.valid.unsqueeze(1), -torch.inf)
    factors = factors.transpose(1, 2).flatten(0, 1)  # bn h c
    flat_queries = queries.transpose(1, 2).flatten(0, 1)  # bn h e
    best = torch.empty(b * n, h, limit, dtype=torch.long, device=features.device)
    step = max(1, CHOICE_ELEMENTS // (h * c * t))
    for start in range(0, b * n, step):
        part = slice(start, start + step)
        found = table.index_select(0, rows[part].flatten()).reshape(-1, c * t, features.shape[-1])
        logits = in_float32(torch.bmm(flat_queries[part], found.mT)).unflatten(-1, (c, t))
        if there is not None:
            logits = logits.gather(-1, edges[part].unsqueeze(1).expand_as(logits))
            logits = logits.masked_fill(~pairs[part].unsqueeze(1), NO_EDGE)
        if inputs.kind == "conditional":
            logits = logits.log_softmax(dim=-1)
        logits += factors[part].unsqueeze(-1)
        best[part] = best_indices(logits.flatten(-2), limit)
    return chosen(best.unflatten(0, (b, n)).transpose(1, 2))


@torch.no_grad()
def choose_nodes(
    n2_factors: Float[Tensor, "b h n c"],
    queries: Float[Tensor, "b h n e"],
    offered: Offered,
    e1: Candidates,
    limit: int | None,
    fused: bool,
) -> Chains:
    """The best n2 per head, each with the edge that it offers to this head."""
    b, h, n, c = n2_factors.shape
    keys = offered.features.transpose(1, 2)
    logits = n2_factors + gathered_scores(queries, keys, e1.indices, fused=fused)
    valid = e1.valid.unsqueeze(1).expand(b, h, n, c)
    slots = torch.arange(c, device=logits.device).expand(b, h, n, c)
    if limit is not None and limit < c:
        slots = best_indices(logits.masked_fill(~valid, -torch.inf), limit)
    heads = torch.arange(h, device=logits.device)[:, None, None]
    return Chains(slots, heads.expand_as(slots), valid.gather(-1, slots))


def take(
    table: Float[Tensor, "rows d"], rows: Int[Tensor, "b h n r"]
) -> Float[Tensor, "b h n r d"]:
    return table.index_select(0, rows.flatten()).unflatten(0, rows.shape)


def take_heads(
    x: Float[Tensor, "b h m d"], nodes: Int[Tensor, "b h n r"]
) -> Float[Tensor, "b h n r d"]:
    """Rows of flat nodes, each head its own."""
    heads = torch.arange(x.shape[1], device=x.device)[:, None, None]
    table = in_float32(x).transpose(1, 2).flatten(0, 2)
    return take(table, nodes * x.shape[1] + heads)


def chain_n2_factors(
    inputs: ReferralInputs,
    factors: SparseFactors,
    chains: Chains,
    nodes: Int[Tensor, "b h n r"],
    eps: float,
    whole: bool,
) -> Float[Tensor, "b h n r"]:
    """n2 factors of the chosen chains, with gradients."""
    if whole:
        return factors.summed.gather(-1, chains.slots)
    total = None
    if factors.mixed is not None:
        logits = to_logits(factors.mixed.gather(-1, chains.slots), eps)
        total = scale_by(logits, inputs.n2_edge_factor_temps)
    if inputs.n2_keys is not None:
        keys = take_heads(inputs.n2_keys, nodes)  # b h n r d
        scores = torch.einsum("bhnrd,bhnd->bhnr", keys, in_float32(inputs.n1_queries))
        scores = scores * inputs.n1_queries.shape[-1] ** -0.5
        node = scale_by(scores, inputs.n2_node_factor_temps)
        total = node if total is None else total + node
    assert total is not None, "referral needs at least one expert"
    return total


def refer_chains(
    inputs: ReferralInputs,
    factors: SparseFactors,
    e1: Candidates,
    offered: Offered,
    limits: SparseSettings,
    *,
    whole: bool,
    fused: bool,
    report: ChainReport | None = None,
) -> tuple[Float[Tensor, "b h n e"], Entries]:
    """Features and addresses of new edges: chains are chosen by their full logit, then mixed."""
    features, num_nodes = in_float32(offered.features), offered.features.shape[1]
    queries = e2_queries(inputs)
    if inputs.kind == "preaggregated":
        chains = choose_nodes(factors.summed, queries, offered, e1, limits.chains, fused)
    else:
        chains = choose_pairs(inputs, factors.summed, queries, e1, limits.chains)
    rows = flat_rows(e1.indices, num_nodes).unsqueeze(1)
    nodes = rows.expand(*chains.slots.shape[:3], -1).gather(-1, chains.slots)  # b h n r
    logits = chain_n2_factors(inputs, factors, chains, nodes, limits.eps, whole)
    pairs = nodes * features.shape[2] + chains.edges
    edges = take(features.flatten(0, 2), pairs)  # b h n r e
    if inputs.kind == "conditional":
        # Over all edges of n2: of every chain's, or of every candidate, where these are fewer.
        t, count = features.shape[2], chains.slots.shape[-1]
        by_chain = count <= rows.shape[-1]
        places = torch.arange(count, device=rows.device) if by_chain else chains.slots
        seen = nodes if by_chain else rows.expand(*nodes.shape[:3], -1)
        all_e2 = take(features.flatten(0, 1).flatten(1), seen).unflatten(-1, (t, -1))
        scores = (all_e2 * queries[..., None, None, :]).sum(dim=-1)  # b h n r l
        there = edge_slots(inputs, features)
        if there is not None:
            scores = scores.masked_fill(~there.flatten(0, 1)[seen], NO_EDGE)
        found = scores.log_softmax(dim=-1).flatten(-2).gather(-1, places * t + chains.edges)
    else:
        found = torch.einsum("bhnre,bhne->bhnr", edges, queries)
    weights = masked_softmax(logits + found, chains.valid)  # b h n r
    if report is None:
        outs = torch.einsum("bhnr,bhnre->bhne", weights, take_heads(inputs.n2_values, nodes))
    else:
        weights, n2_weights = report(weights, chains)
        outs = torch.einsum("bhnm,bhme->bhne", n2_weights, in_float32(inputs.n2_values))
    mixed_edges = torch.einsum("bhnr,bhnre->bhne", weights, edges)
    outs = outs + project(mixed_edges, inputs.e2_value_weights)
    indices, masses = (x.flatten(0, 2) for x in offered.addresses)
    indices = indices.index_select(0, pairs.flatten()).unflatten(0, pairs.shape)
    indices = indices.masked_fill(~chains.valid.unsqueeze(-1), -1)
    masses = take(masses, pairs) * weights.unsqueeze(-1)  # b h n r s
    return outs, limits.keep(merge(Entries(indices.flatten(-2), masses.flatten(-2))))


def preaggregate_sparse(
    inputs: ReferralInputs, targets: Candidates, limits: SparseSettings, tap: Tap, fused: bool
) -> Offered:
    """Every n2 mixes its own edges per head: features, and s entries of address."""
    features = inputs.edge_features
    own = own_edge_weights(inputs, features, inputs.e2_key_weights, fused=fused)
    own = tap("e2_own_weights", own)  # b h m l
    mixed = torch.einsum("bhml,bmle->bmhe", own, in_float32(features))
    masses = targets.mix(own).transpose(1, 2)  # b m h c
    indices = targets.indices.unsqueeze(2).expand(masses.shape)
    return Offered(mixed, limits.keep(Entries(indices, masses)))


def project(x: Float[Tensor, "b h n e"], weights: Float[Tensor, "h d e"]) -> Tensor:
    return torch.einsum("bhne,hde->bhnd", x, weights.to(x.dtype))


def e1_outs(
    inputs: ReferralInputs, e1_weights: Float[Tensor, "b h n t"]
) -> Float[Tensor, "b h n e"]:
    """What e1 itself carries, projected after mixing."""
    mixed = torch.einsum("bhnk,bnke->bhne", e1_weights, in_float32(inputs.edge_features))
    return project(mixed, inputs.e1_value_weights)
