"""Dense addresses: a weight (or a logit) for every target node."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops.address.dense import (
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
from graph_machine.ops.referral import refer
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
from graph_machine.state import Visibility

D = TypeVar("D", bound="DenseAddresses")


@dataclass(frozen=True)
class DenseAddresses(Addresses):
    """Distributions over target nodes, (b, n, k, m): the paper's default.

    >>> import torch
    >>> DenseAddresses(torch.full((1, 4, 3, 4), 0.25)).to_dense().shape  # b n k m
    torch.Size([1, 4, 3, 4])
    """

    values: Float[Tensor, "b n k m"]
    eps: float = ADDRESS_EPS
    top_s: int | None = None  # simulated sparsity (paper, appendix C.6)
    gumbel_tau: float = 0.0
    given_scale: float = 1.0  # the mass of an edge beside these

    logit_space: ClassVar[bool] = False

    @property
    def slots(self) -> tuple[int, int, int]:
        b, n, k, _ = self.values.shape
        return b, n, k

    def sharpen(self: D, temps: Temps | None, sight: Visibility, context: Context) -> D:
        values = self.values
        if temps is not None:
            mask = sight.pairs(values.shape[-1], values.device)
            values = sharpen(values, temps, mask=mask, eps=self.eps, backend=context.backend)
        if self.top_s is not None:
            tau = self.gumbel_tau if context.training else 0.0
            values = keep_top_s(values, self.top_s, tau, self.eps)
        return replace(self, values=values)

    def to_dense(self) -> Float[Tensor, "b n k m"]:
        return self.values

    def with_dense(self: D, weights: Float[Tensor, "b n k m"]) -> D:
        return replace(self, values=weights)

    def settings(self, sight: Visibility, context: Context) -> dict[str, Any]:
        """What dense addresses add to the inputs of attention and referral."""
        settings = {
            "eps": self.eps,
            "logit_space": self.logit_space,
            "e1_addresses": self.values,
            "given_scale": self.given_scale,
        }
        return settings | dense_call(self.values.shape[-1], self.values.device, sight, context)

    def attend(self, inputs: AttentionInputs, sight: Visibility, context: Context) -> AttentionOut:
        given = replace(self.with_given(inputs), **self.settings(sight, context))
        return AttentionOut(*attend(given, backend=context.backend, tap=context.tap))

    def refer(
        self: D, inputs: ReferralInputs, collected: D, sight: Visibility, context: Context
    ) -> ReferralOut:
        settings = self.settings(sight, context) | {"e2_addresses": collected.values}
        given = replace(self.with_given(inputs), **settings)
        features, values, entropies = refer(given, backend=context.backend, tap=context.tap)
        return ReferralOut(features, replace(self, values=values, given=None), entropies)


@dataclass(frozen=True)
class LogitAddresses(DenseAddresses):
    """Addresses that are logits: mixed as a product of experts, sharpened by a factor (C.5).

    `allowed` is the mask that attention and referral apply; here only `to_dense` uses it.

    >>> import torch
    >>> targets, nodes = torch.tensor([[[0, 1], [1, -1]]]), torch.zeros(1, 2, 64)  # b n k, b n d_n
    >>> LogitSpace().initial(targets, nodes).values.shape  # b n k m
    torch.Size([1, 2, 2, 2])
    """

    allowed: Bool[Tensor, "#b #n m"] | None = None

    logit_space: ClassVar[bool] = True

    def sharpen(self: D, temps: Temps | None, sight: Visibility, context: Context) -> D:
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
    edge_factors: Tensor | None,
    node_factors: Tensor | None,
    mask: Tensor | None,
    sources: Tensor | None,
    context: Context,
) -> FactorEntropies:
    """Entropies of whichever factors there are, if the caller asked for them."""
    if not context.entropies:
        return FactorEntropies()
    return FactorEntropies(
        *(
            None if factors is None else factor_entropy(factors, mask, sources)
            for factors in (edge_factors, node_factors)
        )
    )


def dense_call(
    num_nodes: int, device: torch.device, sight: Visibility, context: Context
) -> dict[str, Any]:
    return {
        "mask": sight.pairs(num_nodes, device),
        "sources": sight.node_mask,
        "entropies": context.entropies,
        "raw_entropies": context.raw_entropies,
    }


def attend_without_edges(
    inputs: AttentionInputs, sight: Visibility, context: Context
) -> AttentionOut:
    """Only the node expert: a Transformer's attention, with the same temperatures and taps."""
    queries = inputs.n1_queries
    given = replace(inputs, **dense_call(queries.shape[-2], queries.device, sight, context))
    return AttentionOut(*attend(given, backend=context.backend, tap=context.tap))


class DenseSpace(AddressSpace):
    """Weight-space addresses; with `top_s`, simulated sparsity.

    `top_s` and `gumbel_tau` are the values at the end of training; `s_start` and `gumbel_tau_start`
    are those at its start (see `Annealing`), and need a `top_s` to go to.

    >>> import torch
    >>> targets = torch.tensor([[[0, 1, -1], [1, 0, -1]]])  # b n k; -1 is an empty slot
    >>> DenseSpace().initial(targets, torch.zeros(1, 2, 64)).to_dense()[0, 0]  # k n
    tensor([[1.0000, 0.0000],
            [0.0000, 1.0000],
            [0.5000, 0.5000]])
    """

    def __init__(
        self,
        *,
        eps: float = ADDRESS_EPS,
        top_s: int | None = None,
        gumbel_tau: float = 0.0,
        s_start: int | None = None,
        gumbel_tau_start: float | None = None,
        anneal: float = 1.0,
    ) -> None:
        super().__init__()
        self.eps = eps
        if top_s is None and (s_start is not None or gumbel_tau_start is not None):
            raise ConfigError(
                "weight space: s_start and gumbel_tau_start lead to a top_s; give top_s, too."
            )
        if top_s is not None:
            tau = (gumbel_tau_start, gumbel_tau)
            self.schedule = Annealing("weight", (s_start, top_s), tau, anneal)

    def initial(
        self, targets: Targets, node_features: Nodes, sight: Visibility = Visibility()
    ) -> Addresses:
        values = dense_targets(targets, node_features, sight)
        if self.schedule is None:
            return DenseAddresses(values, self.eps)
        return DenseAddresses(values, self.eps, self.schedule.s, self.schedule.tau)


class LogitSpace(AddressSpace):
    """Logit-space addresses: input weights times `scale` (the paper's 5).

    >>> import torch
    >>> targets, nodes = torch.tensor([[[0, 1], [1, -1]]]), torch.zeros(1, 2, 64)  # b n k, b n d_n
    >>> LogitSpace(scale=5.0).initial(targets, nodes).values[0, 0]  # k m
    tensor([[5., 0.],
            [0., 5.]])
    """

    def __init__(self, *, scale: float = 5.0, eps: float = ADDRESS_EPS) -> None:
        super().__init__()
        self.scale = scale
        self.eps = eps

    def initial(
        self, targets: Targets, node_features: Nodes, sight: Visibility = Visibility()
    ) -> Addresses:
        values = dense_targets(targets, node_features, sight)
        allowed = sight.pairs(node_features.shape[-2], targets.device)
        scaled = values * self.scale
        return LogitAddresses(scaled, self.eps, given_scale=self.scale, allowed=allowed)


def dense_targets(
    targets: Int[Tensor, "b n k"], node_features: Float[Tensor, "b n d"], sight: Visibility
) -> Float[Tensor, "b n k m"]:
    """One-hot addresses in the dtype that log-space work is done in."""
    n = node_features.shape[-2]
    dtype = torch.promote_types(node_features.dtype, torch.float32)
    return one_hot_addresses(targets, n, sight.pairs(n, targets.device), dtype)
