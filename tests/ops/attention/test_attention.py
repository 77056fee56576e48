"""Edge-augmented attention: the listing of appendix A.1 and its limits (paper, section 2.2)."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from graph_machine.errors import ShapeError
from graph_machine.ops import edge_augmented_attention
from support.cases import Sizes, attention_case
from tolerances import assert_close

TINY = Sizes(b=1, h=2, n=3, k=2, d=3, v=2)


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


@pytest.mark.usefixtures("unchecked")
def test_other_bad_input() -> None:
    case = attention_case()
    half = {name: tensor for name, tensor in case.items() if name != "e1_keys"}
    with pytest.raises(ShapeError, match="e1_addresses"):
        edge_augmented_attention(**half)
    with pytest.raises(ShapeError, match="n2_keys"):
        edge_augmented_attention(n1_queries=case["n1_queries"], n2_values=case["n2_values"])
