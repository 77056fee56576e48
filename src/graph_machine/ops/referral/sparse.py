"""Edge-centric referral over sparse addresses: O(n) time and memory (paper, 2.5, second direction).

n1's candidates for n2 are the targets of its own edges. Referral chooses the best few chains per
head without gradients, then evaluates the chosen ones with gradients, so backward never sees the
chains that lost. A chain is a pair (n2, e2), or only an n2 in the pre-aggregated kind.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.ops.address.dense import best_indices, to_logits
from graph_machine.ops.address.sparse import Candidates, Entries, candidates, keep_best, merge
from graph_machine.ops.attention.reference import scale_by
from graph_machine.ops.attention.sparse import flat_rows, gathered_scores, own_edge_weights
from graph_machine.ops.inputs import ReferralInputs, absorb
from graph_machine.ops.numerics import ADDRESS_EPS, Tap, in_float32, masked_softmax, silent

# Logits of all chains that the choice may hold at a time: 32 MB in float32.
CHOICE_ELEMENTS = 1 << 23


@dataclass(frozen=True)
class SparseLimits:
    """How much referral keeps; None is everything."""

    s: int  # entries of a new address
    chains: int | None = None  # chains per head
    tau: float = 0.0  # Gumbel noise on the choice of entries
    eps: float = ADDRESS_EPS
    fused: bool = False  # C kernels where they serve


class SparseFactors(NamedTuple):
    """Early stage, over candidates. Factors carry gradients only if `whole` was asked for."""

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
    edges: Int[Tensor, "b h n r"] | None  # which edge of n2 is e2; None: n2's mixed edge
    valid: Bool[Tensor, "b h n r"]


class MixedEdges(NamedTuple):
    """The one edge per head that a node offers in pre-aggregated referral."""

    keys: Float[Tensor, "b h m d"]
    values: Float[Tensor, "b h m e"]
    addresses: Entries  # b h m s


class Collected(NamedTuple):
    """What the chosen chains carry from n2 and e2, and where they point."""

    features: Float[Tensor, "b h n e"]
    addresses: Entries  # b h n s


# Shows a listener the weights (b, h, n, r) of chains; gives back those to continue with, and the
# weights of all n2 (b, h, n, m).
ChainReport = Callable[[Tensor, Chains], tuple[Tensor, Tensor]]


def sparse_factors(
    inputs: ReferralInputs,
    e1_weights: Float[Tensor, "b h n k"],
    e1: Candidates,
    *,
    eps: float,
    whole: bool,
    fused: bool = False,
) -> SparseFactors:
    """Both n2 factors over candidates.

    Without `whole` they are for choosing only and are made without gradients: what the chosen
    chains need is made again in `chain_n2_factors`.
    """
    edge = node = mixed = None
    if inputs.edge_expert:
        mixed = torch.einsum("bhnk,bnkc->bhnc", e1_weights, e1.masses)
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
    n2_factors: Float[Tensor, "b h n c"],
    queries: Float[Tensor, "b h n e"],
    features: Float[Tensor, "b m l e"],
    e1: Candidates,
    limit: int | None,
    conditional: bool,
) -> Chains:
    """The best `limit` pairs (n2, e2) per head by their logits; None takes all of them."""
    b, h, n, c = n2_factors.shape
    k = features.shape[2]
    if limit is None or limit >= c * k:
        every = torch.arange(c * k, device=features.device)
        slots = (every // k).expand(b, h, n, -1)
        valid = e1.valid.unsqueeze(1).expand(b, h, n, c).repeat_interleave(k, dim=-1)
        return Chains(slots, (every % k).expand(b, h, n, -1), valid)
    rows = flat_rows(e1.indices, n).flatten(0, 1)  # bn c
    table = in_float32(features).flatten(0, 1).flatten(1)  # bn le
    factors = n2_factors.masked_fill(~e1.valid.unsqueeze(1), -torch.inf)
    factors = factors.transpose(1, 2).flatten(0, 1)  # bn h c
    flat_queries = queries.transpose(1, 2).flatten(0, 1)  # bn h e
    best = torch.empty(b * n, h, limit, dtype=torch.long, device=features.device)
    step = max(1, CHOICE_ELEMENTS // (h * c * k))
    for start in range(0, b * n, step):
        part = slice(start, start + step)
        edges = table.index_select(0, rows[part].flatten()).reshape(-1, c * k, features.shape[-1])
        logits = torch.bmm(flat_queries[part], edges.mT).unflatten(-1, (c, k))  # i h c l
        if conditional:
            logits = logits.log_softmax(dim=-1)
        logits += factors[part].unsqueeze(-1)
        best[part] = best_indices(logits.flatten(-2), limit)
    best = best.unflatten(0, (b, n)).transpose(1, 2)  # b h n r
    slots = best // k
    valid = e1.valid.unsqueeze(1).expand(b, h, n, c).gather(-1, slots)
    return Chains(slots, best % k, valid)


@torch.no_grad()
def choose_nodes(logits: Float[Tensor, "b h n c"], e1: Candidates, limit: int | None) -> Chains:
    """The best `limit` n2 per head; None takes all candidates."""
    b, h, n, c = logits.shape
    valid = e1.valid.unsqueeze(1).expand(b, h, n, c)
    if limit is None or limit >= c:
        return Chains(torch.arange(c, device=logits.device).expand(b, h, n, c), None, valid)
    filled = logits.masked_fill(~valid, -torch.inf)
    slots = best_indices(filled, limit)
    return Chains(slots, None, valid.gather(-1, slots))


def head_rows(nodes: Int[Tensor, "b h n r"], num_heads: int) -> Int[Tensor, "b h n r"]:
    """Rows of a (b * n * h, ...) table for flat node rows, each head reading its own."""
    return nodes * num_heads + torch.arange(num_heads, device=nodes.device)[:, None, None]


def take(
    table: Float[Tensor, "rows d"], rows: Int[Tensor, "b h n r"]
) -> Float[Tensor, "b h n r d"]:
    return table.index_select(0, rows.flatten()).unflatten(0, rows.shape)


def head_table(x: Float[Tensor, "b h n d"]) -> Float[Tensor, "bnh d"]:
    return in_float32(x).transpose(1, 2).flatten(0, 2)


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
        keys = take(head_table(inputs.n2_keys), head_rows(nodes, nodes.shape[1]))  # b h n r d
        scores = torch.einsum("bhnrd,bhnd->bhnr", keys, in_float32(inputs.n1_queries))
        scores = scores * inputs.n1_queries.shape[-1] ** -0.5
        node = scale_by(scores, inputs.n2_node_factor_temps)
        total = node if total is None else total + node
    assert total is not None, "referral needs at least one expert"
    return total


def refer_pairs(
    inputs: ReferralInputs,
    factors: SparseFactors,
    e1: Candidates,
    collected: Entries,
    limits: SparseLimits,
    *,
    whole: bool,
    report: ChainReport | None = None,
) -> Collected:
    """Joint and conditional referral: chains are pairs (n2, e2), chosen by their whole logit."""
    features = inputs.edge_features
    num_nodes, k = features.shape[1:3]
    conditional = inputs.kind == "conditional"
    queries = e2_queries(inputs)
    chains = choose_pairs(factors.summed, queries, features, e1, limits.chains, conditional)
    assert chains.edges is not None
    nodes = chosen_nodes(e1, chains, num_nodes)  # b h n r
    logits = chain_n2_factors(inputs, factors, chains, nodes, limits.eps, whole)
    pairs = nodes * k + chains.edges
    edges = take(in_float32(features).flatten(0, 2), pairs)  # b h n r e
    if conditional:
        rows = take(in_float32(features).flatten(0, 1).flatten(1), nodes).unflatten(-1, (k, -1))
        all_e2 = (rows * queries[..., None, None, :]).sum(dim=-1).log_softmax(dim=-1)
        logits = logits + all_e2.gather(-1, chains.edges.unsqueeze(-1)).squeeze(-1)
    else:
        logits = logits + torch.einsum("bhnre,bhne->bhnr", edges, queries)
    weights = masked_softmax(logits, chains.valid)  # b h n r
    if report is None:
        values = take(head_table(inputs.n2_values), head_rows(nodes, nodes.shape[1]))
        outs = torch.einsum("bhnr,bhnre->bhne", weights, values)
    else:
        weights, n2_weights = report(weights, chains)
        outs = torch.einsum("bhnm,bhme->bhne", n2_weights, in_float32(inputs.n2_values))
    mixed_edges = torch.einsum("bhnr,bhnre->bhne", weights, edges)
    outs = outs + project(mixed_edges, inputs.e2_value_weights)
    offered = Entries(*(x.flatten(0, 2) for x in collected))
    addresses = collect_entries(weights, chains.valid, offered, pairs, num_nodes, limits)
    return Collected(outs, addresses)


def preaggregate_sparse(
    inputs: ReferralInputs, collected: Entries, limits: SparseLimits, tap: Tap = silent
) -> MixedEdges:
    """Every n2 mixes its own k edges per head: keys, values, and s entries of address."""
    found = inputs.n1_queries, inputs.edge_features, inputs.e2_key_weights
    own = own_edge_weights(*found, fused=limits.fused)
    own = tap("e2_own_weights", own)  # b h m l
    mixed = torch.einsum("bhml,bmle->bhme", own, in_float32(inputs.edge_features))
    keys = project(mixed, inputs.e2_key_weights)
    values = project(mixed, inputs.e2_value_weights)
    targets = candidates(*collected, num_nodes=inputs.edge_features.shape[1])
    masses = torch.einsum("bhml,bmlc->bhmc", own, targets.masses)
    indices = targets.indices.unsqueeze(1).expand(masses.shape)
    kept = keep_best(Entries(indices, masses), limits.s, limits.tau, limits.eps)
    return MixedEdges(keys, values, kept)


def refer_preaggregated(
    inputs: ReferralInputs,
    factors: SparseFactors,
    e1: Candidates,
    mixed_edges: MixedEdges,
    limits: SparseLimits,
    *,
    whole: bool,
    report: ChainReport | None = None,
) -> Collected:
    """Pre-aggregated referral: a chain is an n2, which offers one mixed edge per head."""
    e2_keys, e2_values, offered = mixed_edges
    num_nodes, scale = e2_keys.shape[2], inputs.n1_queries.shape[-1] ** -0.5
    with torch.no_grad():
        raw = gathered_scores(inputs.n1_queries, e2_keys, e1.indices, fused=limits.fused)
        e2 = scale_by(raw * scale, inputs.e2_factor_temps)
        chains = choose_nodes(factors.summed + e2, e1, limits.chains)
    nodes = chosen_nodes(e1, chains, num_nodes)
    rows = head_rows(nodes, nodes.shape[1])
    keys = take(head_table(e2_keys), rows)
    scores = torch.einsum("bhnrd,bhnd->bhnr", keys, in_float32(inputs.n1_queries))
    logits = chain_n2_factors(inputs, factors, chains, nodes, limits.eps, whole)
    logits = logits + scale_by(scores * scale, inputs.e2_factor_temps)
    weights = masked_softmax(logits, chains.valid)  # b h n r
    if report is not None:
        weights, _ = report(weights, chains)
    values = take(head_table(in_float32(inputs.n2_values) + e2_values), rows)
    outs = torch.einsum("bhnr,bhnre->bhne", weights, values)
    table = Entries(*(x.transpose(1, 2).flatten(0, 2) for x in offered))
    addresses = collect_entries(weights, chains.valid, table, rows, num_nodes, limits)
    return Collected(outs, addresses)


def chosen_nodes(e1: Candidates, chains: Chains, num_nodes: int) -> Int[Tensor, "b h n r"]:
    """n2 of each chain as a row of a (b * n, ...) table."""
    b, h, n, _ = chains.slots.shape
    rows = flat_rows(e1.indices, num_nodes).unsqueeze(1)
    return rows.expand(b, h, n, -1).gather(-1, chains.slots)


def project(x: Float[Tensor, "b h n e"], weights: Float[Tensor, "h d e"]) -> Tensor:
    return torch.einsum("bhne,hde->bhnd", x, weights.to(x.dtype))


def e1_outs(
    inputs: ReferralInputs, e1_weights: Float[Tensor, "b h n k"]
) -> Float[Tensor, "b h n e"]:
    """What e1 itself carries, projected after mixing."""
    mixed = torch.einsum("bhnk,bnke->bhne", e1_weights, in_float32(inputs.edge_features))
    return project(mixed, inputs.e1_value_weights)


def collect_entries(
    weights: Float[Tensor, "b h n r"],
    valid: Bool[Tensor, "b h n r"],
    offered: Entries,
    rows: Int[Tensor, "b h n r"],
    num_nodes: int,
    limits: SparseLimits,
) -> Entries:
    """New addresses: entries of the chosen chains, coalesced, the best s of them kept."""
    indices = offered.indices.index_select(0, rows.flatten()).unflatten(0, rows.shape)
    indices = indices.masked_fill(~valid.unsqueeze(-1), -1)
    masses = take(offered.weights, rows) * weights.unsqueeze(-1)  # b h n r s
    merged = merge(Entries(indices.flatten(-2), masses.flatten(-2)), num_nodes)
    return keep_best(merged, limits.s, limits.tau, limits.eps)
