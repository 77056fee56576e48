"""What is done to every row: projections split into heads, RMS norm, feed-forward networks.

Each is a C kernel where one serves, and torch code elsewhere.
"""

import ctypes
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graph_machine.ops.native import eager_function, kernels, served
from graph_machine.ops.native.structs import MOST_PARTS, Ffn, Longs, Parts, Split
from graph_machine.ops.numerics import SOFTPLUS_SHIFT, in_float32, temperature

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
    if fused and _split_served(projected, widths, kinds):
        found = _split((projected,), num_heads, tuple(widths.values()), tuple(kinds), eps)
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


def _split_served(projected: Tensor, widths: Mapping[str, int], kinds: list[str]) -> bool:
    """Copies gain nothing, so there has to be something to compute."""
    fit = all(width % 8 == 0 or name.endswith("_temps") for name, width in widths.items())
    known = all(kind in KINDS for kind in kinds) and any(kind != KINDS[0] for kind in kinds)
    return (
        fit and known and len(kinds) <= MOST_PARTS and projected.numel() > 0 and served(projected)
    )


def _split_arguments(
    x: Tensor, h: int, widths: tuple[int, ...], kinds: tuple[str, ...], eps: float
) -> Any:
    width, numbers = x.shape[-1], [KINDS.index(kind) for kind in kinds]
    sizes = (x.numel() // width, h, width, len(widths))
    return Split(*sizes, Longs(*widths), Longs(*numbers), eps, SOFTPLUS_SHIFT)


def _split_forward(x: Tensor, *settings: Any) -> tuple[Tensor, ...]:
    lib: Any = kernels(x)
    x, (h, widths, _, _) = x.contiguous(), settings
    outs = tuple(x.new_empty(*x.shape[:-1], h, width) for width in widths)
    made = Parts(*(out.data_ptr() for out in outs))
    given = ctypes.byref(_split_arguments(x, *settings))
    lib.gm_heads(given, x.data_ptr(), ctypes.byref(made), torch.get_num_threads())
    return outs


def _split_backward(outs: Any, grads: Any, x: Tensor, *settings: Any) -> tuple[Tensor | None, ...]:
    lib: Any = kernels(x)
    x = x.contiguous()
    above = [None if grad is None else grad.contiguous() for grad in grads]
    made = Parts(*(None if grad is None else grad.data_ptr() for grad in above))
    d_x = torch.empty_like(x)
    given = ctypes.byref(_split_arguments(x, *settings))
    lib.gm_heads_backward(
        given, x.data_ptr(), ctypes.byref(made), d_x.data_ptr(), torch.get_num_threads()
    )
    return (d_x,)


_split = eager_function(_split_forward, _split_backward, kept=0)


def rms_norm(
    x: Float[Tensor, "*s d"], weight: Float[Tensor, "d"], eps: float
) -> Float[Tensor, "*s d"]:
    """As `torch.nn.functional.rms_norm` over the last axis."""
    if x.shape[-1] % 8 == 0 and x.numel() and served(x, weight):
        return _norm((x, weight), eps)[0]
    return functional.rms_norm(x, x.shape[-1:], weight, eps)


def _norm_forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, ...]:
    lib: Any = kernels(x)
    x, d = x.contiguous(), x.shape[-1]
    outs = torch.empty_like(x)
    given = (x.numel() // d, d, x.data_ptr(), weight.data_ptr(), eps, outs.data_ptr())
    lib.gm_norm(*given, torch.get_num_threads())
    return (outs,)


def _norm_backward(
    outs: Any, grads: Any, x: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor | None, ...]:
    if grads[0] is None:
        return None, None
    lib: Any = kernels(x)
    x, d, above, threads = x.contiguous(), x.shape[-1], grads[0].contiguous(), _threads()
    d_x, d_weight = torch.empty_like(x), x.new_zeros(threads, d)
    lib.gm_norm_backward(
        *(x.numel() // d, d, x.data_ptr(), weight.data_ptr(), eps),
        *(above.data_ptr(), d_x.data_ptr(), d_weight.data_ptr(), threads),
    )
    return d_x, d_weight.sum(dim=0)


_norm = eager_function(_norm_forward, _norm_backward, kept=0)


def _threads() -> int:
    return torch.get_num_threads()


def ffn_served(x: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor) -> bool:
    """Whether `feed_forward` has a kernel for these."""
    widths = down.shape
    return all(w % 8 == 0 for w in widths) and x.numel() > 0 and served(x, norm, gate_up, down)


def feed_forward(
    x: Float[Tensor, "*s d"],
    norm: Float[Tensor, "d"],
    gate_up: Float[Tensor, "f2 d"],
    down: Float[Tensor, "d f"],
    eps: float,
) -> Float[Tensor, "*s d"]:
    """x + down(silu(gate xn) * up xn) with xn = rms_norm(x); keeps nothing but its inputs."""
    return _ffn((x, norm, gate_up, down), eps)[0]


def _ffn_arguments(tensors: tuple[Tensor, ...], eps: float) -> Any:
    alive = [t.contiguous() for t in tensors]
    x, (d, f) = alive[0], alive[3].shape
    lib: Any = kernels(x)
    made = Ffn(x.numel() // d, d, f, *(t.data_ptr() for t in alive), eps)
    size = lib.gm_ffn_shared(ctypes.byref(made))
    size += lib.gm_ffn_work(ctypes.byref(made)) * _threads()
    return lib, made, x.new_empty(size), alive


def _ffn_forward(
    x: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor, eps: float
) -> tuple[Tensor, ...]:
    lib, made, room, alive = _ffn_arguments((x, norm, gate_up, down), eps)
    outs = torch.empty_like(alive[0])
    lib.gm_ffn(ctypes.byref(made), outs.data_ptr(), room.data_ptr(), _threads())
    return (outs,)


def _ffn_backward(
    outs: Any,
    grads: Any,
    x: Tensor,
    norm: Tensor,
    gate_up: Tensor,
    down: Tensor,
    eps: float,
) -> tuple[Tensor | None, ...]:
    if grads[0] is None:
        return (None,) * 4
    lib, made, room, alive = _ffn_arguments((x, norm, gate_up, down), eps)
    above, d_x = grads[0].contiguous(), torch.empty_like(alive[0])
    sizes = [gate_up.numel(), down.numel(), norm.numel()]
    found = x.new_zeros(_threads(), sum(sizes))
    lib.gm_ffn_backward(
        ctypes.byref(made),
        *(above.data_ptr(), d_x.data_ptr(), found.data_ptr(), room.data_ptr(), _threads()),
    )
    d_gate_up, d_down, d_norm = found.sum(dim=0).split(sizes)
    return d_x, d_norm, d_gate_up.view_as(gate_up), d_down.view_as(down)


_ffn = eager_function(_ffn_forward, _ffn_backward, kept=0)
