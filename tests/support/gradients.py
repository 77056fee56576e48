"""Outputs of an op and the gradients of all its tensors, by name."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def outputs_and_gradients(
    op: Callable[..., Any], case: Mapping[str, Any], **settings: Any
) -> dict[str, Tensor]:
    """Gradients are those of a random weighting of all outputs, the same in every call."""
    leaves = {
        name: value.detach().clone().requires_grad_()
        for name, value in case.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    outs = op(**(dict(case) | leaves), **settings)
    outs = (outs,) if isinstance(outs, Tensor) else tuple(outs)
    generator = torch.Generator().manual_seed(1)
    total: Any = sum(
        (out * torch.randn(out.shape, generator=generator).to(out)).sum() for out in outs
    )
    found = {f"out{i}": out.detach() for i, out in enumerate(outs)}
    names = list(leaves)
    grads = torch.autograd.grad(total, [leaves[name] for name in names], allow_unused=True)
    for name, grad in zip(names, grads):
        found[f"grad of {name}"] = torch.zeros_like(leaves[name]) if grad is None else grad
    return found
