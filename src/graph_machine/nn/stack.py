"""Layers in a row: any number of edge sublayers, then any number of node sublayers, per layer."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graph_machine.nn.sublayers import EdgeSublayer, NodeSublayer
from graph_machine.ops.inputs import FactorEntropies
from graph_machine.spaces import Context
from graph_machine.state import GraphState


class Entropies(NamedTuple):
    """Mean normalised entropies of the n2 factors over all sublayers; None where there are none."""

    referral_edge: Tensor | None = None
    referral_node: Tensor | None = None
    attention_edge: Tensor | None = None
    attention_node: Tensor | None = None


class Layer(nn.Module):
    """One or more edge sublayers followed by one or more node sublayers; either may be missing."""

    def __init__(
        self, edge: Sequence[EdgeSublayer] = (), node: Sequence[NodeSublayer] = ()
    ) -> None:
        super().__init__()
        self.edge = nn.ModuleList(edge)
        self.node = nn.ModuleList(node)

    def forward(
        self,
        state: GraphState,
        context: Context = Context(),
    ) -> tuple[GraphState, list[FactorEntropies], list[FactorEntropies]]:
        """The new state, and the factor entropies of the edge and of the node sublayers."""
        referral, attention = [], []
        for sublayer in self.edge:
            state, entropies = sublayer(state, context)
            referral.append(entropies)
        for sublayer in self.node:
            state, entropies = sublayer(state, context)
            attention.append(entropies)
        return state, referral, attention


def _mean(values: Iterable[Tensor | None]) -> Tensor | None:
    found = [value for value in values if value is not None]
    return torch.stack(found).mean() if found else None


class GraphMachineStack(nn.Module):
    """The body of a Graph Machine: layers over a state, without input layer or readout.

    `checkpoint_layers` trades time for memory: activations are recomputed in the backward pass.
    """

    def __init__(self, layers: Iterable[Layer], *, checkpoint_layers: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.checkpoint_layers = checkpoint_layers

    def forward(
        self,
        state: GraphState,
        context: Context = Context(),
    ) -> tuple[GraphState, Entropies]:
        referral: list[FactorEntropies] = []
        attention: list[FactorEntropies] = []
        for layer in self.layers:
            if self.checkpoint_layers and torch.is_grad_enabled():
                out = checkpoint(layer, state, context, use_reentrant=False)
            else:
                out = layer(state, context)
            state = out[0]
            referral += out[1]
            attention += out[2]
        return state, Entropies(
            referral_edge=_mean(e.edge for e in referral),
            referral_node=_mean(e.node for e in referral),
            attention_edge=_mean(e.edge for e in attention),
            attention_node=_mean(e.node for e in attention),
        )
