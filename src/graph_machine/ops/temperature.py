"""Temperature functions: maps from the real line to positive scalars with f(0) = 1."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.ops.numerics import in_float32

# softplus(x + SHIFT) is 1 at x = 0 (paper, appendix B: "maps 0 to 1").
SOFTPLUS_SHIFT = math.log(math.e - 1.0)
TEMPERATURES = ("softplus", "exp")


def temperature(x: Float[Tensor, "*s"], kind: str = "softplus") -> Float[Tensor, "*s"]:
    """A positive temperature from a projected scalar (paper, section 2.2 and appendix B).

    Both kinds give 1 at 0, so that an untrained projection leaves factors as they are.

    >>> temperature(torch.tensor([-2.0, 0.0, 2.0]))
    tensor([0.2091, 1.0000, 2.6171])
    """
    x = in_float32(x)
    if kind == "softplus":
        return torch.nn.functional.softplus(x + SOFTPLUS_SHIFT)
    if kind == "exp":
        return x.exp()
    raise ConfigError(f"Unknown temperature '{kind}'.{did_you_mean(kind, TEMPERATURES)}")
