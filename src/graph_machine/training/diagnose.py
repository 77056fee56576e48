"""Why a loss is not finite: the first tensor of the failing batch that is not finite."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from graph_machine.nn.taps import listen
from graph_machine.tasks.batch import Batch


def is_bad(loss: float, norm: float, largest: float) -> bool:
    """Not finite, or so large that going on would only spoil the weights."""
    return not (math.isfinite(loss) and math.isfinite(norm)) or loss > largest


def diagnose(model: nn.Module, batch: Batch, loss_of: Callable[[Batch], Tensor]) -> str:
    """Where it began: a parameter, a tensor of a sublayer (forward), or a gradient (backward).

    `loss_of` repeats the step's forward pass; listening makes every sublayer take its staged
    path, so that each quantity is seen by name.
    """
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"the parameter {name} is not finite"
    first: list[str] = []
    largest = ("", 0.0)

    def listener(path: str, tensor: Tensor) -> None:
        nonlocal largest
        if not first and not bool(torch.isfinite(tensor).all()):
            first.append(f"{path} is the first tensor that is not finite ({_where(tensor)})")
        size = float(tensor.detach().abs().max()) if tensor.numel() else 0.0
        if size > largest[1]:
            largest = (path, size)

    model.zero_grad(set_to_none=True)
    with listen(model, listener):
        loss = loss_of(batch)
    if first:
        return first[0]
    if not bool(torch.isfinite(loss)):
        return "every sublayer is finite, the readout or the loss is not"
    loss.backward()
    # Backward runs from the readout to the input, so the last parameter is the first one hit.
    for name, parameter in reversed(list(model.named_parameters())):
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
            return f"the gradient of {name} is the first that is not finite"
    if largest[0]:
        return f"all tensors are finite, the largest is {largest[0]} ({largest[1]:.3g})"
    return "all tensors of this process's part of the batch are finite"


def _where(tensor: Tensor) -> str:
    bad = ~torch.isfinite(tensor)
    place = tuple(bad.nonzero()[0].tolist())
    return f"{int(bad.sum())} of {tensor.numel()} values, the first at {place}"
