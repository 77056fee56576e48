"""Sparse addresses: s (target, weight) entries per edge, O(n) time and memory (paper, 2.5)."""

from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from graph_machine.errors import ShapeError
from graph_machine.ops.address import sparse as listed
from graph_machine.ops.address.dense import to_logits
from graph_machine.ops.address.sparse import Beside, Candidates, Entries
from graph_machine.ops.attention.reference import attention_weights, own_edge_values, scale_by
from graph_machine.ops.attention.sparse import gathered_mix, gathered_scores, own_edge_weights
from graph_machine.ops.inputs import AttentionInputs, ReferralInputs
from graph_machine.ops.numerics import ADDRESS_EPS
from graph_machine.ops.referral import sparse as chains
from graph_machine.ops.referral.sparse import Offered, SparseSettings
from graph_machine.spaces import blocks
from graph_machine.spaces.base import (
    Addresses,
    AddressSpace,
    Annealing,
    AttentionOut,
    Context,
    Nodes,
    ReferralOut,
    Targets,
    Temps,
)
from graph_machine.spaces.blocks import report_sparse
from graph_machine.state import GivenEdges, Visibility, at

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
            return self.attend_block(blocks.cut(without, part), own, part, sight, context)

        parts, *sums = blocks.in_blocks(block, self.slots[1], self.work, context)
        present = True, inputs.n2_keys is not None
        entropies = blocks.entropies_of_parts(sums, present, self.slots, sight, context)
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
        return outs, *blocks.block_entropies((edge, node), seen, part, sight, context)

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
            own, mine = e1_weights[:, :, part], blocks.cut(inputs, part)
            return self.refer_block(mine, own, offer, limits, part, sight, context)

        outs, indices, masses, *sums = blocks.in_blocks(block, self.slots[1], self.work, context)
        new = replace(
            self,
            indices=blocks.join_entries(indices, -1).transpose(1, 2),
            weights=blocks.join_entries(masses, 0).transpose(1, 2),
            even=inputs.empty_edge,
            given=None,
            looked_up=None,
        )
        present = inputs.edge_expert, inputs.n2_keys is not None
        entropies = blocks.entropies_of_parts(sums, present, self.slots, sight, context)
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
        factors = blocks.report_factors(context, factors, seen, n)
        num_edges = None if inputs.kind == "preaggregated" else offer.features.shape[2]
        report = blocks.chain_report(context, seen, n, num_edges)
        new = chains.refer_chains(inputs, factors, seen, offer, limits, **how, report=report)
        sums = blocks.block_entropies((factors.edge, factors.node), seen, part, sight, context)
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
