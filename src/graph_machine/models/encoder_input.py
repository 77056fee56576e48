"""What a call of a `GraphEncoder` is given, checked once: a mistake is a one-line error."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from graph_machine.errors import ConfigError, GraphError, did_you_mean
from graph_machine.graphs import Bucket, InputGraph, bucketed, graph_sizes
from graph_machine.graphs.edge_index import sort_edges
from graph_machine.graphs.pyg import Prepared, prepared
from graph_machine.graphs.slots import check_edges, check_positions, check_tensors
from graph_machine.models.encoder_settings import NAME
from graph_machine.ops.core import Packed
from graph_machine.spaces.packed import can_pack

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


class Call(NamedTuple):
    """The arguments of a call: `edge_index`, `graph` or `made` says which form it has."""

    x: Any  # a tensor, or a PyG `Data` or `Batch`
    edge_index: Tensor | InputGraph | None = None
    edge_attr: Tensor | None = None
    batch: Tensor | None = None
    graph: InputGraph | None = None
    node_mask: Tensor | None = None
    edge_type: Tensor | None = None
    pos: Tensor | None = None
    generator: torch.Generator | None = None
    made: Prepared | None = None  # by `GraphMachineEdges`: the edges are checked and sorted

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
        made = prepared(self.x)
        names = ("x", "edge_index", "edge_attr", "batch", "edge_type", "pos")
        found = {name: getattr(self.x, name, None) for name in (names if made is None else ("x",))}
        return Call(**found, made=made)

    def padded(self) -> "Call":
        """The dense form (x, graph, node_mask), which may be given by position."""
        graph, node_mask = self.graph, self.node_mask
        if isinstance(self.edge_index, InputGraph):
            if graph is not None or (self.edge_attr is not None and node_mask is not None):
                raise GraphError(f"{NAME}: the graph or its node_mask is given twice.")
            node_mask = node_mask if self.edge_attr is None else self.edge_attr
            graph = self.edge_index
        elif graph is not None and (self.edge_index is not None or self.edge_attr is not None):
            raise GraphError(f"{NAME}: a graph holds its edges: no edge_index, no edge_attr.")
        if graph is None:
            raise GraphError(f"{NAME}: node_mask goes with a graph; an edge_index has a batch.")
        if not isinstance(graph, InputGraph):
            raise GraphError(f"{NAME}: graph should be an InputGraph, got {type(graph).__name__}.")
        for name in ("batch", "edge_type", "pos", "generator"):
            if getattr(self, name) is not None:
                raise GraphError(f"{NAME}: {name} goes with an edge_index, not with a graph.")
        return Call(self.x, graph=graph, node_mask=node_mask)

    @property
    def tensors(self) -> dict[str, Any]:
        """What has to be a tensor, by the name that a user knows."""
        if self.made is not None:
            return {"x": self.x, "edge_index": self.made.graph.targets}
        names = ("edge_attr", "batch", "node_mask", "edge_type", "pos")
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        first = {"x": self.x, "edge_index": self.edge_index}
        if self.graph is not None:
            first = {"x": self.x, "graph": self.graph.targets, "categories": self.graph.categories}
            found["edge features"] = self.graph.features
        return first | {name: given for name, given in found.items() if given is not None}


class Rows(NamedTuple):
    """Nodes of all graphs as rows, with their edges, and the padded batches that they go into."""

    x: Tensor  # (r, d_in) features or (r,) tokens
    graph: InputGraph  # slots (r, k); targets are rows
    buckets: list[Bucket]
    degrees: list[int] | None = None  # slots that each graph needs; None: all
    used: Tensor | None = None  # slots that hold an edge, counted through; None: look at all
    mask: Tensor | None = None  # (r,), False at padding; None: no row is
    dense: bool = False  # the rows of one padded batch (b, n), which is what is returned
    packed: Packed | None = None  # all rows in one bucket, without padding

    @property
    def unpadded(self) -> bool:
        """Whether what layers make is what is returned."""
        return self.dense or self.packed is not None

    @property
    def largest(self) -> int:
        """Places that nodes of a graph take; padding has places, too."""
        if self.packed is not None:
            return self.packed.largest
        return max(bucket.ids.shape[1] for bucket in self.buckets)

    @property
    def first_rows(self) -> Tensor:
        """For every row of packed graphs the first row of its graph."""
        assert self.packed is not None
        starts = self.packed.starts[0]
        return starts[:-1].repeat_interleave(starts.diff(), output_size=len(self.x))

    @property
    def place(self) -> Tensor:
        """The place of every row within its graph."""
        if self.packed is not None:
            return torch.arange(len(self.x)) - self.first_rows
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


def read_call(encoder: "GraphEncoder", given: Call, *, learns: bool) -> Rows:
    """A call in any form: all of it checked once, as rows of nodes with their edges in slots.

    An encoder that `learns` from what a call returns cannot choose by a policy.
    """
    config, weight = encoder.config, encoder.norm.weight
    chooses = config.address_space == "hard" and config.estimator == "reinforce"
    if learns and chooses and encoder.space is not None:
        raise ConfigError(
            f"{NAME}: estimator='reinforce' trains by the policy, which a call does not return; "
            f"say estimator='straight-through', or take dense_state(...).addresses.policy."
        )
    if encoder.backend == "reference" and weight.dtype in (torch.float16, torch.bfloat16):
        raise ConfigError(
            f"{NAME}: backend='reference' needs float32 or float64 weights, got {weight.dtype}; "
            f"write encoder.float(), or use autocast."
        )
    if weight.is_meta:
        raise GraphError(
            f"{NAME}: it is on the meta device, which holds no numbers, and edges are read by "
            f"their numbers; write encoder.to_empty(device=...) and load its weights."
        )
    given = given if isinstance(given.x, Tensor) else given.unpacked()
    dense = given.graph is not None or isinstance(given.edge_index, InputGraph)
    if dense or given.node_mask is not None:
        given = given.padded()
    check_tensors(NAME, given.tensors, ("the encoder", weight.device))
    x, made = read_nodes(encoder, given.x, 2 if dense else 1), given.made
    if given.graph is not None:
        return read_dense(encoder, x, given.graph, given.node_mask)
    always = config.given_edges == "always"
    sizes, degrees, used = [len(x)], None, None
    if made is not None:
        graph = check_prepared(encoder, made)
        sizes, used, degrees = made.sizes, made.used, [shape.degree for shape in made.shapes]
    else:
        if given.batch is not None:
            sizes = graph_sizes(given.batch, len(x), NAME)
        edge_index, features, types = read_edges(encoder, given)
        graph = sort_edges(
            edge_index,
            types,
            features,
            num_nodes=len(x),
            num_edges=None if always else max(1, config.num_edges),
            num_types=encoder.num_edge_types or 1,
            direction=encoder.direction,
            overflow=encoder.overflow,
            positions=given.pos,
            generator=given.generator,
            fixed=not encoder.training,
            where=NAME,
        )
    packed = Packed.of(sizes) if packs(encoder, sizes) else None
    buckets = list(bucketed(sizes if packed is None else [len(x)], x.device, encoder.padding))
    if made is None and always:
        there = graph.targets >= 0
        used = there.flatten().nonzero().squeeze(-1)
        per_node = there.sum(dim=1).split(sizes) if len(buckets) > 1 else ()
        degrees = torch.stack([own.max() for own in per_node]).tolist() if per_node else None
    degrees = degrees if len(buckets) > 1 else None
    return Rows(x, graph, buckets, degrees, used, packed=packed)


def packs(encoder: "GraphEncoder", sizes: list[int]) -> bool:
    """Whether graphs go through the layers without padding: where kernels serve, with edges that
    stay, and while no listener is attached."""
    config, weight = encoder.config, encoder.norm.weight
    fits = config.address_space == "weight" and config.top_s is None
    fits &= config.given_edges == "always" and config.attention_experts != "node"
    fits &= config.has_edges and encoder.padding is not None and not encoder.hands_on
    if not fits or any(each.tap is not None for each in encoder.tapped):
        return False
    width = max(sizes) + (0 if config.referral == "preaggregated" else config.d_edge)
    return can_pack(weight, encoder.backend, max(sizes) * config.num_edges * width)


def read_nodes(encoder: "GraphEncoder", x: Tensor, axes: int) -> Tensor:
    """Tokens, or features in the encoder's dtype, with `axes` leading axes: (n,) or (b, n)."""
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
        check_tensors(NAME, {"x": x}, numbers=encoder.norm.weight.dtype, look=encoder.looks)
        return x.to(encoder.norm.weight.dtype)  # float64 comes from numpy
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


def read_edges(encoder: "GraphEncoder", given: Call) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Edges (2, e), their features (e, d_edge_in) and types (e,), as this encoder wants them."""
    edge_index, attr, types, n = given.edge_index, given.edge_attr, given.edge_type, len(given.x)
    assert isinstance(edge_index, Tensor)
    width, known, reads = encoder.d_edge_in, encoder.num_edge_types, encoder.edges is not None
    if given.generator is not None and not isinstance(given.generator, torch.Generator):
        kind = type(given.generator).__name__
        raise GraphError(f"{NAME}: generator should be a torch.Generator, got {kind}.")
    if attr is not None and given.batch is None and attr.shape == (n,) != edge_index.shape[1:]:
        raise GraphError(  # PyG's GPSConv takes the batch vector third
            f"{NAME}: edge_attr has {n} entries, one per node, for {edge_index.shape[-1]} "
            f"edges; a batch vector is the fourth argument: encoder(x, edge_index, batch=batch)."
        )
    if attr is not None and width is None:
        if attr.is_floating_point() or types is not None:
            raise GraphError(
                f"{NAME}: edge_attr is {tuple(attr.shape)}, but the encoder was made without "
                f"edge features: say d_edge_in={attr.shape[-1] if attr.ndim > 1 else 1}."
            )
        attr, types = None, attr
    if types is not None:
        types = types.squeeze(-1) if types.ndim == 2 and types.shape[-1] == 1 else types
        if types.ndim != 1:
            raise GraphError(
                f"{NAME}: edge types should be (e,), got {tuple(types.shape)}; make one number "
                f"of the columns, or pass edge_attr.float() with d_edge_in=..."
            )
        if known is None:
            raise GraphError(
                f"{NAME}: edges come with types: say num_edge_types=... (a batch vector is the "
                f"fourth argument, batch=)."
            )
    elif known is not None and known > 1 and reads:
        raise GraphError(
            f"{NAME}: it was made with num_edge_types={known}, but there is no edge_type."
        )
    if width is not None and reads:
        if attr is None:
            raise GraphError(
                f"{NAME}: it was made with d_edge_in={width}, but there is no edge_attr."
            )
        attr = attr.unsqueeze(-1) if attr.ndim == 1 else attr
        if attr.ndim != 2 or attr.shape[-1] != width:
            raise GraphError(
                f"{NAME}: edge_attr should be (e, d_edge_in) with d_edge_in = {width}, got "
                f"{tuple(attr.shape)}."
            )
        dtype = encoder.norm.weight.dtype
        check_tensors(NAME, {"edge_attr": attr}, numbers=dtype, look=encoder.looks)
        attr = attr.to(dtype)
    if not reads:  # no edge is ever looked at: slots for the shapes alone
        check_edges(NAME, edge_index, n, batch=given.batch)
        return edge_index[:, :0], None, None
    check_edges(NAME, edge_index, n, types, known or 1, attr, given.batch)
    if encoder.overflow == "nearest":
        check_positions(NAME, given.pos, n, look=encoder.check)
    return edge_index, attr, types


def check_prepared(encoder: "GraphEncoder", made: Prepared) -> InputGraph:
    """Edges that `GraphMachineEdges` has checked and sorted: no look at their numbers."""
    direction, given = made.shapes[0].direction, encoder.config.given_edges
    if given == "first" or encoder.direction != direction:
        raise GraphError(
            f"{NAME}: the edges were prepared for given_edges='always' and direction="
            f"'{direction}', the encoder has '{given}' and '{encoder.direction}'."
        )
    return made.graph if encoder.edges is None else check_kinds(encoder, made.graph, "edge_attr")


def check_kinds(encoder: "GraphEncoder", graph: InputGraph, name: str) -> InputGraph:
    """The graph, with the categories and features that the encoder was made for, in its dtype."""
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
    if graph.features is None:
        return graph
    dtype = encoder.norm.weight.dtype
    check_tensors(NAME, {name: graph.features}, numbers=dtype, look=encoder.looks)
    return replace(graph, features=graph.features.to(dtype))


def read_dense(
    encoder: "GraphEncoder", x: Tensor, graph: InputGraph, node_mask: Tensor | None
) -> Rows:
    """Padded nodes (b, n, d_in) and their graph, as rows."""
    b, n = x.shape[:2]
    if node_mask is not None:
        if node_mask.dtype != torch.bool or node_mask.shape != (b, n):
            raise GraphError(
                f"{NAME}: node_mask should be bool (b, n) = ({b}, {n}), got {node_mask.dtype} "
                f"{tuple(node_mask.shape)}."
            )
        if encoder.looks and not bool(node_mask.any(dim=-1).all()):
            empty = (~node_mask.any(dim=-1)).nonzero()
            raise GraphError(f"{NAME}: graph {int(empty[0])} of the batch has no nodes.")
    starts = torch.arange(b, device=x.device) * n
    ids = starts.unsqueeze(-1) + torch.arange(n, device=x.device)
    buckets = [Bucket(range(b), ids, starts, node_mask, None)]
    mask = None if node_mask is None else node_mask.flatten()
    if encoder.edges is not None:
        if encoder.looks:
            graph.check()
        slots = (
            graph.num_edges if encoder.config.given_edges == "always" else encoder.config.num_edges
        )
        if (*graph.targets.shape[-2:], *graph.targets.shape[:-2]) not in (
            (n, slots),
            (n, slots, 1),
            (n, slots, b),
        ):
            raise GraphError(
                f"{NAME}: the graph should have (b, n, k) = {(b, n, slots)}, got "
                f"{tuple(graph.targets.shape)}."
            )
        graph = check_kinds(encoder, graph, "the graph's edge features").expand(b)
        if encoder.looks and node_mask is not None:
            check_real_targets(graph.targets, node_mask)
        targets = torch.where(graph.targets >= 0, graph.targets + starts[:, None, None], -1)
        graph = replace(graph, targets=targets).apply(lambda tensor: tensor.flatten(0, 1))
    return Rows(x.flatten(0, 1), graph, buckets, mask=mask, dense=True)


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
