"""Every address space answers the whole interface."""

from typing import Any

import pytest
import torch

from graph_machine.spaces import SPACES, Context
from graph_machine.state import GraphState, Visibility, at
from support.cases import SMALL, batched, dense, edges_of, make_stack, make_state, ring
from tolerances import assert_close

SETTINGS: dict[str, dict[str, Any]] = {
    "compressed": {"c": 6, "d_node": SMALL.d_node},
    "sparse": {"s": 3, "chains": 5},
}


def state_of(name: str) -> GraphState:
    settings = SETTINGS.get(name, {})
    return make_state(batched(ring(8, 3), 2), space=name, dtype=torch.float32, **settings)


@pytest.mark.parametrize("name", list(SPACES))
def test_a_stack_runs_and_learns(name):
    stack = make_stack(dtype=torch.float32, sharpener="off" if name == "hard" else "projection")
    state = state_of(name)
    new, entropies = stack(state, Context(training=True, entropies=True))
    assert new.addresses is not None
    assert new.addresses.slots == (2, 8, 3)
    assert (new.addresses.policy is not None) == (name == "hard")
    assert all(value is not None and 0 <= value.detach() <= 1.01 for value in entropies)
    weights = new.addresses.to_dense()
    assert weights.shape == (2, 8, 3, 8)
    assert_close(weights.sum(dim=-1), torch.ones(2, 8, 3))
    total = new.node_features.square().sum() + edges_of(new).square().sum()
    total.backward()
    for parameter in stack.parameters():
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()


@pytest.mark.parametrize("name", list(SPACES))
def test_autocast(name):
    stack = make_stack(dtype=torch.float32, sharpener="off" if name == "hard" else "projection")
    with torch.autocast("cpu", torch.bfloat16):
        new, _ = stack(state_of(name), Context(entropies=True))
        loss = new.node_features.float().square().mean()
    loss.backward()
    assert torch.isfinite(loss)
    assert all(p.grad is None or bool(torch.isfinite(p.grad).all()) for p in stack.parameters())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", list(SPACES))
def test_some_examples_of_a_batch_are_what_they_were(name, masked):
    stack = make_stack(dtype=torch.float32, sharpener="off" if name == "hard" else "projection")
    mask = torch.arange(8) < torch.tensor([[8], [6], [7]])
    sight = Visibility(mask if masked else None, causal=not masked)
    given: dict[str, Any] = {"space": name, "dtype": torch.float32, **SETTINGS.get(name, {})}
    state = make_state(batched(ring(8, 3), 3), visibility=sight, **given)
    rows = torch.tensor([2, 0])
    whole = stack.eval()(state)[0]
    for some in (at(whole, rows), stack(state.rows(rows))[0]):
        assert_close(some.node_features, whole.node_features[rows])
        assert_close(edges_of(some), edges_of(whole)[rows])
        assert_close(dense(some), dense(whole)[rows])
