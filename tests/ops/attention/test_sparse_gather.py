"""Gathered products: equal to plain indexing, with every gradient."""

import pytest
import torch

from graph_machine.ops.attention.sparse import gathered_mix, gathered_scores
from support.cases import needs_kernels
from support.gradients import outputs_and_gradients
from tolerances import assert_close


def test_products_and_their_gradients():
    table, rows = torch.randn(2, 3, 7, 4, dtype=torch.float64), torch.randint(0, 7, (2, 5, 6))
    for op, left, formula in (
        (gathered_scores, torch.randn(2, 3, 5, 4), "bhnd,bhncd->bhnc"),
        (gathered_mix, torch.rand(2, 3, 5, 6), "bhnc,bhncd->bhnd"),
    ):

        def gathered(left, table, op=op):
            return op(left, table, rows)

        def picked(left, table, formula=formula):
            parts = torch.stack([table[i][:, rows[i]] for i in range(2)])  # b h n c d
            return torch.einsum(formula, left, parts)

        case = {"left": left.double(), "table": table}
        found = outputs_and_gradients(gathered, case)
        for name, value in outputs_and_gradients(picked, case).items():
            assert_close(found[name], value, what=name)


@needs_kernels
@pytest.mark.parametrize("width", [8, 24])
@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.usefixtures("poisoned", "threads")
def test_the_kernels_equal_torch(width: int, heads: int) -> None:
    """Outputs and every gradient, with heads that are views."""
    left = torch.randn(2, 5, heads, width).transpose(1, 2)
    table = torch.randn(2, 7, heads, width).transpose(1, 2)
    weights = torch.rand(2, heads, 5, 6)
    weights[..., 4:] = 0.0  # unused
    rows = torch.randint(0, 7, (2, 5, 6))
    rows[..., 4:] = -1
    scores = {"queries": left, "keys": table, "indices": rows}
    mix = {"weights": weights, "values": table, "indices": rows}
    for op, case in ((gathered_scores, scores), (gathered_mix, mix)):
        found, wanted = (outputs_and_gradients(op, case, fused=fused) for fused in (True, False))
        for name, value in wanted.items():
            assert_close(found[name], value, what=name)


@needs_kernels
def test_what_the_kernels_do_not_serve_takes_torch() -> None:
    rows = torch.zeros(1, 4, 3, dtype=torch.long)
    for width, dtype in ((6, torch.float32), (8, torch.float64)):
        queries, keys = (torch.randn(1, 2, 4, width, dtype=dtype) for _ in range(2))
        assert_close(
            gathered_scores(queries, keys, rows, fused=True), gathered_scores(queries, keys, rows)
        )


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
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            case = {"left": left, "right": right}
            found.append(
                outputs_and_gradients(lambda left, right: op(left, right, rows).square(), case)
            )
    for name, outside in found[0].items():
        assert_close(found[1][name], outside)
