"""What is done to every row: RMS norm, and the feed-forward network with its residual."""

import ctypes
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graph_machine.ops.native import Pointer, kernels
from graph_machine.ops.native.autograd import eager_function, served
from graph_machine.ops.native.calls import struct


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


_Ffn = struct(
    "Ffn",
    rows__d__f=ctypes.c_long,
    x__norm__gate_up__down=Pointer,
    eps=ctypes.c_float,
)


def _ffn_arguments(tensors: tuple[Tensor, ...], eps: float) -> Any:
    alive = [t.contiguous() for t in tensors]
    x, (d, f) = alive[0], alive[3].shape
    lib: Any = kernels(x)
    made = _Ffn(x.numel() // d, d, f, *(t.data_ptr() for t in alive), eps)
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
