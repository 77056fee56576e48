"""Numbers and small helpers that every op shares. Epsilons live here and nowhere else."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from graph_machine.errors import ShapeError, check_choice

# The paper clips target mass "away from 0 with a small epsilon" and gives no value.
ADDRESS_EPS = 1e-8
# softplus(x + SHIFT) is 1 at x = 0 (paper, appendix B: "maps 0 to 1").
SOFTPLUS_SHIFT = math.log(math.e - 1.0)
TEMPERATURES = ("softplus", "exp")

# A tap sees a named tensor and returns the tensor to continue with (the same one, when recording).
Tap = Callable[[str, Tensor], Tensor]


P = ParamSpec("P")
R = TypeVar("R")


def without_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function in the precision of its tensors, without autocast."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        devices = [d for d in ("cpu", "cuda") if torch.is_autocast_enabled(d)]
        if not devices:
            return function(*args, **kwargs)
        with torch.autocast(devices[0], enabled=False):
            return wrapped(*args, **kwargs)

    return wrapped


def silent(name: str, tensor: Tensor) -> Tensor:
    """The tap without a listener."""
    return tensor


def in_float32(x: Tensor) -> Tensor:
    """Logs, softmaxes and norms stay in float32 under autocast; float64 is left unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def masked_softmax(
    logits: Float[Tensor, "*rows m"], mask: Bool[Tensor, "*any m"] | None
) -> Float[Tensor, "*rows m"]:
    """Softmax over the last axis; masked entries get exactly 0, a fully masked row is all 0.

    The fill is finite. With -inf, a fully masked row would be NaN, and 0 * NaN in the next product
    would spoil other rows.
    """
    if mask is None:
        return logits.softmax(dim=-1)
    filled = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return filled.softmax(dim=-1) * mask


def temperature(x: Float[Tensor, "*s"], kind: str = "softplus") -> Float[Tensor, "*s"]:
    """A positive temperature from a projected scalar (paper, section 2.2 and appendix B).

    Both kinds give 1 at 0, so an untrained projection does not change factors.

    >>> temperature(torch.tensor([-2.0, 0.0, 2.0]))
    tensor([0.2091, 1.0000, 2.6171])
    """
    x = in_float32(x)
    if kind == "softplus":
        return torch.nn.functional.softplus(x + SOFTPLUS_SHIFT)
    check_choice("temperature", "kind", kind, TEMPERATURES)
    return x.exp()


def check_shapes(op: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise ShapeError for the first tensor whose axes contradict the letters of the annotations.
    Masks are not checked, because their axes may broadcast."""
    sizes: dict[str, int] = {}
    for name, hint in op.__annotations__.items():
        letters = next((x.dim_str for x in (*get_args(hint), hint) if hasattr(x, "dim_str")), "#")
        tensor = given.get(name)
        if tensor is None or "#" in letters:
            continue
        axes = letters.split()
        shape = tuple(tensor.shape)
        fits = len(shape) == len(axes) and all(
            sizes.get(axis, size) == size for axis, size in zip(axes, shape)
        )
        if not fits:
            expected = ", ".join(str(sizes.get(axis, "any")) for axis in axes)
            raise ShapeError(
                f"{op.__name__}: {name} should be ({', '.join(axes)}) = ({expected}), got {shape}."
            )
        if 0 in shape:
            axis = axes[shape.index(0)]
            raise ShapeError(f"{op.__name__}: {name} has no entries along '{axis}': shape {shape}.")
        sizes.update(zip(axes, shape))
