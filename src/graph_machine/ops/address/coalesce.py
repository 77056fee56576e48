"""Coalescing: which entries of a row name the same target.

Sparse addresses meet it twice: the targets of a node's own edges become its candidates, and the
entries that referral collects become new addresses. Weights play no part here, so everything is
integer work without gradients; callers sum weights with `scatter_add` along `slots`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from graph_machine.errors import ConfigError, did_you_mean

# Entries of scratch memory that `scatter` may use at a time (32 MB as int32), whatever n is.
SCRATCH_ENTRIES = 1 << 23
# Elements of the comparison cube that `pairwise` may hold at a time: about a CPU's L2 cache.
PAIRWISE_ELEMENTS = 1 << 21
# Measured on a CPU (docs/scale.md): up to here comparing all pairs is fastest, then sorting.
PAIRWISE_MAX_ENTRIES = 4
SORT_MAX_ENTRIES = 16


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
