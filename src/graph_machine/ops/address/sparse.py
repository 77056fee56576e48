"""Sparse addresses: s (target, weight) entries per edge instead of a weight for every node.

An entry is *listed* (index >= 0, weight >= 0) or unused (index -1, weight 0). A listed entry
without mass still counts: it is raised to eps like any other. A row that lists every node is a
dense address, so s = n equals the dense model.

A model with an empty edge has one more kind of entry: `EVERYWHERE` spreads its weight evenly over
all visible nodes. It is one entry with one weight, so a cut to s entries cannot thin it out.

Coalescing (which entries of a row name the same target) happens twice: the targets of a node's own
edges become its candidates, and the entries that referral collects become new addresses.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from graph_machine.errors import ConfigError, ShapeError
from graph_machine.ops.address.dense import best_indices, gumbel_like, to_logits
from graph_machine.ops.numerics import ADDRESS_EPS, masked_softmax

EVERYWHERE = -2
# Entries of scratch memory that coalescing may use at a time (32 MB as int32), whatever n is.
SCRATCH_ENTRIES = 1 << 23


class Entries(NamedTuple):
    """Targets and weights along the last axis."""

    indices: Int[Tensor, "*rows s"]
    weights: Float[Tensor, "*rows s"]


class Beside(NamedTuple):
    """Edges that stay, in addition to made ones: a target each, and the empty edge.

    The empty edge is even over `counts` nodes. Of these, it makes those of `spread` candidates.
    """

    targets: Int[Tensor, "b n g"]  # -1: no edge
    seen: Int[Tensor, "b n g"]  # -1: no edge, or none that may be seen
    spread: Int[Tensor, "b n s"]  # nodes that may be seen, all of them where s suffices
    counts: Int[Tensor, "b n"]
    empty: bool

    @property
    def whole(self) -> Bool[Tensor, "b n 1"]:
        """True if s is large enough to list all nodes, with or without mass, as a dense one."""
        return (self.counts <= self.spread.shape[-1]).unsqueeze(-1)


class Candidates(NamedTuple):
    """The distinct targets of a node's own edges, and each edge's weight on each of them."""

    indices: Int[Tensor, "b n c"]  # -1: unused
    masses: Float[Tensor, "b n k c"]  # of made edges
    columns: Int[Tensor, "b n g"] | None = None  # of given edges: the candidate; -1: none
    even: Float[Tensor, "b n t"] | None = None  # of all edges: what each gives every candidate

    @property
    def valid(self) -> Bool[Tensor, "b n c"]:
        return self.indices >= 0

    def mix(self, weights: Float[Tensor, "b h n t"]) -> Float[Tensor, "b h n c"]:
        """Mass of each candidate under weights over all edges. Given edges cost one number each."""
        k = self.masses.shape[2]
        mixed = torch.einsum("bhnk,bnkc->bhnc", weights[..., :k], self.masses)
        if self.columns is not None:
            columns = self.columns.unsqueeze(1).expand(-1, weights.shape[1], -1, -1)
            given = weights[..., k : k + columns.shape[-1]] * (columns >= 0)
            mixed = mixed.scatter_add(-1, columns.clamp_min(0), given.to(mixed.dtype))
        if self.even is not None:
            shares = torch.einsum("bhnt,bnt->bhn", weights, self.even).unsqueeze(-1)
            mixed = mixed + shares * (self.indices != -1).unsqueeze(1)
        return mixed


def check_entries(entries: Entries, num_nodes: int) -> None:
    """Raise ShapeError for invalid entries. It reads values."""
    indices, weights = entries
    if indices.shape != weights.shape:
        raise ShapeError(
            f"sparse addresses: indices are {tuple(indices.shape)}, weights are "
            f"{tuple(weights.shape)}; expected the same (b, n, k, s)."
        )
    if indices.numel() == 0:
        raise ShapeError(f"sparse addresses: no entries, shape {tuple(indices.shape)}.")
    low, high = int(indices.min()), int(indices.max())
    if low < -1 or high >= num_nodes:
        raise ShapeError(
            f"sparse addresses: targets should be 0 to {num_nodes - 1}, or -1 for an unused entry; "
            f"got {low} to {high}."
        )
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise ShapeError("sparse addresses: weights should be finite and not negative.")


def sharpen_entries(
    entries: Entries,
    temps: Float[Tensor, "*rows"],
    eps: float = ADDRESS_EPS,
    counts: Int[Tensor, "b n"] | None = None,
) -> Entries:
    """Sharpening over the listed entries (paper, 2.4); a row without entries stays empty.

    With `counts`, an entry `EVERYWHERE` also stands for all nodes that are not listed, so the
    result is the dense one.
    """
    (indices, weights), used = entries, entries.indices != -1
    if counts is None:
        logits = temps.unsqueeze(-1) * to_logits(weights, eps)
        return entries._replace(weights=masked_softmax(logits, used))
    even, seen = indices == EVERYWHERE, counts.clamp_min(1)[:, :, None, None]
    others = (seen - (indices >= 0).sum(dim=-1, keepdim=True)).clamp_min(1).to(weights.dtype)
    floor = (weights * even).sum(dim=-1, keepdim=True) / seen
    logits = temps.unsqueeze(-1) * to_logits(torch.where(even, 0, weights) + floor, eps)
    found = masked_softmax(torch.where(even, logits + others.log(), logits), used)
    floor = (found * even).sum(dim=-1, keepdim=True) / others
    return Entries(indices, torch.where(even, floor * seen, found - floor) * used)


def keep_best(entries: Entries, s: int, tau: float = 0.0, eps: float = ADDRESS_EPS) -> Entries:
    """The s heaviest entries, renormalised; with `tau` > 0 chosen under Gumbel noise.

    Noise of that scale is added to log weights only for the choice. Rows of at most s entries
    are returned as they are, as `keep_top_s` does with s >= n.
    """
    if s < 1:
        raise ConfigError(f"sparse addresses: s should be at least 1, got {s}.")
    indices, weights = entries
    if s >= indices.shape[-1]:
        return entries
    with torch.no_grad():
        keys = to_logits(weights.detach(), eps)
        if tau > 0:
            keys = keys + tau * gumbel_like(keys)
        keys = keys.masked_fill(indices == -1, -torch.inf)  # unused entries come last
        best = best_indices(keys, s)
    kept = weights.gather(-1, best)
    # As in keep_top_s: noise may choose only entries without mass; the floor keeps that finite.
    kept = kept / kept.sum(dim=-1, keepdim=True).clamp_min(eps)
    return Entries(indices.gather(-1, best), kept)


def heaviest(entries: Entries, s: int) -> Entries:
    """The s heaviest entries, heaviest first, as they are: a part of an address, not a new one."""
    weights, order = entries.weights.sort(dim=-1, descending=True, stable=True)
    return Entries(entries.indices.gather(-1, order)[..., :s], weights[..., :s])


def merge(entries: Entries) -> Entries:
    """Entries of each row with equal targets summed."""
    found = coalesce(entries.indices)
    sums = entries.weights.new_zeros(found.indices.shape)
    return Entries(found.indices, sums.scatter_add(-1, found.slots, entries.weights))


def candidates(
    made: Entries,
    given: Int[Tensor, "b n g"] | None = None,
    spread: Int[Tensor, "b n s"] | None = None,
    even: Float[Tensor, "b n t"] | None = None,
) -> Candidates:
    """Targets of a node's edges, coalesced once and the same for all heads."""
    k, s = made.indices.shape[2:]
    listed, columns, order = [made.indices.flatten(2)], None, None
    if given is not None:
        targets, order = given.sort(dim=-1)  # given edges are a set
        listed.append(targets)
    found = coalesce(torch.cat(listed if spread is None else [*listed, spread], dim=-1))
    slots = found.slots[..., : k * s].unflatten(-1, (k, s))
    masses = made.weights.new_zeros(*made.indices.shape[:3], found.indices.shape[-1])
    masses = masses.scatter_add(-1, slots, made.weights)
    if given is not None and order is not None:
        columns = torch.empty_like(given)
        columns.scatter_(-1, order, found.slots[..., k * s : k * s + given.shape[-1]])
        columns.masked_fill_(given == -1, -1)
    return Candidates(found.indices, masses, columns, even)


def looked_at(made: Entries, beside: Beside | None) -> Candidates:
    """What a node may see: at most k*s targets, those of given edges, and s of the empty edge.

    An even edge or entry gives every candidate its share, 1 / counts, and other nodes nothing.
    """
    if beside is None:
        return candidates(made)
    if not beside.empty:
        return candidates(made, beside.seen, beside.spread.masked_fill(~beside.whole, -1))
    everywhere = made.indices == EVERYWHERE
    shares = (made.weights * everywhere).sum(dim=-1)  # b n k
    shares = functional.pad(shares, (0, beside.seen.shape[-1]))
    shares = functional.pad(shares, (0, 1), value=1.0) / beside.counts.clamp_min(1).unsqueeze(-1)
    listed = Entries(made.indices.clamp_min(-1), torch.where(everywhere, 0, made.weights))
    return candidates(listed, beside.seen, beside.spread, shares)


def offered(made: Entries, beside: Beside | None) -> Candidates:
    """Entries that a node offers for mixing: `EVERYWHERE` is a target like others."""
    if beside is None:
        return candidates(made)
    whole, given, shares = beside.whole, beside.seen, None
    if beside.empty:
        even = whole.to(made.weights.dtype) / beside.counts.clamp_min(1).unsqueeze(-1)
        shares = functional.pad(even, (made.indices.shape[2] + given.shape[-1], 0))
        given = torch.cat([given, torch.where(whole, -1, EVERYWHERE)], dim=-1)
    return candidates(made, given, beside.spread.masked_fill(~whole, -1), shares)


def allowed_targets(
    targets: Int[Tensor, "b n k"], mask: Bool[Tensor, "b n"], causal: bool
) -> Int[Tensor, "b n k"]:
    """-1 in place of targets that a node may not see: padding and, with `causal`, later nodes."""
    allowed = mask.gather(-1, targets.clamp_min(0).flatten(1)).reshape(targets.shape)
    if causal:
        allowed = allowed & (targets <= torch.arange(targets.shape[1], device=mask.device)[:, None])
    return targets.masked_fill(~allowed, -1)


def spread_entries(
    mask: Bool[Tensor, "b n"], causal: bool, s: int
) -> tuple[Int[Tensor, "b n s"], Int[Tensor, "b n"]]:
    """At most s allowed targets of each node, spread evenly from itself on, and the number allowed.

    If s is large enough, these are all allowed targets. Unused entries are -1. `causal` allows a
    node itself and earlier nodes.
    """
    n = mask.shape[-1]
    ranks = mask.cumsum(dim=-1)  # real nodes up to and including each position
    counts = ranks if causal else ranks[:, -1:].expand_as(ranks)
    real_first = mask.int().argsort(dim=-1, descending=True, stable=True)  # rank -> node
    steps = torch.arange(s, device=mask.device)
    used = counts.clamp_max(s).unsqueeze(-1)  # b n 1
    offsets = steps * counts.unsqueeze(-1) // used.clamp_min(1)  # b n s
    own = (ranks - 1).clamp_min(0).unsqueeze(-1)
    places = (own + offsets) % counts.clamp_min(1).unsqueeze(-1)
    targets = real_first.gather(-1, places.flatten(1)).reshape(places.shape)
    return targets.masked_fill(steps >= used, -1).reshape(-1, n, s), counts


def entries_from_targets(
    targets: Int[Tensor, "b n k"],
    mask: Bool[Tensor, "b n"],
    causal: bool,
    s: int,
    dtype: torch.dtype = torch.float32,
) -> Entries:
    """Hard targets as sparse addresses of width min(s, n).

    A hard edge lists only its target, unless s is large enough for every allowed node: then all
    are listed, as in a dense address. An empty edge (-1) is uniform over at most s allowed nodes,
    spread evenly from its own node on; if s is large enough, this is the dense model's uniform
    address. A target `EVERYWHERE` is then the same, and otherwise one entry.
    """
    spread, counts = spread_entries(mask, causal, min(s, targets.shape[1]))
    complete = (counts <= s)[..., None, None]  # b n 1 1
    spread, empty = spread.unsqueeze(-2), (targets < 0).unsqueeze(-1)
    there = torch.where(targets < 0, targets, allowed_targets(targets, mask, causal))
    alone = functional.pad(there.unsqueeze(-1), (0, spread.shape[-1] - 1), value=-1)
    indices = torch.where((targets == -1).unsqueeze(-1) | complete, spread, alone)
    listed = indices != -1
    shares = listed.to(dtype) / listed.sum(dim=-1, keepdim=True).clamp_min(1)
    hard = ((indices == targets.unsqueeze(-1)) & listed).to(dtype)
    return Entries(indices, torch.where(empty, shares, hard))


def entries_from_dense(values: Float[Tensor, "b n k m"], s: int) -> Entries:
    """The s heaviest targets of dense addresses, renormalised; s >= n lists every node."""
    return keep_best(every_entry(values), s)


def every_entry(values: Float[Tensor, "b n k m"]) -> Entries:
    """Dense addresses as entries that list every node."""
    every = torch.arange(values.shape[-1], device=values.device).expand(values.shape)
    return Entries(every, values)


def entries_to_dense(
    entries: Entries, num_nodes: int, allowed: Bool[Tensor, "#b #n m"] | None = None
) -> Float[Tensor, "b n k m"]:
    """Weights over all nodes; duplicates add up. As large as a dense address.

    `allowed` are the nodes over which an entry `EVERYWHERE` is spread; None: all of them.
    """
    indices, weights = entries
    dense = weights.new_zeros(*indices.shape[:-1], num_nodes)
    dense = dense.scatter_add(-1, indices.clamp_min(0), weights * (indices >= 0))
    shares = (weights * (indices == EVERYWHERE)).sum(dim=-1, keepdim=True)
    seen = dense.new_ones(1, 1, num_nodes) if allowed is None else allowed.to(dense.dtype)
    return dense + shares * (seen / seen.sum(dim=-1, keepdim=True).clamp_min(1)).unsqueeze(-2)


class Coalesced(NamedTuple):
    """Distinct targets of each row, and where each entry went."""

    indices: Int[Tensor, "*rows c"]  # distinct targets as they first appear, then -1
    slots: Int[Tensor, "*rows e"]  # column of `indices` that holds the entry's target; unused: 0


def first_by_sort(indices: Int[Tensor, "rows e"]) -> Int[Tensor, "rows e"]:
    """For each entry, the position of the first entry of its row with the same target."""
    ordered, order = indices.sort(dim=-1, stable=True)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    positions = torch.arange(indices.shape[-1], device=indices.device)
    run = torch.where(starts, positions, 0).cummax(dim=-1).values  # start of each equal run
    return torch.empty_like(order).scatter_(-1, order, order.gather(-1, run))


def first_by_table(indices: Int[Tensor, "rows e"]) -> Int[Tensor, "rows e"]:
    """The same with a table over all targets: write positions, the first one last, and read.

    The table is scratch of fixed size for a block of rows and is never cleared: only cells that
    this row has just written are read. So time stays O(entries) although its width is n.
    """
    cells = indices - EVERYWHERE  # from 0 on
    width = int(cells.max()) + 1 if cells.numel() else 1
    step = max(1, SCRATCH_ENTRIES // width)
    table = torch.empty(min(step, len(cells)), width, dtype=torch.int32)
    positions = torch.arange(cells.shape[-1], dtype=torch.int32).flip(0)
    found = torch.empty_like(cells)
    for block, here in zip(cells.split(step), found.split(step)):
        part = table[: len(block)]
        part.scatter_(-1, block.flip(-1), positions.expand_as(block))
        here.copy_(part.gather(-1, block))
    return found


@torch.no_grad()
def coalesce(indices: Int[Tensor, "*rows e"]) -> Coalesced:
    """The distinct targets of each row; -1 marks entries that are not in use.

    The width c is the largest number of distinct targets in any row, at least 1. Distinct targets
    are in the order of their first appearance, which decides between equally good chains.
    """
    flat = indices.flatten(0, -2)
    # In a table, one of several writes has to come last: only on a CPU it is known which.
    first = first_by_table(flat) if flat.device.type == "cpu" else first_by_sort(flat)
    positions, first = torch.arange(flat.shape[-1], device=flat.device), first.view_as(indices)
    used = indices != -1
    kept = (first == positions) & used  # one entry per distinct target
    columns = kept.cumsum(dim=-1) - 1
    width = max(1, int(columns[..., -1].max()) + 1) if indices.numel() else 1
    slots = columns.gather(-1, first).masked_fill_(~used, 0)
    # Entries that are not kept write into a spare last column.
    distinct = indices.new_full((*indices.shape[:-1], width + 1), -1)
    distinct.scatter_(-1, columns.masked_fill_(~kept, width), indices)
    return Coalesced(distinct[..., :width], slots)
