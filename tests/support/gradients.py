"""Outputs of an op or a stack, and the gradients of all its tensors, by name."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from graph_machine.nn import GraphMachineStack
from graph_machine.spaces import Context
from graph_machine.state import GraphState
from support.cases import dense, edges_of
from tolerances import assert_close


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


def stack_gradients(
    stack: GraphMachineStack,
    state: GraphState,
    real: Tensor | None = None,
    *,
    addresses: bool = True,
    **context: Any,
) -> dict[str, Tensor]:
    """Features, addresses and entropies; gradients of the input and of every parameter.

    `real` (b, n) leaves out nodes that are padding.
    """

    def op(nodes: Tensor, edges: Tensor, **parameters: Tensor) -> list[Tensor]:
        given = state.replace(node_features=nodes, edge_features=edges)
        call = (given, Context(entropies=True, **context))
        new, entropies = torch.func.functional_call(stack, parameters, call)
        outs = [new.node_features, edges_of(new), *([dense(new)] if addresses else [])]
        outs = outs if real is None else [out[real] for out in outs]
        return [*outs, *(entropy for entropy in entropies if entropy is not None)]

    case = {"nodes": state.node_features, "edges": edges_of(state)}
    return outputs_and_gradients(op, case | dict(stack.named_parameters()))


def assert_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(found[name], value, what=name)
