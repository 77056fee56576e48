"""The inputs of attention and referral, before edge features are projected.

Keys and values of edges are linear in edge features. So an implementation may either project the
edges (`e1_keys`, as in the paper's listings) or project the queries down to the edge features
(`e1_queries`), which needs no tensor of b x h x n x k x d. Each address space and backend chooses.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple, TypeVar, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from graph_machine.ops.core import even_rows
from graph_machine.ops.numerics import ADDRESS_EPS, Tap

# The e2 factor of a slot that holds no edge: its exponential is 0, and listeners see a number.
NO_EDGE = -1e30
ReferralKind = Literal["joint", "conditional", "preaggregated"]
REFERRAL_KINDS: tuple[str, ...] = get_args(ReferralKind)


def project_edges(
    features: Float[Tensor, "b n k e"], weights: Float[Tensor, "h d e"]
) -> Float[Tensor, "b h n k d"]:
    """Keys or values of every edge for every head."""
    return torch.einsum("bnke,hde->bhnkd", features, weights)


def absorb(
    queries: Float[Tensor, "b h n d"], weights: Float[Tensor, "h d e"]
) -> Float[Tensor, "b h n e"]:
    """Queries projected so that `absorbed . e == queries . (W e)`."""
    return torch.einsum("bhnd,hde->bhne", queries, weights)


@dataclass(frozen=True, kw_only=True)
class DenseCall:
    """Further inputs of a call over dense addresses; other address spaces keep the defaults."""

    e1_addresses: Float[Tensor, "b n k m"] | None = None
    # Edges beside those k: features, keys and values have slots for all t, addresses do not.
    given_targets: Int[Tensor, "b m g"] | None = None  # -1: no edge
    empty_edge: bool = False  # one more, even over all nodes that may be seen
    given_scale: float = 1.0  # the mass of a given edge, in the logit space
    # After `expanded`: addresses have rows for these edges too, and some slots hold no edge.
    e1_slots: Bool[Tensor, "b n t"] | None = None
    e2_slots: Bool[Tensor, "b m t"] | None = None
    mask: Bool[Tensor, "#b #n m"] | None = None  # True where n1 may look at n2
    sources: Bool[Tensor, "b n"] | None = None  # the sources that count in entropies
    eps: float = ADDRESS_EPS
    logit_space: bool = False  # addresses are logits
    entropies: bool = False  # also give the mean normalised entropies of the n2 factors
    raw_entropies: bool = False  # before the factors' temperatures (only in the reference)

    def staged(self, tap: Tap | None) -> bool:
        """Whether the stages of the reference are needed, for a listener or for raw entropies."""
        return tap is not None or (self.entropies and self.raw_entropies)

    @property
    def beside(self) -> bool:
        """Whether there are edges without a row of addresses."""
        return self.given_targets is not None or self.empty_edge


C = TypeVar("C", bound=DenseCall)


def expanded(inputs: C) -> C:
    """The same call with dense addresses for every given edge and for the empty edge."""
    if not inputs.beside:
        return inputs
    first = inputs.e1_addresses
    assert first is not None
    (b, n, _, m), targets = first.shape, inputs.given_targets
    exists, extra = first.new_ones(*first.shape[:3], dtype=torch.bool), []  # b n k, b n . m
    if targets is not None:
        ids = torch.arange(m, device=targets.device)
        extra.append((targets.unsqueeze(-1) == ids).to(first.dtype) * inputs.given_scale)
        exists = torch.cat([exists, targets >= 0], dim=-1)
    if inputs.empty_edge:
        even = even_rows(inputs.mask, m, inputs.given_scale, first)
        extra.append(even.expand(b, n, 1, m))
        exists = nn.functional.pad(exists, (0, 1), value=True)
    changes: dict[str, object] = {
        "e1_addresses": torch.cat([first, *extra], dim=2),
        "e1_slots": exists,
        "e2_slots": exists,
        "given_targets": None,
        "empty_edge": False,
    }
    if isinstance(inputs, ReferralCall):
        assert inputs.e2_addresses is not None
        changes["e2_addresses"] = torch.cat([inputs.e2_addresses, *extra], dim=2)
    return replace(inputs, **changes)


@dataclass(frozen=True, kw_only=True)
class AttentionInputs(DenseCall):
    """Inputs of edge-augmented attention. Absent keys, features or temperatures are None.

    n is the number of source nodes, m that of nodes that can be attended to: usually the same.
    Keys of edges are given as `e1_keys` (as in the listing) or as features and weights (by layers).
    """

    n1_queries: Float[Tensor, "b h n d"]
    n2_values: Float[Tensor, "b h m v"]
    n2_keys: Float[Tensor, "b h m d"] | None = None  # None: only the edge expert
    e1_features: Float[Tensor, "b n t e"] | None = None  # no edges at all: only the node expert
    e1_key_weights: Float[Tensor, "h d e"] | None = None
    e1_keys: Float[Tensor, "b h n t d"] | None = None
    e1_value_weights: Float[Tensor, "h v e"] | None = None  # nodes also read their own edges
    edge_factor_temps: Float[Tensor, "b h n"] | None = None  # None: factor temperatures are off
    node_factor_temps: Float[Tensor, "b h n"] | None = None

    @property
    def listed_e1_keys(self) -> Float[Tensor, "b h n t d"] | None:
        if self.e1_features is None or self.e1_key_weights is None:
            return self.e1_keys
        return project_edges(self.e1_features, self.e1_key_weights)


@dataclass(frozen=True, kw_only=True)
class ReferralCall(DenseCall):
    """Common to both forms of referral's inputs; the k heads are the k new edge slots."""

    n1_queries: Float[Tensor, "b h n d"]
    n2_values: Float[Tensor, "b h m e"]
    n2_keys: Float[Tensor, "b h m d"] | None = None  # None: only the edge expert
    edge_expert: bool = True  # False: only the node expert
    n2_edge_factor_temps: Float[Tensor, "b h n"] | None = None
    n2_node_factor_temps: Float[Tensor, "b h n"] | None = None
    e2_factor_temps: Float[Tensor, "b h n"] | None = None
    e2_addresses: Float[Tensor, "b m l a"] | None = None
    kind: ReferralKind = "joint"


SHARED = tuple(field.name for field in fields(ReferralCall))  # here: `torch.compile` cannot ask


@dataclass(frozen=True, kw_only=True)
class ListedReferral(ReferralCall):
    """Keys and values given per edge and head, as in the paper's listing."""

    e1_keys: Float[Tensor, "b h n t d"]
    e1_values: Float[Tensor, "b h n t e"]
    e2_keys: Float[Tensor, "b h m u d"]
    e2_values: Float[Tensor, "b h m u e"]


@dataclass(frozen=True, kw_only=True)
class ReferralInputs(ReferralCall):
    """Edge features and the weights that project them, as a layer has them."""

    edge_features: Float[Tensor, "b m t e"]  # serve as e1 and as e2
    e1_key_weights: Float[Tensor, "h d e"]
    e1_value_weights: Float[Tensor, "h e e"]
    e2_key_weights: Float[Tensor, "h d e"]
    e2_value_weights: Float[Tensor, "h e e"]

    def listed(self) -> ListedReferral:
        """The same with projected keys and values."""
        shared = {name: getattr(self, name) for name in SHARED}
        return ListedReferral(
            e1_keys=project_edges(self.edge_features, self.e1_key_weights),
            e1_values=project_edges(self.edge_features, self.e1_value_weights),
            e2_keys=project_edges(self.edge_features, self.e2_key_weights),
            e2_values=project_edges(self.edge_features, self.e2_value_weights),
            **shared,
        )


class FactorEntropies(NamedTuple):
    """Mean normalised entropies of the two n2 factors; None if not requested or absent."""

    edge: Tensor | None = None
    node: Tensor | None = None


def entropy_weights(
    inputs: AttentionInputs | ReferralCall, like: Tensor
) -> Float[Tensor, "#b #n"] | None:
    """The weight of each source node in the mean of normalised entropies; None if not requested.

    A row with a single allowed target counts with an entropy of 0.
    """
    if not inputs.entropies:
        return None
    b, h, n, _ = inputs.n1_queries.shape
    if inputs.mask is None:
        m = inputs.n2_values.shape[2]
        weights = like.new_full((1, 1), 1.0 / math.log(m) if m > 1 else 0.0)
    else:
        top = inputs.mask.sum(dim=-1).to(like.dtype).clamp_min(1.0).log()
        weights = torch.where(top > 0, 1.0 / top.clamp_min(1e-12), torch.zeros_like(top))
    if inputs.sources is None:
        return weights / (b * h * n)
    return weights * inputs.sources / (inputs.sources.sum() * h).clamp_min(1)
