"""Sparse addresses: s (target, weight) entries per edge, O(n) time and memory (paper, 2.5)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from graph_machine.errors import ConfigError, ShapeError
from graph_machine.ops.address import sparse as listed
from graph_machine.ops.address.dense import to_logits
from graph_machine.ops.address.sparse import Beside, Candidates, Entries
from graph_machine.ops.attention.reference import attention_weights, own_edge_values, scale_by
from graph_machine.ops.attention.sparse import gathered_mix, gathered_scores, own_edge_weights
from graph_machine.ops.inputs import AttentionInputs, FactorEntropies, ReferralInputs
from graph_machine.ops.numerics import ADDRESS_EPS
from graph_machine.ops.referral import sparse as chains
from graph_machine.ops.referral.sparse import (
    ChainReport,
    Chains,
    Offered,
    SparseFactors,
    SparseSettings,
)
from graph_machine.spaces.base import (
    Addresses,
    AddressSpace,
    Annealing,
    AttentionOut,
    C,
    Context,
    Nodes,
    ReferralOut,
    Targets,
    Temps,
)
from graph_machine.spaces.dense import entropies_of
from graph_machine.state import GivenEdges, Visibility, at

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


S = TypeVar("S", bound="SparseAddresses")


def real_nodes(like: Int[Tensor, "b n *k"], sight: Visibility) -> Bool[Tensor, "b n"]:
    """Nodes that are not padding."""
    mask = sight.node_mask
    return like.new_ones(like.shape[:2], dtype=torch.bool) if mask is None else mask


@dataclass(frozen=True)
class SparseAddresses(Addresses):
    """Entries (b, n, k, s): distinct targets and their weights; -1 is an unused entry.

    Attention and referral see the targets of a node's own edges and no other node. Targets that a
    node may not see never enter, so no mask is needed later: whatever is collected through allowed
    nodes is allowed.

    >>> import torch
    >>> targets, nodes = torch.tensor([[[0, 1], [1, -1]]]), torch.zeros(1, 2, 64)  # b n k, b n d_n
    >>> SparseSpace(s=1).initial(targets, nodes).indices.shape  # b n k s
    torch.Size([1, 2, 2, 1])
    """

    indices: Int[Tensor, "b n k s"]
    weights: Float[Tensor, "b n k s"]
    settings: SparseSettings
    sight: Visibility = Visibility()
    even: bool = False  # entries may be `EVERYWHERE`
    looked_up: Candidates | None = None  # of attention, where it happens again and again

    @classmethod
    def from_entries(
        cls: type[S],
        indices: Int[Tensor, "b n k s"],
        weights: Float[Tensor, "b n k s"],
        settings: SparseSettings,
    ) -> S:
        """Checked entries of the caller's own; duplicates of a row are summed, its best s kept."""
        given = Entries(indices, weights)
        if indices.ndim != 4:
            raise ShapeError(
                f"sparse addresses: indices should be (b, n, k, s), got {tuple(indices.shape)}."
            )
        listed.check_entries(given, indices.shape[1])
        given = given._replace(weights=weights * (indices >= 0))
        return cls(*listed.keep_best(listed.merge(given), settings.s), settings)

    @property
    def slots(self) -> tuple[int, int, int]:
        b, n, k, _ = self.indices.shape
        return b, n, k

    @property
    def entries(self) -> Entries:
        """Targets and weights (b, n, k, s)."""
        return Entries(self.indices, self.weights)

    @property
    def reach(self) -> tuple[Bool[Tensor, "b n"], bool]:
        """Which nodes may be seen: those that are not padding, and whether only the past is."""
        return real_nodes(self.indices, self.sight), self.sight.causal

    def sharpen(self: S, temps: Temps | None, sight: Visibility, context: Context) -> S:
        if temps is None:
            return self
        counts = listed.spread_entries(*self.reach, 1)[1] if self.even else None
        sharp = listed.sharpen_entries(self.entries, temps, self.settings.eps, counts)
        return replace(self, weights=sharp.weights, looked_up=None)

    def beside(self: S, given: GivenEdges) -> S:
        targets = listed.allowed_targets(given.targets, *self.reach)
        spread = listed.spread_entries(*self.reach, min(self.settings.s, self.indices.shape[1]))
        found = Beside(given.targets, targets, *spread, given.empty)
        return replace(self, given=found, looked_up=None)

    def settled(self: S) -> S:
        return replace(self, looked_up=self.seen(self.settings.s_attention, slice(None)))

    def to_dense(self) -> Float[Tensor, "b n k m"]:
        n = self.indices.shape[1]
        return listed.entries_to_dense(self.entries, n, self.sight.pairs(n, self.indices.device))

    def with_dense(self: S, weights: Float[Tensor, "b n k m"]) -> S:
        found = listed.entries_from_dense(weights, self.settings.s)
        return replace(self, indices=found.indices, weights=found.weights, looked_up=None)

    def seen(self, s: int | None, part: slice) -> Candidates:
        """Candidates of some source nodes, among the best s entries of every edge."""
        entries = Entries(self.indices[:, part], self.weights[:, part])
        kept = entries if s is None else listed.keep_best(entries, s)
        return listed.looked_at(kept, at(self.given, (slice(None), part)))

    @property
    def work(self) -> int:
        """Entries of all addresses: how much there is to do."""
        given = 0 if self.given is None else self.given.targets.numel() + self.given.spread.numel()
        return self.indices.numel() + given

    def offer(self) -> Entries:
        """Entries of all edges, made ones and those beside them, in their role as e2."""
        if self.given is None:
            return self.entries
        targets = self.given.targets
        if self.given.empty:
            targets = functional.pad(targets, (0, 1), value=listed.EVERYWHERE)
        s, dtype = self.settings.s, self.weights.dtype
        found = listed.entries_from_targets(targets, *self.reach, s, dtype)
        missing = (0, found.indices.shape[-1] - self.indices.shape[-1])
        return Entries(
            torch.cat([functional.pad(self.indices, missing, value=-1), found.indices], dim=2),
            torch.cat([functional.pad(self.weights, missing), found.weights], dim=2),
        )

    def attend(self, inputs: AttentionInputs, sight: Visibility, context: Context) -> AttentionOut:
        inputs, fused = self.with_given(inputs), context.fused("attention")
        features, weights = inputs.e1_features, inputs.e1_key_weights
        assert features is not None
        assert weights is not None
        found = own_edge_weights(inputs, features, weights, fused=fused)
        e1_weights = context.report("e1_weights", found)
        without = replace(inputs, e1_features=None, given_targets=None)

        def block(part: slice) -> tuple[Tensor, ...]:
            own = e1_weights[:, :, part]
            return self.attend_block(cut(without, part), own, part, sight, context)

        parts, *sums = in_blocks(block, self.slots[1], self.work, context)
        present = True, inputs.n2_keys is not None
        entropies = entropies_of_parts(sums, present, self.slots, sight, context)
        outs = torch.cat(parts, dim=2)
        if inputs.e1_value_weights is not None:
            outs = outs + own_edge_values(inputs, e1_weights)
        return AttentionOut(outs, entropies)

    def attend_block(
        self,
        inputs: AttentionInputs,
        e1_weights: Float[Tensor, "b h n t"],
        part: slice,
        sight: Visibility,
        context: Context,
    ) -> tuple[Tensor, ...]:
        """Attention of the source nodes in `part`: outs, then the mean entropies asked for."""
        n, fused = self.indices.shape[1], context.fused("attention")
        found, node = self.looked_up, None
        if found is None:
            seen = self.seen(self.settings.s_attention, part)
        else:
            seen = at(found, (slice(None), part))
        raw = to_logits(seen.mix(e1_weights), self.settings.eps)
        edge = scale_by(raw, inputs.edge_factor_temps)
        edge = report_sparse(context, "edge_factors", edge, seen, n)
        if inputs.n2_keys is not None:
            raw = gathered_scores(inputs.n1_queries, inputs.n2_keys, seen.indices, fused=fused)
            node = scale_by(raw * inputs.n1_queries.shape[-1] ** -0.5, inputs.node_factor_temps)
            node = report_sparse(context, "node_factors", node, seen, n)
        weights = attention_weights(edge, node, seen.valid)
        weights = report_sparse(context, "weights", weights, seen, n, fill=0.0)
        outs = gathered_mix(weights, inputs.n2_values, seen.indices, fused=fused)
        return outs, *block_entropies((edge, node), seen, part, sight, context)

    def refer(
        self: S, inputs: ReferralInputs, collected: S, sight: Visibility, context: Context
    ) -> ReferralOut:
        inputs, fused = self.with_given(inputs), context.fused("referral")
        limits = replace(
            self.settings,
            s=min(self.settings.s, self.indices.shape[1]),
            gumbel_tau=self.settings.gumbel_tau if context.training else 0.0,
        )
        features = inputs.edge_features
        found = own_edge_weights(inputs, features, inputs.e1_key_weights, fused=fused)
        e1_weights = context.report("e1_weights", found)
        if inputs.kind == "preaggregated":
            targets = listed.offered(collected.entries, collected.given)
            offer = chains.preaggregate_sparse(inputs, targets, limits, context.listener, fused)
        else:
            offer = Offered(features, collected.offer())

        def block(part: slice) -> tuple[Tensor, ...]:
            own, mine = e1_weights[:, :, part], cut(inputs, part)
            return self.refer_block(mine, own, offer, limits, part, sight, context)

        outs, indices, masses, *sums = in_blocks(block, self.slots[1], self.work, context)
        new = replace(
            self,
            indices=join_entries(indices, -1).transpose(1, 2),
            weights=join_entries(masses, 0).transpose(1, 2),
            even=inputs.empty_edge,
            given=None,
            looked_up=None,
        )
        present = inputs.edge_expert, inputs.n2_keys is not None
        entropies = entropies_of_parts(sums, present, self.slots, sight, context)
        carried = torch.cat(outs, dim=2) + chains.e1_outs(inputs, e1_weights)
        return ReferralOut(carried.transpose(1, 2), new, entropies)

    def refer_block(
        self,
        inputs: ReferralInputs,
        e1_weights: Float[Tensor, "b h n t"],
        offer: Offered,
        limits: SparseSettings,
        part: slice,
        sight: Visibility,
        context: Context,
    ) -> tuple[Tensor, ...]:
        """New edges of the source nodes in `part`: features, entries, mean entropies asked for."""
        n = self.indices.shape[1]
        seen = self.seen(self.settings.s_referral, part)
        # Entropy losses and listeners need the factors of every candidate, with gradients.
        whole = context.entropies or context.tap is not None
        how = {"whole": whole, "fused": context.fused("referral")}
        factors = chains.sparse_factors(inputs, e1_weights, seen, eps=limits.eps, **how)
        factors = report_factors(context, factors, seen, n)
        num_edges = None if inputs.kind == "preaggregated" else offer.features.shape[2]
        report = chain_report(context, seen, n, num_edges)
        new = chains.refer_chains(inputs, factors, seen, offer, limits, **how, report=report)
        sums = block_entropies((factors.edge, factors.node), seen, part, sight, context)
        return new[0], *new[1], *sums


class SparseSpace(AddressSpace):
    """Sparse addresses, with s and tau by schedule.

    `s` and `gumbel_tau` are the values at the end, to which training moves from `s_start` and
    `gumbel_tau_start` (see `Annealing`). s above the number of nodes counts as that number.

    >>> import torch
    >>> space = SparseSpace(s=8, chains=8)
    >>> nodes = torch.zeros(1, 5_000, 64)  # b n d_n
    >>> space.initial(torch.zeros(1, 5_000, 4, dtype=torch.long), nodes).indices.shape  # b n k s
    torch.Size([1, 5000, 4, 8])
    """

    def __init__(
        self,
        *,
        s: int = 8,
        s_attention: int | None = None,
        s_referral: int | None = None,
        chains: int | None = None,
        gumbel_tau: float = 0.0,
        s_start: int | None = None,
        gumbel_tau_start: float | None = None,
        anneal: float = 1.0,
        eps: float = ADDRESS_EPS,
    ) -> None:
        super().__init__()
        self.final = SparseSettings(s, s_attention, s_referral, chains, gumbel_tau, eps)
        tau = (gumbel_tau_start, gumbel_tau)
        self.schedule = Annealing("sparse", (s_start, s), tau, anneal)

    @property
    def settings(self) -> SparseSettings:
        """The settings at the present point of the schedule."""
        assert self.schedule is not None
        return replace(self.final, s=self.schedule.s, gumbel_tau=self.schedule.tau)

    def initial(
        self, targets: Targets, node_features: Nodes, sight: Visibility = Visibility()
    ) -> Addresses:
        n = targets.shape[1]
        if targets.numel() and int(targets.max()) >= n:
            raise ShapeError(
                f"sparse space: targets should be -1 to {n - 1}, got {int(targets.max())}."
            )
        dtype = torch.promote_types(node_features.dtype, torch.float32)
        settings, real = self.settings, real_nodes(targets, sight)
        found = listed.entries_from_targets(targets, real, sight.causal, settings.s, dtype)
        return SparseAddresses(*found, settings, sight)
