"""Edge Transformer as a body: its published equations, padding, any degree, checkpoints."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.testing import assert_close

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.graphs import InputGraph
from graph_machine.models import GraphMachine, edge_transformer, save_model
from graph_machine.models.edge_transformer import EdgeTransformer, TriangularAttention

CONFIG = ModelConfig().replace(
    body="edge-transformer",
    attention_experts="node",
    num_edge_sublayers=0,
    given_edges="always",
    num_layers=2,
    d_node=8,
    d_edge=4,
    num_heads=2,
    init="torch",
)
SPEC = InputSpec(num_tokens=3, num_outputs=5, output="pair", num_edge_categories=4)


def by_the_book(attention: TriangularAttention, x: Tensor) -> Tensor:
    """Bergen et al. (2021), section 2.2, for one example, one number after the other."""
    n, d = x.shape[0], x.shape[-1] // attention.num_heads
    found = torch.zeros_like(x)
    for h in range(attention.num_heads):
        part = slice(h * d, (h + 1) * d)
        q, k = attention.query.weight[part], attention.key.weight[part]
        v1, v2 = attention.first.weight[part], attention.second.weight[part]
        for i in range(n):
            for j in range(n):
                scores = [(q @ x[i, l]) @ (k @ x[l, j]) / math.sqrt(d) for l in range(n)]
                alpha = torch.stack(scores).softmax(dim=0)
                for l in range(n):
                    found[i, j, part] += alpha[l] * ((v1 @ x[i, l]) * (v2 @ x[l, j]))
    return found @ attention.out.weight.T


@pytest.mark.parametrize("at_once", [1, 2**24])
def test_the_published_equations(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(edge_transformer.AT_ONCE, "cpu", at_once)  # blocks of rows change nothing
    torch.manual_seed(0)
    attention = TriangularAttention(d=6, num_heads=2).double()
    x = torch.randn(2, 4, 4, 6, dtype=torch.float64)
    with torch.no_grad():
        expected = torch.stack([by_the_book(attention, one) for one in x])
        assert_close(attention(x), expected)
        mask = torch.tensor([[True] * 4, [True, True, True, False]])
        smaller = by_the_book(attention, x[1, :3, :3])
        assert_close(attention(x, mask)[1, :3, :3], smaller)
        assert_close(attention(x, mask)[0], expected[0])
    weights = dict(attention.named_parameters())
    call = lambda x, *given: functional_call(attention, dict(zip(weights, given)), (x, mask))  # noqa: E731
    assert torch.autograd.gradcheck(call, (x.requires_grad_(), *weights.values()))
    attention, x = attention.float(), x.detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(attention(x.bfloat16()), attention(x), atol=0.05, rtol=0.05, check_dtype=False)


def test_pairs_begin_with_their_nodes_and_edges() -> None:
    torch.manual_seed(0)
    body = EdgeTransformer(CONFIG).double()
    nodes, edges = torch.randn(1, 3, 8).double(), torch.randn(1, 3, 2, 4).double()
    targets = torch.tensor([[[1, 1], [2, -1], [-1, -1]]])
    found = body.pairs(nodes, edges, targets)[0]
    both = body.source(nodes[0, 0]) + body.target(nodes[0, 1])
    twice = body.edge(edges[0, 0, 0] + edges[0, 0, 1])  # parallel edges add up
    assert_close(found[0, 1], both + twice + body.same.weight[0])
    alone = body.source(nodes[0, 2]) + body.target(nodes[0, 2]) + body.same.weight[1]
    assert_close(found[2, 2], alone)


def test_a_model_reads_the_pair_that_is_asked_about(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = GraphMachine(CONFIG, SPEC).double().eval()
    tokens = torch.randint(3, (1, 4))
    targets = torch.tensor([[[0, 1, 2, 3], [1, -1, -1, -1], [2, 0, -1, -1], [3, -1, -1, -1]]])
    graph = InputGraph(targets, torch.where(targets < 0, 3, 1), 4)
    pairs = torch.tensor([[[0, 3], [3, 0]]])
    out = model(tokens, graph, pairs=pairs)
    assert out.logits.shape == (1, 2, 5)
    edges = out.state.edge_features
    assert edges is not None
    assert_close(out.state.node_features[0, 2], edges[0, 2, 2])
    # Padding, and more slots than the config's k, change nothing.
    wider = InputGraph(
        torch.nn.functional.pad(graph.with_slots(12).targets, (0, 0, 0, 2), value=-1),
        torch.nn.functional.pad(graph.with_slots(12).categories, (0, 0, 0, 2), value=3),
        4,
    )
    mask = torch.tensor([[True] * 4 + [False] * 2])
    padded = model(torch.nn.functional.pad(tokens, (0, 2)), wider, mask, pairs=pairs)
    assert_close(padded.logits, out.logits)
    save_model(model, tmp_path / "model")
    again = GraphMachine.from_pretrained(tmp_path / "model").double().eval()
    assert_close(again(tokens, graph, pairs=pairs).logits, out.logits, atol=1e-6, rtol=1e-5)
    with pytest.raises(ConfigError, match="divisible"):
        GraphMachine(CONFIG.replace(num_heads=3), SPEC)
