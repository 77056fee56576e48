"""How close is equal: one table by dtype, for every test and on every machine."""

from typing import NamedTuple

import torch
from torch import Tensor


class Tolerance(NamedTuple):
    rtol: float
    atol: float


TOLERANCES: dict[torch.dtype, Tolerance] = {
    torch.float64: Tolerance(1e-9, 1e-11),
    torch.float32: Tolerance(1e-4, 1e-5),
    torch.bfloat16: Tolerance(5e-2, 5e-2),
}


def assert_close(
    actual: Tensor, expected: Tensor, *, dtype: torch.dtype | None = None, what: str = ""
) -> None:
    """Equal up to the tolerance of `dtype` (by default, of the actual tensor), NaN never equal."""
    tolerance = TOLERANCES[actual.dtype if dtype is None else dtype]
    torch.testing.assert_close(
        actual.to(expected.dtype),
        expected,
        rtol=tolerance.rtol,
        atol=tolerance.atol,
        msg=None if not what else lambda text: f"{what}: {text}",
    )
