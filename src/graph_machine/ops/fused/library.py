"""The fused functions as torch operators, so that `torch.compile` takes them as they are.

Each is a forward operator, a backward operator and a formula that joins them. Eager calls go
through an autograd function with the same formula instead: dispatching an operator costs about
0.3 ms per call. The backward operators have no formula of their own, so a second derivative is an
error that says so.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from graph_machine.errors import ConfigError
from graph_machine.ops.fused.attend import AttendInputs, backward_attend, forward_attend
from graph_machine.ops.fused.inputs import FactorInputs
from graph_machine.ops.fused.refer import ReferInputs, backward_refer, forward_refer
from graph_machine.ops.fused.sharpen import backward_sharpen, forward_sharpen
from graph_machine.ops.numerics import without_autocast

Body = Callable[..., Any]
_BODIES: dict[str, Body] = {}


def _op(name: str) -> Callable[[Body], Any]:
    def register(body: Body) -> Any:
        make = torch.library.custom_op(f"graph_machine::{name}", mutates_args=())
        _BODIES[name] = without_autocast(body)
        return make(_BODIES[name])

    return register


def _no_second_derivative(ctx: Any, *grads: Any) -> NoReturn:
    raise ConfigError(
        "The fused backend has no second derivative: ask for backend='reference' where one is "
        "needed (create_graph=True)."
    )


def _join(name: str, op: Any, backward_op: Any, setup: Body, formula: Body) -> Body:
    """A differentiable function from both operators; `formula(backward, ctx, *grads)`."""
    body, backward_body = _BODIES[name], _BODIES[f"{name}_backward"]

    def op_formula(ctx: Any, *grads: Any) -> Any:
        return formula(backward_op, ctx, *grads)

    op.register_autograd(op_formula, setup_context=setup)
    backward_op.register_autograd(_no_second_derivative)

    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(*inputs: Any) -> Any:
            return body(*inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            setup(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            # With create_graph, the operator is what knows how to refuse a second derivative.
            run = backward_op if torch.is_grad_enabled() else backward_body
            return formula(run, ctx, *grads)

    def call(*inputs: Any) -> Any:
        return op(*inputs) if torch.compiler.is_compiling() else Fused.apply(*inputs)

    return call


def _or_empty(tensor: Tensor | None, like: Tensor) -> Tensor:
    """Operators cannot return None; an absent gradient is a tensor without entries."""
    return like.new_empty(0) if tensor is None else tensor


def _fake_grads(*tensors: Tensor | None) -> list[Tensor]:
    like = next(t for t in tensors if t is not None)
    return [like.new_empty(0) if t is None else torch.empty_like(t) for t in tensors]


def _present(grads: list[Tensor], tensors: tuple[Any, ...]) -> list[Tensor | None]:
    return [None if t is None else grad for grad, t in zip(grads, tensors)]


# Sharpening.


@_op("sharpen")
def _sharpen(addresses: Tensor, temps: Tensor, mask: Tensor | None, eps: float) -> Tensor:
    return forward_sharpen(addresses, temps, mask, eps)


@_sharpen.register_fake
def _(addresses: Tensor, temps: Tensor, mask: Tensor | None, eps: float) -> Tensor:
    return torch.empty_like(addresses)


@_op("sharpen_backward")
def _sharpen_backward(
    grads: Tensor, addresses: Tensor, temps: Tensor, outs: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    return backward_sharpen(grads.contiguous(), addresses, temps, outs, eps)


@_sharpen_backward.register_fake
def _(
    grads: Tensor, addresses: Tensor, temps: Tensor, outs: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(addresses), torch.empty_like(temps)


def _sharpen_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    addresses, temps, _, ctx.eps = inputs
    ctx.save_for_backward(addresses, temps, output)


def _sharpen_formula(backward: Body, ctx: Any, grads: Tensor) -> tuple[Tensor | None, ...]:
    addresses, temps, outs = ctx.saved_tensors
    return *backward(grads, addresses, temps, outs, ctx.eps), None, None


fused_sharpen = _join("sharpen", _sharpen, _sharpen_backward, _sharpen_setup, _sharpen_formula)


# Attention, and pre-aggregated referral.


@_op("attention")
def _attention(
    e1_weights: Tensor | None,
    addresses: Tensor | None,
    edge_temps: Tensor | None,
    queries: Tensor | None,
    keys: Tensor | None,
    values: Tensor,
    e2_queries: Tensor | None,
    e2_keys: Tensor | None,
    own_weights: Tensor | None,
    e2_addresses: Tensor | None,
    mask: Tensor | None,
    entropy_weights: Tensor | None,
    eps: float,
    logit_space: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    factors = FactorInputs(
        e1_weights, addresses, edge_temps, queries, keys, mask, entropy_weights, eps, logit_space
    )
    inputs = AttendInputs(values, e2_queries, e2_keys, own_weights, e2_addresses)
    return forward_attend(factors, inputs)


@_attention.register_fake
def _(
    e1_weights: Tensor | None,
    addresses: Tensor | None,
    edge_temps: Tensor | None,
    queries: Tensor | None,
    keys: Tensor | None,
    values: Tensor,
    e2_queries: Tensor | None,
    e2_keys: Tensor | None,
    own_weights: Tensor | None,
    e2_addresses: Tensor | None,
    mask: Tensor | None,
    entropy_weights: Tensor | None,
    eps: float,
    logit_space: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    b, h, _, v = values.shape
    n = queries.shape[2] if queries is not None else e1_weights.shape[1]  # type: ignore[union-attr]
    a = 0 if e2_addresses is None else e2_addresses.shape[-1]
    outs, addresses = values.new_empty(b, n, h, v), values.new_empty(b, n, h, a)
    return outs, addresses, values.new_empty(2)


@_op("attention_backward")
def _attention_backward(
    out_grads: Tensor,
    address_grads: Tensor | None,
    entropy_grads: Tensor | None,
    e1_weights: Tensor | None,
    addresses: Tensor | None,
    edge_temps: Tensor | None,
    queries: Tensor | None,
    keys: Tensor | None,
    values: Tensor,
    e2_queries: Tensor | None,
    e2_keys: Tensor | None,
    own_weights: Tensor | None,
    e2_addresses: Tensor | None,
    mask: Tensor | None,
    entropy_weights: Tensor | None,
    eps: float,
    logit_space: bool,
) -> list[Tensor]:
    factors = FactorInputs(
        e1_weights, addresses, edge_temps, queries, keys, mask, entropy_weights, eps, logit_space
    )
    inputs = AttendInputs(values, e2_queries, e2_keys, own_weights, e2_addresses)
    found, rest = backward_attend(factors, inputs, out_grads, address_grads, entropy_grads)
    parts = (found.e1_weights, found.addresses, found.edge_temps, found.queries, found.keys)
    more = (rest.values, rest.e2_queries, rest.e2_keys, rest.own_weights, rest.e2_addresses)
    return [_or_empty(part, values) for part in (*parts, *more)]


@_attention_backward.register_fake
def _(
    out_grads: Tensor,
    address_grads: Tensor | None,
    entropy_grads: Tensor | None,
    e1_weights: Tensor | None,
    addresses: Tensor | None,
    edge_temps: Tensor | None,
    queries: Tensor | None,
    keys: Tensor | None,
    values: Tensor,
    e2_queries: Tensor | None,
    e2_keys: Tensor | None,
    own_weights: Tensor | None,
    e2_addresses: Tensor | None,
    mask: Tensor | None,
    entropy_weights: Tensor | None,
    eps: float,
    logit_space: bool,
) -> list[Tensor]:
    factors = (e1_weights, addresses, edge_temps, queries, keys)
    return _fake_grads(*factors, values, e2_queries, e2_keys, own_weights, e2_addresses)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.eps, ctx.flag = inputs
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)


def _attention_formula(
    backward: Body,
    ctx: Any,
    out_grads: Tensor | None,
    address_grads: Tensor | None,
    entropy_grads: Tensor | None,
) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    values, queries, weights = tensors[5], tensors[3], tensors[0]
    if out_grads is None:
        n = queries.shape[2] if queries is not None else weights.shape[1]
        out_grads = values.new_zeros(values.shape[0], n, values.shape[1], values.shape[3])
    grads = backward(out_grads, address_grads, entropy_grads, *tensors, ctx.eps, ctx.flag)
    return *_present(grads, tensors[:10]), None, None, None, None


fused_attention = _join("attention", _attention, _attention_backward, _keep, _attention_formula)


# Joint and conditional referral.


@_op("referral")
def _referral(
    e1_weights: Tensor | None,
    e1_addresses: Tensor | None,
    edge_temps: Tensor | None,
    queries: Tensor | None,
    keys: Tensor | None,
    e2_queries: Tensor,
    e2_keys: Tensor,
    e2_values: Tensor,
    n2_values: Tensor,
    e2_addresses: Tensor,
    mask: Tensor | None,
    entropy_weights: Tensor | None,
    conditional: bool,
    eps: float,
    logit_space: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors = FactorInputs(
        e1_weights, e1_addresses, edge_temps, queries, keys, mask, entropy_weights, eps, logit_space
    )
    inputs = ReferInputs(e2_queries, e2_keys, e2_values, n2_values, e2_addresses, conditional)
    return forward_refer(factors, inputs)


@_referral.register_fake
def _(
    e1_weights: Tensor | None,
    e1_addresses: Tensor | None,
    edge_temps: Tensor | None,
    queries: Tensor | None,
    keys: Tensor | None,
    e2_queries: Tensor,
    e2_keys: Tensor,
    e2_values: Tensor,
    n2_values: Tensor,
    e2_addresses: Tensor,
    mask: Tensor | None,
    entropy_weights: Tensor | None,
    conditional: bool,
    eps: float,
    logit_space: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    b, n, h, _ = e2_queries.shape
    like = e2_queries.new_empty
    addresses, n2_outs = like(b, n, h, e2_addresses.shape[-1]), like(b, n, h, n2_values.shape[-1])
    return addresses, n2_outs, like(b, n, h, e2_values.shape[-1]), like(2)


@_op("referral_backward")
def _referral_backward(
    address_grads: Tensor,
    n2_grads: Tensor,
    e2_grads: Tensor,
    entropy_grads: Tensor | None,
    e1_weights: Tensor | None,
    e1_addresses: Tensor | None,
    edge_temps: Tensor | None,
    queries: Tensor | None,
    keys: Tensor | None,
    e2_queries: Tensor,
    e2_keys: Tensor,
    e2_values: Tensor,
    n2_values: Tensor,
    e2_addresses: Tensor,
    mask: Tensor | None,
    entropy_weights: Tensor | None,
    conditional: bool,
    eps: float,
    logit_space: bool,
) -> list[Tensor]:
    factors = FactorInputs(
        e1_weights, e1_addresses, edge_temps, queries, keys, mask, entropy_weights, eps, logit_space
    )
    inputs = ReferInputs(e2_queries, e2_keys, e2_values, n2_values, e2_addresses, conditional)
    found, rest = backward_refer(factors, inputs, address_grads, n2_grads, e2_grads, entropy_grads)
    parts = (found.e1_weights, found.addresses, found.edge_temps, found.queries, found.keys)
    more = (rest.queries, rest.keys, rest.values, rest.n2_values, rest.addresses)
    return [_or_empty(part, e2_queries) for part in (*parts, *more)]


@_referral_backward.register_fake
def _(
    address_grads: Tensor,
    n2_grads: Tensor,
    e2_grads: Tensor,
    entropy_grads: Tensor | None,
    e1_weights: Tensor | None,
    e1_addresses: Tensor | None,
    edge_temps: Tensor | None,
    queries: Tensor | None,
    keys: Tensor | None,
    e2_queries: Tensor,
    e2_keys: Tensor,
    e2_values: Tensor,
    n2_values: Tensor,
    e2_addresses: Tensor,
    mask: Tensor | None,
    entropy_weights: Tensor | None,
    conditional: bool,
    eps: float,
    logit_space: bool,
) -> list[Tensor]:
    factors = (e1_weights, e1_addresses, edge_temps, queries, keys)
    return _fake_grads(*factors, e2_queries, e2_keys, e2_values, n2_values, e2_addresses)


def _referral_formula(
    backward: Body,
    ctx: Any,
    address_grads: Tensor | None,
    n2_grads: Tensor | None,
    e2_grads: Tensor | None,
    entropy_grads: Tensor | None,
) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    queries, values, n2_values, addresses = tensors[5], tensors[7], tensors[8], tensors[9]
    rows = queries.shape[:3]
    if address_grads is None:
        address_grads = queries.new_zeros(*rows, addresses.shape[-1])
    if n2_grads is None:
        n2_grads = queries.new_zeros(*rows, n2_values.shape[-1])
    if e2_grads is None:
        e2_grads = queries.new_zeros(*rows, values.shape[-1])
    grads = backward(address_grads, n2_grads, e2_grads, entropy_grads, *tensors, *ctx.flags)
    return *_present(grads, tensors[:10]), None, None, None, None, None


def _keep_referral(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.flags = inputs[-3:]
    ctx.save_for_backward(*inputs[:-3])
    ctx.set_materialize_grads(False)


fused_referral = _join("referral", _referral, _referral_backward, _keep_referral, _referral_formula)
