"""A projection split into heads, with normalised queries and keys and temperatures, in one pass."""

import ctypes
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graph_machine.ops.native import kernels
from graph_machine.ops.native.autograd import eager_function, served
from graph_machine.ops.native.calls import struct
from graph_machine.ops.numerics import in_float32
from graph_machine.ops.temperature import SOFTPLUS_SHIFT, temperature

MOST_PARTS = 8  # in heads.c
NORMED = ("queries", "keys")
# Numbers of these in heads.c.
KINDS = ("as it is", "unit rms", "softplus", "exp")


def unit_rms(x: Float[Tensor, "*s d"], eps: float) -> Float[Tensor, "*s d"]:
    """QK-norm: RMS norm without a learned scale, so that it adds no parameters."""
    return functional.rms_norm(in_float32(x), x.shape[-1:], eps=eps)


def split_heads(
    projected: Float[Tensor, "b n w"],
    num_heads: int,
    widths: Mapping[str, int],
    *,
    temperature_kind: str,
    qk_norm: bool,
    eps: float,
    fused: bool,
) -> dict[str, Tensor]:
    """Name -> (b, h, n, width); temperatures (names ending in `_temps`, width 1) are (b, h, n).

    With `qk_norm`, queries and keys have unit RMS.
    """
    kinds = [
        temperature_kind
        if name.endswith("_temps")
        else ("unit rms" if qk_norm and name in NORMED else "as it is")
        for name in widths
    ]
    if fused and _serves(projected, widths, kinds):
        found = _kernel((projected,), num_heads, tuple(widths.values()), tuple(kinds), eps)
        parts = dict(zip(widths, found))
    else:
        sizes = [num_heads * width for width in widths.values()]
        cut = zip(widths.items(), kinds, projected.split(sizes, dim=-1))
        parts = {}
        for (name, width), kind, part in cut:
            part = part.unflatten(-1, (num_heads, width))
            if name.endswith("_temps"):
                part = temperature(part, kind)
            parts[name] = unit_rms(part, eps) if kind == "unit rms" else part
    return {
        name: (part.squeeze(-1) if name.endswith("_temps") else part).transpose(1, 2)
        for name, part in parts.items()
    }


def _serves(projected: Tensor, widths: Mapping[str, int], kinds: list[str]) -> bool:
    """Copies gain nothing, so there has to be something to compute."""
    fit = all(width % 8 == 0 or name.endswith("_temps") for name, width in widths.items())
    known = all(kind in KINDS for kind in kinds) and any(kind != KINDS[0] for kind in kinds)
    return (
        fit and known and len(kinds) <= MOST_PARTS and projected.numel() > 0 and served(projected)
    )


_Split = struct(
    "Split",
    rows__h__width__count=ctypes.c_long,
    widths__kinds=ctypes.c_long * MOST_PARTS,
    eps__shift=ctypes.c_float,
)
_Parts = ctypes.c_void_p * MOST_PARTS


def _arguments(
    x: Tensor, h: int, widths: tuple[int, ...], kinds: tuple[str, ...], eps: float
) -> Any:
    width, numbers = x.shape[-1], [KINDS.index(kind) for kind in kinds]
    longs = ctypes.c_long * MOST_PARTS
    sizes = (x.numel() // width, h, width, len(widths))
    return _Split(*sizes, longs(*widths), longs(*numbers), eps, SOFTPLUS_SHIFT)


def _forward(x: Tensor, *settings: Any) -> tuple[Tensor, ...]:
    lib: Any = kernels(x)
    x, (h, widths, _, _) = x.contiguous(), settings
    outs = tuple(x.new_empty(*x.shape[:-1], h, width) for width in widths)
    made = _Parts(*(out.data_ptr() for out in outs))
    given = ctypes.byref(_arguments(x, *settings))
    lib.gm_heads(given, x.data_ptr(), ctypes.byref(made), torch.get_num_threads())
    return outs


def _backward(outs: Any, grads: Any, x: Tensor, *settings: Any) -> tuple[Tensor | None, ...]:
    lib: Any = kernels(x)
    x = x.contiguous()
    above = [None if grad is None else grad.contiguous() for grad in grads]
    made = _Parts(*(None if grad is None else grad.data_ptr() for grad in above))
    d_x = torch.empty_like(x)
    given = ctypes.byref(_arguments(x, *settings))
    lib.gm_heads_backward(
        given, x.data_ptr(), ctypes.byref(made), d_x.data_ptr(), torch.get_num_threads()
    )
    return (d_x,)


_kernel = eager_function(_forward, _backward, kept=0)
