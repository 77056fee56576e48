"""Edge-centric referral (paper, section 2.3)."""

from jaxtyping import Bool, Float
from torch import Tensor

from graph_machine.errors import check_choice
from graph_machine.ops.backend import Backend, resolve
from graph_machine.ops.inputs import (
    REFERRAL_KINDS,
    FactorEntropies,
    ListedReferral,
    ReferralInputs,
    ReferralKind,
)
from graph_machine.ops.numerics import ADDRESS_EPS, Tap, check_shapes, in_float32, silent
from graph_machine.ops.referral.fused import fused_referral
from graph_machine.ops.referral.reference import reference_referral


def edge_centric_referral(
    *,
    n1_queries: Float[Tensor, "b h n d"],
    n2_edge_factor_temps: Float[Tensor, "b h n"] | None = None,
    n2_node_factor_temps: Float[Tensor, "b h n"] | None = None,
    e2_factor_temps: Float[Tensor, "b h n"] | None = None,
    e1_keys: Float[Tensor, "b h n k d"],
    e1_values: Float[Tensor, "b h n k e"],
    e1_addresses: Float[Tensor, "b n k m"],
    n2_keys: Float[Tensor, "b h m d"],
    n2_values: Float[Tensor, "b h m e"],
    e2_keys: Float[Tensor, "b h m l d"],
    e2_values: Float[Tensor, "b h m l e"],
    e2_addresses: Float[Tensor, "b m l a"],
    mask: Bool[Tensor, "#b #n m"] | None = None,
    kind: ReferralKind = "joint",
    eps: float = ADDRESS_EPS,
    backend: Backend = "auto",
) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b h n a"]]:
    """New edges from two-hop chains n1 -e1-> n2 -e2-> n3 (listing in appendix A.2).

    Returns the new edges' features and addresses, one per head. New addresses are convex mixtures
    of the `e2_addresses`. Temperatures default to 1; `mask` is True where n1 may refer
    to n2. `kind` is `joint` (one softmax over n2 and e2), `conditional` (e2 given n2) or
    `preaggregated` (every n2 mixes its own edges per head first).

    >>> import torch
    >>> b, k, n, d = 2, 3, 6, 8  # k heads make k new edges
    >>> addresses = torch.full((b, n, k, n), 1 / n)
    >>> features, new = edge_centric_referral(
    ...     n1_queries=torch.randn(b, k, n, d),
    ...     e1_keys=torch.randn(b, k, n, k, d),
    ...     e1_values=torch.randn(b, k, n, k, d),
    ...     e1_addresses=addresses,
    ...     n2_keys=torch.randn(b, k, n, d),
    ...     n2_values=torch.randn(b, k, n, d),
    ...     e2_keys=torch.randn(b, k, n, k, d),
    ...     e2_values=torch.randn(b, k, n, k, d),
    ...     e2_addresses=addresses,
    ... )
    >>> features.shape, new.shape  # b h n d, b h n a
    (torch.Size([2, 3, 6, 8]), torch.Size([2, 3, 6, 6]))
    """
    given = {name: value for name, value in locals().items() if name != "backend"}
    check_shapes(edge_centric_referral, given)
    check_choice("edge_centric_referral", "kind", kind, REFERRAL_KINDS)
    features, addresses, _ = refer(ListedReferral(**given), backend=backend)
    return features.transpose(1, 2), addresses.transpose(1, 2)


def refer(
    inputs: ReferralInputs | ListedReferral, *, backend: Backend = "auto", tap: Tap | None = None
) -> tuple[Float[Tensor, "b n h e"], Float[Tensor, "b n h a"], FactorEntropies]:
    """New features, addresses and entropies. Layers and `edge_centric_referral` call this."""
    word = resolve(backend, "edge_centric_referral", staged=inputs.staged(tap))
    if word == "fused":
        return fused_referral(inputs)
    listed = inputs if isinstance(inputs, ListedReferral) else inputs.listed()
    features, addresses, entropies = reference_referral(listed, silent if tap is None else tap)
    return features.transpose(1, 2), in_float32(addresses).transpose(1, 2), entropies


__all__ = ["REFERRAL_KINDS", "ReferralKind", "edge_centric_referral", "refer"]
