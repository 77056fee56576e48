"""Layers of PyG as a body: padding is not seen, and what is saved can be opened."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.graphs import InputGraph
from graph_machine.lab.opening import open_model
from graph_machine.models import GraphMachine, save_model
from graph_machine.models.pyg_body import PygBody

pytest.importorskip(
    "torch_geometric", reason="PyG is not installed; with the extra 'pyg', it is tested"
)


CONFIG = ModelConfig(num_layers=2, d_node=8, d_edge=4, num_heads=2).replace(
    attention_experts="node", num_edge_sublayers=0
)


@pytest.mark.parametrize("kind", ["gine", "gat", "gps", "mpnn"])
def test_a_node_mask_leaves_padding_out(kind: str) -> None:
    torch.manual_seed(0)
    body = PygBody(CONFIG.replace(body=kind)).double().eval()
    sizes = (5, 3)
    nodes = torch.randn(2, 5, 8, dtype=torch.float64)
    edges = torch.randn(2, 5, 2, 4, dtype=torch.float64)
    targets = torch.stack([torch.randint(size, (5, 2)) for size in sizes])
    targets[0, 1, 1] = -1  # an empty slot
    mask = torch.arange(5) < torch.tensor(sizes).unsqueeze(-1)
    found = body(nodes, edges, targets, mask)
    assert found[1, 3:].abs().max() == 0
    for row, n in enumerate(sizes):
        part = slice(row, row + 1)
        alone = body(nodes[part, :n], edges[part, :n], targets[part, :n], None)
        assert_close(found[part, :n], alone)
    # What stands at padding, and where it points, changes nothing.
    nodes[1, 3:], edges[1, 3:], targets[1, 3:] = 9.0, 9.0, 0
    assert_close(body(nodes, edges, targets, mask), found)


@pytest.mark.parametrize("kind", ["gine", "gat", "gps", "mpnn"])
def test_a_saved_body_can_be_opened_again(kind: str, tmp_path: Path) -> None:
    config = CONFIG.replace(body=kind)
    spec = InputSpec(num_tokens=2, num_outputs=3, num_edge_categories=3)
    model = GraphMachine(config, spec)
    save_model(model, tmp_path / "model")
    again = open_model(tmp_path / "model").model.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    "settings",
    [
        *({"body": kind} for kind in ("gine", "gat", "gps", "mpnn", "graphormer")),
        {"project_input_edges": True},
    ],
    ids=lambda settings: str(settings.get("body", "transformer")),
)
@pytest.mark.parametrize("output", ["slot", "pointer"])
def test_a_choice_of_nodes_sees_the_input_edges(settings: dict[str, Any], output: Any) -> None:
    """Nodes 1 and 2 hold the same; only the edges that lead there differ."""
    torch.manual_seed(0)
    spec = InputSpec(num_tokens=2, num_outputs=1, num_edge_categories=3, graph="given")
    config = CONFIG.replace(**settings, given_edges="always")
    model = GraphMachine(config, spec.replace(output=output)).double().eval()
    targets = torch.tensor([[[0, 1, 2], [1, -1, -1], [2, -1, -1], [3, -1, -1]]])
    categories = torch.where(targets == 2, 1, 0)
    categories[0, 2] = 0  # the edges of nodes 1 and 2 are alike
    logits = model(torch.tensor([[1, 0, 0, 0]]), InputGraph(targets, categories, 3)).logits[0]
    assert (logits[0, 1] - logits[0, 2]).abs() > 1e-3  # nodes, or the edges that lead there
    if output == "pointer":
        assert_close(logits[1, 3], logits[2, 3])  # nodes 1 and 2 are alike
        assert (logits[3, 1] - logits[3, 2]).abs() < 1e-9  # no edges lead there
    logits.clamp_min(-10).sum().backward()
    assert all(p.grad is not None for p in model.readout.parameters())


@pytest.mark.parametrize(
    ("output", "given", "sees"), [("slot", "first", True), ("pointer", "first", False)]
)
def test_answers_far_away_are_chosen_by_nodes_alone(output: Any, given: Any, sees: bool) -> None:
    spec = InputSpec(num_tokens=2, num_outputs=1, num_edge_categories=3, graph="given")
    config = CONFIG.replace(body="gine", given_edges=given)
    model = GraphMachine(config, spec.replace(output=output))
    assert (model.readout.edge_query is not None) == sees
