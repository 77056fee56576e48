"""The Graphormer body: distances, what the bias does, padding, and saving."""

from pathlib import Path

import numpy as np
import torch
from torch.testing import assert_close

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.lab.analysis.regions import hop_distances
from graph_machine.lab.opening import open_model
from graph_machine.models import GraphMachine, save_model
from graph_machine.models.graphormer import FARTHEST, Graphormer, distances

CONFIG = ModelConfig(num_layers=2, d_node=8, d_edge=4, num_heads=2).replace(
    body="graphormer", attention_experts="node", num_edge_sublayers=0
)


def test_distances_are_hops_up_to_the_farthest() -> None:
    torch.manual_seed(0)
    targets = torch.randint(-1, 24, (3, 24, 2))
    targets[0] = torch.where(torch.rand(24, 2) < 0.5, -1, targets[0])  # long ways, and none
    expected = [hop_distances(graph.numpy()) for graph in targets]
    far = torch.from_numpy(np.stack(expected)).long()
    far = far.where(far <= FARTHEST, FARTHEST + 1)
    assert torch.equal(distances(targets), far)
    assert (far > FARTHEST).any()


def test_it_is_torchs_transformer_layer_with_an_additive_mask() -> None:
    torch.manual_seed(0)
    body = Graphormer(CONFIG.replace(num_layers=1)).double()
    nodes = torch.randn(2, 4, 8, dtype=torch.float64)
    edges = torch.randn(2, 4, 2, 4, dtype=torch.float64)
    targets = torch.randint(-1, 4, (2, 4, 2))
    theirs = torch.nn.TransformerEncoderLayer(
        *(8, 2, 32, 0.0, "gelu"), batch_first=True, norm_first=True, dtype=torch.float64
    )
    ours = body.layers[0].state_dict()
    names = {
        "self_attn.in_proj_weight": "projection.weight",
        "self_attn.in_proj_bias": "projection.bias",
        "self_attn.out_proj": "out",
        "linear1": "feed_forward.0",
        "linear2": "feed_forward.2",
        "norm1": "attention_norm",
        "norm2": "feed_forward_norm",
    }
    theirs.load_state_dict(
        {
            theirs_name + key.removeprefix(our_name): value
            for theirs_name, our_name in names.items()
            for key, value in ours.items()
            if key.startswith(our_name)
        }
    )
    bias = body.bias(edges, targets).movedim(-1, 1).flatten(0, 1)
    assert_close(body(nodes, edges, targets), theirs(nodes, src_mask=bias))


def test_input_edges_add_to_the_bias_of_their_pair() -> None:
    torch.manual_seed(0)
    body = Graphormer(CONFIG)
    edges, targets = torch.randn(1, 3, 2, 4), torch.tensor([[[1, 1], [2, -1], [-1, -1]]])
    along = body.bias(edges, targets) - body.distance(distances(targets))
    assert_close(along[0, 0, 1], body.edge(edges[0, 0].sum(0)))  # two edges to the same node
    assert_close(along[0, 1, 2], body.edge(edges[0, 1, 0]))
    assert along.count_nonzero() == 2 * CONFIG.num_heads


def test_a_node_mask_leaves_padding_out() -> None:
    torch.manual_seed(0)
    body = Graphormer(CONFIG).double()
    sizes = (5, 3)
    nodes = torch.randn(2, 5, 8, dtype=torch.float64)
    edges = torch.randn(2, 5, 2, 4, dtype=torch.float64)
    targets = torch.stack([torch.randint(size, (5, 2)) for size in sizes])
    mask = torch.arange(5) < torch.tensor(sizes).unsqueeze(-1)
    found = body(nodes, edges, targets, mask)
    assert found[1, 3:].abs().max() == 0
    for row, n in enumerate(sizes):
        part = slice(row, row + 1)
        assert_close(found[part, :n], body(nodes[part, :n], edges[part, :n], targets[part, :n]))
    nodes[1, 3:], edges[1, 3:], targets[1, 3:] = 9.0, 9.0, 0
    assert_close(body(nodes, edges, targets, mask), found)
    with torch.no_grad():  # as in evaluation
        assert_close(body.eval()(nodes, edges, targets, mask), found)


def test_a_saved_model_can_be_opened_again(tmp_path: Path) -> None:
    spec = InputSpec(num_tokens=2, num_outputs=3, num_edge_categories=3)
    model = GraphMachine(CONFIG, spec)
    save_model(model, tmp_path / "model")
    again = open_model(tmp_path / "model").model.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
