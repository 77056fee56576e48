"""The recurrent core: a few layers with shared weights, applied round after round.

Layers before it build edges; the core thinks with them. Where it has no edge sublayers, edges are
the same in every round, and what depends on them only is computed once per core layer.
"""

import itertools
from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graph_machine.errors import ShapeError
from graph_machine.nn.basic import RMSNorm
from graph_machine.nn.stack import Layer, LayerOut, run_layers
from graph_machine.nn.sublayers import FixedEdges
from graph_machine.ops.inputs import FactorEntropies
from graph_machine.spaces import Context
from graph_machine.state import GraphState, at

CoreState = Literal["normed", "gated", "plain"]


class CoreOut(NamedTuple):
    state: GraphState  # after the last round
    states: list[GraphState]  # after each of the last rounds, as many as are to be kept
    referral: list[FactorEntropies]  # of rounds with gradients
    attention: list[FactorEntropies]


class Entered(NamedTuple):
    """What every round starts from: what is added to the state, and edges that do not change."""

    injected: Float[Tensor, "b n d_n"] | None
    fixed: list[FixedEdges] | None


class Inject(nn.Module):
    """The features that entered the core, through a linear map that starts as the identity."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(dim))

    def reset_parameters(self) -> None:
        """The identity again."""
        nn.init.eye_(self.weight)

    def forward(self, x: Float[Tensor, "*s d"]) -> Float[Tensor, "*s d"]:
        return x @ self.weight.t()


class RecurrentCore(nn.Module):
    """Layers applied any number of times to a state, with the same weights in every round.

    A round normalises the state (`normed`, `gated`), adds what entered the core (`inject`), applies
    the layers, and with `gated` mixes the result with the state before by a learned gate. In
    training it also adds `noise`, so that states have to lie apart and errors do not add up.

    >>> from graph_machine.nn import Layer, NodeSublayer
    >>> from graph_machine.state import GraphState
    >>> layers = [Layer(node=[NodeSublayer(d_node=64, experts="node")])]
    >>> core = RecurrentCore(layers, d_node=64)
    >>> out = core(GraphState(torch.randn(1, 4, 64)), rounds=3, keep=2)  # b n d_n
    >>> len(out.states), out.state.node_features.shape
    (2, torch.Size([1, 4, 64]))
    """

    def __init__(
        self,
        layers: Iterable[Layer],
        *,
        d_node: int,
        inject: bool = True,
        state: CoreState = "normed",
        noise: float = 0.0,
        checkpoint_layers: bool = False,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.inject = Inject(d_node) if inject else None
        self.norm = None if state == "plain" else RMSNorm(d_node)
        self.gate = nn.Linear(d_node, d_node) if state == "gated" else None
        self.noise = noise
        self.checkpoint_layers = checkpoint_layers

    @property
    def refers(self) -> bool:
        """Whether edges change from round to round."""
        return any(layer.refers for layer in self.each())

    def each(self) -> list[Layer]:
        """The layers, as what they are."""
        return [cast(Layer, layer) for layer in self.layers]

    def forward(
        self,
        state: GraphState,
        context: Context = Context(),
        *,
        rounds: int,
        grad_rounds: int | None = None,
        keep: int = 1,
    ) -> CoreOut:
        """`rounds` rounds from `state`; node features of the last `keep` of them are returned.

        With `grad_rounds`, gradients flow through that many last rounds only, so that memory does
        not grow with `rounds`; what entered the core gets its gradients through them.
        """
        for name, value in (("rounds", rounds), ("grad_rounds", grad_rounds)):
            if value is not None and value < 1:
                raise ShapeError(f"RecurrentCore: {name} should be at least 1, got {value}.")
        given = self.begin(state, context)
        first = 0 if grad_rounds is None else max(0, rounds - grad_rounds)
        states: list[GraphState] = []
        referral: list[FactorEntropies] = []
        attention: list[FactorEntropies] = []
        # Two loops: a compiler has to know in which rounds gradients are on, whatever `rounds` is.
        with torch.no_grad():
            for number in range(first):
                here = replace(context, round=number, entropies=False)
                state = self.one_round(state, given, here).state
                if number >= rounds - keep:
                    states.append(state)
        for number in range(first, rounds):
            state, refer, attend = self.one_round(state, given, replace(context, round=number))
            referral += refer
            attention += attend
            if number >= rounds - keep:
                states.append(state)
        return CoreOut(state, states, referral, attention)

    def begin(self, state: GraphState, context: Context) -> Entered:
        """What stays the same in every round."""
        injected = None if self.inject is None else self.inject(state.node_features)
        if self.refers:
            return Entered(injected, None)
        return Entered(injected, [layer.fix_edges(state, context) for layer in self.each()])

    def iterate(
        self, state: GraphState, context: Context = Context()
    ) -> Generator[GraphState, Tensor | None, None]:
        """The state after every round, without end: for callers who decide as they go.

        Rounds continue with some examples of the batch only, if their numbers are sent.
        """
        given = self.begin(state, context)
        for number in itertools.count():
            state = self.one_round(state, given, replace(context, round=number)).state
            rows = yield state
            if rows is not None:
                state, given = at(state, rows), at(given, rows)

    def one_round(self, state: GraphState, given: Entered, context: Context) -> LayerOut:
        """One application of all layers."""
        injected, fixed = given
        before = state.node_features
        if self.norm is not None:
            before = self.norm(before, context.backend)
        if self.noise and self.training:
            before = before + self.noise * torch.randn_like(before)
        state = state.replace(node_features=before if injected is None else before + injected)
        out = run_layers(self.layers, state, context, fixed=fixed, recompute=self.checkpoint_layers)
        if self.gate is not None:
            after = out.state.node_features
            mixed = before.lerp(after, self.gate(before).sigmoid())
            out = out._replace(state=out.state.replace(node_features=mixed))
        return out
