"""The cores as torch operators, so that `torch.compile` does not look inside.

Each is a forward operator, a backward operator and a formula that joins them; their schemas are
read off the dataclass of inputs and the tuple of outputs. Eager calls go through an autograd
function with the same formula instead: dispatching an operator costs about 0.3 ms per call. The
backward operators have no formula of their own, so a second derivative is an error that says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar, get_type_hints

import torch
from torch import Tensor

from graph_machine.ops import core
from graph_machine.ops.backend import chosen
from graph_machine.ops.core import CoreInputs
from graph_machine.ops.native.autograd import no_second_derivative
from graph_machine.ops.numerics import without_autocast

TYPES: dict[Any, str] = {Tensor: "Tensor", Tensor | None: "Tensor?", float: "float", bool: "bool"}
I = TypeVar("I", bound=CoreInputs)
O = TypeVar("O", bound=tuple)


def _custom_op(name: str, schema: str, body: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """`fake` gives the shapes of what `body` returns."""
    make = torch.library.custom_op(f"graph_machine::{name}", mutates_args=(), schema=schema)
    op: Any = make(body)
    op.register_fake(fake)
    return op


def _listed(grads: Sequence[Tensor | None]) -> list[Tensor]:
    """Operators cannot return None; an absent gradient is a tensor without entries."""
    like = next(grad for grad in grads if grad is not None)
    return [like.new_empty(0) if grad is None else grad for grad in grads]


class Operator(Generic[I, O]):
    """An op as a differentiable function of one dataclass.

    `empty` makes outputs of the right shapes. Outputs `kept` are saved for the backward pass; a
    gradient of one that is `needed` comes as zeros where nobody asked for it.
    """

    def __init__(
        self,
        name: str,
        inputs_type: type[I],
        outs_type: type[O],
        empty: Callable[[I], O],
        *,
        kept: tuple[str, ...],
        needed: tuple[str, ...],
    ) -> None:
        self.name, self.empty, self.kept, self.needed = name, empty, kept, needed
        self.inputs_type, self.outs_type = inputs_type, outs_type
        self.outs = tuple(get_type_hints(outs_type))
        kinds = {field.name: TYPES[field.type] for field in fields(inputs_type)}
        self.tensors = [name for name, kind in kinds.items() if kind.startswith("Tensor")]
        self.learned = [name for name in self.tensors if name not in inputs_type.given]
        self.order = [*self.tensors, *(name for name in kinds if name not in self.tensors)]
        given = ", ".join(f"{kinds[name]} {name}" for name in self.order)
        above = [f"Tensor {name}_kept" for name in kept]
        above += [f"Tensor? {name}_grads" for name in self.outs]
        outs = ", ".join("Tensor" for _ in self.outs)
        self.op = _custom_op(name, f"({given}) -> ({outs})", self._forward, self._shapes)
        schema = f"({', '.join(above)}, {given}) -> Tensor[]"
        self.backward_op = _custom_op(
            f"{name}_backward", schema, self._backward, self._backward_shapes
        )
        self.backward_op.register_autograd(no_second_derivative)
        self.op.register_autograd(
            lambda ctx, *grads: self._formula(self.backward_op, ctx, grads),
            setup_context=self._keep,
        )
        self.function = _eager(self)

    def __call__(self, inputs: I) -> O:
        run = self.function if torch.is_grad_enabled() else self._forward
        if torch.compiler.is_compiling():
            run = self.op
        outs = run(*(getattr(inputs, name) for name in self.order))
        return self.outs_type(*(outs if len(self.outs) > 1 else (outs,)))

    def _inputs(self, values: Sequence[Any]) -> I:
        return self.inputs_type(**dict(zip(self.order, values, strict=True)))

    def _above(self, values: Sequence[Any]) -> tuple[O, O, I]:
        """Arguments of the backward operator: outputs (those kept), their gradients, inputs."""
        saved, rest = dict(zip(self.kept, values)), values[len(self.kept) :]
        outs = self.outs_type(*(saved.get(name) for name in self.outs))
        grads = self.outs_type(*rest[: len(self.outs)])
        return outs, grads, self._inputs(rest[len(self.outs) :])

    def _returned(self, outs: O) -> Any:
        return tuple(outs) if len(self.outs) > 1 else outs[0]

    @without_autocast
    def _forward(self, *values: Any) -> Any:
        inputs = self._inputs(values)
        return self._returned(chosen(self.name, inputs).forward(inputs))

    def _shapes(self, *values: Any) -> Any:
        return self._returned(self.empty(self._inputs(values)))

    @without_autocast
    def _backward(self, *values: Any) -> list[Tensor]:
        outs, grads, inputs = self._above(values)
        found = chosen(self.name, inputs).backward(inputs, outs, grads)
        return _listed([getattr(found, name) for name in self.learned])

    def _backward_shapes(self, *values: Any) -> list[Tensor]:
        made = self._above(values)[2].empty_grads()
        return _listed([getattr(made, name) for name in self.learned])

    def _keep(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outs = dict(zip(self.outs, output if len(self.outs) > 1 else (output,)))
        count = len(self.tensors)
        ctx.settings = inputs[count:]
        ctx.save_for_backward(*(outs[name] for name in self.kept), *inputs[:count])
        if "stats" in outs:
            ctx.mark_non_differentiable(outs["stats"])
        ctx.set_materialize_grads(False)

    def _formula(self, run: Callable[..., Any], ctx: Any, grads: Sequence[Tensor | None]) -> Any:
        saved = ctx.saved_tensors  # asked for once: a checkpointed layer gives them once
        kept, values = saved[: len(self.kept)], [*saved[len(self.kept) :], *ctx.settings]
        above = dict(zip(self.outs, grads))
        missing = [name for name in self.needed if above[name] is None]
        if missing:
            made = self.empty(self._inputs(values))
            above |= {name: torch.zeros_like(getattr(made, name)) for name in missing}
        found = dict(zip(self.learned, run(*kept, *above.values(), *values)))
        absent = {name for name, value in zip(self.order, values) if value is None}
        return tuple(None if name in absent else found.get(name) for name in self.order)


def _eager(operator: Operator[Any, Any]) -> Callable[..., Any]:
    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *values: Any) -> Any:
            # Not in a setup_context: torch would inspect signatures at every call.
            outs = operator._forward(*values)
            operator._keep(ctx, values, outs)
            return outs

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            # With create_graph, the operator is what knows how to refuse a second derivative.
            run = operator.backward_op if torch.is_grad_enabled() else operator._backward
            return operator._formula(run, ctx, grads)

    return Eager.apply


sharpen = Operator(
    "sharpen",
    core.SharpenInputs,
    core.SharpenOuts,
    core.empty_sharpened,
    kept=("addresses",),
    needed=("addresses",),
)
# Attention, and pre-aggregated referral.
attention = Operator(
    "attention",
    core.AttendInputs,
    core.AttendOuts,
    core.empty_attended,
    kept=("features", "addresses", "stats"),
    needed=("features",),
)
# Joint and conditional referral.
referral = Operator(
    "referral",
    core.ReferInputs,
    core.ReferOuts,
    core.empty_referred,
    kept=("addresses", "n2", "e2", "stats"),
    needed=("addresses", "n2", "e2"),
)
