"""Temperature functions (paper, section 2.2 and appendix B)."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from graph_machine.ops import temperature
from graph_machine.ops.numerics import TEMPERATURES


@pytest.mark.parametrize("kind", TEMPERATURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_zero_maps_to_one_and_everything_to_positive(kind: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-20, 20, 41, dtype=dtype)
    temps = temperature(x, kind)
    assert temps.dtype == (torch.float32 if dtype == torch.bfloat16 else dtype)
    assert temps[20].item() == pytest.approx(1.0, abs=1e-6)
    assert temps.min() > 0
    assert temps.diff().min() > 0


def test_softplus_values() -> None:
    x = torch.tensor([-2.0, 0.5, 3.0], dtype=torch.float64)
    expected = [math.log1p(math.exp(v) * (math.e - 1)) for v in x.tolist()]
    assert temperature(x).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("kind", TEMPERATURES)
def test_gradcheck(kind: str) -> None:
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda v: temperature(v, kind), [x])
