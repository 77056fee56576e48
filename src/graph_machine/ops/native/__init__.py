"""The fused ops as a few small C files, built on first use if there is a C compiler.

It is optional: without a compiler, on other systems than Linux, in float64, for very large graphs
or with GRAPH_MACHINE_NATIVE=0, the torch code of this package computes the same. The build takes
about two seconds and is kept in the user's cache folder.
"""

import ctypes
import functools
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops.native.builds import build, load
from graph_machine.ops.native.structs import declare

# Above this many values of a graph (pairs times their width) referral takes torch code, as work
# memory grows with them: n = 1,024 has 8.5 million, and joint referral 140 MB per thread.
LARGEST = 1 << 24


@functools.cache
def library() -> ctypes.CDLL | None:
    """The kernels, or None: then the torch code is used, and on Linux a log line says why."""
    if os.environ.get("GRAPH_MACHINE_NATIVE") == "0":
        return None
    try:
        made = build()
        if made is not None:
            return declare(load(made))
        reason = "no C compiler that builds them was found"
    except (OSError, RuntimeError) as error:  # no place to write, no home, or it does not load
        reason = str(error)
    if sys.platform == "linux":
        logging.getLogger("graph_machine").warning(
            "The C kernels of the fused backend are not used: %s. Torch code computes the same, "
            "more slowly (GRAPH_MACHINE_NATIVE=0 silences this).",
            reason,
        )
    return None


def kernels(like: Tensor, values_per_graph: int = 0) -> ctypes.CDLL | None:
    """The kernels, if they serve tensors like this one and graphs of this size."""
    if like.dtype != torch.float32 or like.device.type != "cpu" or values_per_graph > LARGEST:
        return None
    return library()


def loaded() -> Any:
    """The kernels, for callers that know from `kernels` that they serve."""
    found = library()
    assert found is not None
    return found


# Empty tensors have no address, and a null pointer would mean that there is no such tensor.
_BYTES = (ctypes.c_char * 64)()
_NOTHING = ctypes.addressof(_BYTES)


def pointer(tensor: Tensor | None) -> int | None:
    """Where a contiguous tensor's numbers are."""
    if tensor is None:
        return None
    assert tensor.is_contiguous()
    return tensor.data_ptr() or _NOTHING


def work(size: int, like: Tensor) -> Tensor:
    """Work memory for every thread."""
    return like.new_empty(size * torch.get_num_threads())


def gradient_sets(count: int, like: Tensor) -> Tensor:
    """Memory for gradients of parameters, a set for every thread; the first becomes their sum."""
    return like.new_empty(
        torch.get_num_threads() * (count // 1024 + 2) * 1024
    )  # `apart` in common.h


# Autograd around kernels for eager calls; under `torch.compile` torch code is traced.


def no_second_derivative(ctx: Any, *grads: Any) -> NoReturn:
    raise ConfigError(
        "The fused backend has no second derivative: ask for backend='reference' where one is "
        "needed (create_graph=True); sparse and hard addresses have none with any backend."
    )


class _Refusing(torch.autograd.Function):
    """Gradients as they are; differentiating them is an error."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        return tuple(None if grad is None else grad.view_as(grad) for grad in tensors[:count])

    backward = staticmethod(no_second_derivative)


def refusing(found: Sequence[Tensor | None], *inputs: Tensor | None) -> Sequence[Tensor | None]:
    """Gradients with respect to the inputs, which cannot be differentiated again."""
    return _Refusing.apply(len(found), *found, *inputs) if torch.is_grad_enabled() else found


def eager_function(
    forward: Callable[..., tuple[Tensor, ...]],
    backward: Callable[..., Sequence[Tensor | None]],
    kept: int,
) -> Callable[..., tuple[Tensor, ...]]:
    """`forward(*tensors, *settings)`, differentiable in its tensors (some may be None).

    `backward(outs, grads, *tensors, *settings)` gets the first `kept` outputs and gradients of
    all outputs, some of them None.
    """

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, settings: tuple[Any, ...], *tensors: Tensor | None) -> Any:
            outs = forward(*tensors, *settings)
            ctx.settings = settings
            ctx.save_for_backward(*outs[:kept], *tensors)
            ctx.set_materialize_grads(False)
            return outs

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> Any:
            saved = ctx.saved_tensors
            if all(grad is None for grad in grads):
                return None, *(None for _ in saved[kept:])
            with torch.no_grad():  # with create_graph, too: `refusing` has the error for that
                found = backward(saved[:kept], grads, *saved[kept:], *ctx.settings)
            return None, *refusing(found, *saved[kept:])

    def call(tensors: Sequence[Tensor | None], *settings: Any) -> Any:
        if not torch.is_grad_enabled():  # a single puzzle is mostly calls: make fewer of them
            return forward(*tensors, *settings)
        return Kernel.apply(settings, *tensors)

    return call


def served(*tensors: Tensor | None) -> bool:
    """Whether kernels serve: eager float32 on a CPU, all tensors alike, no autocast."""
    present = [tensor for tensor in tensors if tensor is not None]
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    return all(t.dtype == torch.float32 for t in present) and kernels(present[0]) is not None
