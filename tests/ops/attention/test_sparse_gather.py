"""Gathered products: equal to plain indexing, with every gradient."""

import pytest
import torch

from graph_machine.errors import ConfigError
from graph_machine.ops import native
from graph_machine.ops.attention.sparse import gathered_mix, gathered_scores
from tolerances import assert_close

needs_kernels = pytest.mark.skipif(
    native.library() is None, reason="there is no C compiler here; with one, it is tested"
)


def test_products_and_their_gradients():
    queries = torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True)
    table = torch.randn(2, 3, 7, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    rows = torch.randint(0, 7, (2, 5, 6))
    picked = torch.stack([table[i][:, rows[i]] for i in range(2)])  # b h n c d
    for op, left, formula in (
        (gathered_scores, queries, "bhnd,bhncd->bhnc"),
        (gathered_mix, weights, "bhnc,bhncd->bhnd"),
    ):
        actual, expected = op(left, table, rows), torch.einsum(formula, left, picked)
        assert_close(actual, expected)
        above = torch.randn_like(expected)
        for found, wanted in zip(
            torch.autograd.grad((actual * above).sum(), (left, table)),
            torch.autograd.grad((expected * above).sum(), (left, table), retain_graph=True),
        ):
            assert_close(found, wanted)


@needs_kernels
@pytest.mark.parametrize("width", [8, 24])
@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_kernels_equal_torch(width: int, heads: int, threads: int) -> None:
    """Outputs and every gradient, with fresh memory that is NaN and heads that are views."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    try:
        left = torch.randn(2, 5, heads, width).transpose(1, 2)
        table = torch.randn(2, 7, heads, width).transpose(1, 2)
        weights = torch.rand(2, heads, 5, 6)
        weights[..., 4:] = 0.0  # unused
        rows = torch.randint(0, 7, (2, 5, 6))
        rows[..., 4:] = -1
        for op, first in ((gathered_scores, left), (gathered_mix, weights)):
            found, wanted = [], []
            for fused, results in ((True, found), (False, wanted)):
                leaves = [x.detach().clone().requires_grad_() for x in (first, table)]
                out = op(leaves[0], leaves[1], rows, fused=fused)
                torch.manual_seed(3)
                above = torch.randn(out.shape)
                results += [out, *torch.autograd.grad((out * above).sum(), leaves)]
            for mine, theirs in zip(found, wanted, strict=True):
                assert_close(mine, theirs)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(before)


@needs_kernels
def test_what_the_kernels_do_not_serve_takes_torch() -> None:
    rows = torch.zeros(1, 4, 3, dtype=torch.long)
    for width, dtype in ((6, torch.float32), (8, torch.float64)):
        queries, keys = (torch.randn(1, 2, 4, width, dtype=dtype) for _ in range(2))
        assert_close(
            gathered_scores(queries, keys, rows, fused=True), gathered_scores(queries, keys, rows)
        )


@needs_kernels
def test_a_second_derivative_is_refused() -> None:
    queries = torch.randn(1, 2, 4, 8, requires_grad=True)
    rows = torch.zeros(1, 4, 3, dtype=torch.long)
    out = gathered_scores(queries, torch.randn(1, 2, 4, 8), rows, fused=True)
    (grad,) = torch.autograd.grad(out.square().sum(), queries, create_graph=True)
    with pytest.raises(ConfigError, match="no second derivative"):
        grad.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_keeps_float32(dtype):
    queries, keys = torch.randn(1, 2, 4, 3, dtype=dtype), torch.randn(1, 2, 4, 3, dtype=dtype)
    rows = torch.randint(0, 4, (1, 4, 3))
    with torch.autocast("cpu", torch.bfloat16):
        assert gathered_scores(queries, keys, rows).dtype == torch.float32


@pytest.mark.parametrize("op", [gathered_scores, gathered_mix])
def test_gradients_inside_autocast_are_those_outside(op):
    left, right = torch.randn(1, 2, 4, 3), torch.randn(1, 2, 4, 3)
    rows = torch.randint(0, 4, (1, 4, 3))
    found = []
    for enabled in (False, True):
        leaves = [left.clone().requires_grad_(), right.clone().requires_grad_()]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            op(*leaves, rows).square().sum().backward()
        found.append([leaf.grad for leaf in leaves])
    for inside, outside in zip(found[1], found[0], strict=True):
        assert inside is not None
        assert outside is not None
        assert_close(inside, outside)
