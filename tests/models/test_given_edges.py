"""Given edges stay, the empty edge is always there, nodes read what edges carry."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.graphs import InputGraph, grid_graph
from graph_machine.models import GraphMachine
from graph_machine.nn.attention import EdgeAugmentedAttention
from graph_machine.nn.taps import listen

KINDS = ("joint", "conditional", "preaggregated")
SPEC = InputSpec(num_tokens=5, num_outputs=3, graph="given", num_edge_categories=4)
ALWAYS = {"given_edges": "always", "empty_edge": True, "edge_values": True}
NODES, DEGREE = 7, 5


def model(spec: InputSpec = SPEC, **settings: Any) -> GraphMachine:
    torch.manual_seed(1)
    small = ModelConfig(num_layers=2, d_node=16, num_edges=4, num_heads=2, init="torch")
    return GraphMachine(small.replace(**{**ALWAYS, **settings}), spec)


def example(seed: int = 0, degree: int = DEGREE) -> tuple[Tensor, InputGraph, Tensor]:
    """Two graphs, the second one padded, with different degrees from node to node."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(5, (2, NODES), generator=generator)
    targets = torch.randint(NODES, (2, NODES, degree), generator=generator)
    targets[torch.rand(targets.shape, generator=generator) < 0.4] = -1
    mask = torch.ones(2, NODES, dtype=torch.bool)
    mask[1, 5:] = False
    targets[1] = targets[1].where(targets[1] < 5, -1)
    targets[1, 5:] = -1
    categories = torch.randint(3, targets.shape, generator=generator)
    return tokens, InputGraph(targets, categories.masked_fill(targets < 0, 3), 4), mask


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_by_finite_differences(kind: str, causal: bool) -> None:
    spec = SPEC.replace(causal=causal)
    made, (tokens, graph, mask) = model(spec, referral=kind).double(), example()
    made.backend = "reference"
    names = [name for name, _ in made.named_parameters() if "first" in name or "from_edges" in name]
    assert len(names) >= 5
    weights = torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def loss() -> Tensor:
        return (made(tokens, graph, mask).logits[mask] @ weights).sum()

    loss().backward()
    for name in names:
        parameter = made.get_parameter(name)
        step = torch.randn(parameter.shape, dtype=torch.float64) * 1e-6
        with torch.no_grad():
            parameter += step
            above = float(loss())
            parameter -= 2 * step
            below = float(loss())
            parameter += step
        assert parameter.grad is not None
        expected = float((parameter.grad * step).sum() * 2)
        assert above - below == pytest.approx(expected, rel=1e-3, abs=1e-10), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", ["weight", "logit"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("native", [True, False])
def test_fused_paths(
    kind: str, space: str, causal: bool, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C kernels, which take targets, and torch code, which takes rows of addresses: outputs and
    every gradient as the reference has them."""
    if not native:
        monkeypatch.setattr("graph_machine.ops.native.library", lambda: None)
    tokens, graph, mask = example()
    found = []
    for backend in ("reference", "fused"):
        made = model(SPEC.replace(causal=causal), referral=kind, address_space=space)
        made.backend = backend
        out = made(tokens, graph, mask, entropies=True)
        entropies = [entropy for entropy in out.entropies if entropy is not None]
        loss = (out.logits[mask] * torch.linspace(0, 1, 3)).sum() + sum(entropies)
        loss.backward()
        grads = {name: p.grad for name, p in made.named_parameters() if p.grad is not None}
        found.append((out.logits.detach()[mask], grads))
    (expected, slopes), (logits, grads) = found
    torch.testing.assert_close(logits, expected)
    assert grads.keys() == slopes.keys()
    for name, slope in slopes.items():
        torch.testing.assert_close(grads[name], slope, rtol=1e-3, atol=1e-5, msg=name)


def test_the_future_stays_hidden() -> None:
    """Given edges into the past and an empty edge over the past: later tokens change nothing."""
    spec = InputSpec(num_tokens=5, num_outputs=5, num_nodes=9, graph="sequence", causal=True)
    made = model(spec.replace(num_edge_categories=5))
    tokens = torch.randint(5, (1, 9), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[:, 6:] = (other[:, 6:] + 1) % 5
    before, after = made(tokens).logits, made(other).logits
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert (before[:, 6:] != after[:, 6:]).any()


def test_there_are_no_slots_before_the_first_referral() -> None:
    """Slots that begin empty would be so many even edges, and dilute what the graph says."""
    made, (tokens, graph, mask) = model(), example()
    counts = {}

    def listener(name: str, tensor: Tensor) -> None:
        if name.endswith("address_ins"):
            counts[name] = tensor.shape[2]

    with listen(made, listener):
        made(tokens, graph, mask)
    assert counts == {
        "layers.0.edge.0.address_ins": 0,
        "layers.0.node.0.address_ins": 4,
        "layers.1.edge.0.address_ins": 4,
        "layers.1.node.0.address_ins": 4,
    }


@pytest.mark.parametrize("rounds", [1, 3])
def test_edges_carry_what_the_nodes_at_their_ends_hold(rounds: int) -> None:
    """Two neighbours, one edge of another kind to each: which edge leads to which node matters.

    Weights over edges are chosen before nodes are seen, so that a node without `edge_ends` reads
    the mixture of both edges and the mixture of both nodes, in whatever way they belong together.
    """
    targets = torch.tensor([[[1, 2], [-1, -1], [-1, -1]]])
    tokens = torch.tensor([[0, 1, 2]])
    settings: dict[str, Any] = {"num_layers": 1, "num_edge_sublayers": 0, "sharpener": "off"}
    settings |= {"attention_experts": "edge", "empty_edge": False, "core_layers": 1}
    graphs = [InputGraph(targets, torch.tensor([[kinds, [3, 3], [3, 3]]]), 4) for kinds in
              ([0, 1], [1, 0])]  # fmt: skip
    for ends in (False, True):
        made = model(edge_ends=ends, rounds=rounds, **settings)
        for module in made.modules():  # both edges count alike
            if isinstance(module, EdgeAugmentedAttention) and module.from_edges is not None:
                torch.nn.init.zeros_(module.from_edges.weights()["keys"])
        found = [made(tokens, graph).logits[:, 0] for graph in graphs]
        assert torch.allclose(*found, atol=1e-6) != ends


def test_a_number_on_an_edge_reaches_a_node() -> None:
    """Without edge values, a graph whose edges all carry the same number cannot show it."""
    spec = SPEC.replace(num_edge_categories=1, edge_features=1)
    targets = torch.tensor([[[1], [0]]])
    graphs = [
        InputGraph(targets, torch.zeros_like(targets), 1, torch.full((1, 2, 1, 1), number))
        for number in (1.0, 2.0)
    ]
    tokens = torch.zeros(1, 2, dtype=torch.long)
    # One given edge and nothing else to choose from: steering has no effect.
    settings: dict[str, Any] = {"num_layers": 1, "num_edge_sublayers": 0}
    settings["attention_experts"] = "edge"
    for values in (False, True):
        made = model(spec, edge_values=values, **settings)
        found = [made(tokens, graph).logits for graph in graphs]
        assert torch.allclose(*found) != values


def test_a_grid_has_five_given_edges() -> None:
    spec = InputSpec(num_tokens=5, num_outputs=3, num_nodes=9, grid=(3, 3), graph="grid")
    spec = spec.replace(num_edge_categories=6)
    made = model(spec, num_edges=2)
    tokens = torch.zeros(1, 9, dtype=torch.long)
    state = made.initial_state(tokens, None, None)
    assert state.given is not None
    assert torch.equal(state.given.targets[0], grid_graph(3, 3, 5).targets)
    assert made(tokens).logits.shape == (1, 9, 3)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"attention_experts": "node", "num_edge_sublayers": 0}, "given_edges"),
        ({"attention_experts": "node"}, "edge_values"),
        ({"given_edges": "first", "edge_ends": True}, "edge_ends"),
    ],
)
def test_contradictions(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        model(**settings)
