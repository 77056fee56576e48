"""Numbers: finite gradients everywhere, and what bfloat16 autocast may cost."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.graphs import graph_from_edge_index
from graph_machine.nn import EdgeInput, RMSNorm
from graph_machine.ops.backend import Backend
from graph_machine.ops.referral import ReferralKind
from graph_machine.spaces import Context, DenseAddresses, LogitAddresses
from graph_machine.state import GraphState
from support.cases import KINDS, SMALL, batched, dense, edges_of, make_stack, make_state, ring
from tolerances import assert_close


def hard(n: int, k: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.randint(n, (1, n, k)), n).double()


def clipped(n: int, k: int) -> Tensor:
    """Mass at the clip, around it and far below it."""
    small = torch.tensor([1e-8, 2e-8, 1e-12, 1e-30, 0.0], dtype=torch.float64)
    row = torch.cat([small, torch.zeros(n - 6, dtype=torch.float64), 1 - small.sum()[None]])
    return row[torch.stack([torch.randperm(n) for _ in range(n * k)])].reshape(1, n, k, n)


ADDRESSES = {
    "one-hot": hard,
    "uniform": lambda n, k: torch.full((1, n, k, n), 1 / n, dtype=torch.float64),
    "clipped": clipped,
    # Every edge of every node points at node 0: the mixtures are one-hot as well.
    "all at one": lambda n, k: torch.nn.functional.one_hot(torch.zeros(1, n, k).long(), n).double(),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("which", ADDRESSES)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_finite(
    kind: ReferralKind, which: str, dtype: torch.dtype, backend: Backend
) -> None:
    stack = make_stack(kind=kind, dtype=dtype, weight_scale=1.0)
    state = make_state(batched(ring(9), 1), dtype=dtype)
    values = ADDRESSES[which](9, 3).to(dtype).requires_grad_()
    nodes, edges = state.node_features.requires_grad_(), edges_of(state).requires_grad_()
    out, entropies = stack(
        GraphState(nodes, edges, DenseAddresses(values)), Context(backend=backend, entropies=True)
    )
    loss = out.node_features.square().mean() + edges_of(out).square().mean()
    loss = loss + dense(out).square().sum() + sum(entropies)
    loss.backward()
    for tensor in (nodes, edges, values, *stack.parameters()):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("space", [DenseAddresses, LogitAddresses])
@pytest.mark.parametrize("kind", KINDS)
def test_whole_sublayers_pass_gradcheck(kind: ReferralKind, space: type[DenseAddresses]) -> None:
    """Through sharpening, projections, norms and residuals of both sublayers."""
    stack = make_stack(kind=kind)
    layer = stack.get_submodule("layers.0")
    shapes = ((1, 3, 12), (1, 3, 3, 5), (1, 3, 3, 3))
    nodes, edges, values = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    values = values.softmax(dim=-1) if space is DenseAddresses else values

    def run(*given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        state, *_ = layer(GraphState(given[0], given[1], space(given[2])))
        return state.node_features, edges_of(state), dense(state)

    leaves = [x.requires_grad_() for x in (nodes, edges, values)]
    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "qk-norm": {"qk_norm": True},
    "learned": {"sharpener": "learned"},
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize("kind", KINDS)
def test_autocast_is_finite_and_close(
    kind: ReferralKind, backend: Backend, settings: dict[str, Any]
) -> None:
    stack = make_stack(kind=kind, dtype=torch.float32, weight_scale=0.15, **settings)
    state = make_state(batched(ring(9), 2), dtype=torch.float32)
    context = Context(backend=backend, entropies=True)
    expected, expected_entropies = stack(state, context)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, entropies = stack(state, context)
        loss = out.node_features.square().mean() + sum(entropies)
    # The three residual streams stay wide; only products are narrow.
    assert out.node_features.dtype == edges_of(out).dtype == dense(out).dtype == torch.float32
    assert_close(out.node_features, expected.node_features, dtype=torch.bfloat16)
    assert_close(edges_of(out), edges_of(expected), dtype=torch.bfloat16)
    assert_close(dense(out), dense(expected), dtype=torch.bfloat16)
    assert_close(dense(out).sum(dim=-1), torch.ones(2, 9, 3), dtype=torch.bfloat16)
    for ours, theirs in zip(entropies, expected_entropies):
        assert ours.dtype == torch.float32
        assert_close(ours, theirs, dtype=torch.bfloat16)
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in stack.parameters())


def test_norms_are_computed_in_float32() -> None:
    norm = RMSNorm(6)
    torch.nn.init.normal_(norm.weight)
    x = 30 * torch.randn(4, 6).bfloat16()
    expected = torch.nn.functional.rms_norm(x.float(), (6,), norm.weight, norm.eps)
    out = norm(x)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, expected.bfloat16())
    wide = torch.randn(4, 6, dtype=torch.float64)
    assert_close(
        RMSNorm(6).double()(wide), wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    )


def test_projected_edge_features_stay_wide_under_autocast() -> None:
    """They start a residual stream, like the embeddings that they stand in for."""
    graph = graph_from_edge_index(
        torch.tensor([[0, 1], [1, 0]]), num_nodes=2, num_edges=3, edge_features=torch.randn(2, 4)
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        edges = EdgeInput(d_edge=SMALL.d_edge, d_features=4)(graph)
    assert edges.dtype == torch.float32
