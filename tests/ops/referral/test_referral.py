"""Edge-centric referral: the listing of appendix A.2, its two variants, its laws (section 2.3)."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graph_machine.ops import edge_centric_referral
from graph_machine.ops.inputs import ListedReferral
from graph_machine.ops.referral import ReferralKind
from graph_machine.ops.referral.reference import reference_referral
from support import oracles
from support.cases import KINDS, Sizes, random_addresses, referral_case
from tolerances import assert_close

TINY = Sizes(b=1, h=2, n=3, k=2, d=3, v=2)


@pytest.mark.parametrize("kind", KINDS)
def test_n2_and_n1_may_have_other_numbers_of_slots_and_targets(kind: ReferralKind) -> None:
    """e1 and e2 are separate arguments: k, l and the number of targets need not agree."""
    case = referral_case()
    case["e2_keys"], case["e2_values"] = (
        torch.randn(2, 4, 7, 2, width, dtype=torch.float64) for width in (5, 6)
    )
    case["e2_addresses"] = random_addresses(2, 7, 2, 9)
    for ours, expected in zip(
        edge_centric_referral(**case, kind=kind), oracles.referral(case, kind)
    ):
        assert_close(ours, expected)


def e2_weights_of(case: dict[str, Tensor], kind: ReferralKind) -> Tensor:
    """A_e2 as the taps see it; pre-aggregated weights are the product of its two choices."""
    seen: dict[str, Tensor] = {}

    def tap(name: str, tensor: Tensor) -> Tensor:
        seen[name] = tensor
        return tensor

    given: dict[str, Any] = dict(case)
    reference_referral(ListedReferral(**given, kind=kind), tap)
    if kind == "preaggregated":
        return torch.einsum("bhnm,bhml->bhnml", seen["n2_weights"], seen["e2_own_weights"])
    return seen["e2_weights"]


def entropy(addresses: Tensor) -> Tensor:
    return -torch.special.xlogy(addresses, addresses).sum(dim=-1)


shapes = st.builds(
    Sizes,
    b=st.integers(1, 2),
    h=st.integers(1, 3),
    n=st.integers(1, 6),
    k=st.integers(1, 4),
    d=st.integers(1, 4),
    v=st.integers(1, 3),
)


@given(
    size=shapes,
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**16),
    hard=st.booleans(),
    spread=st.sampled_from([0.0, 1.0, 20.0]),
)
def test_new_addresses_are_convex_mixtures_and_jensen_holds(
    size: Sizes, kind: ReferralKind, seed: int, hard: bool, spread: float
) -> None:
    """Section 2.4: weights are a distribution, mixtures stay on the simplex, entropy can only grow.

    Hard, soft and mixed addresses; no, moderate and overwhelming preferences among them.
    """
    torch.manual_seed(seed)
    case = referral_case(size)
    case["n1_queries"] = spread * case["n1_queries"]
    if hard:
        targets = torch.randint(size.n, (size.b, size.n, size.k))
        one_hot = torch.nn.functional.one_hot(targets, size.n).double()
        case["e1_addresses"] = case["e2_addresses"] = one_hot
    _, addresses = edge_centric_referral(**case, kind=kind)
    weights = e2_weights_of(case, kind)  # b h n m l
    ones = torch.ones((), dtype=torch.float64)
    assert addresses.min() >= 0
    assert_close(addresses.sum(dim=-1), ones.expand(size.b, size.h, size.n))
    assert weights.min() >= 0
    assert_close(weights.sum(dim=(-1, -2)), ones.expand(size.b, size.h, size.n))
    old = case["e2_addresses"]
    assert_close(addresses, torch.einsum("bhnml,bmla->bhna", weights, old))
    # In the hull: no target has more mass than the fullest old edge gives it, nor less.
    assert (addresses <= old.amax(dim=(1, 2))[:, None, None] + 1e-12).all()
    assert (addresses >= old.amin(dim=(1, 2))[:, None, None] - 1e-12).all()
    mean_entropy = torch.einsum("bhnml,bml->bhn", weights, entropy(old))
    assert (entropy(addresses) >= mean_entropy - 1e-9).all()


@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_the_new_slots(kind: ReferralKind) -> None:
    case = referral_case()
    order = torch.tensor([3, 1, 0, 2])
    shared = ("e1_addresses", "e2_addresses")
    permuted = {name: t if name in shared else t[:, order] for name, t in case.items()}
    ours = edge_centric_referral(**permuted, kind=kind)
    for out, expected in zip(ours, edge_centric_referral(**case, kind=kind)):
        assert_close(out, expected[:, order])


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_slot_the_kinds_agree(kind: ReferralKind) -> None:
    """k = 1 leaves nothing to choose among e2; the conditional kind then drops F_e2 wholly."""
    case = referral_case(Sizes(k=1))
    if kind == "conditional":
        case["e2_factor_temps"] = torch.zeros_like(case["e2_factor_temps"])
    ours = edge_centric_referral(**case, kind=kind)
    for out, expected in zip(ours, edge_centric_referral(**case, kind="joint")):
        assert_close(out, expected)
