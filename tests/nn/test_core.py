"""The recurrent core: rounds with shared weights, edges computed once, gradients where asked."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.errors import ShapeError
from graph_machine.nn import Layer, NodeSublayer, RecurrentCore, listen
from graph_machine.spaces import Context
from graph_machine.state import GraphState
from support.cases import SMALL, batched, make_stack, make_state, ring
from tolerances import assert_close


def start_state() -> GraphState:
    torch.manual_seed(1)
    return make_state(batched(ring(7), 2))


def make_core(refers: bool = False, **options: Any) -> RecurrentCore:
    """Two layers with weights that matter, without their edge sublayers unless it refers."""
    torch.manual_seed(0)
    layers = [layer for layer in make_stack().layers if isinstance(layer, Layer)][:2]
    if not refers:
        layers = [Layer((), [*layer.node]) for layer in layers]  # pyrefly: ignore
    return RecurrentCore(layers, d_node=SMALL.d_node, **options).double()


def node_features(core: RecurrentCore, state: GraphState, **call: int) -> Tensor:
    return core(state, Context(backend="reference"), **call).state.node_features


def by_hand(core: RecurrentCore, state: GraphState, rounds: int) -> Tensor:
    """The definition: normalise, add what entered, apply the layers; edges made anew each time."""
    entered = state.node_features
    for _ in range(rounds):
        before = state.node_features
        if core.norm is not None:
            before = core.norm(before)
        inject = 0 if core.inject is None else entered @ core.inject.weight.t()
        state = state.replace(node_features=before + inject)
        for layer in core.layers:
            state = layer(state, Context(backend="reference"))[0]
        if core.gate is not None:
            share = core.gate(before).sigmoid()
            mixed = before + share * (state.node_features - before)
            state = state.replace(node_features=mixed)
    return state.node_features


@pytest.mark.parametrize("state", ["normed", "gated", "plain"])
@pytest.mark.parametrize("refers", [False, True])
def test_rounds_are_the_definition_with_every_gradient(state: str, refers: bool) -> None:
    core = make_core(refers, state=state)
    start = start_state()
    fast, slow = node_features(core, start, rounds=3), by_hand(core, start, 3)
    assert_close(fast, slow)
    for value in core.parameters():
        got = torch.autograd.grad(fast.square().sum(), value, retain_graph=True, allow_unused=True)
        want = torch.autograd.grad(slow.square().sum(), value, retain_graph=True, allow_unused=True)
        assert (got[0] is None) == (want[0] is None)
        if want[0] is not None:
            assert_close(got[0], want[0])


def test_rounds_without_gradients_are_those_before_the_last_ones() -> None:
    """To the bit: every round under a mode of its own, as the definition says."""
    core, start = make_core(), start_state()
    context = Context(backend="reference", entropies=True)
    out = core(start, context, rounds=5, grad_rounds=2, keep=4)
    given, state, kept = core.begin(start, context), start, []
    for number in range(5):
        with torch.set_grad_enabled(number >= 3):
            state = core.one_round(state, given, context).state
        kept.append(state.node_features)
    assert len(out.attention) == 4  # two layers in each of two rounds
    for ours, theirs in zip(out.states, kept[1:], strict=True):
        assert torch.equal(ours.node_features, theirs)
        assert ours.node_features.requires_grad == theirs.requires_grad
    parameters = list(core.parameters())
    losses = out.states[-1].node_features.square().sum(), kept[-1].square().sum()
    for ours, theirs in zip(*(torch.autograd.grad(loss, parameters) for loss in losses)):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("refers", [False, True])
def test_rounds_go_on_with_the_examples_that_are_sent(refers: bool) -> None:
    core, start = make_core(refers), start_state()
    each = core.iterate(start)
    assert len(next(each).node_features) == 2
    rows = torch.tensor([1])
    for rounds, found in ((2, each.send(rows)), (3, next(each))):
        whole = core(start, rounds=rounds).state.node_features
        assert_close(found.node_features, whole[rows])


def saved_bytes(core: RecurrentCore, start: GraphState, rounds: int) -> int:
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        node_features(core, start, rounds=rounds, grad_rounds=2)
    return sum(kept.values())


def test_memory_does_not_grow_with_rounds_without_gradients() -> None:
    core, start = make_core(), start_state()
    assert saved_bytes(core, start, 64) <= 1.05 * saved_bytes(core, start, 8)


def test_edges_that_stay_are_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    core, calls = make_core(), []
    real = NodeSublayer.fix_edges

    def counted(self: NodeSublayer, *args: Any) -> Any:
        calls.append(self)
        return real(self, *args)

    monkeypatch.setattr(NodeSublayer, "fix_edges", counted)
    core(start_state(), rounds=7)
    assert len(calls) == 2  # one per core layer


def test_noise_between_rounds_is_for_training() -> None:
    core, start = make_core(), start_state()
    expected = core(start, rounds=2).state.node_features
    core.noise = 0.1
    assert not torch.allclose(core(start, rounds=2).state.node_features, expected)
    found = core.eval()(start, rounds=2).state.node_features
    torch.testing.assert_close(found, expected)


def test_each_round_reports_under_its_own_name() -> None:
    core, names = make_core(), []
    with listen(core, lambda path, tensor: names.append(path)):
        core(start_state(), rounds=2)
    assert "rounds.0.layers.0.node.0.weights" in names
    assert "rounds.1.layers.1.node.0.weights" in names
    assert names.count("layers.0.node.0.address_ins") == 1


def test_rounds_below_one_are_refused() -> None:
    with pytest.raises(ShapeError, match="rounds"):
        make_core()(start_state(), rounds=0)
    with pytest.raises(ShapeError, match="grad_rounds"):
        make_core()(start_state(), rounds=2, grad_rounds=0)
