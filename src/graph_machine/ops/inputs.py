"""What the layers hand to attention and referral, before edge features are projected.

Keys and values of edges are linear in edge features, so an implementation may either project the
edges (`e1_keys`, as the paper's listings do) or project the queries down to the edge features
(`e1_queries`), which needs no tensor of b x h x n x k x d. Both are offered here; each address
space and backend takes the one that suits it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


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


@dataclass(frozen=True)
class AttentionInputs:
    """Inputs of edge-augmented attention. Absent keys, features or temperatures are None.

    n counts the source nodes at hand, m the nodes that can be attended to: usually the same ones.
    """

    n1_queries: Float[Tensor, "b h n d"]
    n2_values: Float[Tensor, "b h m v"]
    n2_keys: Float[Tensor, "b h m d"] | None  # None: the edge expert alone
    e1_features: Float[Tensor, "b n k e"] | None  # None: the node expert alone
    e1_key_weights: Float[Tensor, "h d e"] | None
    edge_factor_temps: Float[Tensor, "b h n"] | None  # None: factor temperatures are off
    node_factor_temps: Float[Tensor, "b h n"] | None

    @property
    def e1_keys(self) -> Float[Tensor, "b h n k d"]:
        assert self.e1_features is not None
        assert self.e1_key_weights is not None
        return project_edges(self.e1_features, self.e1_key_weights)


@dataclass(frozen=True)
class ReferralInputs:
    """Inputs of edge-centric referral; the k heads are the k new edge slots."""

    n1_queries: Float[Tensor, "b h n d"]
    n2_values: Float[Tensor, "b h m e"]
    n2_keys: Float[Tensor, "b h m d"] | None  # None: the edge expert alone
    edge_expert: bool  # False: the node expert alone
    edge_features: Float[Tensor, "b m k e"]  # serve as e1 and as e2
    e1_key_weights: Float[Tensor, "h d e"]
    e1_value_weights: Float[Tensor, "h e e"]
    e2_key_weights: Float[Tensor, "h d e"]
    e2_value_weights: Float[Tensor, "h e e"]
    n2_edge_factor_temps: Float[Tensor, "b h n"] | None
    n2_node_factor_temps: Float[Tensor, "b h n"] | None
    e2_factor_temps: Float[Tensor, "b h n"] | None


class FactorEntropies(NamedTuple):
    """Mean normalised entropies of the two n2 factors; None where not asked for or absent."""

    edge: Tensor | None = None
    node: Tensor | None = None
