"""Hard addresses: one target per edge; referral chooses among two-hop edges (paper, 2.5)."""

from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from graph_machine.errors import ConfigError, check_choice
from graph_machine.ops.address.sparse import Entries, allowed_targets, entries_to_dense
from graph_machine.ops.attention.sparse import own_edge_weights, slot_order
from graph_machine.ops.inputs import AttentionInputs, ReferralInputs
from graph_machine.ops.numerics import ADDRESS_EPS
from graph_machine.ops.referral.hard import Policy, refer_hard
from graph_machine.ops.referral.sparse import SparseSettings, e1_outs, sparse_factors
from graph_machine.spaces.base import (
    Addresses,
    AddressSpace,
    AttentionOut,
    Context,
    Nodes,
    ReferralOut,
    Targets,
    Temps,
)
from graph_machine.spaces.dense import entropies_of
from graph_machine.spaces.sparse import SparseAddresses, real_nodes, report_factors
from graph_machine.state import Visibility

Estimator = Literal["reinforce", "straight-through"]
H = TypeVar("H", bound="HardAddresses")


@dataclass(frozen=True)
class HardAddresses(Addresses):
    """Targets (b, n, k), -1 for an edge to nowhere, and the policy of the choices so far.

    `masses` are 1; straight-through gives them the gradient of the choice's log probability.
    Attention is that of sparse addresses with one entry. Sharpening a single target does nothing.

    >>> import torch
    >>> targets, nodes = torch.tensor([[[0, 1], [1, -1]]]), torch.zeros(1, 2, 64)  # b n k, b n d_n
    >>> HardSpace().initial(targets, nodes).targets  # b n k
    tensor([[[ 0,  1],
             [ 1, -1]]])
    """

    targets: Int[Tensor, "b n k"]
    masses: Float[Tensor, "b n k"]
    estimator: Estimator = "reinforce"
    eps: float = ADDRESS_EPS
    choices: Policy | None = None

    @property
    def slots(self) -> tuple[int, int, int]:
        b, n, k = self.targets.shape
        return b, n, k

    @property
    def policy(self) -> Policy | None:
        return self.choices

    @property
    def entries(self) -> Entries:
        """The targets as sparse addresses of one entry."""
        return Entries(self.targets.unsqueeze(-1), self.masses.unsqueeze(-1))

    def sharpen(self: H, temps: Temps | None, sight: Visibility, context: Context) -> H:
        if temps is not None:
            raise ConfigError(
                "hard addresses: a single target cannot be sharpened; set the sharpener to off."
            )
        return self

    def one_entry(self, sight: Visibility) -> SparseAddresses:
        """The same as sparse addresses of one entry."""
        found = SparseAddresses(*self.entries, SparseSettings(1, eps=self.eps), sight)
        return found if self.given is None else found.beside(self.given)

    def to_dense(self) -> Float[Tensor, "b n k m"]:
        return entries_to_dense(self.entries, self.targets.shape[1])

    def attend(self, inputs: AttentionInputs, sight: Visibility, context: Context) -> AttentionOut:
        return self.one_entry(sight).attend(inputs, sight, context)

    def refer(
        self: H, inputs: ReferralInputs, collected: H, sight: Visibility, context: Context
    ) -> ReferralOut:
        if inputs.kind == "preaggregated":
            raise ConfigError(
                "hard addresses: pre-aggregated referral mixes addresses; choose joint or "
                "conditional."
            )
        own, n = self.one_entry(sight), self.targets.shape[1]
        inputs, seen = own.with_given(inputs), own.seen(None, slice(None))
        e2, e2_targets = inputs, collected.targets
        order = slot_order(inputs, inputs.edge_features)
        if own.given is not None and order is not None:
            # The empty edge leads to no single node, so it is not among those to choose from.
            given = functional.pad(own.given.seen, (0, int(inputs.empty_edge)), value=-1)
            e2_targets = torch.cat([e2_targets, given], dim=-1).gather(-1, order)
            edges = inputs.edge_features.take_along_dim(order.unsqueeze(-1), dim=2)
            e2 = replace(inputs, edge_features=edges, given_targets=own.given.targets.sort().values)
        weights = own_edge_weights(inputs, inputs.edge_features, inputs.e1_key_weights)
        e1_weights = context.report("e1_weights", weights)
        factors = sparse_factors(inputs, e1_weights, seen, eps=self.eps, whole=True)
        factors = report_factors(context, factors, seen, n)
        found = refer_hard(
            e2,
            factors.summed,
            seen,
            e2_targets,
            conditional=inputs.kind == "conditional",
            straight_through=self.estimator == "straight-through",
            sample=bool(context.training),
        )
        masses = torch.ones_like(found.probs)
        if self.estimator == "straight-through":
            # 1, with the gradient of the log probability: sampling weighs a choice by its
            # probability already, so this is on average the sum over choices of dL/dmass dp.
            masses = found.probs / found.probs.detach().clamp_min(self.eps)
        masses = masses * (found.targets >= 0)
        new = replace(
            self,
            targets=found.targets.transpose(1, 2),
            masses=masses.transpose(1, 2),
            choices=add_policies(self.choices, found.policy),
            given=None,
        )
        features = found.features + e1_outs(inputs, e1_weights)
        entropies = entropies_of(factors.edge, factors.node, seen.valid, sight.node_mask, context)
        return ReferralOut(features.transpose(1, 2), new, entropies)


def add_policies(first: Policy | None, second: Policy) -> Policy:
    """The choices of several sublayers: log probabilities and entropies add up."""
    if first is None:
        return second
    logs = None
    if first.log_probs is not None and second.log_probs is not None:
        logs = first.log_probs + second.log_probs
    return Policy(logs, first.entropy + second.entropy)


class HardSpace(AddressSpace):
    """Hard addresses, trained by `reinforce` or `straight-through`.

    Training samples the choices; otherwise the most probable ones are taken. An empty input edge
    points to nowhere: it carries features but leads to no node.

    >>> import torch
    >>> targets, nodes = torch.tensor([[[0, 1], [1, -1]]]), torch.zeros(1, 2, 64)  # b n k, b n d_n
    >>> HardSpace(estimator="straight-through").initial(targets, nodes).to_dense()[0, 0]  # k m
    tensor([[1., 0.],
            [0., 1.]])
    """

    def __init__(self, *, estimator: Estimator = "reinforce", eps: float = ADDRESS_EPS) -> None:
        super().__init__()
        check_choice("hard space", "estimator", estimator, get_args(Estimator))
        self.estimator: Estimator = estimator
        self.eps = eps

    def initial(
        self, targets: Targets, node_features: Nodes, sight: Visibility = Visibility()
    ) -> Addresses:
        dtype = torch.promote_types(node_features.dtype, torch.float32)
        listed = allowed_targets(targets, real_nodes(targets, sight), sight.causal)
        return HardAddresses(listed, (listed >= 0).to(dtype), self.estimator, self.eps)
