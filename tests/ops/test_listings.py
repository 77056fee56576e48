"""Attention and referral are the paper's listings (appendix A), whatever computes them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.errors import ConfigError, ShapeError
from graph_machine.ops.backend import BACKENDS
from support import oracles
from support.cases import LISTED, OPS, SIZES, Sizes
from tolerances import assert_close

each_op = pytest.mark.parametrize("op", LISTED)


def run(op: str, case: dict[str, Any], **settings: Any) -> tuple[Tensor, ...]:
    outs = OPS[op][0](**case, **settings)
    return (outs,) if isinstance(outs, Tensor) else outs


def expected(op: str, case: dict[str, Any], mask: Tensor | None = None) -> tuple[Tensor, ...]:
    if op == "attention":
        return (oracles.attention(case, mask),)
    return oracles.referral(case, op, mask)  # type: ignore[arg-type]


def assert_all_close(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.id)
@each_op
def test_equals_the_listing(op: str, size: Sizes, backend: str) -> None:
    case = OPS[op][1](size)
    assert_all_close(run(op, case, backend=backend), expected(op, case))


@each_op
def test_equals_the_listing_under_a_mask(op: str) -> None:
    case = OPS[op][1]()
    mask = (torch.rand(2, 7, 7) < 0.6) | torch.eye(7, dtype=torch.bool)
    assert_all_close(run(op, case, mask=mask), expected(op, case, mask))


@each_op
def test_absent_temperatures_count_as_one(op: str) -> None:
    case = OPS[op][1]()
    ones = {name: torch.ones_like(t) if "temps" in name else t for name, t in case.items()}
    without = {name: tensor for name, tensor in case.items() if "temps" not in name}
    assert_all_close(run(op, without), run(op, ones))


@each_op
def test_input_slots_may_come_in_any_order(op: str) -> None:
    """Slots differ by their features alone; heads, the new slots of referral, keep their order."""
    case, order = OPS[op][1](), torch.tensor([2, 0, 1])
    permuted = dict(case)
    for name in case.keys() & {"e1_keys", "e1_values", "e2_keys", "e2_values"}:
        permuted[name] = case[name][:, :, :, order]
    for name in case.keys() & {"e1_addresses", "e2_addresses"}:
        permuted[name] = case[name][:, :, order]
    assert_all_close(run(op, permuted), run(op, case))


@each_op
def test_masked_nodes_offer_nothing_and_get_no_gradient(op: str) -> None:
    case = {name: tensor.requires_grad_() for name, tensor in OPS[op][1]().items()}
    mask = torch.ones(1, 1, 7, dtype=torch.bool)
    mask[..., 5:] = False
    outs = run(op, case, mask=mask)
    changed = case | {"n2_values": case["n2_values"] + 100 * (~mask[0]).double().T}
    for one, other in zip(outs, run(op, changed, mask=mask)):
        assert torch.equal(one[:, :, :5], other[:, :, :5])
    total: Any = sum(out[:, :, :5].square().sum() for out in outs)
    total.backward()
    for name in case.keys() & {"n2_keys", "n2_values", "e2_keys", "e2_values"}:
        grad = case[name].grad
        assert grad is not None
        assert grad[:, :, 5:].abs().max() == 0, name
        assert grad[:, :, :5].abs().max() > 0, name
    if "e2_addresses" in case:
        grad = case["e2_addresses"].grad
        assert grad is not None
        assert grad[:, 5:].abs().max() == 0


@each_op
def test_a_source_that_sees_nothing_gets_zero_and_harms_no_other(op: str) -> None:
    case = {name: tensor.requires_grad_() for name, tensor in OPS[op][1]().items()}
    mask = torch.ones(1, 7, 7, dtype=torch.bool)
    mask[:, 2] = False
    outs = run(op, case, mask=mask)
    assert outs[-1][:, :, 2].abs().max() == 0
    total: Any = sum(out.sum() for out in outs)
    total.backward()
    assert all(t.grad is not None and bool(t.grad.isfinite().all()) for t in case.values())


@pytest.mark.usefixtures("unchecked")
@each_op
def test_gradcheck(op: str) -> None:
    case = OPS[op][1](Sizes(b=1, h=2, n=3, k=2, d=3, v=2))
    mask = torch.ones(1, 3, 3, dtype=torch.bool).tril()

    def call(*tensors: Tensor) -> tuple[Tensor, ...]:
        return run(op, dict(zip(case, tensors)), mask=mask)

    assert torch.autograd.gradcheck(call, [tensor.requires_grad_() for tensor in case.values()])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("op", "name", "shape", "message"),
    [
        ("attention", "e1_addresses", (2, 7, 3, 6), r"n2_keys .* = \(2, 4, 6, 5\)"),
        ("attention", "e1_keys", (2, 4, 7, 3, 4), r"e1_keys .* = \(2, 4, 7, any, 5\), got \(2, 4"),
        ("attention", "node_factor_temps", (2, 4, 1), r"node_factor_temps .* = \(2, 4, 7\)"),
        ("attention", "n2_values", (2, 4, 7), r"n2_values .* = \(2, 4, 7, any\)"),
        ("attention", "e1_keys", (2, 4, 7, 0, 5), r"e1_keys .* along 'k'"),
        ("attention", "n1_queries", (2, 4, 0, 5), r"n1_queries .* along 'n'"),
        ("joint", "e2_addresses", (2, 7, 4, 7), r"e2_addresses .* = \(2, 7, 3, any\)"),
        ("joint", "e2_values", (2, 4, 7, 3, 7), r"e2_values .* = \(2, 4, 7, 3, 6\)"),
        ("joint", "e1_values", (2, 4, 7, 2, 6), r"e1_values .* = \(2, 4, 7, 3, any\)"),
        ("joint", "e1_addresses", (2, 7, 3), r"e1_addresses .* = \(2, 7, 3, any\)"),
        ("joint", "e2_factor_temps", (2, 1, 7), r"e2_factor_temps .* = \(2, 4, 7\)"),
        ("joint", "e1_keys", (2, 4, 7, 0, 5), r"e1_keys .* along 'k'"),
        ("sharpen", "temps", (2, 7), r"temps .* = \(2, 7, 3\)"),
    ],
)
def test_wrong_shapes_are_named(op: str, name: str, shape: tuple[int, ...], message: str) -> None:
    case = OPS[op][1]() | {name: torch.zeros(shape, dtype=torch.float64)}
    with pytest.raises(ShapeError, match=message):
        run(op, case)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("op", ["attention", "joint", "sharpen"])
def test_an_unknown_backend_offers_the_nearest(op: str) -> None:
    with pytest.raises(ConfigError, match="'reference'"):
        run(op, OPS[op][1](), backend="referenc")
