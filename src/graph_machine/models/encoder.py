"""`GraphEncoder`: Graph Machine layers for your own graphs, flat (PyG) or dense."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from graph_machine.config import ModelConfig
from graph_machine.errors import CheckpointError, ConfigError, GraphError
from graph_machine.graphs import Bucket, Direction, InputGraph, Overflow
from graph_machine.graphs.batches import PADDING
from graph_machine.graphs.edge_index import check_choices
from graph_machine.models import encoder_settings as making
from graph_machine.models.build import Assembly, ShapesOnly, initialise
from graph_machine.models.checkpoint import misfit, read_config, read_weights, save_folder
from graph_machine.models.encoder_input import Call, Rows, read_call, refuse_unknown
from graph_machine.models.encoder_settings import NAME
from graph_machine.models.predict import check_count
from graph_machine.nn.input import Standardise, Standards, as_residual
from graph_machine.nn.taps import Tapped
from graph_machine.ops.address.sparse import every_entry, heaviest
from graph_machine.ops.backend import Backend, resolve
from graph_machine.spaces import Addresses, Context, SparseAddresses
from graph_machine.spaces.packed import PackedAddresses
from graph_machine.state import GraphState, Visibility

FORMAT = "graph-machine-encoder"
NOT_SAVED = {"self", "positional", "backend", "settings", "__class__"}
# Of encoders that were saved before they could have these.
OLD_DEFAULTS = {
    "given_edges": "first",
    "empty_edge": False,
    "edge_values": False,
    "global_heads": 0,
    "batch_norm": False,
    "referral": "joint",
    "num_heads": 8,
    "num_edge_sublayers": None,
    "init": "matrices",
    "expansion": 4,
}


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


class GraphEncoder(Assembly):
    """Node features after a stack of Graph Machine layers, for any graph.

    Flat, as in PyG: `encoder(x, edge_index, edge_attr=None, batch=None)` with x (n, d_in) or tokens
    (n,), or `encoder(data)` with a whole `Data` or `Batch`; returns (n, d_node). Dense:
    `encoder(x, graph, node_mask=None)` with x (b, n, d_in) or (b, n) and an `InputGraph`; returns
    (b, n, d_node). `encode` returns the new edges as well.

    d_in: width of x; None: x has d_node columns already and is not projected.
    num_tokens: x holds tokens 0 to num_tokens - 1 instead of features.
    d_edge_in: width of `edge_attr`. num_edge_types: edges have types (`edge_type`, or an
    `edge_attr` of whole numbers). Both may be given.
    num_positions: every node position has its own embedding; None: no positions.
    direction: whose edges are read, see `graphs.graph_from_edge_index`.
    num_edges: k, the edges per node that the layers make.
    given_edges: `always`: every layer sees the edges of the input graph, as a set of any size,
    beside the k that it makes. `first`, as in the paper: they fill the k slots before the first
    layer. None: `always`, and `first` in address spaces that are not dense.
    empty_edge: every layer also sees one edge that points evenly at all nodes (None: as above).
    edge_values: attention also returns what a node's own edges carry (None: it does).
    overflow: only for `first`, see `graphs.graph_from_edge_index`; `nearest` needs `pos`. In eval
    mode `sample` keeps the same edges in every call, unless there is a `generator`.
    address_space: `weight` (dense) or, past a few hundred nodes, `sparse`.
    project_input_edges: a node first receives its input edges: the sum over them of an MLP of
    target and edge features. Attention takes means; this sum also shows how many edges there are.
    recurrent: rounds of a core after the layers, one layer with the same weights in every round
    (`core_layers` and `core_edge_sublayers` change that); 0: no core. A call may say `rounds`.
    batch_norm: x, `edge_attr`, the nodes before the first layer and the result are standardised
    over the batch; in eval mode by running statistics.
    dropout: share of what every sublayer adds to features that is set to 0 in training mode.
    edge_dropout: share of the input edges that is left out in training mode; never self edges.
    padding: share by which a graph may be padded; graphs go into buckets of similar size, and small
    buckets are joined where that saves time. None: one padded batch.
    check: look for values that are not finite and tokens out of range; False saves the device
    synchronisations of that. The node ids and types of an `edge_index` are always checked.
    backend: `reference` (the paper's listing, with second derivatives), `fused`, or `auto`.
    settings: any other field of `ModelConfig`, such as `num_heads`, `referral`, `core_layers`. With
    defaults of its own: pre-aggregated referral in every fourth layer, from the first on, d_node /
    8 heads, a quarter of them global (`global_heads`, where given edges stay), feed-forward
    networks twice as wide as features, torch's initialisation.

    >>> encoder = GraphEncoder(d_in=16, d_node=32, num_layers=2, num_edges=4)
    >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])  # edge_index: source, target
    >>> encoder(torch.randn(3, 16), ring).shape  # n d_node
    torch.Size([3, 32])
    """

    hands_on = False  # whether a call also returns addresses, with the policy behind them

    def __init__(
        self,
        *positional: object,
        d_node: int = 64,
        d_edge: int = 8,
        num_layers: int = 4,
        num_edges: int = 4,
        d_in: int | None = None,
        num_tokens: int | None = None,
        d_edge_in: int | None = None,
        num_edge_types: int | None = None,
        num_positions: int | None = None,
        direction: Direction = "out",
        given_edges: Literal["always", "first"] | None = None,
        empty_edge: bool | None = None,
        edge_values: bool | None = None,
        overflow: Overflow = "error",
        address_space: str = "weight",
        project_input_edges: bool = True,
        recurrent: int = 0,
        batch_norm: bool = True,
        dropout: float = 0.0,
        edge_dropout: float = 0.0,
        padding: float | None = PADDING,
        check: bool = True,
        backend: Backend = "auto",
        **settings: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in NOT_SAVED}
        super().__init__()
        self.arguments: dict[str, Any] = given | settings  # what `save_pretrained` writes
        making.refuse_positional(positional)
        resolve(backend, making.NAME)
        making.check_known(settings, inspect.signature(GraphEncoder.__init__).parameters)
        check_choices(direction, overflow)
        making.check_sizes(
            padding,
            {"dropout": dropout, "edge_dropout": edge_dropout},
            d_in=d_in,
            num_tokens=num_tokens,
            d_edge_in=d_edge_in,
            num_edge_types=num_edge_types,
            num_positions=num_positions,
        )
        # Checked beside the given edges that they need.
        ends, wide = settings.pop("edge_ends", False), settings.pop("global_heads", None)
        config = ModelConfig().replace(
            d_node=d_node,
            d_edge=d_edge,
            num_layers=num_layers,
            num_edges=num_edges,
            address_space=address_space,
            project_input_edges=project_input_edges,
            **making.encoder_settings(address_space, recurrent, d_node, num_layers, settings),
        )
        config = making.with_given_edges(config, given_edges, empty_edge, edge_values, ends, wide)
        if overflow != "error" and config.given_edges == "always":
            raise ConfigError(
                f"{making.NAME}: overflow='{overflow}' needs given_edges='first'; with 'always', "
                f"nodes may have any number of edges."
            )
        for name in OLD_DEFAULTS.keys() - {"batch_norm"}:  # defaults may change again
            self.arguments[name] = getattr(config, name)
        self.d_in = d_node if d_in is None else d_in
        self.d_edge_in, self.num_edge_types = d_edge_in, num_edge_types
        self.direction: Direction = direction
        self.overflow: Overflow = overflow
        self.padding, self.check = padding, check
        self.dropout, self.edge_dropout = dropout, edge_dropout
        self.tokens = None if num_tokens is None else nn.Embedding(num_tokens, d_node)
        self.project = None if d_in is None else nn.Linear(d_in, d_node, bias=batch_norm)
        self.positions = None if num_positions is None else nn.Embedding(num_positions, d_node)
        types = (num_edge_types or 1) * (2 if direction == "both" else 1)
        self.num_categories = types + 2
        self.assemble(
            config,
            num_categories=self.num_categories,
            d_edge_features=d_edge_in,
            num_nodes=num_positions,
        )
        widths = {"x": d_in, "edge_attr": d_edge_in, "nodes": d_node, "result": d_node}
        self.standard = Standards(
            {name: Standardise(width) for name, width in widths.items() if width and batch_norm}
        )
        # Looked at in every call, and a walk over all modules takes as long as a layer.
        self.tapped = tuple(each for each in self.modules() if isinstance(each, Tapped))
        self.backend = backend
        initialise(self, config)

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write `config.json` (the arguments of the constructor) and `model.safetensors`."""
        return save_folder(self, folder, {"format": FORMAT, "encoder": self.arguments})

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "GraphEncoder":
        """The encoder that `save_pretrained` wrote.

        >>> encoder = GraphEncoder(d_in=16, d_node=32, num_layers=2)
        >>> GraphEncoder.from_pretrained(encoder.save_pretrained("mine")).num_parameters
        32384
        """
        data = read_config(folder, FORMAT)
        weights = read_weights(folder, data.get("sha256"))
        try:
            with ShapesOnly():
                encoder = cls(**(OLD_DEFAULTS | data["encoder"]))
        except (ConfigError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"config.json does not describe an encoder ({error}): {folder}"
            ) from None
        try:
            encoder.load_state_dict({n: t.clone() for n, t in weights.items()}, assign=True)
        except RuntimeError as error:
            raise misfit(error, folder) from None
        return encoder.eval()

    def forward(
        self,
        x: Any,  # a tensor, or a PyG `Data` or `Batch`
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
        **unknown: Any,
    ) -> Float[Tensor, "*n d_n"]:
        """Node features, of the flat form `(x, edge_index, edge_attr, batch, edge_type=, pos=)` or
        the dense form `(x, graph, node_mask)`, by position or by keyword."""
        if unknown:
            refuse_unknown(unknown)
        others = (batch, graph, node_mask, edge_type, pos, generator)
        return self._run(Call(x, edge_index, edge_attr, *others), rounds, top=0)[1][0]

    def encode(
        self,
        x: Any,  # a tensor, or a PyG `Data` or `Batch`
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
        **unknown: Any,
    ) -> Encoded:
        """Node features, and the new edges: their features and their `top` heaviest targets.

        Takes what a call takes. Weights are shares of the whole address: they add up to 1 only if
        `top` lists all of it. Targets are flat node ids; in the dense form, ids within a graph.
        """
        if unknown:
            refuse_unknown(unknown)
        if isinstance(top, bool) or not isinstance(top, int | np.integer) or top < 1:
            raise GraphError(f"{NAME}: top should be a whole number from 1 on, got {top!r}.")
        others = (batch, graph, node_mask, edge_type, pos, generator)
        found = self._run(Call(x, edge_index, edge_attr, *others), rounds, int(top))[1]
        return Encoded(*found) if self.space is not None else Encoded(found[0], None, None, None)

    def dense_state(
        self,
        x: Shaped[Tensor, "b n *d"],
        graph: InputGraph,
        node_mask: Shaped[Tensor, "..."] | None = None,
        *,
        rounds: int | None = None,
    ) -> GraphState:
        """The state after the last layer, for padded graphs (b, n); every shape is checked."""
        return self._run(Call(x, graph=graph, node_mask=node_mask), rounds)[0]

    @property
    def looks(self) -> bool:
        """Whether values are looked at, which a compiled or exported model cannot."""
        return self.check and not torch.compiler.is_compiling()

    def _run(
        self,
        given: Call,
        rounds: int | None,
        top: int | None = None,
        made: "MadeEdges | None" = None,
    ) -> tuple[GraphState, list[Tensor]]:
        """The state after the last layer, of the last bucket, and of all nodes in their order what
        is read off the states: with `top` 0 the nodes, from 1 on also their edges; None: nothing.
        `made` are edges to begin with.
        """
        if self.core is not None:
            rounds = self.config.rounds if rounds is None else rounds
            check_count(f"{NAME}: rounds", rounds, 1)
        elif rounds is not None:
            raise ConfigError(f"{NAME}: rounds={rounds}, but it was made without recurrent=.")
        learns = self.training and torch.is_grad_enabled() and not self.hands_on
        rows = read_call(self, given, learns=learns and top is not None)
        context = Context(backend=self.backend, dropout=self.dropout if self.training else 0.0)
        nodes, edges, targets = self._embed(rows)
        found = []
        for bucket in rows.buckets:
            state, mask = self._first_state(rows, bucket, nodes, edges, targets), bucket.mask
            if made is not None:
                state = state.replace(edge_features=made.features, addresses=made.addresses)
            state = self.stack(state, context)[0]
            if self.core is not None:
                state = self.core(state, context, rounds=rounds)[0]
            if top is None:
                continue
            out = self.norm(state.node_features, self.backend)
            out = [out if mask is None else out * mask.unsqueeze(-1)]
            if top and self.space is not None:
                starts = bucket.starts[:, None] if rows.packed is None else rows.first_rows
                out += self._edges_out(state, None if rows.dense else starts, top)
            if rows.packed is not None:
                out = [tensor[0] for tensor in out]
            found.append(out if rows.unpadded else [bucket.rows(tensor) for tensor in out])
        if top is None:
            return state, []
        out = found[0]
        if len(found) > 1:
            order = torch.cat([bucket.rows(bucket.ids) for bucket in rows.buckets]).argsort()
            out = [torch.cat(parts)[order] for parts in zip(*found, strict=True)]
        out[0] = self.standard("result", out[0], mask if rows.dense else None)
        return state, out

    def _first_state(
        self, rows: Rows, bucket: Bucket, nodes: Tensor, edges: Tensor | None, targets: Tensor
    ) -> GraphState:
        """The state of a bucket before the first layer."""
        if rows.packed is not None and edges is not None:  # all rows, as they are
            state = self.first(nodes[None], edges[None], targets[None], self.space)
            first = torch.where(targets >= 0, targets - rows.first_rows.unsqueeze(-1), -1)
            none = nodes.new_empty(0)
            local, eps = first.to(torch.int32)[None], self.config.address_eps
            return state.replace(addresses=PackedAddresses(none, 0, rows.packed, local, eps))
        mask, features = bucket.mask, nodes[bucket.ids]
        features = features if mask is None else features * mask.unsqueeze(-1)
        if self.first is None or edges is None:
            return GraphState(features, visibility=Visibility(mask))
        width = rows.graph.num_edges
        if rows.degrees is not None:
            width = max(rows.degrees[graph] for graph in bucket.members)
        own, kept = bucket.targets(targets[:, :width]), edges[:, :width][bucket.ids]
        return self.first(features, kept, own, self.space, Visibility(mask))

    def _embed(self, rows: Rows) -> tuple[Tensor, Tensor | None, Tensor]:
        """Nodes (r, d_n), edges (r, k, d_e) and targets (r, k) before the first layer."""
        mask, graph = rows.mask, rows.graph
        if self.tokens is not None:
            nodes = self.tokens(rows.x)
        elif self.project is not None:
            nodes = as_residual(self.project, self.standard("x", rows.x, mask))
        else:
            nodes = rows.x
        if self.positions is not None:
            most = rows.largest
            if most > self.positions.num_embeddings:
                raise GraphError(
                    f"{NAME}: a graph has {most} nodes, but there are num_positions = "
                    f"{self.positions.num_embeddings}."
                )
            nodes = nodes + self.positions(rows.place)
        nodes = nodes if mask is None else nodes * mask.unsqueeze(-1)
        edges = None
        if self.edges is not None:
            there = (graph.targets >= 0) & (graph.categories != graph.num_categories - 2)
            if self.training and self.edge_dropout:
                gone = there & (torch.rand(there.shape, device=there.device) < self.edge_dropout)
                graph, there = graph.without(gone), there & ~gone
            if graph.features is not None and "edge_attr" in self.standard:
                features = self.standard["edge_attr"](graph.features, there)
                graph = replace(graph, features=features * (graph.targets >= 0).unsqueeze(-1))
            edges = self.edges(graph)
        if self.projected is not None and edges is not None:
            dropping = self.training and self.edge_dropout > 0
            blank = rows.means(nodes) if self.config.given_edges == "first" else None
            used = None if dropping else rows.used
            fused = resolve(self.backend, NAME) == "fused"
            nodes = self.projected.rows(nodes, edges, graph.targets, used, blank, fused=fused)
        return self.standard("nodes", nodes, mask), edges, graph.targets

    def _edges_out(self, state: GraphState, starts: Tensor | None, top: int) -> list[Tensor]:
        """Edge features, targets and weights, all (b, n, ...); `starts` broadcast over (b, n)."""
        assert state.edge_features is not None
        assert state.addresses is not None
        if isinstance(state.addresses, SparseAddresses):
            entries = state.addresses.entries
        else:
            entries = every_entry(state.addresses.to_dense())
        targets, weights = heaviest(entries, top)
        targets = targets.clamp_min(-1).masked_fill(weights <= 0, -1)  # even entries: no target
        if starts is not None:
            targets = torch.where(targets >= 0, targets + starts[..., None, None], -1)
        missing = top - targets.shape[-1]  # a graph may have fewer nodes than that
        targets = nn.functional.pad(targets, (0, missing), value=-1)
        return [state.edge_features, targets, nn.functional.pad(weights, (0, missing))]


class MadeEdges(NamedTuple):
    """The edges that a `GraphMachineConv` hands on to the next one: opaque, for padded graphs."""

    features: Float[Tensor, "b n k d_e"] | None
    addresses: Addresses | None


class GraphMachineConv(GraphEncoder):
    """One layer that takes the edges of the layer before it and hands its own on.

    For models that put other layers in between, as in `torch_geometric.nn.Sequential`. All layers
    have the same `d_edge` and `num_edges`. (One layer that keeps its edges to itself, in place of a
    GINEConv, is `GraphEncoder(d_node=..., num_layers=1)`.)

    >>> first, second = GraphMachineConv(d_node=16), GraphMachineConv(d_node=16)
    >>> x, ring = torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])
    >>> x, made = first(x, ring)
    >>> x, made = second(x, ring, made=made)
    >>> x.shape
    torch.Size([3, 16])
    """

    hands_on = True

    def __init__(self, *positional: object, d_node: int = 64, **settings: Any) -> None:
        settings = {"num_layers": 1, **settings, "padding": None}  # one padded batch to hand on
        super().__init__(*positional, d_node=d_node, **settings)

    def forward(  # pyrefly: ignore[bad-override]
        self,
        x: Shaped[Tensor, "n ..."],
        edge_index: Int[Tensor, "2 e"],
        edge_attr: Shaped[Tensor, "e ..."] | None = None,
        batch: Int[Tensor, " n"] | None = None,
        made: MadeEdges | None = None,
        *,
        edge_type: Int[Tensor, " e"] | None = None,
    ) -> tuple[Float[Tensor, "n d_n"], MadeEdges]:
        """New nodes, and the edges for the next layer."""
        given = Call(x, edge_index, edge_attr, batch, edge_type=edge_type)
        state, (nodes,) = self._run(given, None, 0, made)
        return nodes, MadeEdges(state.edge_features, state.addresses)
