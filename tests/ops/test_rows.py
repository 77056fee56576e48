"""What is done to rows of nodes and edges: kernels equal torch in outputs and every gradient."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from graph_machine.nn.basic import NORM_EPS, RMSNorm, SwiGLU, residual_ffn
from graph_machine.ops import native
from graph_machine.ops.numerics import temperature
from graph_machine.ops.own_edges import MOST, add_edge_values, own_edges
from graph_machine.ops.rows import (
    edge_temps,
    edges_beside,
    feed_forward,
    messages,
    project_heads,
    rms_norm,
    split_heads,
)
from support.cases import needs_kernels
from support.gradients import outputs_and_gradients
from tolerances import assert_close

pytestmark = pytest.mark.usefixtures("poisoned")


def gradients(call: Callable[..., Any], *leaves: Tensor | None) -> dict[str, Tensor]:
    """Outputs, and gradients of a random weighting of them."""

    def op(**given: Tensor | None) -> Any:
        outs = call(*given.values())
        return outs if isinstance(outs, Tensor) else [out for out in outs if out is not None]

    return outputs_and_gradients(op, {str(i): leaf for i, leaf in enumerate(leaves)})


def compare(
    fused: Callable[..., Any], reference: Callable[..., Any], *leaves: Tensor | None
) -> None:
    """A kernel in float32 and torch in float64."""
    exact = gradients(reference, *(None if x is None else x.double() for x in leaves))
    for name, ours in gradients(fused, *leaves).items():
        assert_close(ours, exact[name].float(), what=name)


def plain_ffn(
    x: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor, added: Any = None, out: Any = None
) -> Tensor:
    y = x if added is None else x + functional.linear(added, out)
    normed = functional.rms_norm(y, y.shape[-1:], norm, NORM_EPS)
    gate, up = functional.linear(normed, gate_up).chunk(2, dim=-1)
    return y + functional.linear(functional.silu(gate) * up, down)


def fused_ffn(
    x: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor, added: Any = None, out: Any = None
) -> Tensor:
    found = feed_forward(x, norm, gate_up, down, added, out, NORM_EPS)
    assert found is not None
    return found


def ffn_leaves(rows: int, dim: int, hidden: int) -> list[Tensor]:
    return [
        3 * torch.randn(rows, dim),
        torch.rand(dim) + 0.5,
        torch.randn(2 * hidden, dim) * dim**-0.5,
        torch.randn(dim, hidden) * hidden**-0.5,
    ]


# Rows beside the kernels' tiles of 48 and blocks of 6 or 8; widths of one to several vectors.
@needs_kernels
@pytest.mark.parametrize("rows", [1, 47, 48, 101])
@pytest.mark.parametrize(
    ("dim", "hidden", "added"), [(8, 32, 8), (8, 8, 0), (24, 72, 40), (64, 256, 64)]
)
def test_feed_forward(rows: int, dim: int, hidden: int, added: int, threads: int) -> None:
    leaves = ffn_leaves(rows, dim, hidden)
    if added:
        leaves += [torch.randn(rows, added), torch.randn(dim, added) * added**-0.5]
    compare(fused_ffn, plain_ffn, *leaves)


def test_feed_forward_as_a_layer_has_it() -> None:
    for dim, residual in ((8, True), (8, False), (12, True)):  # no kernel serves a width of 12
        norm, ffn, out = (
            RMSNorm(dim),
            SwiGLU(dim, expansion=2),
            torch.nn.Linear(dim, dim, bias=False),
        )
        x, added = torch.randn(5, dim) if residual else None, torch.randn(5, dim)
        parts = (x, added, out, norm, ffn)
        assert_close(residual_ffn(*parts, "fused"), residual_ffn(*parts, "reference"))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, expected = residual_ffn(*parts, "fused"), residual_ffn(*parts, "reference")
        assert_close(found, expected, dtype=torch.bfloat16)


@needs_kernels
def test_large_numbers_stay_finite() -> None:
    x = torch.tensor([[1e4] * 8, [-1e4] * 8, [0.0] * 8])
    leaves = (x, torch.full((8,), 40.0), torch.randn(16, 8) * 10, torch.randn(8, 8))
    for ours in gradients(fused_ffn, *leaves).values():
        assert ours.isfinite().all()


@pytest.mark.parametrize("shape", [(3, 8), (2, 5, 16), (7, 64), (4, 12), (0, 8)])
def test_norm(shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape), torch.rand(shape[-1])
    plain = lambda y, w: functional.rms_norm(y, y.shape[-1:], w, NORM_EPS)  # noqa: E731
    for given in (x, x.mT.contiguous().mT):
        compare(lambda y, w: rms_norm(y, w, NORM_EPS), plain, given, weight)


@needs_kernels
@pytest.mark.parametrize(("rows", "e"), [(1, 8), (17, 8), (40, 24)])
@pytest.mark.parametrize("kind", ["softplus", "exp"])
def test_temperatures_and_normed_edges(rows: int, e: int, kind: str) -> None:
    def fused(x: Tensor, norm: Tensor, weight: Tensor, edge_norm: Tensor) -> Any:
        found = edge_temps(x, norm, weight, edge_norm, kind, NORM_EPS)
        assert found is not None
        return found

    def plain(x: Tensor, norm: Tensor, weight: Tensor, edge_norm: Tensor) -> Any:
        one, two = (functional.rms_norm(x, (e,), w, NORM_EPS) for w in (norm, edge_norm))
        return temperature(functional.linear(one, weight).squeeze(-1), kind), two

    leaves = (torch.randn(1, rows, 1, e), torch.rand(e), torch.randn(1, e), torch.rand(e))
    compare(fused, plain, *leaves)
    compare(lambda *x: fused(*x)[:1], lambda *x: plain(*x)[:1], *leaves)  # one is not used
    compare(lambda *x: fused(*x)[1:], lambda *x: plain(*x)[1:], *leaves)


@needs_kernels
@pytest.mark.parametrize("k", [0, 3])
def test_edges_beside_those_that_stay(k: int, threads: int) -> None:
    """Slots without an edge become 0."""
    targets = torch.tensor([[[1, 0], [2, -1], [-1, -1], [-1, 3], [0, 0]]])  # b n g
    there = functional.pad(targets >= 0, (0, 1), value=True).unsqueeze(-1)

    def fused(x: Tensor, norm: Tensor, weight: Tensor, edge_norm: Tensor, stay: Tensor) -> Any:
        sharpener = (norm, weight) if k else None
        found = edges_beside(x, sharpener, edge_norm, stay, targets, "softplus", NORM_EPS)
        assert found is not None
        return found

    def plain(x: Tensor, norm: Tensor, weight: Tensor, edge_norm: Tensor, stay: Tensor) -> Any:
        one, two, three = (
            functional.rms_norm(y, (8,), w, NORM_EPS)
            for y, w in ((x, norm), (x, edge_norm), (stay, edge_norm))
        )
        temps = temperature(functional.linear(one, weight).squeeze(-1), "softplus")
        return temps if k else None, torch.cat([two, three * there], dim=2)

    leaves = [torch.randn(1, 5, k, 8), torch.rand(8), torch.randn(1, 8), torch.rand(8)]
    leaves += [torch.randn(1, 5, 3, 8)]
    if not k:  # then nothing depends on the first three
        fixed = leaves[:3]
        compare(
            lambda *x: fused(*fixed, *x),
            lambda *x: plain(*(y.double() for y in fixed), *x),
            *leaves[3:],
        )
    else:
        compare(fused, plain, *leaves)


@needs_kernels
@pytest.mark.parametrize(("rows", "x", "e"), [(1, 8, 8), (17, 24, 8), (40, 64, 16)])
def test_messages(rows: int, x: int, e: int, threads: int) -> None:
    """More edges than a tile has, rows without any, targets that many share."""
    targets = torch.randint(-1, min(rows, 5), (rows, 7))
    targets[rows // 2] = -1

    def plain(seen: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
        hidden = functional.silu(seen[targets.clamp_min(0)] + functional.linear(edges, weight))
        return (hidden * (targets >= 0).unsqueeze(-1)).sum(dim=1)

    def fused(seen: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
        found = messages(seen, edges, weight, targets)
        assert found is not None
        return found

    compare(fused, plain, torch.randn(rows, x), torch.randn(rows, 7, e), torch.randn(x, e))


def test_where_no_kernel_serves_messages() -> None:
    targets = torch.zeros(2, 1, dtype=torch.long)
    given = (torch.randn(2, 8), torch.randn(2, 1, 6), torch.randn(8, 6))
    assert messages(*given, targets) is None
    wide = (torch.randn(2, 8).double(), torch.randn(2, 1, 8).double(), torch.randn(8, 8).double())
    assert messages(*wide, targets) is None


WIDTHS = {"queries": 8, "values": 16, "keys": 6, "node_temps": 1, "edge_temps": 1}


@needs_kernels
@pytest.mark.parametrize(("heads", "dim"), [(1, 12), (3, 8), (8, 64)])
@pytest.mark.parametrize("kind", ["softplus", "exp"])
@pytest.mark.parametrize("qk_norm", [True, False])
@pytest.mark.parametrize("normed", [True, False])
def test_projection_into_heads(
    heads: int, dim: int, kind: str, qk_norm: bool, normed: bool, threads: int
) -> None:
    wanted: dict[str, Any] = {"temperature_kind": kind, "qk_norm": qk_norm, "eps": NORM_EPS}

    def used(parts: dict[str, Tensor] | None) -> list[Tensor]:
        assert parts is not None
        assert parts["queries"].shape == (2, heads, 25, 8)
        assert parts["node_temps"].shape == (2, heads, 25)
        return [part for name, part in parts.items() if name != "edge_temps"]  # has no gradient

    def fused(x: Tensor, norm: Tensor | None, weight: Tensor) -> list[Tensor]:
        return used(project_heads(x, norm, weight, heads, WIDTHS, **wanted))

    def plain(x: Tensor, norm: Tensor | None, weight: Tensor) -> list[Tensor]:
        x = x if norm is None else functional.rms_norm(x, (dim,), norm, NORM_EPS)
        return used(split_heads(functional.linear(x, weight), heads, WIDTHS, **wanted))

    weight = torch.randn(heads * sum(WIDTHS.values()), dim) * dim**-0.5
    x = 2 * torch.randn(2, 25, dim)
    x[0, 0] *= 0.0 if kind == "exp" else 10.0  # far ends of temperatures
    compare(fused, plain, x, torch.rand(dim) if normed else None, weight)


@needs_kernels
def test_a_number_of_threads_has_its_last_bits(threads: int) -> None:
    leaves = ffn_leaves(300, 16, 32)
    one, two = (gradients(fused_ffn, *leaves) for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


def head_major(*shape: int) -> Tensor:
    """(b, h, n, ...) as projections make it: node-major in memory."""
    b, h, n, *rest = shape
    return torch.randn(b, n, h, *rest).transpose(1, 2)


def without_kernels(
    monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]
) -> Callable[..., Any]:
    def plain(*leaves: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(native, "library", lambda: None)
            return call(*leaves)

    return plain


@needs_kernels
@pytest.mark.parametrize(("k", "temps"), [(1, True), (8, False), (11, True), (16, True)])
@pytest.mark.parametrize("own", [False, True])
def test_own_edges(k: int, temps: bool, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    b, h, n, d, e = 2, 3, 5, 16, 8

    def call(queries: Any, features: Any, e1: Any, e2: Any, node: Any, other: Any) -> Any:
        return own_edges(
            *(queries, features, e1),
            node=True,
            node_temps=node,
            e2_weights=e2,
            e2_temps=other,
            own=own,
        )

    leaves = (
        head_major(b, h, n, d),
        torch.randn(b, n, k, e),
        torch.randn(h, d, e),
        torch.randn(h, d, e),
        head_major(b, h, n).abs() if temps else None,
        head_major(b, h, n).abs() if temps else None,
    )
    compare(call, without_kernels(monkeypatch, call), *leaves)


@needs_kernels
@pytest.mark.parametrize(("node", "k"), [(True, 8), (False, 2), (True, MOST + 1)])
def test_own_edges_of_attention(node: bool, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(queries: Any, features: Any, weights: Any, temps: Any) -> Any:
        return own_edges(queries, features, weights, node=node, node_temps=temps)

    leaves = (head_major(2, 3, 5, 8), torch.randn(2, 5, k, 8), torch.randn(3, 8, 8))
    compare(call, without_kernels(monkeypatch, call), *leaves, head_major(2, 3, 5))


@needs_kernels
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("v", [8, 16, 5])
def test_add_edge_values(both: bool, v: int, monkeypatch: pytest.MonkeyPatch) -> None:
    b, n, h, e = 2, 5, 3, 8
    leaves: list[Tensor | None] = [torch.randn(b, h, n, v).transpose(1, 2)]
    leaves += [torch.randn(b, n, h, e), torch.randn(h, v, e)]
    leaves += [torch.randn(b, n, h, e), torch.randn(h, v, e)] if both else [None, None]
    compare(add_edge_values, without_kernels(monkeypatch, add_edge_values), *leaves)
