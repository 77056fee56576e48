"""The fused functions as torch operators, so that `torch.compile` takes them as they are.

Each is a forward operator, a backward operator and a formula that joins them. Eager calls go
through an autograd function with the same formula instead: dispatching an operator costs about
0.3 ms per call. The backward operators have no formula of their own, so a second derivative is an
error that says so.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.fused.attend import backward_attend, forward_attend
from graph_machine.ops.fused.eager import no_second_derivative
from graph_machine.ops.fused.inputs import STATS, AttendInputs, FactorInputs, ReferInputs
from graph_machine.ops.fused.refer import backward_refer, forward_refer
from graph_machine.ops.fused.sharpen import backward_sharpen, forward_sharpen
from graph_machine.ops.numerics import without_autocast

Body = Callable[..., Any]


def _op(name: str, inputs: str, outputs: str, body: Body, fake: Body) -> Any:
    """An operator from a schema; `fake` tells the shapes of what `body` returns."""
    schema = f"({inputs}) -> {outputs}"
    make = torch.library.custom_op(f"graph_machine::{name}", mutates_args=(), schema=schema)
    op: Any = make(body)
    op.register_fake(fake)
    return op


def _join(
    name: str,
    inputs: str,
    outputs: str,
    forward: tuple[Body, Body],
    above: str,
    backward: tuple[Body, Body],
    setup: Body,
    formula: Body,
) -> Body:
    """A differentiable function; `forward` and `backward` are bodies, each with its fake.

    The backward operator takes what comes from `above` before the inputs; it returns a list.
    `formula(backward, ctx, *grads)` calls it.
    """
    body, backward_body = (without_autocast(pair[0]) for pair in (forward, backward))
    op = _op(name, inputs, outputs, body, forward[1])
    below = _op(f"{name}_backward", f"{above}, {inputs}", "Tensor[]", backward_body, backward[1])
    below.register_autograd(no_second_derivative)

    def op_formula(ctx: Any, *grads: Any) -> Any:
        return formula(below, ctx, *grads)

    op.register_autograd(op_formula, setup_context=setup)

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
            run = below if torch.is_grad_enabled() else backward_body
            return formula(run, ctx, *grads)

    def call(*inputs: Any) -> Any:
        return op(*inputs) if torch.compiler.is_compiling() else Fused.apply(*inputs)

    return call


def _listed(*grads: Tensor | None) -> list[Tensor]:
    """Operators cannot return None; an absent gradient is a tensor without entries."""
    like = next(grad for grad in grads if grad is not None)
    return [like.new_empty(0) if grad is None else grad for grad in grads]


def _fake_grads(*tensors: Tensor | None) -> list[Tensor]:
    return _listed(*(None if t is None else torch.empty_like(t) for t in tensors))


def _present(grads: list[Tensor], tensors: Sequence[Any]) -> list[Tensor | None]:
    return [None if t is None else grad for grad, t in zip(grads, tensors)]


# Sharpening.


def _sharpen_backward(grads: Tensor, outs: Tensor, *inputs: Any) -> list[Tensor]:
    addresses, temps, _, eps = inputs
    return list(backward_sharpen(grads.contiguous(), addresses, temps, outs, eps))


def _keep_sharpen(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    addresses, temps, mask, ctx.eps = inputs
    ctx.save_for_backward(output, addresses, temps, mask)


def _sharpen_formula(backward: Body, ctx: Any, grads: Tensor) -> tuple[Tensor | None, ...]:
    return *backward(grads, *ctx.saved_tensors, ctx.eps), None, None


fused_sharpen = _join(
    "sharpen",
    "Tensor addresses, Tensor temps, Tensor? mask, float eps",
    "Tensor",
    (forward_sharpen, lambda addresses, *_: torch.empty_like(addresses)),
    "Tensor grads, Tensor outs",
    (_sharpen_backward, lambda grads, outs, *inputs: _fake_grads(*inputs[:2])),
    _keep_sharpen,
    _sharpen_formula,
)


# Attention, and pre-aggregated referral.

_FACTORS = (
    "Tensor? e1_weights, Tensor? addresses, Tensor? edge_temps, Tensor? queries, Tensor? keys"
)
_MASKS = "Tensor? mask, Tensor? entropy_weights"


def _factors(inputs: tuple[Any, ...]) -> FactorInputs:
    """From ten tensors, mask, entropy weights and, at the end, eps and logit_space."""
    return FactorInputs(*inputs[:5], *inputs[10:12], *inputs[-2:])


def _attention(*inputs: Any) -> tuple[Tensor, ...]:
    return forward_attend(_factors(inputs), AttendInputs(*inputs[5:10]))


def _attention_fake(*inputs: Any) -> tuple[Tensor, ...]:
    (b, h, n, _), values, e2_addresses = _factors(inputs).sizes, inputs[5], inputs[9]
    a, like = 0 if e2_addresses is None else e2_addresses.shape[-1], values.new_empty
    return like(b, n, h, values.shape[-1]), like(b, n, h, a), like(2), like(b, h, n, STATS)


def _attention_backward(
    stats: Tensor,
    out_grads: Tensor,
    address_grads: Tensor | None,
    entropy_grads: Tensor | None,
    *inputs: Any,
) -> list[Tensor]:
    above = (stats, out_grads, address_grads, entropy_grads)
    found, rest = backward_attend(_factors(inputs), AttendInputs(*inputs[5:10]), *above)
    return _listed(*vars(found).values(), *vars(rest).values())


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.flags = inputs[12:]
    ctx.save_for_backward(*inputs[:12], output[3])
    ctx.mark_non_differentiable(output[3])
    ctx.set_materialize_grads(False)


def _attention_formula(
    backward: Body, ctx: Any, out_grads: Tensor | None, *rest: Tensor | None
) -> tuple[Tensor | None, ...]:
    *tensors, stats = ctx.saved_tensors
    if out_grads is None:
        b, h, n, _ = stats.shape
        out_grads = tensors[5].new_zeros(b, n, h, tensors[5].shape[-1])
    grads = backward(stats, out_grads, *rest[:2], *tensors, *ctx.flags)
    return *_present(grads, tensors[:10]), None, None, None, None


fused_attention = _join(
    "attention",
    f"{_FACTORS}, Tensor values, Tensor? e2_queries, Tensor? e2_keys, Tensor? own_weights, "
    f"Tensor? e2_addresses, {_MASKS}, float eps, bool logit_space",
    "(Tensor, Tensor, Tensor, Tensor)",
    (_attention, _attention_fake),
    "Tensor stats, Tensor out_grads, Tensor? address_grads, Tensor? entropy_grads",
    (_attention_backward, lambda *inputs: _fake_grads(*inputs[4:14])),
    _keep_attention,
    _attention_formula,
)


# Joint and conditional referral.


def _refer_inputs(inputs: tuple[Any, ...]) -> ReferInputs:
    return ReferInputs(*inputs[5:10], conditional=inputs[12])


def _referral(*inputs: Any) -> tuple[Tensor, ...]:
    return forward_refer(_factors(inputs), _refer_inputs(inputs))


def _referral_fake(*inputs: Any) -> tuple[Tensor, ...]:
    queries, _, e2_values, n2_values, addresses = inputs[5:10]
    (b, n, h, _), like = queries.shape, queries.new_empty
    widths = (x.shape[-1] for x in (addresses, n2_values, e2_values))
    return *(like(b, n, h, width) for width in widths), like(2), like(b, h, n, STATS)


def _referral_backward(*inputs: Any) -> list[Tensor]:
    outs, stats, out_grads, entropy_grads = inputs[:3], inputs[3], inputs[4:7], inputs[7]
    given = inputs[8:]
    above = (outs, stats, out_grads, entropy_grads)
    found, rest = backward_refer(_factors(given), _refer_inputs(given), *above)
    return _listed(*vars(found).values(), *vars(rest).values())


def _keep_referral(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.flags = inputs[12:]
    ctx.save_for_backward(*inputs[:12], *output[:3], output[4])
    ctx.mark_non_differentiable(output[4])
    ctx.set_materialize_grads(False)


def _referral_formula(backward: Body, ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # asked for once: a checkpointed layer gives them once
    tensors, kept = saved[:12], saved[12:]
    above = [torch.zeros_like(out) if grad is None else grad for out, grad in zip(kept, grads[:3])]
    found = backward(*kept, *above, grads[3], *tensors, *ctx.flags)
    return *_present(found, tensors[:10]), None, None, None, None, None


fused_referral = _join(
    "referral",
    f"{_FACTORS}, Tensor e2_queries, Tensor e2_keys, Tensor e2_values, Tensor n2_values, "
    f"Tensor e2_addresses, {_MASKS}, bool conditional, float eps, bool logit_space",
    "(Tensor, Tensor, Tensor, Tensor, Tensor)",
    (_referral, _referral_fake),
    "Tensor address_outs, Tensor n2_outs, Tensor e2_outs, Tensor stats, Tensor address_grads, "
    "Tensor n2_grads, Tensor e2_grads, Tensor? entropy_grads",
    (_referral_backward, lambda *inputs: _fake_grads(*inputs[8:18])),
    _keep_referral,
    _referral_formula,
)
