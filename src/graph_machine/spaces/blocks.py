"""Work over candidates part by part, and what a listener sees of it: for `spaces/sparse.py`."""

import math
from collections.abc import Callable
from dataclasses import fields, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from graph_machine.errors import ConfigError
from graph_machine.ops.address.sparse import Candidates
from graph_machine.ops.inputs import FactorEntropies
from graph_machine.ops.referral.sparse import ChainReport, Chains, SparseFactors
from graph_machine.spaces.base import C, Context
from graph_machine.spaces.dense import entropies_of
from graph_machine.state import Visibility

# Entries of addresses (over the batch) from which on attention and referral work part by part:
# those of 2,048 nodes with 8 edges of 8 entries. And the number of parts at most.
BLOCK_ENTRIES = 1 << 17
MAX_BLOCKS = 16


def in_blocks(
    block: Callable[[slice], tuple[Tensor, ...]], n: int, entries: int, context: Context
) -> list[list[Tensor]]:
    """Run `block` over parts of the n source nodes and gather each of its results in a list.

    With several parts, backward runs each again instead of keeping its intermediate tensors. Their
    number is bounded, because each gives back gradients for all nodes: time stays linear in n. A
    listener sees one whole part.
    """
    count = -(-entries // BLOCK_ENTRIES)
    count = 1 if context.tap is not None else max(1, min(MAX_BLOCKS, count))
    step = -(-n // count)
    parts = [slice(start, min(start + step, n)) for start in range(0, n, step)]
    if len(parts) == 1 or not torch.is_grad_enabled():
        results = [block(part) for part in parts]
    else:
        results = [checkpoint(block, part, use_reentrant=False) for part in parts]
    return [list(values) for values in zip(*results)]


def cut(inputs: C, part: slice) -> C:
    """Inputs with queries and temperatures of the source nodes of `part`; all else stays whole."""
    own = [field.name for field in fields(inputs) if field.name.endswith("_temps")]
    found = {name: getattr(inputs, name) for name in ("n1_queries", *own)}
    return replace(inputs, **{k: None if x is None else x[:, :, part] for k, x in found.items()})


def join_entries(parts: list[Tensor], fill: int) -> Tensor:
    """Parts along n; their last axes may differ, since rows list no more than they need."""
    width = max(part.shape[-1] for part in parts)
    padded = [
        torch.nn.functional.pad(part, (0, width - part.shape[-1]), value=fill) for part in parts
    ]
    return torch.cat(padded, dim=2)


def block_entropies(
    factors: tuple[Tensor | None, Tensor | None],
    seen: Candidates,
    part: slice,
    sight: Visibility,
    context: Context,
) -> list[Tensor]:
    """Entropies of the factors of one part over candidates, times its number of real sources."""
    sources = None if sight.node_mask is None else sight.node_mask[:, part]
    found = entropies_of(*factors, seen.valid, sources, context)
    b, n, _ = seen.indices.shape
    count = b * n if sources is None else sources.sum()
    return [x * count for x in found if x is not None]


def entropies_of_parts(
    sums: list[list[Tensor]],
    present: tuple[bool, bool],
    slots: tuple[int, int, int],
    sight: Visibility,
    context: Context,
) -> FactorEntropies:
    """Means over all real source nodes from the sums of the parts, for the factors present."""
    if not context.entropies:
        return FactorEntropies()
    mask = sight.node_mask
    count = slots[0] * slots[1] if mask is None else mask.sum().clamp_min(1)
    means = iter(torch.stack(parts).sum() / count for parts in sums)
    return FactorEntropies(*(next(means) if there else None for there in present))


def report_sparse(
    context: Context,
    name: str,
    values: Float[Tensor, "b h n c"],
    seen: Candidates,
    num_nodes: int,
    fill: float | None = None,
) -> Float[Tensor, "b h n c"]:
    """Show a listener the tensor over all nodes, and continue with what it returns.

    Nodes that are not candidates hold `fill`, by default the lowest number of the dtype: factors
    that no softmax gives weight. Only listening makes anything of size n x n.
    """
    if context.tap is None:
        return values
    b, h, n, c = values.shape
    lowest = torch.finfo(values.dtype).min if fill is None else fill
    spare = torch.where(seen.indices < 0, num_nodes, seen.indices)  # unused ones: a spare column
    spare = spare.unsqueeze(1).expand(b, h, n, c)
    dense = values.new_full((b, h, n, num_nodes + 1), lowest).scatter(-1, spare, values)
    back = torch.nn.functional.pad(context.tap(name, dense[..., :-1]), (0, 1), value=lowest)
    return back.gather(-1, spare)


def report_factors(
    context: Context, factors: SparseFactors, seen: Candidates, num_nodes: int
) -> SparseFactors:
    """Both n2 factors, as a listener leaves them."""
    edge, node = (
        None if x is None else report_sparse(context, name, x, seen, num_nodes)
        for name, x in (("n2_edge_factors", factors.edge), ("n2_node_factors", factors.node))
    )
    return SparseFactors(factors.mixed, edge, node)


def chain_report(
    context: Context, seen: Candidates, num_nodes: int, num_edges: int | None
) -> ChainReport | None:
    """What shows a listener the weights of the chosen chains over all n2 and e2; None without one.

    Chains that were not chosen have no weight, and cannot be given any. `num_edges` of None is for
    the pre-aggregated kind, which has weights over n2 alone.
    """
    if context.tap is None:
        return None
    tap = context.tap

    def shown(name: str, weights: Tensor, places: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Weights over all places after their tap, and a spare one for chains not in use."""
        spare = math.prod(shape)
        dense = weights.new_zeros(*weights.shape[:3], spare + 1).scatter_add(-1, places, weights)
        back = tap(name, dense[..., :-1].unflatten(-1, shape)).flatten(3)
        chosen = torch.zeros_like(dense, dtype=torch.bool).scatter(-1, places, True)
        if bool(((back != 0) & ~chosen[..., :-1]).any()):
            raise ConfigError(
                f"sparse addresses: {name} was given weight on chains that were not chosen; a "
                f"listener can only move weight among the chosen ones."
            )
        return torch.nn.functional.pad(back, (0, 1))

    def report(weights: Tensor, chains: Chains) -> tuple[Tensor, Tensor]:
        indices = seen.indices.unsqueeze(1).expand(*weights.shape[:3], -1)
        nodes = indices.gather(-1, chains.slots)
        if num_edges is not None:
            places = nodes * num_edges + chains.edges
            places = torch.where(chains.valid, places, num_nodes * num_edges)
            weights = shown("e2_weights", weights, places, (num_nodes, num_edges))
            weights = weights.gather(-1, places)
        places = torch.where(chains.valid, nodes, num_nodes)
        n2_weights = shown("n2_weights", weights, places, (num_nodes,))
        if num_edges is None:
            weights = n2_weights.gather(-1, places)
        return weights, n2_weights[..., :-1]

    return report
