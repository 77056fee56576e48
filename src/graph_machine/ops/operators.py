"""The core as torch operators, so that `torch.compile` does not look inside.

There is a forward operator, a backward operator and a formula that joins them. Eager calls go
through an autograd function instead: dispatching an operator costs about 0.3 ms per call. The
backward operator has no formula of its own, so a second derivative is an error that says so.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graph_machine.ops import torch_code, triton
from graph_machine.ops.backend import Implementation, choose, implementations, register
from graph_machine.ops.core import LEARNED, TENSORS, KernelInputs, KernelOuts, empty_outs
from graph_machine.ops.native import calls, eager_function, no_second_derivative
from graph_machine.ops.numerics import without_autocast

register("attend", "native", calls.ATTEND)
register("attend", "triton", triton.ATTEND)
register("attend", "torch", torch_code.ATTEND)


def _chosen(op: str, inputs: Any) -> Implementation:
    return implementations(op)[choose(op, inputs)]


GIVEN = (
    "Tensor n2_values, Tensor? n1_queries, Tensor? n2_keys, Tensor? e1_weights, "
    "Tensor? e1_addresses, Tensor? edge_temps, Tensor? e2_queries, Tensor? e2_keys, "
    "Tensor? e2_values, Tensor? own_weights, Tensor? e2_addresses, Tensor? mask, "
    "Tensor? entropy_weights, Tensor? given, bool empty, float given_scale, "
    "float eps, bool logit_space, bool conditional"
)
KEPT = "Tensor features, Tensor e2, Tensor addresses, Tensor stats"
ABOVE = "Tensor? feature_grads, Tensor? e2_grads, Tensor? address_grads, Tensor? entropy_grads"


@without_autocast
def _attend(*given: Any) -> tuple[Tensor, ...]:
    inputs = KernelInputs(*given)
    return tuple(_chosen("attend", inputs).forward(inputs))


@without_autocast
def _gradients(*given: Any) -> KernelInputs:
    (features, e2, addresses, stats), above, inputs = given[:4], given[4:8], given[8:]
    outs = KernelOuts(features, e2, addresses, above[3], stats)
    grads = outs._replace(
        features=_or_zeros(above[0], features),
        e2=_or_zeros(above[1], e2),
        addresses=_or_zeros(above[2], addresses),
    )
    return _chosen("attend", x := KernelInputs(*inputs)).backward(x, outs, grads)


def _attend_backward(*given: Any) -> list[Tensor]:
    """An operator cannot return None; an absent gradient is a tensor without entries."""
    found = _gradients(*given)
    both = found.e1_addresses
    if both is not None and found.e2_addresses is both:  # added up, but no two outputs may share
        found = found._replace(e2_addresses=torch.zeros_like(both))
    return _listed(found[:LEARNED])


def _or_zeros(grads: Tensor | None, outs: Tensor) -> Tensor:
    return torch.zeros_like(outs) if grads is None else grads


def _attend_shapes(*given: Any) -> tuple[Tensor, ...]:
    return tuple(empty_outs(KernelInputs(*given)))


def _attend_backward_shapes(*given: Any) -> list[Tensor]:
    return _listed(KernelInputs(*given[8:]).empty_grads()[:LEARNED])


def _listed(grads: Sequence[Tensor | None]) -> list[Tensor]:
    like = next(grad for grad in grads if grad is not None)
    return [like.new_empty(0) if grad is None else grad for grad in grads]


def _keep_attend(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    features, e2, addresses, _, stats = output
    ctx.save_for_backward(features, e2, addresses, stats, *inputs[:TENSORS])
    ctx.settings = inputs[TENSORS:]
    ctx.mark_non_differentiable(stats)
    ctx.set_materialize_grads(False)


def _attend_formula(ctx: Any, *grads: Tensor | None) -> Any:
    saved = ctx.saved_tensors  # read once: a checkpointed layer gives them once
    found = _attend_backward_op(*saved[:4], *grads[:4], *saved[4:], *ctx.settings)
    learned = (None if x is None else grad for x, grad in zip(saved[4:], found))
    return *learned, *(None for _ in KernelInputs._fields[LEARNED:-1])


_attend_op = torch.library.custom_op(
    "graph_machine::attend",
    _attend,
    mutates_args=(),
    schema=f"({GIVEN}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_attend_op.register_fake(_attend_shapes)
_attend_backward_op = torch.library.custom_op(
    "graph_machine::attend_backward",
    _attend_backward,
    mutates_args=(),
    schema=f"({KEPT}, {ABOVE}, {GIVEN}) -> Tensor[]",
)
_attend_backward_op.register_fake(_attend_backward_shapes)
_attend_backward_op.register_autograd(no_second_derivative)
_attend_op.register_autograd(_attend_formula, setup_context=_keep_attend)


def _with_shared(given: Any) -> KernelInputs:
    *rest, shared = given
    x = KernelInputs(*rest)
    return x._replace(e2_addresses=x.e1_addresses) if shared else x


def _eager_forward(*given: Any) -> tuple[Tensor, ...]:
    return _attend(*_with_shared(given))


def _eager_backward(outs: Any, grads: Any, *given: Any) -> Sequence[Tensor | None]:
    features, e2, addresses, _, stats = outs
    x, shared = _with_shared(given), given[-1]
    found = _gradients(features, e2, addresses, stats, *grads[:4], *x)
    first, second = found.e1_addresses, found.e2_addresses
    if shared and first is not None and second is not None:
        both = first if first is second else first + second  # a kernel may have added them up
        found = found._replace(e1_addresses=both, e2_addresses=None)
    return *found[:LEARNED], *(None for _ in range(LEARNED, TENSORS))


_eager = eager_function(_eager_forward, _eager_backward, kept=5)


def core_attend(inputs: KernelInputs) -> KernelOuts:
    """The core of attention and referral, differentiable."""
    if torch.compiler.is_compiling():
        return KernelOuts(*_attend_op(*inputs[:-1]))  # graphs are packed in eager calls only
    shared = inputs.e1_addresses is not None and inputs.e1_addresses is inputs.e2_addresses
    if shared:  # one tensor has one gradient
        inputs = inputs._replace(e2_addresses=None)
    return KernelOuts(*_eager(inputs[:TENSORS], *inputs[TENSORS:], shared))
