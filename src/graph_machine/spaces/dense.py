"""Dense addresses: a weight (or a logit) for every target node."""

from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

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
from graph_machine.ops.attention import dense as fused_attention
from graph_machine.ops.attention import reference as attention
from graph_machine.ops.backend import resolve
from graph_machine.ops.inputs import (
    AttentionInputs,
    FactorEntropies,
    ReferralInputs,
    project_edges,
)
from graph_machine.ops.numerics import ADDRESS_EPS, in_float32
from graph_machine.ops.referral import ReferralKind
from graph_machine.ops.referral import dense as fused_referral
from graph_machine.ops.referral import reference as referral
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

    def attend(self, inputs: AttentionInputs, context: Context) -> AttentionOut:
        return attend_dense(inputs, self.values, self.mask(context), self, context)

    def refer(
        self: D, inputs: ReferralInputs, collected: D, kind: ReferralKind, context: Context
    ) -> ReferralOut:
        mask = self.mask(context)
        if takes_fused(context, "edge_centric_referral", inputs.n1_queries):
            features, addresses, entropies = fused_referral.refer(
                inputs,
                self.values,
                collected.values,
                mask,
                kind=kind,
                eps=self.eps,
                logit_space=self.logit_space,
                entropies=context.entropies,
                sources=context.visibility.node_mask,
            )
            return ReferralOut(features, replace(self, values=addresses), entropies)
        factors = referral.referral_factors(
            n1_queries=inputs.n1_queries,
            n2_edge_factor_temps=inputs.n2_edge_factor_temps,
            n2_node_factor_temps=inputs.n2_node_factor_temps,
            e1_keys=project_edges(inputs.edge_features, inputs.e1_key_weights),
            e1_addresses=self.values if inputs.edge_expert else None,
            n2_keys=inputs.n2_keys,
            eps=self.eps,
            logit_space=self.logit_space,
            tap=context.listener,
        )
        features, addresses = referral.referral(
            factors,
            kind=kind,
            n1_queries=inputs.n1_queries,
            e2_factor_temps=inputs.e2_factor_temps,
            e1_values=project_edges(inputs.edge_features, inputs.e1_value_weights),
            n2_values=inputs.n2_values,
            e2_keys=project_edges(inputs.edge_features, inputs.e2_key_weights),
            e2_values=project_edges(inputs.edge_features, inputs.e2_value_weights),
            e2_addresses=collected.values,
            mask=mask,
            tap=context.listener,
        )
        entropies = entropies_of(
            before(factors.n2_edge_factors, inputs.n2_edge_factor_temps, context),
            before(factors.n2_node_factors, inputs.n2_node_factor_temps, context),
            mask,
            context,
        )
        new = replace(self, values=in_float32(addresses).transpose(1, 2))
        return ReferralOut(features.transpose(1, 2), new, entropies)


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


def takes_fused(context: Context, op: str, example: Tensor) -> bool:
    """Fused paths have no stages, so a tap that listens gets the staged ones."""
    staged = context.tap is not None or (context.entropies and context.raw_entropies)
    return resolve(context.backend, op, example) == "fused" and not staged


torch.export.register_dataclass(DenseAddresses, serialized_type_name="graph_machine.DenseAddresses")
torch.export.register_dataclass(LogitAddresses, serialized_type_name="graph_machine.LogitAddresses")


def before(factors: Tensor | None, temps: Tensor | None, context: Context) -> Tensor | None:
    """Factors as the entropy losses see them: after their temperatures, or before if asked for.

    Divided out again, because taps get (and may replace) the factors after their temperatures.
    """
    if factors is None or temps is None or not context.raw_entropies:
        return factors
    return factors / in_float32(temps).unsqueeze(-1)


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


def attend_dense(
    inputs: AttentionInputs,
    values: Tensor | None,
    mask: Tensor | None,
    settings: DenseAddresses | None,
    context: Context,
) -> AttentionOut:
    """Attention with dense addresses, or without any edges at all (a Transformer)."""
    eps = ADDRESS_EPS if settings is None else settings.eps
    logit_space = settings is not None and settings.logit_space
    if takes_fused(context, "edge_augmented_attention", inputs.n1_queries):
        outs, entropies = fused_attention.attend(
            inputs,
            None if inputs.e1_features is None else values,
            mask,
            eps=eps,
            logit_space=logit_space,
            entropies=context.entropies,
            sources=context.visibility.node_mask,
        )
        return AttentionOut(outs, entropies)
    edge_factors, node_factors = attention.attention_factors(
        n1_queries=inputs.n1_queries,
        edge_factor_temps=inputs.edge_factor_temps,
        node_factor_temps=inputs.node_factor_temps,
        e1_keys=None if inputs.e1_features is None else inputs.e1_keys,
        e1_addresses=values,
        n2_keys=inputs.n2_keys,
        eps=eps,
        logit_space=logit_space,
        tap=context.listener,
    )
    weights = attention.attention_weights(edge_factors, node_factors, mask)
    outs = attention.attend(context.report("weights", weights), inputs.n2_values)
    entropies = entropies_of(
        before(edge_factors, inputs.edge_factor_temps, context),
        before(node_factors, inputs.node_factor_temps, context),
        mask,
        context,
    )
    return AttentionOut(outs, entropies)


def attend_without_edges(inputs: AttentionInputs, context: Context) -> AttentionOut:
    """The node expert alone: a Transformer's attention, with the same temperatures and taps."""
    mask = context.visibility.pairs(inputs.n1_queries.shape[-2], inputs.n1_queries.device)
    return attend_dense(inputs, None, mask, None, context)


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
