"""What a `GraphEncoder` is given, checked once: invalid values raise a one-line error."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from graph_machine.config.model import MOST_ROUNDS
from graph_machine.errors import ConfigError, GraphError, did_you_mean
from graph_machine.graphs import (
    Bucket,
    InputGraph,
    bucketed,
    graph_from_edge_index,
    graph_sizes,
)
from graph_machine.graphs.checks import check_apart, check_edges, check_tensors
from graph_machine.graphs.pyg import Prepared, prepared
from graph_machine.models.encoder_settings import NAME
from graph_machine.models.rounds import check_count

if TYPE_CHECKING:
    from graph_machine.models.encoder import GraphEncoder


def refuse_unknown(unknown: dict[str, Any]) -> None:
    """Arguments that a call does not have; some that PyG's layers do."""
    for name in unknown:
        if name == "edge_weight":
            raise GraphError(
                f"{NAME}: there is no edge_weight; pass weights as edge_attr= (e,) to an encoder "
                f"with d_edge_in=1."
            )
        near = did_you_mean(name, (*Call._fields, "rounds", "top"))
        raise GraphError(f"{NAME}: a call has no argument '{name}'.{near}")


def check_call(encoder: "GraphEncoder", rounds: int | None, *, learning: bool = False) -> int:
    """The rounds of a call, before anything runs. Choices that are trained by their probabilities
    (`learning`) need these in the loss."""
    config = encoder.config
    choosing = config.address_space == "hard" and config.estimator == "reinforce"
    if choosing and learning and encoder.training and encoder.space is not None:
        raise ConfigError(
            f"{NAME}: estimator='reinforce' trains by the policy, which a call does not return; "
            f"say estimator='straight-through', or take dense_state(...).addresses.policy."
        )
    dtype = encoder.norm.weight.dtype
    if encoder.backend == "reference" and dtype in (torch.float16, torch.bfloat16):
        raise ConfigError(
            f"{NAME}: backend='reference' needs float32 or float64 weights, got {dtype}; write "
            f"encoder.float(), or use autocast."
        )
    if encoder.core is None:
        if rounds is not None:
            raise ConfigError(f"{NAME}: rounds={rounds}, but it was made without recurrent=.")
        return 1
    rounds = encoder.config.rounds if rounds is None else rounds
    check_count(f"{NAME}: rounds", rounds, 1, MOST_ROUNDS)
    return rounds


def check_top(top: object) -> None:
    """How many targets of an edge are listed: 1 or more."""
    if isinstance(top, bool) or not isinstance(top, int | np.integer) or top < 1:
        raise GraphError(f"{NAME}: top should be a whole number from 1 on, got {top!r}.")


class Call(NamedTuple):
    """The arguments of a call: `edge_index` or `graph` says which form it has."""

    x: Tensor
    edge_index: Tensor | InputGraph | None
    edge_attr: Tensor | None
    batch: Tensor | None
    graph: InputGraph | None
    node_mask: Tensor | None
    edge_type: Tensor | None
    pos: Tensor | None
    generator: torch.Generator | None
    data: Any = None  # a PyG `Data` that all of this comes from

    def unpacked(self) -> "Call":
        """A whole PyG `Data` or `Batch` in place of x, as its tensors."""
        kinds = {kind.__name__ for kind in type(self.x).__mro__}
        if not kinds & {"Data", "HeteroData"}:
            return self
        if "HeteroData" in kinds:
            raise GraphError(
                f"{NAME}: x should be a tensor or a Data, got {type(self.x).__name__}; write "
                f"encoder(data.to_homogeneous()), with num_edge_types=."
            )
        if any(other is not None for other in self[1:]):
            raise GraphError(f"{NAME}: a {type(self.x).__name__} holds everything; pass it alone.")
        data: Any = self.x
        names = ("x", "edge_index", "edge_attr", "batch", "edge_type", "pos")
        found: dict[str, Any] = {name: getattr(data, name, None) for name in names}
        return Call(**found, graph=None, node_mask=None, generator=None, data=data)

    def dense(self) -> tuple[InputGraph, Tensor | None] | None:
        """Graph and node mask of the dense form; None: it is the flat form."""
        if self.generator is not None and not isinstance(self.generator, torch.Generator):
            kind = type(self.generator).__name__
            raise GraphError(f"{NAME}: generator should be a torch.Generator, got {kind}.")
        graph, node_mask = self.graph, self.node_mask
        if isinstance(self.edge_index, InputGraph):  # by position: x, graph, node_mask
            if graph is not None or (self.edge_attr is not None and node_mask is not None):
                raise GraphError(f"{NAME}: the graph or its node_mask is given twice.")
            graph, node_mask = (
                self.edge_index,
                node_mask if self.edge_attr is None else self.edge_attr,
            )
        elif graph is not None and (self.edge_index is not None or self.edge_attr is not None):
            raise GraphError(f"{NAME}: a graph holds its edges: no edge_index, no edge_attr.")
        if graph is None:
            if node_mask is not None:
                raise GraphError(f"{NAME}: node_mask goes with a graph; an edge_index has a batch.")
            return None
        if not isinstance(graph, InputGraph):
            raise GraphError(f"{NAME}: graph should be an InputGraph, got {type(graph).__name__}.")
        for name in ("batch", "edge_type", "pos", "generator"):
            if getattr(self, name) is not None:
                raise GraphError(f"{NAME}: {name} goes with an edge_index, not with a graph.")
        return graph, node_mask


def refuse_batch_third(x: Tensor, edge_index: Tensor, attr: Tensor) -> None:
    """PyG's GPSConv takes the batch vector third; here the third argument is edge_attr."""
    if attr.ndim == 1 and len(attr) == len(x) and edge_index.shape[1:] != attr.shape:
        raise GraphError(
            f"{NAME}: edge_attr has {len(attr)} entries, one per node, for {edge_index.shape[-1]} "
            f"edges; a batch vector is the fourth argument: encoder(x, edge_index, batch=batch)."
        )


class Rows(NamedTuple):
    """Nodes of all graphs as rows, with their edges, and the padded batches that they go into."""

    x: Tensor  # (r, d_in) features or (r,) tokens
    graph: InputGraph  # slots (r, k); targets are rows
    buckets: list[Bucket]
    degrees: list[int] | None = None  # slots that each graph needs; None: all
    mask: Tensor | None = None  # (r,), False at padding; None: no row is
    used: Tensor | None = None  # slots that hold an edge, counted through; None: look at all

    def width(self, bucket: Bucket) -> int:
        """Slots that the graphs of a bucket need."""
        if self.degrees is None or len(self.buckets) == 1:
            return self.graph.num_edges
        return max(self.degrees[graph] for graph in bucket.members)

    @property
    def place(self) -> Tensor:
        """The place of every row within its graph."""
        return self._for_rows(lambda bucket: bucket.ids - bucket.starts.unsqueeze(-1))

    def means(self, nodes: Tensor) -> Tensor:
        """For every row the mean of its graph; padded rows are 0."""
        start = self._for_rows(lambda bucket: bucket.starts.unsqueeze(-1).expand_as(bucket.ids))
        real = nodes.new_ones(len(nodes), 1) if self.mask is None else self.mask.unsqueeze(-1)
        sums = torch.zeros_like(nodes).index_add(0, start, nodes)
        counts = nodes.new_zeros(len(nodes), 1).index_add(0, start, real.to(nodes.dtype))
        return sums[start] / counts[start]

    def _for_rows(self, find: Callable[[Bucket], Tensor]) -> Tensor:
        found = torch.zeros(len(self.x), dtype=torch.long, device=self.x.device)
        for bucket in self.buckets:  # padding has the id of its graph's first node
            found = found.index_put((bucket.ids,), find(bucket))
        return found


def read_flat(encoder: "GraphEncoder", given: Call) -> Rows:
    """A flat batch as edge slots, once everything about it has been checked."""
    made = None if given.data is None else prepared(given.data)
    if made is not None:
        return read_prepared(encoder, given, made)
    edge_index, edge_attr, batch = given.edge_index, given.edge_attr, given.batch
    same_device(encoder, x=given.x, edge_index=edge_index)
    assert isinstance(edge_index, Tensor)
    others = {
        "edge_attr": edge_attr,
        "batch": batch,
        "edge_type": given.edge_type,
        "pos": given.pos,
    }
    same_device(encoder, **{name: value for name, value in others.items() if value is not None})
    x = read_nodes(encoder, given.x, 1)
    sizes = graph_sizes(batch, len(x), NAME)
    if encoder.positions is not None:
        check_places(encoder.positions, max(sizes))
    if edge_attr is not None and batch is None:
        refuse_batch_third(given.x, edge_index, edge_attr)
    features, types = read_edges(encoder, edge_attr, given.edge_type)
    if encoder.edges is None:
        # No edge is ever looked at: slots for the shapes alone.
        check_edges(NAME, edge_index, None, None, len(x))
        if batch is not None:
            check_apart(NAME, edge_index, batch)
        edge_index = edge_index[:, :0]
        features = types = None
    always = encoder.config.given_edges == "always"
    graph = graph_from_edge_index(
        edge_index,
        num_nodes=len(x),
        num_edges=None if always else max(1, encoder.config.num_edges),
        edge_types=types,
        num_types=encoder.num_edge_types or 1,
        edge_features=features,
        direction=encoder.direction,
        overflow=encoder.overflow,
        positions=given.pos,
        generator=given.generator,
        fixed=not encoder.training,
        check=encoder.check,
        where=NAME,
    )
    if batch is not None:
        check_apart(NAME, edge_index, batch)
    buckets = list(bucketed(sizes, x.device, encoder.padding))
    degrees = used = None
    if always:
        there = graph.targets >= 0
        used = there.flatten().nonzero().squeeze(-1)
        if len(buckets) > 1:
            per_node = there.sum(dim=1).split(sizes)
            degrees = torch.stack([own.max() for own in per_node]).tolist()
    return Rows(x, graph, buckets, degrees, None, used)


def read_prepared(encoder: "GraphEncoder", given: Call, made: Prepared) -> Rows:
    """A batch whose edges `GraphMachineEdges` has checked and sorted: no look at its numbers."""
    graph, shape = made.graph, made.shapes[0]
    same_device(encoder, x=given.x, edge_index=graph.targets)
    if encoder.config.given_edges == "first" or encoder.direction != shape.direction:
        raise GraphError(
            f"{NAME}: the edges were prepared for given_edges='always' and direction="
            f"'{shape.direction}', the encoder has '{encoder.config.given_edges}' and "
            f"'{encoder.direction}'."
        )
    x = read_nodes(encoder, given.x, 1)
    if encoder.positions is not None:
        check_places(encoder.positions, max(made.sizes))
    if encoder.edges is not None:
        check_kinds(encoder, graph)
        if graph.features is not None:
            graph = replace(graph, features=read_features(encoder, "edge_attr", graph.features))
    buckets = list(bucketed(made.sizes, x.device, encoder.padding))
    return Rows(x, graph, buckets, [shape.degree for shape in made.shapes], None, made.used)


def check_kinds(encoder: "GraphEncoder", graph: InputGraph) -> None:
    """The graph has the categories and the features that the encoder was made for."""
    if graph.num_categories != encoder.num_categories:
        raise GraphError(
            f"{NAME}: the graph has {graph.num_categories} edge categories, the encoder knows "
            f"{encoder.num_categories}: make the graph with num_edge_types="
            f"{encoder.num_edge_types} and direction='{encoder.direction}', too."
        )
    width = None if graph.features is None else graph.features.shape[-1]
    if width != encoder.d_edge_in:
        raise GraphError(
            f"{NAME}: the graph's edge features have width {width}, the encoder has "
            f"d_edge_in={encoder.d_edge_in}."
        )


def check_places(places: nn.Embedding, nodes: int) -> None:
    """There is an embedding for every position of the largest graph."""
    if nodes > places.num_embeddings:
        raise GraphError(
            f"{NAME}: a graph has {nodes} nodes, but there are num_positions = "
            f"{places.num_embeddings}."
        )


def read_dense(
    encoder: "GraphEncoder", x: Tensor, graph: InputGraph, node_mask: Tensor | None
) -> Rows:
    """Padded nodes (b, n, d_in) and their graph, as rows."""
    same_device(encoder, x=x, graph=graph.targets, categories=graph.categories)
    others = {"node_mask": node_mask, "edge features": graph.features}
    same_device(encoder, **{name: value for name, value in others.items() if value is not None})
    x = read_nodes(encoder, x, 2)
    b, n = x.shape[:2]
    check = encoder.looks
    if encoder.positions is not None:
        check_places(encoder.positions, n)  # padding has places, too
    if node_mask is not None:
        if node_mask.dtype != torch.bool or node_mask.shape != (b, n):
            raise GraphError(
                f"{NAME}: node_mask should be bool (b, n) = ({b}, {n}), got {node_mask.dtype} "
                f"{tuple(node_mask.shape)}."
            )
        if check and not bool(node_mask.any(dim=-1).all()):
            empty = (~node_mask.any(dim=-1)).nonzero()
            raise GraphError(f"{NAME}: graph {int(empty[0])} of the batch has no nodes.")
    starts = torch.arange(b, device=x.device) * n
    ids = starts.unsqueeze(-1) + torch.arange(n, device=x.device)
    buckets = [Bucket(range(b), ids, starts, node_mask, None)]
    mask = None if node_mask is None else node_mask.flatten()
    rows = Rows(x.flatten(0, 1), graph, buckets, None, mask)
    if encoder.edges is None:
        return rows
    if check:
        graph.check()
    always = encoder.config.given_edges == "always"
    shape = (b, n, graph.num_edges if always else encoder.config.num_edges)
    if graph.targets.shape[-2:] != shape[1:] or graph.targets.shape[:-2] not in ((), (1,), (b,)):
        raise GraphError(
            f"{NAME}: the graph should have (b, n, k) = {shape}, got {tuple(graph.targets.shape)}."
        )
    check_kinds(encoder, graph)
    features = None
    if graph.features is not None:
        features = read_features(encoder, "the graph's edge features", graph.features)
        features = features.expand(*shape, features.shape[-1]).flatten(0, 1)
    targets, categories = graph.targets.expand(shape), graph.categories.expand(shape)
    if check and node_mask is not None:
        check_real_targets(targets, node_mask)
    targets = torch.where(targets >= 0, targets + starts[:, None, None], -1).flatten(0, 1)
    flat = InputGraph(targets, categories.flatten(0, 1), graph.num_categories, features)
    return rows._replace(graph=flat)


def check_real_targets(targets: Tensor, node_mask: Tensor) -> None:
    """No edge of a real node leads to padding: it would carry zeros, or lead anywhere."""
    real = node_mask.gather(1, targets.clamp_min(0).flatten(1)).reshape(targets.shape)
    lost = node_mask.unsqueeze(-1) & (targets >= 0) & ~real
    if bool(lost.any()):
        row, node, slot = lost.nonzero()[0].tolist()
        raise GraphError(
            f"{NAME}: graph {row} of the batch: slot {slot} of node {node} points to node "
            f"{int(targets[row, node, slot])}, which node_mask says is padding."
        )


def same_device(encoder: "GraphEncoder", **given: Any) -> None:
    """Everything given is a tensor on the encoder's device."""
    check_tensors(NAME, **given)
    home = encoder.norm.weight.device
    if home.type == "meta":
        raise GraphError(
            f"{NAME}: it is on the meta device, which holds no numbers, and edges are read by "
            f"their numbers; write encoder.to_empty(device=...) and load its weights."
        )
    for name, tensor in given.items():
        if tensor.device != home:
            raise GraphError(
                f"{NAME}: the encoder is on {home}, {name} on {tensor.device}; move both to one "
                f"device."
            )


def read_nodes(encoder: "GraphEncoder", x: Tensor, axes: int) -> Tensor:
    """Tokens or features with `axes` leading axes: (n,) or (b, n)."""
    letters = "(n" if axes == 1 else "(b, n"
    if x.ndim >= axes and 0 in x.shape[:axes]:
        raise GraphError(f"{NAME}: there are no nodes: x is {tuple(x.shape)}.")
    if encoder.tokens is None:
        if x.ndim != axes + 1 or x.shape[-1] != encoder.d_in:
            raise GraphError(
                f"{NAME}: x should be {letters}, d_in) with d_in = {encoder.d_in}, got "
                f"{tuple(x.shape)}."
            )
        if not x.is_floating_point() and not x.is_complex():
            raise GraphError(
                f"{NAME}: x holds {x.dtype}; say num_tokens=... for tokens, or pass x.float()."
            )
        return read_features(encoder, "x", x)
    if x.ndim == axes + 1 and x.shape[-1] == 1:
        x = x.squeeze(-1)  # PyG keeps categories as a column
    if x.ndim != axes or x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise GraphError(
            f"{NAME}: x should be tokens {letters}) of whole numbers, got {x.dtype} "
            f"{tuple(x.shape)}."
        )
    x, known = x.long(), encoder.tokens.num_embeddings
    if encoder.looks and not 0 <= int(x.min()) <= int(x.max()) < known:
        raise GraphError(
            f"{NAME}: tokens should be 0 to {known - 1}, got {int(x.min())} to {int(x.max())}."
        )
    return x


def read_features(encoder: "GraphEncoder", name: str, features: Tensor) -> Tensor:
    """Features in the encoder's own dtype; float64 from numpy is converted."""
    if features.is_complex():
        raise GraphError(f"{NAME}: {name} holds complex numbers; write torch.view_as_real(...).")
    own = features.to(encoder.norm.weight.dtype)
    if encoder.looks and not bool(torch.isfinite(own).all()):
        where = tuple((~torch.isfinite(own)).nonzero()[0].tolist())
        lost = bool(torch.isfinite(features[where]))  # by the conversion
        what = f"too large for {own.dtype}" if lost else "not finite"
        raise GraphError(f"{NAME}: {name} is {what} at {where}.")
    return own


def read_edges(
    encoder: "GraphEncoder", edge_attr: Tensor | None, edge_type: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Edge features (e, d_edge_in) and types (e,), as this encoder wants them."""
    width, types = encoder.d_edge_in, encoder.num_edge_types
    if edge_attr is not None and width is None:
        if edge_attr.is_floating_point() or edge_type is not None:
            raise GraphError(
                f"{NAME}: edge_attr is {tuple(edge_attr.shape)}, but the encoder was made without "
                f"edge features: say d_edge_in={edge_attr.shape[-1] if edge_attr.ndim > 1 else 1}."
            )
        edge_attr, edge_type = None, edge_attr
    if edge_type is not None:
        if edge_type.ndim == 2 and edge_type.shape[-1] == 1:
            edge_type = edge_type.squeeze(-1)
        if edge_type.ndim != 1:
            raise GraphError(
                f"{NAME}: edge types should be (e,), got {tuple(edge_type.shape)}; make one number "
                f"of the columns, or pass edge_attr.float() with d_edge_in=..."
            )
        if types is None:
            raise GraphError(
                f"{NAME}: edges come with types: say num_edge_types=... (a batch vector is the "
                f"fourth argument, batch=)."
            )
    elif types is not None and types > 1 and encoder.edges is not None:
        raise GraphError(
            f"{NAME}: it was made with num_edge_types={types}, but there is no edge_type."
        )
    if width is None or encoder.edges is None:
        return None, edge_type
    if edge_attr is None:
        raise GraphError(f"{NAME}: it was made with d_edge_in={width}, but there is no edge_attr.")
    if edge_attr.ndim == 1:
        edge_attr = edge_attr.unsqueeze(-1)
    if edge_attr.ndim != 2 or edge_attr.shape[-1] != width:
        raise GraphError(
            f"{NAME}: edge_attr should be (e, d_edge_in) with d_edge_in = {width}, got "
            f"{tuple(edge_attr.shape)}."
        )
    return read_features(encoder, "edge_attr", edge_attr), edge_type
