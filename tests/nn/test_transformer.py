"""A Transformer is a setting of the same class (paper, section 3.2): an independent one agrees."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from graph_machine.nn import GraphMachineStack, Layer, NodeSublayer
from graph_machine.state import GraphState, Visibility
from support.cases import make_state, node_sublayer, ring, spread
from tolerances import assert_close


class PlainBlock(nn.Module):
    """A pre-norm Transformer block written for this test alone."""

    def __init__(self, width: int, heads: int, d_key: int, d_value: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, heads * d_key, bias=False)
        self.key = nn.Linear(width, heads * d_key, bias=False)
        self.value = nn.Linear(width, heads * d_value, bias=False)
        self.out = nn.Linear(heads * d_value, width, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.scale1 = nn.Parameter(torch.ones(width))
        self.scale2 = nn.Parameter(torch.ones(width))

    def norm(self, x: Tensor, scale: Tensor) -> Tensor:
        return scale * x / (x.pow(2).mean(dim=-1, keepdim=True) + 1e-6).sqrt()

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        normed = self.norm(x, self.scale1)
        q, k, v = (
            project(normed).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(*x.shape[:2], -1))
        normed = self.norm(x, self.scale2)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))

    @torch.no_grad()
    def take(self, ours: NodeSublayer) -> None:
        """Copy the weights of a node sublayer."""
        parts = ours.attention.from_nodes.weights()
        for name, linear in (("queries", self.query), ("keys", self.key), ("values", self.value)):
            linear.weight.copy_(parts[name].flatten(0, 1))
        self.out.weight.copy_(ours.attention.out.weight)
        gate, up = ours.ffn.gate_up.weight.chunk(2)
        self.gate.weight.copy_(gate)
        self.up.weight.copy_(up)
        self.down.weight.copy_(ours.ffn.down.weight)
        self.scale1.copy_(ours.node_norm.weight)
        self.scale2.copy_(ours.ffn_norm.weight)


def transformer(num_layers: int, **changes: object) -> GraphMachineStack:
    settings = {"d_node": 12, "num_heads": 3, "d_key": 4, "d_value": 5, "expansion": 2}
    settings |= {"experts": "node", "factor_temps": False} | changes
    stack = GraphMachineStack(
        [Layer(node=[NodeSublayer(**settings)]) for _ in range(num_layers)]  # pyrefly: ignore
    ).double()
    spread(stack, 0.3)
    return stack


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_a_plain_transformer(causal: bool) -> None:
    """Outputs, and the gradient of the input, through three blocks."""
    stack = transformer(3)
    x = torch.randn(2, 7, 12, dtype=torch.float64, requires_grad=True)
    ours = stack(GraphState(x, visibility=Visibility(causal=causal)))[0].node_features
    (grad,) = torch.autograd.grad(ours.square().sum(), x)
    expected = x
    mask = torch.ones(7, 7, dtype=torch.bool).tril() if causal else None
    for layer in range(3):
        block = PlainBlock(12, heads=3, d_key=4, d_value=5, hidden=24).double()
        block.take(node_sublayer(stack, layer))
        expected = block(expected, mask)
    assert_close(ours, expected)
    (expected_grad,) = torch.autograd.grad(expected.square().sum(), x)
    assert_close(grad, expected_grad)


def test_a_node_expert_leaves_the_edges_of_a_state_alone() -> None:
    stack = transformer(2)
    state = make_state(ring(7).targets.unsqueeze(0))
    out, _ = stack(state)
    without, _ = stack(GraphState(state.node_features))
    assert torch.equal(out.node_features, without.node_features)
    assert out.edge_features is state.edge_features
    assert out.addresses is state.addresses
