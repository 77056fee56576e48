"""Dense address spaces: weights, logits (appendix C.5), simulated sparsity (appendix C.6)."""

import pytest
import torch
from torch import Tensor

from graph_machine.config import ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.models.build import build_space
from graph_machine.nn import listen
from graph_machine.ops.referral import ReferralKind
from graph_machine.spaces import (
    Addresses,
    Context,
    DenseAddresses,
    DenseSpace,
    LogitAddresses,
    LogitSpace,
)
from graph_machine.state import Visibility
from support.cases import KINDS, batched, dense, make_stack, make_state, random_temps, ring
from tolerances import assert_close

F64 = torch.float64


@pytest.mark.parametrize("space", ["weight", "logit"])
@pytest.mark.parametrize("kind", KINDS)
def test_addresses_stay_on_the_simplex(kind: ReferralKind, space: str) -> None:
    """Input edges, sharpened ones and new ones, through the whole stack."""
    stack = make_stack(kind=kind)
    state = make_state(batched(ring(7), 2), space=space)
    seen: list[Tensor] = [dense(state)]
    with listen(stack, lambda name, tensor: seen.append(tensor) if "address" in name else None):
        out, _ = stack(state)
    for addresses in [*seen, dense(out)]:
        assert addresses.min() >= 0
        assert_close(addresses.sum(dim=-1), torch.ones(2, 7, 3, dtype=F64))


@pytest.mark.parametrize("kind", KINDS)
def test_without_sharpening_new_addresses_lie_among_the_old(kind: ReferralKind) -> None:
    stack = make_stack(kind=kind, sharpener="off")
    state = make_state(batched(ring(7), 2))
    for layer in stack.layers:
        old = dense(state)
        state, *_ = layer(state)
        new = dense(state)
        assert (new <= old.amax(dim=(1, 2), keepdim=True) + 1e-12).all()
        assert (new >= old.amin(dim=(1, 2), keepdim=True) - 1e-12).all()


def test_initial_addresses() -> None:
    targets = torch.tensor([[[0, 1, -1], [1, -1, -1], [2, 0, 1]]])
    nodes = torch.zeros(1, 3, 4, dtype=F64)
    visibility = Visibility(torch.tensor([[True, True, False]]))
    weights = DenseSpace().initial(targets, nodes, visibility).to_dense()
    assert weights.dtype == F64
    assert weights[0, 0].tolist() == [[1, 0, 0], [0, 1, 0], [0.5, 0.5, 0]]
    logits = LogitSpace().initial(targets, nodes)
    assert isinstance(logits, LogitAddresses)
    assert logits.values[0, 0, 1].tolist() == [0, 5, 0]
    assert logits.values[0, 0, 2].tolist() == pytest.approx([5 / 3] * 3)
    half = DenseSpace().initial(targets, nodes.bfloat16())
    assert half.to_dense().dtype == torch.float32


def test_logit_space_mixes_by_product_and_sharpens_by_factor() -> None:
    """Sharpening multiplies logits; the same in weight space up to the clip."""
    logits = torch.randn(1, 4, 3, 4, dtype=F64)
    temps = random_temps(1, 4, 3)
    sharp = LogitAddresses(logits).sharpen(temps, Visibility(), Context())
    assert torch.equal(sharp.values, logits * temps.unsqueeze(-1))
    weights = DenseAddresses(logits.softmax(dim=-1)).sharpen(temps, Visibility(), Context())
    assert_close(sharp.to_dense(), weights.to_dense())
    assert LogitAddresses(logits).sharpen(None, Visibility(), Context()).values is logits


def test_logit_space_with_one_slot_equals_weight_space() -> None:
    """With k = 1 there is nothing to mix in attention, so both spaces say the same."""
    stack = make_stack()
    node = stack.get_submodule("layers.0.node.0")
    state = make_state(batched(ring(7), 1))
    logits = torch.randn(1, 7, 1, 7, dtype=F64)
    one_slot = {"edge_features": torch.randn(1, 7, 1, 5, dtype=F64)}
    as_logits, _ = node(state.replace(**one_slot, addresses=LogitAddresses(logits)))
    weights = logits.softmax(dim=-1)
    as_weights, _ = node(state.replace(**one_slot, addresses=DenseAddresses(weights)))
    assert_close(as_logits.node_features, as_weights.node_features)


def test_simulated_sparsity() -> None:
    """At sharpening every address keeps s entries; with s = n nothing changes."""
    stack = make_stack()
    state = make_state(batched(ring(9), 1), top_s=2)
    seen: list[Tensor] = []
    with listen(stack, lambda name, tensor: seen.append(tensor) if "address_ins" in name else None):
        stack(state)
    assert len(seen) == 6
    assert all(((tensor > 0).sum(dim=-1) <= 2).all() for tensor in seen)
    full = state.replace(addresses=DenseAddresses(dense(state), top_s=9))
    plain = state.replace(addresses=DenseAddresses(dense(state)))
    assert_close(stack(full)[0].node_features, stack(plain)[0].node_features)


def test_gumbel_noise_is_for_training_alone() -> None:
    """The layer's own mode decides, unless the context says otherwise."""
    stack = make_stack()
    state = make_state(batched(ring(9), 1), top_s=2, gumbel_tau=1.0)
    calm = [stack.eval()(state)[0].node_features for _ in range(2)]
    assert torch.equal(calm[0], calm[1])
    noisy = [stack.train()(state)[0].node_features for _ in range(2)]
    assert not torch.equal(noisy[0], noisy[1])
    assert all(torch.isfinite(out).all() for out in noisy)
    assert torch.equal(stack(state, Context(training=False))[0].node_features, calm[0])


def test_simulated_sparsity_is_annealed() -> None:
    space = DenseSpace(top_s=2, s_start=8, gumbel_tau_start=1.0, anneal=0.5)
    found = []
    for progress in (None, 0.0, 0.25, 0.5, 1.0):
        if progress is not None:
            space.set_progress(progress)
        made = space.initial(torch.zeros(1, 9, 3, dtype=torch.long), torch.zeros(1, 9, 4))
        assert isinstance(made, DenseAddresses)
        found.append((made.top_s, made.gumbel_tau))
    assert found == [(2, 0.0), (8, 1.0), (4, 0.5), (2, 0.0), (2, 0.0)]
    with pytest.raises(ConfigError, match="give top_s"):
        DenseSpace(s_start=8)
    with pytest.raises(ConfigError, match="anneal"):
        DenseSpace(top_s=2, anneal=0.0)
    config = ModelConfig(top_s=2, sparse_s_start=8, gumbel_tau_start=1.0)
    built = build_space(config, None)
    assert isinstance(built, DenseSpace)
    assert built.schedule is not None
    assert built.schedule.starts == (8, 1.0)
    with pytest.raises(ConfigError, match="need top_s"):
        ModelConfig(gumbel_tau_start=1.0)


def test_raw_entropies_are_those_before_the_temperatures() -> None:
    """Without temperatures both are the same; with them only the entropies differ."""
    stack = make_stack()
    state = make_state(batched(ring(7), 2))
    out, after = stack(state, Context(entropies=True))
    same, raw = stack(state, Context(entropies=True, raw_entropies=True))
    assert_close(out.node_features, same.node_features)
    assert not any(torch.allclose(a, b) for a, b in zip(after, raw))
    plain = make_stack(factor_temps=False)
    _, after = plain(state, Context(entropies=True))
    _, raw = plain(state, Context(entropies=True, raw_entropies=True))
    for ours, theirs in zip(after, raw):
        assert_close(ours, theirs)


def test_addresses_without_a_dense_form_cannot_be_replaced() -> None:
    addresses = DenseAddresses(torch.full((1, 2, 1, 2), 0.5))
    with pytest.raises(ConfigError, match="DenseAddresses"):
        Addresses.with_dense(addresses, addresses.values)
