"""Edge-augmented attention: the listing of appendix A.1 and its limits (paper, section 2.2)."""

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from graph_machine.errors import ConfigError, ShapeError
from graph_machine.ops import edge_augmented_attention
from graph_machine.ops.backend import BACKENDS, Backend
from support import oracles
from support.cases import SIZES, Sizes, attention_case
from tolerances import assert_close

TINY = Sizes(b=1, h=2, n=3, k=2, d=3, v=2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.id)
def test_equals_the_listing(size: Sizes, backend: Backend) -> None:
    case = attention_case(size)
    assert_close(edge_augmented_attention(**case, backend=backend), oracles.attention(case))


def test_equals_the_listing_under_a_mask() -> None:
    case = attention_case()
    mask = torch.rand(2, 7, 7) < 0.6
    mask |= torch.eye(7, dtype=torch.bool)
    assert_close(edge_augmented_attention(**case, mask=mask), oracles.attention(case, mask))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("causal", [False, True])
def test_edge_temperature_zero_is_standard_attention(dtype: torch.dtype, causal: bool) -> None:
    case = attention_case(dtype=dtype)
    case["edge_factor_temps"] = torch.zeros_like(case["edge_factor_temps"])
    temps = case["node_factor_temps"].unsqueeze(-1)
    mask = torch.ones(1, 7, 7, dtype=torch.bool).tril() if causal else None
    expected = scaled_dot_product_attention(
        case["n1_queries"] * temps, case["n2_keys"], case["n2_values"], is_causal=causal
    )
    assert_close(edge_augmented_attention(**case, mask=mask), expected)


def test_absent_temperatures_count_as_one() -> None:
    case = attention_case()
    ones = torch.ones(2, 4, 7, dtype=torch.float64)
    with_ones = case | {"edge_factor_temps": ones, "node_factor_temps": ones}
    without = {name: tensor for name, tensor in case.items() if "temps" not in name}
    assert_close(edge_augmented_attention(**without), edge_augmented_attention(**with_ones))


def test_the_node_expert_alone_is_standard_attention() -> None:
    case = attention_case()
    names = ("n1_queries", "n2_keys", "n2_values")
    outs = edge_augmented_attention(**{name: case[name] for name in names})
    assert_close(outs, scaled_dot_product_attention(*(case[name] for name in names)))


def test_the_edge_expert_alone_follows_its_addresses() -> None:
    """With hard edges, a sure choice among them and temperature 1, the target's value is read."""
    n, k = 5, 3
    targets = torch.randint(n, (1, n, k))
    keys = torch.eye(k, dtype=torch.float64).expand(1, 1, n, k, k)
    chosen = torch.randint(k, (n,))
    values = torch.randn(1, 1, n, 2, dtype=torch.float64)
    outs = edge_augmented_attention(
        n1_queries=1000.0 * torch.eye(k, dtype=torch.float64)[chosen].expand(1, 1, n, k),
        e1_keys=keys,
        e1_addresses=torch.nn.functional.one_hot(targets, n).double(),
        n2_values=values,
    )
    expected = values[0, 0, targets[0, torch.arange(n), chosen]]
    torch.testing.assert_close(outs[0, 0], expected, rtol=0, atol=1e-6)


def test_input_slots_may_come_in_any_order() -> None:
    case = attention_case()
    order = torch.tensor([2, 0, 1])
    permuted = case | {
        "e1_keys": case["e1_keys"][:, :, :, order],
        "e1_addresses": case["e1_addresses"][:, :, order],
    }
    assert_close(edge_augmented_attention(**permuted), edge_augmented_attention(**case))


def test_masked_nodes_have_no_say_and_no_gradient() -> None:
    case = {name: tensor.requires_grad_() for name, tensor in attention_case().items()}
    mask = torch.ones(1, 1, 7, dtype=torch.bool)
    mask[..., 5:] = False
    outs = edge_augmented_attention(**case, mask=mask)
    changed = case | {"n2_values": case["n2_values"] + 100 * (~mask[0]).double().T}
    assert torch.equal(edge_augmented_attention(**changed, mask=mask), outs)
    outs.square().sum().backward()
    for name in ("n2_keys", "n2_values"):
        grad = case[name].grad
        assert grad is not None
        assert grad[:, :, 5:].abs().max() == 0
        assert grad[:, :, :5].abs().min() > 0


def test_a_source_that_sees_nothing_gets_zero_and_harms_no_other() -> None:
    case = {name: tensor.requires_grad_() for name, tensor in attention_case().items()}
    mask = torch.ones(1, 7, 7, dtype=torch.bool)
    mask[:, 2] = False
    outs = edge_augmented_attention(**case, mask=mask)
    assert outs[:, :, 2].abs().max() == 0
    outs.sum().backward()
    assert all(tensor.grad is not None for tensor in case.values())
    assert all(bool(torch.isfinite(t.grad).all()) for t in case.values() if t.grad is not None)


@pytest.mark.usefixtures("unchecked")
def test_gradcheck() -> None:
    case = attention_case(TINY)
    mask = torch.ones(1, 3, 3, dtype=torch.bool).tril()

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        given: dict[str, Any] = dict(zip(case, tensors))
        return edge_augmented_attention(**given, mask=mask)

    assert torch.autograd.gradcheck(run, [tensor.requires_grad_() for tensor in case.values()])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (
            "e1_addresses",
            (2, 7, 3, 6),
            r"n2_keys should be \(b, h, m, d\) = \(2, 4, 6, 5\), got \(2, 4, 7, 5\)",
        ),
        (
            "e1_keys",
            (2, 4, 7, 3, 4),
            r"e1_keys should be \(b, h, n, k, d\) = \(2, 4, 7, any, 5\), got \(2, 4, 7, 3, 4\)",
        ),
        ("node_factor_temps", (2, 4, 1), r"node_factor_temps should be .* = \(2, 4, 7\), got"),
        ("n2_values", (2, 4, 7), r"n2_values should be \(b, h, m, v\) = \(2, 4, 7, any\), got"),
        ("e1_keys", (2, 4, 7, 0, 5), r"e1_keys has no entries along 'k': shape \(2, 4, 7, 0, 5\)"),
        ("n1_queries", (2, 4, 0, 5), r"n1_queries has no entries along 'n'"),
    ],
)
def test_wrong_shapes_are_named(name: str, shape: tuple[int, ...], message: str) -> None:
    case = attention_case() | {name: torch.zeros(shape, dtype=torch.float64)}
    with pytest.raises(ShapeError, match=message):
        edge_augmented_attention(**case)


@pytest.mark.usefixtures("unchecked")
def test_other_bad_input() -> None:
    case = attention_case()
    half = {name: tensor for name, tensor in case.items() if name != "e1_keys"}
    with pytest.raises(ShapeError, match="e1_keys and e1_addresses belong together"):
        edge_augmented_attention(**half)
    with pytest.raises(ShapeError, match="give e1_keys \\+ e1_addresses, n2_keys, or both"):
        edge_augmented_attention(n1_queries=case["n1_queries"], n2_values=case["n2_values"])
    with pytest.raises(ConfigError, match=r"unknown backend 'referense'\. Did you mean 'ref"):
        edge_augmented_attention(**case, backend="referense")  # pyrefly: ignore
