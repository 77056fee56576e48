"""Autograd functions around kernels for eager calls; under `torch.compile` torch code is traced."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops.native import kernels


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
