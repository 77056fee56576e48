"""The norm and the feed-forward network: kernels equal torch in outputs and every gradient."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import rms_norm as rms_norm_of_torch

from graph_machine.errors import ConfigError
from graph_machine.nn.basic import NORM_EPS, RMSNorm, SwiGLU, residual_ffn
from graph_machine.ops import native
from graph_machine.ops.own_edges import MOST, add_edge_values, own_edges
from graph_machine.ops.rows import rms_norm
from tolerances import assert_close

needs_kernels = pytest.mark.skipif(
    native.library() is None, reason="there is no C compiler here; with one, it is tested"
)


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Fresh memory is NaN, so that an unwritten entry shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def gradients(call: Callable[..., Any], *leaves: Tensor | None) -> list[Tensor]:
    """Outputs, and gradients of a random weighting of them."""
    given = [None if x is None else x.detach().clone().requires_grad_() for x in leaves]
    outs = call(*given)
    outs = [out for out in ((outs,) if isinstance(outs, Tensor) else outs) if out is not None]
    torch.manual_seed(1)
    total: Any = sum((out * torch.randn(out.shape).to(out)).sum() for out in outs)
    present = [x for x in given if x is not None]
    found = torch.autograd.grad(total, present, allow_unused=True)
    return [*outs, *(torch.zeros_like(x) if g is None else g for x, g in zip(present, found))]


def compare(
    monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any], *leaves: Tensor | None
) -> None:
    """With and without kernels."""
    with monkeypatch.context() as patched:
        patched.setattr(native, "library", lambda: None)
        expected = gradients(call, *leaves)
    for ours, theirs in zip(gradients(call, *leaves), expected, strict=True):
        assert_close(ours, theirs)


def run_ffn(backend: Any, hidden: int, dim: int) -> Callable[..., Tensor]:
    norm, ffn = RMSNorm(dim), SwiGLU(dim, expansion=hidden)

    def call(x: Tensor, scale: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        parts = {"norm.weight": scale, "ffn.gate_up.weight": gate_up, "ffn.down.weight": down}
        holder = torch.nn.ModuleDict({"norm": norm, "ffn": ffn})
        return torch.func.functional_call(
            _Residual(holder, backend), {f"parts.{n}": t for n, t in parts.items()}, (x,)
        )

    return call


class _Residual(torch.nn.Module):
    def __init__(self, parts: torch.nn.ModuleDict, backend: Any) -> None:
        super().__init__()
        self.parts, self.backend = parts, backend

    def forward(self, x: Tensor) -> Tensor:
        norm, ffn = self.parts["norm"], self.parts["ffn"]
        assert isinstance(norm, RMSNorm)
        assert isinstance(ffn, SwiGLU)
        return residual_ffn(x, norm, ffn, self.backend)


# Rows beside the kernels' tiles of 48 and blocks of 6; widths of one to several vectors.
@pytest.mark.parametrize("rows", [1, 5, 47, 48, 101])
@pytest.mark.parametrize(("dim", "hidden"), [(8, 4), (8, 1), (24, 3), (64, 4), (12, 2)])
def test_feed_forward(rows: int, dim: int, hidden: int) -> None:
    f = dim * hidden
    leaves = (
        3 * torch.randn(rows, dim),
        torch.rand(dim) + 0.5,
        torch.randn(2 * f, dim) * dim**-0.5,
        torch.randn(dim, f) * f**-0.5,
    )
    fused = gradients(run_ffn("fused", hidden, dim), *leaves)
    reference = gradients(run_ffn("reference", hidden, dim), *(x.double() for x in leaves))
    for ours, theirs in zip(fused, reference, strict=True):
        assert_close(ours, theirs.float())


@pytest.mark.parametrize("shape", [(3, 8), (2, 5, 16), (7, 64), (4, 12), (0, 8)])
def test_norm(shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape), torch.rand(shape[-1])
    for given in (x, x.double(), x.mT.contiguous().mT):
        leaves = (given, weight.to(given.dtype))
        fused = gradients(lambda y, w: rms_norm(y, w, NORM_EPS), *leaves)
        reference = gradients(lambda y, w: rms_norm_of_torch(y, y.shape[-1:], w, NORM_EPS), *leaves)
        for ours, theirs in zip(fused, reference, strict=True):
            assert_close(ours, theirs)


def test_large_numbers_stay_finite() -> None:
    x = torch.tensor([[1e4] * 8, [-1e4] * 8, [0.0] * 8])
    leaves = (x, torch.full((8,), 40.0), torch.randn(16, 8) * 10, torch.randn(8, 8))
    for ours in gradients(run_ffn("fused", 1, 8), *leaves):
        assert ours.isfinite().all()


def test_autocast_takes_torch() -> None:
    norm, ffn, x = RMSNorm(8), SwiGLU(8), torch.randn(5, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = residual_ffn(x, norm, ffn, "fused")
        expected = x + ffn(norm(x))
    assert_close(found, expected, dtype=torch.bfloat16)


@needs_kernels
def test_second_derivatives_are_a_clear_error() -> None:
    norm, ffn = RMSNorm(8), SwiGLU(8)
    x = torch.randn(5, 8, requires_grad=True)
    for out in (residual_ffn(x, norm, ffn, "fused"), norm(x, "fused")):
        (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        with pytest.raises(ConfigError, match="no second derivative"):
            torch.autograd.grad(grad.sum(), x)


@needs_kernels
def test_threads_agree() -> None:
    leaves = (torch.randn(300, 16), torch.rand(16), torch.randn(64, 16), torch.randn(16, 32))
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(gradients(run_ffn("fused", 2, 16), *leaves))
    finally:
        torch.set_num_threads(before)
    for one, three in zip(*found, strict=True):
        assert_close(one, three)


def heads(*shape: int) -> Tensor:
    """(b, h, n, ...) as projections make it: node-major in memory."""
    b, h, n, *rest = shape
    return torch.randn(b, n, h, *rest).transpose(1, 2)


@needs_kernels
@pytest.mark.parametrize("k", [1, 3, 8, 11, 16])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("temps", [False, True])
def test_own_edges(k: int, own: bool, temps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    b, h, n, d, e = 2, 3, 5, 16, 8
    leaves = (
        heads(b, h, n, d),
        torch.randn(b, n, k, e),
        torch.randn(h, d, e),
        torch.randn(h, d, e),
        heads(b, h, n).abs() if temps else None,
        heads(b, h, n).abs() if temps else None,
    )

    def call(queries: Any, features: Any, e1: Any, e2: Any, node: Any, other: Any) -> Any:
        return own_edges(
            *(queries, features, e1),
            node=True,
            node_temps=node,
            e2_weights=e2,
            e2_temps=other,
            own=own,
        )

    compare(monkeypatch, call, *leaves)


@needs_kernels
@pytest.mark.parametrize("node", [True, False])
@pytest.mark.parametrize("k", [2, 8, MOST + 1])
def test_own_edges_of_attention(node: bool, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = (heads(2, 3, 5, 8), torch.randn(2, 5, k, 8), torch.randn(3, 8, 8), heads(2, 3, 5))

    def call(queries: Any, features: Any, weights: Any, temps: Any) -> Any:
        return own_edges(queries, features, weights, node=node, node_temps=temps)

    compare(monkeypatch, call, *leaves)


@needs_kernels
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize(("v", "e"), [(8, 8), (16, 8), (5, 8)])
def test_add_edge_values(both: bool, v: int, e: int, monkeypatch: pytest.MonkeyPatch) -> None:
    b, n, h = 2, 5, 3
    leaves: list[Tensor | None] = [torch.randn(b, h, n, v).transpose(1, 2)]
    leaves += [torch.randn(b, n, h, e), torch.randn(h, v, e)]
    leaves += [torch.randn(b, n, h, e), torch.randn(h, v, e)] if both else [None, None]
    compare(monkeypatch, add_edge_values, *leaves)


@needs_kernels
def test_own_edges_refuse_second_derivatives() -> None:
    queries = heads(2, 3, 5, 8).requires_grad_()
    ready = own_edges(queries, torch.randn(2, 5, 4, 8), torch.randn(3, 8, 8), node=True)
    assert ready.mixed is not None
    found = add_edge_values(ready.mixed, ready.mixed, torch.randn(3, 8, 8))
    (grad,) = torch.autograd.grad(found.square().sum(), queries, create_graph=True)
    with pytest.raises(ConfigError, match="no second derivative"):
        torch.autograd.grad(grad.sum(), queries)


def test_eps_is_the_paper_s() -> None:
    assert RMSNorm(8).eps == NORM_EPS
