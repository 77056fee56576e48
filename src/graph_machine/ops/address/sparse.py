"""Sparse addresses: s (target, weight) entries per edge instead of a weight for every node.

An entry is *listed* (index >= 0, weight >= 0) or unused (index -1, weight 0). A listed entry
without mass still counts: it is lifted to eps like any other. Nothing else exists, so a row that
lists every node is a dense address, and that is how s = n equals the dense model.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError, ShapeError
from graph_machine.ops.address.coalesce import coalesce
from graph_machine.ops.address.convert import to_logits
from graph_machine.ops.address.select import best_indices, gumbel_like
from graph_machine.ops.numerics import ADDRESS_EPS, masked_softmax


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
