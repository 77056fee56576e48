"""The state: what fits together, what is an error, who may see whom."""

import pytest
import torch

from graph_machine.errors import GraphMachineError, ShapeError
from graph_machine.spaces import DenseAddresses
from graph_machine.state import GraphState, Visibility
from support.cases import batched, edges_of, make_state, ring


def test_a_good_state_is_returned() -> None:
    state = make_state(batched(ring(5), 2))
    assert state.check() is state
    nodes_alone = GraphState(torch.zeros(2, 5, 4))
    assert nodes_alone.check() is nodes_alone


def test_replace_keeps_the_rest() -> None:
    state = make_state(batched(ring(5), 2))
    other = state.replace(node_features=state.node_features + 1)
    assert other.addresses is state.addresses
    assert other.edge_features is state.edge_features
    assert torch.equal(other.node_features, state.node_features + 1)


def test_visibility() -> None:
    mask = torch.tensor([[True, True, False]])
    cpu = torch.device("cpu")
    assert Visibility().pairs(3, cpu) is None
    padding = Visibility(mask).pairs(3, cpu)
    assert padding is not None
    assert padding.tolist() == [[[True, True, False]]]
    causal = Visibility(causal=True).pairs(3, cpu)
    assert causal is not None
    past = [[True, False, False], [True, True, False], [True, True, True]]
    assert causal.tolist() == [past]
    both = Visibility(mask, causal=True).pairs(3, cpu)
    assert both is not None
    assert both.tolist() == [[past[0], past[1], past[1]]]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("name", ["node_features", "edge_features"])
def test_features_should_be_finite(name: str, value: float) -> None:
    state = make_state(batched(ring(5), 2))
    features = getattr(state, name).clone()
    features[1, 2, ..., 0] = value
    place = r"\(1, 2, 0\)" if name == "node_features" else r"\(1, 2, 0, 0\)"
    with pytest.raises(ShapeError, match=f"{name} is not finite at {place}"):
        state.replace(**{name: features}).check()


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit() -> None:
    state = make_state(batched(ring(5), 2))
    edges = edges_of(state)
    values = torch.zeros(2, 5, 4, 5, dtype=torch.float64)
    cases: list[tuple[dict, str]] = [
        ({"node_features": torch.zeros(2, 0, 4)}, r"empty: node_features is \(b, n\) = \(2, 0\)"),
        ({"node_features": torch.zeros(0, 5, 4)}, r"empty: node_features is \(b, n\) = \(0, 5\)"),
        ({"edge_features": None}, "edge_features and addresses belong together"),
        ({"addresses": None}, "edge_features and addresses belong together"),
        (
            {"edge_features": edges[:, :4]},
            r"edge_features should be \(b, n, k, d_e\) = \(2, 5, any, any\), got \(2, 4, 3, 5\)",
        ),
        (
            {"addresses": DenseAddresses(values)},
            r"addresses should have \(b, n, k\) = \(2, 5, 3\), got \(2, 5, 4\)",
        ),
        (
            {"edge_features": edges[:, :, :0], "addresses": DenseAddresses(values[:, :, :0])},
            "k = 0 edge slots",
        ),
        (
            {"visibility": Visibility(torch.ones(2, 4, dtype=torch.bool))},
            r"node_mask should be \(b, n\) = \(2, 5\), got \(2, 4\)",
        ),
        (
            {"visibility": Visibility(torch.tensor([[True] * 5, [False] * 5]))},
            "graph 1 of the batch has no nodes",
        ),
    ]
    for changes, message in cases:
        with pytest.raises(ShapeError, match=message) as caught:
            state.replace(**changes).check()
        assert isinstance(caught.value, GraphMachineError)
        assert "\n" not in str(caught.value)
