"""Sparse addresses: s (target, weight) entries per edge instead of a weight for every node.

An entry is *listed* (index >= 0, weight >= 0) or unused (index -1, weight 0). A listed entry
without mass still counts: it is lifted to eps like any other. Nothing else exists, so a row that
lists every node is a dense address, and that is how s = n equals the dense model.

Coalescing (which entries of a row name the same target) happens twice: the targets of a node's own
edges become its candidates, and the entries that referral collects become new addresses.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError, ShapeError, did_you_mean
from graph_machine.ops.address.dense import best_indices, gumbel_like, to_logits
from graph_machine.ops.numerics import ADDRESS_EPS, masked_softmax

# Entries of scratch memory that `scatter` may use at a time (32 MB as int32), whatever n is.
SCRATCH_ENTRIES = 1 << 23
# Elements of the comparison cube that `pairwise` may hold at a time: about a CPU's L2 cache.
PAIRWISE_ELEMENTS = 1 << 21
# Measured on a CPU (docs/scale.md): up to here comparing all pairs is fastest, then sorting.
PAIRWISE_MAX_ENTRIES = 4
SORT_MAX_ENTRIES = 16


class Entries(NamedTuple):
    """Targets and weights along the last axis."""

    indices: Int[Tensor, "*rows s"]
    weights: Float[Tensor, "*rows s"]


class Candidates(NamedTuple):
    """The distinct targets of a node's own edges, and each edge's weight on each of them."""

    indices: Int[Tensor, "b n c"]  # -1: unused
    masses: Float[Tensor, "b n k c"]

    @property
    def valid(self) -> Bool[Tensor, "b n c"]:
        return self.indices >= 0


def check_entries(entries: Entries, num_nodes: int) -> None:
    """Raise one clear error for entries that no address can have. Looks at values."""
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
    entries: Entries, temps: Float[Tensor, "*rows"], eps: float = ADDRESS_EPS
) -> Entries:
    """Sharpening over the listed entries (paper, 2.4); a row without entries stays empty."""
    logits = temps.unsqueeze(-1) * to_logits(entries.weights, eps)
    return entries._replace(weights=masked_softmax(logits, entries.indices >= 0))


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
        keys = keys.masked_fill(indices < 0, -torch.inf)  # unused entries come last
        best = best_indices(keys, s)
    kept = weights.gather(-1, best)
    # As in keep_top_s: noise may choose only entries without mass; the floor keeps that finite.
    kept = kept / kept.sum(dim=-1, keepdim=True).clamp_min(eps)
    return Entries(indices.gather(-1, best), kept)


def heaviest(entries: Entries, s: int) -> Entries:
    """The s heaviest entries, heaviest first, as they are: a part of an address, not a new one."""
    weights, order = entries.weights.sort(dim=-1, descending=True, stable=True)
    return Entries(entries.indices.gather(-1, order)[..., :s], weights[..., :s])


def merge(entries: Entries, num_nodes: int) -> Entries:
    """Entries of each row with equal targets summed."""
    rows = entries.indices.shape[:-1]
    found = coalesce(entries.indices.flatten(0, -2), num_nodes)
    flat = entries.weights.flatten(0, -2)
    sums = flat.new_zeros(found.indices.shape).scatter_add(-1, found.slots, flat)
    return Entries(found.indices.unflatten(0, rows), sums.unflatten(0, rows))


def candidates(
    indices: Int[Tensor, "b n k s"], weights: Float[Tensor, "b n k s"], num_nodes: int
) -> Candidates:
    """Targets of a node's k edges, coalesced once and the same for all heads: at most k*s."""
    b, n, k, _ = indices.shape
    found = coalesce(indices.reshape(b * n, -1), num_nodes)
    slots = found.slots.reshape(indices.shape)
    masses = weights.new_zeros(b, n, k, found.indices.shape[-1]).scatter_add(-1, slots, weights)
    return Candidates(found.indices.reshape(b, n, -1), masses)


def spread_entries(
    mask: Bool[Tensor, "b n"], s: int, causal: bool
) -> tuple[Int[Tensor, "b n s"], Int[Tensor, "b n"]]:
    """At most s allowed targets of each node, evenly spread from itself on, and how many may be.

    Where s suffices, these are all allowed targets. Unused entries are -1. `causal` allows a node
    itself and what comes before it.
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
    s: int,
    mask: Bool[Tensor, "b n"] | None,
    causal: bool,
    dtype: torch.dtype = torch.float32,
) -> Entries:
    """Hard input targets as sparse addresses of width min(s, n).

    A hard edge lists only its target, except where s suffices for every allowed node: then all
    are listed, as in a dense address. An empty edge (-1) is uniform over at most s allowed nodes
    spread evenly from its own node on; where s suffices that is the dense model's uniform address.
    """
    b, n, _ = targets.shape
    s = min(s, n)
    real = mask if mask is not None else targets.new_ones(b, n, dtype=torch.bool)
    spread, counts = spread_entries(real, s, causal)
    spread = spread.unsqueeze(-2)  # b n 1 s
    complete = (counts <= s)[..., None, None]  # b n 1 1
    empty = (targets < 0).unsqueeze(-1)  # b n k 1
    allowed = real.gather(-1, targets.clamp_min(0).flatten(1)).reshape(targets.shape) & (
        targets >= 0
    )
    if causal:
        allowed &= targets <= torch.arange(n, device=targets.device)[:, None]
    alone = torch.full((*targets.shape, s), -1, dtype=targets.dtype, device=targets.device)
    alone[..., 0] = targets.masked_fill(~allowed, -1)
    indices = torch.where(empty | complete, spread, alone)
    listed = indices >= 0
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


def entries_to_dense(entries: Entries, num_nodes: int) -> Float[Tensor, "*rows m"]:
    """Weights over all nodes; duplicates add up. As large as a dense address."""
    dense = entries.weights.new_zeros(*entries.indices.shape[:-1], num_nodes)
    return dense.scatter_add(-1, entries.indices.clamp_min(0), entries.weights)


class Coalesced(NamedTuple):
    """Distinct targets of each row, and where each entry went."""

    indices: Int[Tensor, "rows c"]  # distinct targets as they first appear, then -1
    slots: Int[Tensor, "rows e"]  # column of `indices` that holds the entry's target; unused: 0


def representatives_by_sort(indices: Int[Tensor, "rows e"]) -> Int[Tensor, "rows e"]:
    """For each entry, the position of the first entry of its row with the same target."""
    ordered, order = indices.sort(dim=-1, stable=True)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    positions = torch.arange(indices.shape[-1], device=indices.device).expand_as(ordered)
    run = torch.where(starts, positions, 0).cummax(dim=-1).values  # start of each equal run
    return torch.empty_like(order).scatter_(-1, order, order.gather(-1, run))


def representatives_by_pairs(indices: Int[Tensor, "rows e"]) -> Int[Tensor, "rows e"]:
    """The same by comparing all pairs: E^2 work without any dependence between entries."""
    entries = indices.shape[-1]
    step = max(1, PAIRWISE_ELEMENTS // entries**2)
    found = []
    for rows in indices.split(step):
        equal = rows.unsqueeze(-1) == rows.unsqueeze(-2)
        found.append(equal.view(torch.uint8).argmax(dim=-1))
    return torch.cat(found)


def representatives_by_scatter(
    indices: Int[Tensor, "rows e"], num_nodes: int
) -> Int[Tensor, "rows e"]:
    """The same through a table over all targets: write positions, the first one last, and read.

    The table is scratch of fixed size for a block of rows and is never cleared: only cells that
    this row has just written are read. So time stays O(entries) although its width is n.
    """
    rows, entries = indices.shape
    step = max(1, min(rows, SCRATCH_ENTRIES // (num_nodes + 1)))
    table = torch.empty(step, num_nodes + 1, dtype=torch.int32, device=indices.device)
    positions = torch.arange(entries, dtype=torch.int32, device=indices.device)
    cells = torch.where(indices < 0, num_nodes, indices).long()
    found = torch.empty(rows, entries, dtype=torch.long, device=indices.device)
    for start in range(0, rows, step):
        block = cells[start : start + step]
        part = table[: len(block)]
        # From the end, so that the first entry stays, as in the other methods: equally good chains
        # are taken in this order, and the method depends on the padding of the batch.
        part.scatter_(-1, block.flip(-1), positions.flip(0).expand_as(block))
        found[start : start + step] = part.gather(-1, block)
    return found


METHODS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sort": lambda indices, num_nodes: representatives_by_sort(indices),
    "pairwise": lambda indices, num_nodes: representatives_by_pairs(indices),
    "scatter": representatives_by_scatter,
}


def pick_method(entries: int, num_nodes: int, device: torch.device) -> str:
    """The fastest method by size (measured on a CPU; on accelerators sorting needs no scratch)."""
    if entries <= PAIRWISE_MAX_ENTRIES:
        return "pairwise"
    if entries <= SORT_MAX_ENTRIES or device.type != "cpu" or num_nodes >= SCRATCH_ENTRIES:
        return "sort"
    return "scatter"


@torch.no_grad()
def coalesce(
    indices: Int[Tensor, "rows e"], num_nodes: int, *, method: str | None = None
) -> Coalesced:
    """The distinct targets of each row; -1 marks entries that are not in use.

    The width c is the largest number of distinct targets in any row, at least 1. `method` is one
    of `sort`, `pairwise`, `scatter`; left out, the size decides. All give the same.
    """
    if method is not None and method not in METHODS:
        raise ConfigError(
            f"coalesce: unknown method '{method}'.{did_you_mean(method, METHODS)} "
            f"Known: {', '.join(METHODS)}."
        )
    name = method or pick_method(indices.shape[-1], num_nodes, indices.device)
    first = METHODS[name](indices, num_nodes)
    used = indices >= 0
    positions = torch.arange(indices.shape[-1], device=indices.device)
    kept = (first == positions) & used  # one entry per distinct target
    columns = kept.cumsum(dim=-1) - 1
    width = max(1, int(columns[:, -1].max()) + 1) if indices.numel() else 1
    slots = columns.gather(-1, first).masked_fill_(~used, 0)
    # Entries that are not kept write into a spare last column.
    distinct = indices.new_full((indices.shape[0], width + 1), -1)
    distinct.scatter_(-1, columns.masked_fill_(~kept, width), indices)
    return Coalesced(distinct[:, :width], slots)
