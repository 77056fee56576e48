"""Numbers and small helpers that every op shares. Epsilons live here and nowhere else."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# The paper clips target mass "away from 0 with a small epsilon" and gives no value.
ADDRESS_EPS = 1e-8

# A tap sees a named tensor and returns the tensor to continue with (the same one, when recording).
Tap = Callable[[str, Tensor], Tensor]


P = ParamSpec("P")
R = TypeVar("R")


def without_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function in the precision of its tensors, whatever autocast says around it."""

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

    The fill is a finite number: with -inf a fully masked row would be NaN and, through 0 * NaN in
    the next product, spoil rows that never look at it.
    """
    if mask is None:
        return logits.softmax(dim=-1)
    filled = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return filled.softmax(dim=-1) * mask
