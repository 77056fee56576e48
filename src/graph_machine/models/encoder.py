"""`GraphEncoder`: Graph Machine layers for your own graphs, flat (PyG) or dense."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.graphs import Direction, InputGraph, Overflow, bucketed
from graph_machine.graphs.batches import PADDING
from graph_machine.graphs.edge_index import check_choices
from graph_machine.models import encoder_input as inputs
from graph_machine.models.build import build_core, build_layers, build_space, initialise
from graph_machine.models.encoder_checks import (
    check_call,
    check_known,
    check_learns,
    check_sizes,
    check_top,
    encoder_settings,
)
from graph_machine.nn import EdgeInput, GraphMachineStack, ProjectedEdges
from graph_machine.nn.basic import RMSNorm
from graph_machine.nn.input import as_residual
from graph_machine.ops.address.sparse import every_entry, heaviest
from graph_machine.ops.backend import Backend
from graph_machine.spaces import Context, SparseAddresses
from graph_machine.state import GraphState, Visibility


class Encoded(NamedTuple):
    """Nodes and the edges that the layers made. `*n` is (n,), or (b, n) in the dense form.

    >>> encoder = GraphEncoder(d_in=16, d_node=32, num_layers=2, num_edges=4)
    >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    >>> made = encoder.encode(torch.randn(3, 16), ring, top=1)
    >>> made.nodes.shape, made.edge_targets.shape  # n d_node, n k s
    (torch.Size([3, 32]), torch.Size([3, 4, 1]))
    """

    nodes: Float[Tensor, "*n d_n"]
    edge_features: Float[Tensor, "*n k d_e"] | None  # None: a model without edges
    edge_targets: Int[Tensor, "*n k s"] | None  # heaviest targets first; -1: unused
    edge_weights: Float[Tensor, "*n k s"] | None  # their share of the address


def look_up(
    nodes: Float[Tensor, "b n d"],
    targets: Int[Tensor, "b n k"],
    node_mask: Bool[Tensor, "b n"] | None,
) -> Float[Tensor, "b n k d"]:
    """Features of the targets; an empty slot (-1) sees the mean of its graph, as its address is."""
    b, n = targets.shape[:2]
    rows = torch.arange(b, device=nodes.device).reshape(b, 1, 1)
    found = nodes[rows, targets.clamp_min(0)]
    size = n if node_mask is None else node_mask.sum(dim=-1, keepdim=True).unsqueeze(-1)
    mean = (nodes.sum(dim=1, keepdim=True) / size).unsqueeze(-2)  # padded nodes are 0
    return torch.where((targets < 0).unsqueeze(-1), mean, found)


class GraphEncoder(nn.Module):
    """Node features after a stack of Graph Machine layers, for any graph.

    Flat, as in PyG: `encoder(x, edge_index, edge_attr=None, batch=None)` with x (n, d_in) or tokens
    (n,); returns (n, d_node). Dense: `encoder(x, graph, node_mask=None)` with x (b, n, d_in) or
    (b, n) and an `InputGraph`; returns (b, n, d_node). `encode` returns the new edges as well.

    d_in: width of x; None: x has d_node columns already and is not projected.
    num_tokens: x holds tokens 0 to num_tokens - 1 instead of features.
    d_edge_in: width of `edge_attr`. num_edge_types: edges have types (`edge_type`, or an
    `edge_attr` of whole numbers). Both may be given.
    num_positions: every node position has its own embedding; None: no positions.
    direction, overflow: see `graphs.graph_from_edge_index`; `nearest` needs `pos`. In eval mode
    `sample` keeps the same edges in every call, unless there is a `generator`.
    address_space: `weight` (dense) or, past a few hundred nodes, `sparse`.
    project_input_edges: a node receives its input edges: the sum over them of an MLP of target and
    edge features. Attention passes on node features, and edges only steer it; without this,
    what edges carry (and how many there are) never reaches a node.
    recurrent: rounds of a core after the layers, one layer with the same weights in every round
    (`core_layers` and `core_edge_sublayers` change that); 0: no core. A call may say `rounds`.
    padding: share by which a graph may be padded; graphs go into buckets of similar size. None: one
    padded batch.
    check: look for values that are not finite and tokens out of range; False saves the device
    synchronisations of that. Node ids and edge types are always checked.
    settings: any other field of `ModelConfig`, such as `num_heads`, `referral`, `core_layers`.

    >>> encoder = GraphEncoder(d_in=16, d_node=32, num_layers=2, num_edges=4)
    >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])  # edge_index: source, target
    >>> encoder(torch.randn(3, 16), ring).shape  # n d_node
    torch.Size([3, 32])
    """

    def __init__(
        self,
        *,
        d_node: int = 64,
        d_edge: int = 8,
        num_layers: int = 4,
        num_edges: int = 8,
        d_in: int | None = None,
        num_tokens: int | None = None,
        d_edge_in: int | None = None,
        num_edge_types: int | None = None,
        num_positions: int | None = None,
        direction: Direction = "out",
        overflow: Overflow = "error",
        address_space: str = "weight",
        project_input_edges: bool = True,
        recurrent: int = 0,
        padding: float | None = PADDING,
        check: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__()
        check_known(settings, inspect.signature(GraphEncoder.__init__).parameters)
        check_choices(direction, overflow)
        check_sizes(
            padding,
            d_in=d_in,
            num_tokens=num_tokens,
            d_edge_in=d_edge_in,
            num_edge_types=num_edge_types,
            num_positions=num_positions,
        )
        self.config = ModelConfig().replace(
            d_node=d_node,
            d_edge=d_edge,
            num_layers=num_layers,
            num_edges=num_edges,
            address_space=address_space,
            project_input_edges=project_input_edges,
            **encoder_settings(address_space, recurrent, settings),
        )
        self.d_in = d_node if d_in is None else d_in
        self.d_edge_in, self.num_edge_types = d_edge_in, num_edge_types
        self.direction, self.overflow = direction, overflow
        self.padding, self.check = padding, check
        self.backend: Backend = "auto"
        self.tokens = None if num_tokens is None else nn.Embedding(num_tokens, d_node)
        self.project = None if d_in is None else nn.Linear(d_in, d_node, bias=False)
        self.positions = None if num_positions is None else nn.Embedding(num_positions, d_node)
        types = (num_edge_types or 1) * (2 if direction == "both" else 1)
        self.num_categories = types + 2
        # Of a spec the layers and spaces read the number of places only.
        spec = InputSpec(num_tokens=1, num_outputs=1, num_nodes=num_positions)
        self.edges = self.space = self.projected = None
        if self.config.has_edges or self.config.project_input_edges:
            self.edges = EdgeInput(
                d_edge=d_edge, num_categories=self.num_categories, d_features=d_edge_in
            )
        if self.config.has_edges:
            self.space = build_space(self.config, spec)
        if self.config.project_input_edges:
            self.projected = ProjectedEdges(
                d_node=d_node, d_edge=d_edge, expansion=self.config.expansion
            )
        self.stack = GraphMachineStack(build_layers(self.config, spec))
        self.core = build_core(self.config, spec)
        self.norm = RMSNorm(d_node)
        initialise(self, self.config)

    @property
    def num_parameters(self) -> int:
        """Number of trainable numbers."""
        return sum(parameter.numel() for parameter in self.parameters())

    def set_progress(self, fraction: float) -> None:
        """The share of training that is done, for address spaces that anneal something."""
        if self.space is not None:
            self.space.set_progress(fraction)

    def forward(
        self,
        x: Shaped[Tensor, "..."],
        edge_index: Int[Tensor, "..."] | InputGraph | None = None,
        edge_attr: Shaped[Tensor, "..."] | None = None,
        batch: Int[Tensor, "..."] | None = None,
        *,
        graph: InputGraph | None = None,
        node_mask: Shaped[Tensor, "..."] | None = None,
        edge_type: Int[Tensor, "..."] | None = None,
        pos: Shaped[Tensor, "..."] | None = None,
        generator: torch.Generator | None = None,
        rounds: int | None = None,
    ) -> Float[Tensor, "*n d_n"]:
        """Node features, of the flat form `(x, edge_index, edge_attr, batch, edge_type=, pos=)` or
        the dense form `(x, graph, node_mask)`, by position or by keyword."""
        others = (batch, graph, node_mask, edge_type, pos, generator)
        given = inputs.Given(x, edge_index, edge_attr, *others)
        return self._read(given, rounds, lambda state, starts: (self._nodes_out(state),))[0]

    def encode(
        self,
        x: Shaped[Tensor, "..."],
        edge_index: Int[Tensor, "..."] | InputGraph | None = None,
        edge_attr: Shaped[Tensor, "..."] | None = None,
        batch: Int[Tensor, "..."] | None = None,
        *,
        graph: InputGraph | None = None,
        node_mask: Shaped[Tensor, "..."] | None = None,
        edge_type: Int[Tensor, "..."] | None = None,
        pos: Shaped[Tensor, "..."] | None = None,
        generator: torch.Generator | None = None,
        rounds: int | None = None,
        top: int = 8,
    ) -> Encoded:
        """Node features, and the new edges: their features and their `top` heaviest targets.

        Takes what a call takes. Weights are shares of the whole address: they add up to 1 only if
        `top` lists all of it. Targets are flat node ids; in the dense form, ids within a graph.
        """
        check_top(top)
        others = (batch, graph, node_mask, edge_type, pos, generator)
        given = inputs.Given(x, edge_index, edge_attr, *others)
        if self.space is None:
            found = self._read(given, rounds, lambda state, starts: (self._nodes_out(state),))
            return Encoded(found[0], None, None, None)
        return Encoded(*self._read(given, rounds, lambda s, starts: self._all_out(s, starts, top)))

    def dense_state(
        self,
        x: Shaped[Tensor, "b n *d"],
        graph: InputGraph,
        node_mask: Shaped[Tensor, "..."] | None = None,
        *,
        rounds: int | None = None,
    ) -> GraphState:
        """The state after the last layer, for padded graphs (b, n); every shape is checked."""
        times = check_call(self, rounds)
        given, graph = inputs.read_dense(self, x, graph, node_mask)
        return self._run(given, graph, node_mask, times)

    def _read(
        self,
        given: inputs.Given,
        rounds: int | None,
        read: Callable[[GraphState, Tensor | None], tuple[Tensor, ...]],
    ) -> Sequence[Tensor]:
        """What `read` finds: of the dense form, or in all buckets as rows in the nodes' order."""
        times = check_call(self, rounds)
        check_learns(self, torch.is_grad_enabled())
        dense = given.dense()
        if dense is not None:
            return read(self.dense_state(given.x, *dense, rounds=rounds), None)
        flat = inputs.read_flat(self, given)
        found, places = [], []
        for bucket in bucketed(flat.ranges, flat.x.device, self.padding):
            mask = bucket.mask if bucket.padded else None
            state = self._run(flat.x[bucket.ids], bucket.graph(flat.graph), mask, times)
            found.append([tensor[bucket.mask] for tensor in read(state, bucket.starts)])
            places.append(bucket.ids[bucket.mask])
        if len(found) == 1:
            return found[0]
        order = torch.cat(places).argsort()
        return [torch.cat(parts)[order] for parts in zip(*found, strict=True)]

    def _run(
        self, x: Tensor, graph: InputGraph, node_mask: Tensor | None, rounds: int
    ) -> GraphState:
        """Input layers and stack over one padded batch; a mask of None: nothing is padded."""
        sight, context = Visibility(node_mask), Context(backend=self.backend)
        nodes = x if self.project is None else as_residual(self.project, x)
        if self.tokens is not None:
            nodes = self.tokens(x)
        if self.positions is not None:
            nodes = nodes + self.positions.weight[: nodes.shape[1]]
        if node_mask is not None:
            nodes = nodes * node_mask.unsqueeze(-1)
        state = GraphState(nodes, visibility=sight)
        if self.edges is not None:
            features = self.edges(graph)
            if self.projected is not None:
                seen = look_up(nodes, graph.targets, node_mask)
                state = state.replace(node_features=self.projected.add(nodes, features, seen))
            if self.space is not None:
                addresses = self.space.initial(graph.targets, state.node_features, sight)
                state = state.replace(edge_features=features, addresses=addresses)
        state = self.stack(state, context)[0]
        return state if self.core is None else self.core(state, context, rounds=rounds)[0]

    def _nodes_out(self, state: GraphState) -> Float[Tensor, "b n d_n"]:
        nodes = self.norm(state.node_features, self.backend)
        mask = state.visibility.node_mask
        return nodes if mask is None else nodes * mask.unsqueeze(-1)

    def _all_out(self, state: GraphState, starts: Tensor | None, top: int) -> tuple[Tensor, ...]:
        """Nodes, edge features, targets and weights, all (b, n, ...)."""
        assert state.edge_features is not None
        assert state.addresses is not None
        if isinstance(state.addresses, SparseAddresses):
            entries = state.addresses.entries
        else:
            entries = every_entry(state.addresses.to_dense())
        targets, weights = heaviest(entries, top)
        targets = targets.masked_fill(weights <= 0, -1)
        if starts is not None:
            targets = torch.where(targets >= 0, targets + starts[:, None, None, None], -1)
        missing = top - targets.shape[-1]  # a graph may have fewer nodes than that
        targets = nn.functional.pad(targets, (0, missing), value=-1)
        weights = nn.functional.pad(weights, (0, missing))
        return self._nodes_out(state), state.edge_features, targets, weights

    def extra_repr(self) -> str:
        """Shown by `print`."""
        return f"{self.num_parameters:,} parameters"
