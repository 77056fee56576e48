"""Sharpening, conversions, selection and entropies of addresses (paper, 2.4 and appendix C.6)."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from graph_machine.errors import ConfigError
from graph_machine.ops import (
    ADDRESS_EPS,
    factor_entropy,
    keep_top_s,
    normalised_entropy,
    one_hot_addresses,
    sharpen,
    to_logits,
    to_weights,
)
from graph_machine.ops.address.dense import best_indices, gumbel_like
from support.cases import random_addresses, random_temps
from tolerances import assert_close

F64 = torch.float64


def one_hot(*shape: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.randint(shape[-1], shape[:-1]), shape[-1]).to(F64)


def uniform(*shape: int) -> Tensor:
    return torch.full(shape, 1 / shape[-1], dtype=F64)


def clipped(*shape: int) -> Tensor:
    """Most entries at, just above and just below the clip, and exactly 0."""
    address = torch.tensor([0.0, ADDRESS_EPS / 2, ADDRESS_EPS, 2 * ADDRESS_EPS], dtype=F64)
    address = torch.cat([address, address.new_zeros(shape[-1] - 5), 1 - address.sum()[None]])
    return address.expand(shape)


KINDS_OF_ADDRESS = {
    "one-hot": one_hot,
    "uniform": uniform,
    "clipped": clipped,
    "soft": random_addresses,
}


# --- sharpening -----------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**16),
    n=st.integers(1, 9),
    kind=st.sampled_from(sorted(KINDS_OF_ADDRESS)),
    temp=st.sampled_from([0.0, 0.3, 1.0, 4.0, 50.0]),
)
def test_sharpened_addresses_stay_on_the_simplex(seed: int, n: int, kind: str, temp: float) -> None:
    torch.manual_seed(seed)
    n = n + 5 if kind == "clipped" else n
    addresses = KINDS_OF_ADDRESS[kind](2, n, 3, n)
    sharp = sharpen(addresses, torch.full((2, n, 3), temp, dtype=F64))
    assert sharp.min() >= 0
    assert_close(sharp.sum(dim=-1), torch.ones(2, n, 3, dtype=F64))
    # The order of targets is kept: what had more mass has no less of it now.
    order = addresses.argsort(dim=-1)
    steps = sharp.gather(-1, order).diff(dim=-1)
    assert steps.numel() == 0 or steps.min() >= -1e-15


@pytest.mark.parametrize(
    "temps", [random_temps(2, 7, 3), torch.ones(2, 7, 3), torch.zeros(2, 7, 3)]
)
def test_sharpening_is_a_power(temps: Tensor) -> None:
    """Of 1 returns the address, of 0 makes it uniform."""
    addresses, temps = random_addresses(2, 7, 3, 7), temps.double()
    powers = addresses ** temps.unsqueeze(-1)
    assert_close(sharpen(addresses, temps), powers / powers.sum(dim=-1, keepdim=True))


def test_sharpening_above_one_lowers_entropy() -> None:
    addresses = random_addresses(2, 7, 3, 7)
    entropies = [
        normalised_entropy(sharpen(addresses, torch.full((2, 7, 3), temp, dtype=F64)))
        for temp in (0.5, 1.0, 1.5, 4.0)
    ]
    assert all((later < earlier).all() for earlier, later in pairwise(entropies))


def test_clipping_lifts_small_mass_to_eps() -> None:
    addresses = torch.tensor([1.0, 0.0, 0.0], dtype=F64).expand(1, 1, 1, 3)
    sharp = sharpen(addresses, torch.full((1, 1, 1), 0.5, dtype=F64), eps=1e-4)
    expected = torch.tensor([1.0, 1e-2, 1e-2], dtype=F64)
    assert_close(sharp[0, 0, 0], expected / expected.sum())


def test_lifted_mass_stays_off_masked_targets() -> None:
    mask = torch.ones(2, 1, 7, dtype=torch.bool)
    mask[1, :, 4:] = False
    sharp = sharpen(one_hot(2, 7, 3, 7), torch.full((2, 7, 3), 0.1, dtype=F64), mask=mask)
    assert sharp[1, ..., 4:].abs().max() == 0
    assert_close(sharp.sum(dim=-1), torch.ones(2, 7, 3, dtype=F64))


@pytest.mark.usefixtures("unchecked")
def test_gradcheck() -> None:
    addresses = random_addresses(1, 3, 2, 3).requires_grad_()
    temps = random_temps(1, 3, 2).requires_grad_()
    mask = torch.ones(1, 3, 3, dtype=torch.bool).tril()
    factors = torch.randn(1, 2, 3, 3, dtype=F64, requires_grad=True)
    assert gradcheck(lambda a, t: sharpen(a, t, mask=mask), [addresses, temps])
    assert gradcheck(to_logits, [addresses])
    assert gradcheck(lambda x: to_weights(x, mask), [factors])
    assert gradcheck(lambda a: keep_top_s(a, 2), [addresses])
    assert gradcheck(normalised_entropy, [addresses])
    assert gradcheck(factor_entropy, [factors])
    sources = torch.tensor([[True, True, False]])
    assert gradcheck(lambda f: factor_entropy(f, mask, sources), [factors])


def test_half_precision_is_widened() -> None:
    """Logs and softmaxes are float32 whatever comes in."""
    addresses = random_addresses(1, 3, 2, 3).bfloat16()
    sharp = sharpen(addresses, torch.ones(1, 3, 2))
    assert sharp.dtype == torch.float32
    assert_close(sharp, addresses.float() / addresses.float().sum(dim=-1, keepdim=True))


# --- conversions ----------------------------------------------------------------------------


def test_hard_targets_become_one_hot_and_empty_ones_uniform() -> None:
    targets = torch.tensor([[[2, -1], [0, 1], [-1, -1]]])
    addresses = one_hot_addresses(targets, 3)
    third = torch.full((3,), 1 / 3)
    assert torch.equal(addresses[0, 0, 0], torch.tensor([0.0, 0.0, 1.0]))
    assert torch.equal(addresses[0, 1], torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    assert_close(addresses[0, 0, 1], third)
    assert_close(addresses[0, 2], third.expand(2, 3))


def test_empty_targets_are_uniform_over_what_may_be_seen() -> None:
    targets = torch.full((1, 3, 1), -1)
    causal = torch.ones(1, 3, 3, dtype=torch.bool).tril()
    addresses = one_hot_addresses(targets, 3, causal, F64)[0, :, 0]
    expected = torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]], dtype=F64)
    assert_close(addresses, expected)
    nothing = one_hot_addresses(targets, 3, torch.zeros(1, 1, 3, dtype=torch.bool))
    assert nothing.abs().max() == 0


def test_logits_and_weights_are_inverse() -> None:
    addresses = random_addresses(2, 7, 3, 7)
    assert_close(to_weights(to_logits(addresses)), addresses)
    assert to_logits(torch.zeros(3, dtype=F64)).tolist() == [math.log(ADDRESS_EPS)] * 3


# --- selection ------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**16),
    n=st.integers(2, 9),
    s=st.integers(1, 9),
    tau=st.sampled_from([0.0, 1.0]),
)
def test_top_s_keeps_s_entries_in_proportion(seed: int, n: int, s: int, tau: float) -> None:
    torch.manual_seed(seed)
    addresses = random_addresses(2, 3, n)
    kept = keep_top_s(addresses, s, tau)
    chosen = kept > 0
    assert (chosen.sum(dim=-1) == min(s, n)).all()
    assert_close(kept.sum(dim=-1), torch.ones(2, 3, dtype=F64))
    mass = (addresses * chosen).sum(dim=-1, keepdim=True)
    assert_close(kept, addresses * chosen / mass)
    if tau == 0:
        least_kept = addresses.masked_fill(~chosen, 2).amin(dim=-1)
        most_dropped = addresses.masked_fill(chosen, -1).amax(dim=-1)
        assert (least_kept >= most_dropped).all()


def test_keeping_everything_changes_nothing() -> None:
    addresses = random_addresses(2, 5)
    assert keep_top_s(addresses, 5) is addresses
    assert keep_top_s(addresses, 50, tau=1.0) is addresses


def test_gumbel_noise_of_scale_one_samples_the_address() -> None:
    """The Gumbel-max law: the largest of log p + tau * noise is a draw from p ** (1 / tau)."""
    address = torch.tensor([0.6, 0.25, 0.1, 0.05], dtype=F64)
    draws = 20_000
    for tau in (1.0, 2.0):
        kept = keep_top_s(address.expand(draws, 4), 1, tau)
        expected = address ** (1 / tau)
        expected = expected / expected.sum()
        deviation = (expected * (1 - expected) / draws).sqrt()
        assert ((kept.mean(dim=0) - expected).abs() < 5 * deviation).all()


def test_gumbel_noise_has_its_mean_and_spread() -> None:
    noise = gumbel_like(torch.empty(200_000, dtype=F64))
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.02)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, abs=0.05)


def test_the_choice_passes_no_gradient_to_what_was_dropped() -> None:
    addresses = random_addresses(2, 7).requires_grad_()
    kept = keep_top_s(addresses, 3)
    (kept * torch.randn(7, dtype=F64)).sum().backward()
    assert addresses.grad is not None
    assert addresses.grad[kept == 0].abs().max() == 0
    assert addresses.grad[kept > 0].abs().min() > 0


def test_s_should_be_positive() -> None:
    with pytest.raises(ConfigError, match="got 0"):
        keep_top_s(random_addresses(2, 5), 0)


# --- entropies ------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**16), n=st.integers(1, 9), scale=st.sampled_from([0.0, 1.0, 300.0]))
def test_entropies_lie_between_hard_and_uniform(seed: int, n: int, scale: float) -> None:
    torch.manual_seed(seed)
    factors = scale * torch.randn(1, 2, n, n, dtype=F64)
    weights = factors.softmax(dim=-1)
    entropies = normalised_entropy(weights)
    assert entropies.min() >= 0
    assert entropies.max() <= 1 + 1e-12
    assert_close(factor_entropy(factors), entropies.mean())
    if scale == 0:
        assert_close(entropies, torch.full_like(entropies, float(n > 1)))


def test_masked_entropy_counts_what_may_be_seen() -> None:
    """Padding changes nothing: neither as a target nor as a source."""
    small, large = torch.randn(1, 2, 4, 4, dtype=F64), 9 * torch.randn(1, 2, 6, 6, dtype=F64)
    large[:, :, :4, :4] = small
    real = torch.tensor([[True] * 4 + [False] * 2])
    assert_close(factor_entropy(large, real.unsqueeze(1), real), factor_entropy(small))
    weights = torch.cat([small.softmax(dim=-1), torch.zeros(1, 2, 4, 2, dtype=F64)], dim=-1)
    masked = normalised_entropy(weights, real.expand(1, 2, 4, 6))
    assert_close(masked, normalised_entropy(small.softmax(dim=-1)))


def test_causal_entropy_leaves_out_the_first_row() -> None:
    """A source that sees itself alone has made no choice: entropy 0, without NaN."""
    causal = torch.ones(1, 3, 3, dtype=torch.bool).tril()
    factors = torch.zeros(1, 1, 3, 3, dtype=F64, requires_grad=True)
    entropy = factor_entropy(factors, causal)
    assert entropy.item() == pytest.approx(2 / 3)
    entropy.backward()
    assert factors.grad is not None
    assert torch.isfinite(factors.grad).all()


@pytest.mark.parametrize("compiling", [False, True])
@given(seed=st.integers(0, 100), width=st.integers(1, 90), more=st.integers(0, 70))
def test_of_equal_entries_the_first_are_best_whatever_follows(
    compiling: bool, seed: int, width: int, more: int
) -> None:
    torch.manual_seed(seed)
    keys = torch.randn(3, 5, width).round()
    limit = 1 + seed % width
    expected = keys.sort(dim=-1, descending=True, stable=True).indices[..., :limit]
    wider = torch.nn.functional.pad(keys, (0, more), value=-torch.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: compiling)
        assert torch.equal(best_indices(wider, limit), expected.sort(dim=-1).values)


def test_the_best_of_entries_that_are_no_numbers() -> None:
    keys = torch.zeros(3, 20)
    keys[0], keys[1, 3], keys[2] = torch.nan, torch.nan, -torch.inf
    found = best_indices(keys, 4)
    assert 3 in found[1]
    assert ((found >= 0) & (found < 20)).all()


@pytest.mark.parametrize("mask", [None, torch.ones(1, 1, 5, dtype=torch.bool).tril(-1)])
def test_graphs_that_share_their_edges_share_memory(mask: Tensor | None) -> None:
    """An input graph that all examples have is made once; sharpening reads it as it lies."""
    targets = torch.tensor([[1, -1], [0, 2], [4, 4], [-1, 3], [2, -1]])
    shared = one_hot_addresses(targets.expand(3, -1, -1), 5, mask)
    apart = one_hot_addresses(targets.repeat(3, 1, 1), 5, mask)
    assert shared.stride(0) == 0
    assert torch.equal(shared, apart)
    found = []
    for addresses, backend in ((shared, "fused"), (apart, "fused"), (apart, "reference")):
        temps = (torch.arange(30.0).view(3, 5, 2) / 10).requires_grad_()
        outs = sharpen(addresses, temps, backend=backend)
        (outs**2).sum().backward()
        found.append((outs.detach(), temps.grad))
    for one, two, reference in zip(*found):
        assert torch.equal(one, two)
        assert_close(one, reference)
