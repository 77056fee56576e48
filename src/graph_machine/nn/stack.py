"""A sequence of layers, each with any number of edge sublayers and then node sublayers."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graph_machine.nn.sublayers import EdgeSublayer, FixedEdges, NodeSublayer
from graph_machine.ops.inputs import FactorEntropies
from graph_machine.spaces import Context
from graph_machine.state import GraphState


class Entropies(NamedTuple):
    """Mean normalised entropies of the n2 factors over all sublayers, scalars.

    None where a model has no such factor, or where the entropies were not asked for.
    """

    referral_edge: Tensor | None = None
    referral_node: Tensor | None = None
    attention_edge: Tensor | None = None
    attention_node: Tensor | None = None


class LayerOut(NamedTuple):
    """The new state, and the factor entropies of the edge and of the node sublayers."""

    state: GraphState
    referral: list[FactorEntropies]
    attention: list[FactorEntropies]


class Layer(nn.Module):
    """One or more edge sublayers followed by one or more node sublayers; either may be missing.

    >>> sizes = dict(d_node=64, d_edge=8, num_edges=3)
    >>> layer = Layer([EdgeSublayer(**sizes)], [NodeSublayer(**sizes), NodeSublayer(**sizes)])
    >>> layer.refers
    True
    """

    def __init__(
        self, edge: Sequence[EdgeSublayer] = (), node: Sequence[NodeSublayer] = ()
    ) -> None:
        super().__init__()
        self.edge = nn.ModuleList(edge)
        self.node = nn.ModuleList(node)

    def forward(
        self, state: GraphState, context: Context = Context(), fixed: FixedEdges | None = None
    ) -> LayerOut:
        """One pass. `fixed` is what `fix_edges` made, where edges do not change between passes."""
        referral, attention = [], []
        for sublayer in self.edge:
            state, entropies = sublayer(state, context)
            referral.append(entropies)
        for index, sublayer in enumerate(self.node):
            state, entropies = sublayer(state, context, None if fixed is None else fixed[index])
            attention.append(entropies)
        return LayerOut(state, referral, attention)

    def fix_edges(self, state: GraphState, context: Context) -> FixedEdges:
        """What the node sublayers take of edges that stay as they are in `state`."""
        sublayers = [cast(NodeSublayer, each) for each in self.node]
        found = [None if x.ends is not None else x.fix_edges(state, context) for x in sublayers]
        return [None if edges is None else edges.settled() for edges in found]

    @property
    def refers(self) -> bool:
        """Whether this layer makes new edges."""
        return len(self.edge) > 0


def run_layers(
    layers: nn.ModuleList,
    state: GraphState,
    context: Context,
    *,
    fixed: list[FixedEdges] | None = None,
    recompute: bool = False,
    kept: list[GraphState] | None = None,
) -> LayerOut:
    """Layers one after the other, with the entropies of every sublayer.

    With `recompute`, activations are computed again in the backward pass. The state after every
    layer is appended to `kept`.
    """
    referral: list[FactorEntropies] = []
    attention: list[FactorEntropies] = []
    for index, layer in enumerate(layers):
        call = (state, context, None if fixed is None else fixed[index])
        again = recompute and torch.is_grad_enabled()
        state, refer, attend = (
            checkpoint(layer, *call, use_reentrant=False) if again else layer(*call)
        )
        referral += refer
        attention += attend
        if kept is not None:
            kept.append(state)
    return LayerOut(state, referral, attention)


def mean_entropies(
    referral: Sequence[FactorEntropies], attention: Sequence[FactorEntropies]
) -> Entropies:
    each = ([e.edge for e in referral], [e.node for e in referral])
    each += ([e.edge for e in attention], [e.node for e in attention])
    found = ([value for value in values if value is not None] for values in each)
    return Entropies(*(torch.stack(values).mean() if values else None for values in found))


class GraphMachineStack(nn.Module):
    """The body of a Graph Machine: layers over a state, without input layer or readout.

    `checkpoint_layers` trades time for memory: activations are recomputed in the backward pass.

    >>> from graph_machine.spaces import DenseSpace
    >>> sizes = dict(d_node=64, d_edge=8, num_edges=3)
    >>> stack = GraphMachineStack(
    ...     Layer([EdgeSublayer(**sizes)], [NodeSublayer(**sizes)]) for _ in range(2)
    ... )
    >>> nodes, edges = torch.randn(1, 4, 64), torch.randn(1, 4, 3, 8)  # b n d_n, b n k d_e
    >>> addresses = DenseSpace().initial(torch.zeros(1, 4, 3, dtype=torch.long), nodes)
    >>> state, entropies = stack(GraphState(nodes, edges, addresses))
    >>> state.node_features.shape
    torch.Size([1, 4, 64])
    """

    def __init__(self, layers: Iterable[Layer], *, checkpoint_layers: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.checkpoint_layers = checkpoint_layers

    def forward(
        self, state: GraphState, context: Context = Context()
    ) -> tuple[GraphState, Entropies]:
        """The state after the last layer; mean entropies where the context asks for them."""
        state, referral, attention = self.run(state, context)
        return state, mean_entropies(referral, attention)

    def run(
        self, state: GraphState, context: Context, kept: list[GraphState] | None = None
    ) -> LayerOut:
        """The layers, with the entropies of every sublayer. The state after every layer is
        appended to `kept`."""
        return run_layers(self.layers, state, context, recompute=self.checkpoint_layers, kept=kept)
