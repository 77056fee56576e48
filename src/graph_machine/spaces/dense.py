"""Dense addresses: a weight (or a logit) for every target node."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.ops.address import (
    factor_entropy,
    keep_top_s,
    one_hot_addresses,
    sharpen,
    to_logits,
    to_weights,
)
from graph_machine.ops.attention import attend
from graph_machine.ops.inputs import AttentionInputs, FactorEntropies, ReferralInputs
from graph_machine.ops.numerics import ADDRESS_EPS
from graph_machine.ops.referral import ReferralKind, refer
from graph_machine.spaces.base import Addresses, AddressSpace, AttentionOut, Context, ReferralOut

D = TypeVar("D", bound="DenseAddresses")


@dataclass(frozen=True)
class DenseAddresses(Addresses):
    """Distributions over target nodes, (b, n, k, m): the paper's default."""

    values: Float[Tensor, "b n k m"]
    eps: float = ADDRESS_EPS
    top_s: int | None = None  # simulated sparsity (paper, appendix C.6)
    gumbel_tau: float = 0.0

    logit_space: ClassVar[bool] = False

    @property
    def slots(self) -> tuple[int, int, int]:
        b, n, k, _ = self.values.shape
        return b, n, k

    def mask(self, context: Context) -> Bool[Tensor, "#b #n m"] | None:
        return context.visibility.pairs(self.values.shape[-1], self.values.device)

    def sharpen(self: D, temps: Float[Tensor, "b n k"] | None, context: Context) -> D:
        values = self.values
        if temps is not None:
            mask = self.mask(context)
            values = sharpen(values, temps, mask=mask, eps=self.eps, backend=context.backend)
        if self.top_s is not None:
            tau = self.gumbel_tau if context.training else 0.0
            values = keep_top_s(values, self.top_s, tau, self.eps)
        return replace(self, values=values)

    def to_dense(self) -> Float[Tensor, "b n k m"]:
        return self.values

    def with_dense(self: D, weights: Float[Tensor, "b n k m"]) -> D:
        return replace(self, values=weights)

    def call(self, context: Context) -> dict[str, Any]:
        """What dense addresses add to the inputs of attention and referral."""
        settings = {"eps": self.eps, "logit_space": self.logit_space, "e1_addresses": self.values}
        return settings | dense_call(self.values.shape[-1], self.values.device, context)

    def attend(self, inputs: AttentionInputs, context: Context) -> AttentionOut:
        given = replace(inputs, **self.call(context))
        return AttentionOut(*attend(given, backend=context.backend, tap=context.tap))

    def refer(
        self: D, inputs: ReferralInputs, collected: D, kind: ReferralKind, context: Context
    ) -> ReferralOut:
        given = replace(inputs, kind=kind, e2_addresses=collected.values, **self.call(context))
        features, values, entropies = refer(given, backend=context.backend, tap=context.tap)
        return ReferralOut(features, replace(self, values=values), entropies)


@dataclass(frozen=True)
class LogitAddresses(DenseAddresses):
    """Addresses that are logits: mixed as a product of experts, sharpened by a factor (C.5).

    `allowed` is the mask that attention and referral apply; here it serves `to_dense` alone.
    """

    allowed: Bool[Tensor, "#b #n m"] | None = None

    logit_space: ClassVar[bool] = True

    def sharpen(self: D, temps: Float[Tensor, "b n k"] | None, context: Context) -> D:
        if temps is None:
            return self
        return replace(self, values=self.values * temps.unsqueeze(-1))

    def to_dense(self) -> Float[Tensor, "b n k m"]:
        return to_weights(self.values, None if self.allowed is None else self.allowed.unsqueeze(-2))

    def with_dense(self: D, weights: Float[Tensor, "b n k m"]) -> D:
        return replace(self, values=to_logits(weights, self.eps))


torch.export.register_dataclass(DenseAddresses, serialized_type_name="graph_machine.DenseAddresses")
torch.export.register_dataclass(LogitAddresses, serialized_type_name="graph_machine.LogitAddresses")


def entropies_of(
    edge_factors: Tensor | None, node_factors: Tensor | None, mask: Tensor | None, context: Context
) -> FactorEntropies:
    """Entropies of whichever factors there are, if the caller asked for them."""
    if not context.entropies:
        return FactorEntropies()
    sources = context.visibility.node_mask
    return FactorEntropies(
        *(
            None if factors is None else factor_entropy(factors, mask, sources)
            for factors in (edge_factors, node_factors)
        )
    )


def dense_call(num_nodes: int, device: torch.device, context: Context) -> dict[str, Any]:
    sight = context.visibility
    return {
        "mask": sight.pairs(num_nodes, device),
        "sources": sight.node_mask,
        "entropies": context.entropies,
        "raw_entropies": context.raw_entropies,
    }


def attend_without_edges(inputs: AttentionInputs, context: Context) -> AttentionOut:
    """The node expert alone: a Transformer's attention, with the same temperatures and taps."""
    queries = inputs.n1_queries
    given = replace(inputs, **dense_call(queries.shape[-2], queries.device, context))
    return AttentionOut(*attend(given, backend=context.backend, tap=context.tap))


class DenseSpace(AddressSpace):
    """Weight-space addresses; with `top_s`, simulated sparsity."""

    def __init__(
        self, *, eps: float = ADDRESS_EPS, top_s: int | None = None, gumbel_tau: float = 0.0
    ) -> None:
        super().__init__()
        self.eps = eps
        self.top_s = top_s
        self.gumbel_tau = gumbel_tau

    def initial(
        self,
        targets: Int[Tensor, "b n k"],
        node_features: Float[Tensor, "b n d"],
        context: Context = Context(),
    ) -> Addresses:
        values = dense_targets(targets, node_features, context)
        return DenseAddresses(values, self.eps, self.top_s, self.gumbel_tau)


class LogitSpace(AddressSpace):
    """Logit-space addresses: input weights times `scale` (the paper's 5)."""

    def __init__(self, *, scale: float = 5.0, eps: float = ADDRESS_EPS) -> None:
        super().__init__()
        self.scale = scale
        self.eps = eps

    def initial(
        self,
        targets: Int[Tensor, "b n k"],
        node_features: Float[Tensor, "b n d"],
        context: Context = Context(),
    ) -> Addresses:
        values = dense_targets(targets, node_features, context)
        allowed = context.visibility.pairs(node_features.shape[-2], targets.device)
        return LogitAddresses(values * self.scale, self.eps, allowed=allowed)


def dense_targets(
    targets: Int[Tensor, "b n k"], node_features: Float[Tensor, "b n d"], context: Context
) -> Float[Tensor, "b n k m"]:
    """One-hot addresses in the dtype that log-space work is done in."""
    n = node_features.shape[-2]
    dtype = torch.promote_types(node_features.dtype, torch.float32)
    return one_hot_addresses(targets, n, context.visibility.pairs(n, targets.device), dtype)
