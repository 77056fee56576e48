"""Input layers: contents and positions to node features, input graphs to edges."""

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from graph_machine.errors import ConfigError, ShapeError
from graph_machine.graphs import InputGraph
from graph_machine.ops.numerics import in_float32
from graph_machine.ops.position import grid_coordinates, sinusoidal_positions
from graph_machine.ops.rows import messages
from graph_machine.spaces import AddressSpace
from graph_machine.state import GivenEdges, GraphState, Visibility

STANDARD_EPS = 1e-5  # as batch norm has it
PositionKind = Literal["none", "sinusoidal", "rotary", "row-column"]


def as_residual(project: nn.Linear, x: Float[Tensor, "*s f"]) -> Float[Tensor, "*s d"]:
    """x projected, in the precision of the weights: the embeddings beside it are not rounded under
    autocast either, and a residual stream starts here."""
    return project(x).to(project.weight.dtype)


class Standardise(nn.Module):
    """Every column to mean 0 and deviation 1 over all nodes of a batch, as batch norm does.

    RMS norms keep what all nodes have in common, and in features of graphs that is often most of
    it: differences between nodes, from which a model learns, would be small beside it. In eval mode
    the statistics are running means of those of training.

    >>> Standardise(1)(torch.tensor([[1.0], [3.0]]))
    tensor([[-1.0000],
            [ 1.0000]])
    """

    mean: Tensor
    var: Tensor
    batches: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))
        self.register_buffer("batches", torch.zeros(()))

    def reset_parameters(self) -> None:
        """As if no batch had been seen."""
        self.mean.zero_()
        self.var.fill_(1)
        self.batches.zero_()

    def forward(
        self, x: Float[Tensor, "*s d"], mask: Bool[Tensor, "*s"] | None = None
    ) -> Float[Tensor, "*s d"]:
        """`mask` is False at rows that do not count."""
        exact = in_float32(x)
        if not self.training:
            scale = (in_float32(self.var) + STANDARD_EPS).rsqrt()
            return ((exact - in_float32(self.mean)) * scale).to(x.dtype)
        rows = exact.flatten(0, -2)
        if mask is None and len(rows) > 1:  # one operator and one in the backward pass
            result, mean, inverse = torch.native_batch_norm(
                rows, None, None, None, None, training=True, momentum=0.0, eps=STANDARD_EPS
            )
            self._remember(mean, inverse.square().reciprocal() - STANDARD_EPS)
            return result.reshape(exact.shape).to(x.dtype)
        share = rows.new_full((len(rows), 1), 1 / max(1, len(rows)))
        if mask is not None:
            counts = mask.reshape(-1, 1).to(rows.dtype)
            share = counts / counts.sum().clamp_min(1)
        mean = (rows * share).sum(dim=0)
        var = ((rows - mean).square() * share).sum(dim=0)
        self._remember(mean, var)
        return ((exact - mean) * (var + STANDARD_EPS).rsqrt()).to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Float[Tensor, "d"], var: Float[Tensor, "d"]) -> None:
        """Into the running means; the first batches count alike."""
        self.batches += 1
        rate = (1 / self.batches).clamp_min(0.1)
        self.mean.lerp_(mean.to(self.mean.dtype), rate)
        self.var.lerp_(var.clamp_min(0).to(self.var.dtype), rate)


class Standards(nn.ModuleDict):
    """`Standardise` by name; a name that is not there leaves x as it is."""

    def forward(
        self, name: str, x: Float[Tensor, "*s d"], mask: Bool[Tensor, "*s"] | None = None
    ) -> Float[Tensor, "*s d"]:
        """x standardised, 0 where the mask is False."""
        x = self[name](x, mask) if name in self else x
        return x if mask is None else x * mask.unsqueeze(-1)


class NodeInput(nn.Module):
    """Content embedding + one embedding per position (+ 2D positions of a grid).

    `num_positions=None` leaves the per-position embedding out, for graphs without places;
    `d_features` numbers per node are projected and added, or take the place of the contents.

    >>> tokens = torch.zeros(2, 81, dtype=torch.long)  # b n
    >>> NodeInput(num_tokens=10, d_node=64, num_positions=81)(tokens).shape
    torch.Size([2, 81, 64])
    """

    sinusoidal: Tensor | None

    def __init__(
        self,
        *,
        num_tokens: int | None,
        d_node: int,
        d_features: int = 0,
        num_positions: int | None = None,
        grid: tuple[int, int] | None = None,
        position: PositionKind = "none",
        position_base: float = 10_000.0,
    ) -> None:
        super().__init__()
        if num_tokens is None and not d_features:
            raise ConfigError("NodeInput: give num_tokens, d_features, or both.")
        self.content: Any = None if num_tokens is None else nn.Embedding(num_tokens, d_node)
        self.project = nn.Linear(d_features, d_node, bias=False) if d_features else None
        self.position = None if num_positions is None else nn.Embedding(num_positions, d_node)
        self.row = self.col = None
        sinusoidal = None
        if position in ("sinusoidal", "row-column") and grid is None:
            raise ConfigError(f"{position} positions need a grid.")
        if position == "sinusoidal" and grid is not None:
            sinusoidal = sinusoidal_positions(*grid, d_node, position_base)
        if position == "row-column" and grid is not None:
            self.row, self.col = nn.Embedding(grid[0], d_node), nn.Embedding(grid[1], d_node)
            row_ids, col_ids = grid_coordinates(*grid)
            self.register_buffer("row_ids", row_ids, persistent=False)
            self.register_buffer("col_ids", col_ids, persistent=False)
        self.register_buffer("sinusoidal", sinusoidal, persistent=False)

    def forward(
        self, tokens: Int[Tensor, "b n"] | None, given: Float[Tensor, "b n f"] | None = None
    ) -> Float[Tensor, "b n d"]:
        """`given` are the nodes' own features, where there are such."""
        parts = []
        if self.content is not None:
            parts.append(self.content(tokens))
        if self.project is not None:
            if given is None:
                raise ShapeError("NodeInput: it projects node features, and none were given.")
            parts.append(as_residual(self.project, given))
        features = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        if self.position is not None:
            n, places = features.shape[-2], self.position.num_embeddings
            if n > places:
                raise ShapeError(f"NodeInput: {n} nodes, but positions for {places} only.")
            features = features + self.position.weight[:n]
        if self.sinusoidal is not None:
            features = features + self.sinusoidal[: features.shape[-2]]
        if self.row is not None and self.col is not None:
            n = features.shape[-2]
            features = features + self.row(self.row_ids[:n]) + self.col(self.col_ids[:n])
        return features


class EdgeInput(nn.Module):
    """Edge categories (or your own features) to edge features.

    >>> from graph_machine.graphs import grid_graph
    >>> EdgeInput(d_edge=8, num_categories=6)(grid_graph(9, 9, num_edges=8)).shape  # n k d_e
    torch.Size([81, 8, 8])
    """

    def __init__(
        self, *, d_edge: int, num_categories: int | None = None, d_features: int | None = None
    ) -> None:
        super().__init__()
        if num_categories is None and d_features is None:
            raise ConfigError("EdgeInput: give num_categories, d_features, or both.")
        self.category = None if num_categories is None else nn.Embedding(num_categories, d_edge)
        self.project = None if d_features is None else nn.Linear(d_features, d_edge, bias=False)

    def forward(self, graph: InputGraph) -> Float[Tensor, "*b n k d_e"]:
        """Edge features of the graph's slots."""
        parts = []
        if self.category is not None:
            known = self.category.num_embeddings
            if graph.num_categories != known:  # `empty` is the last of them
                raise ConfigError(
                    f"EdgeInput: the graph has {graph.num_categories} edge categories, "
                    f"the layer embeds {known}; make the graph with the same edge types."
                )
            parts.append(self._embedded(graph.categories))
        if self.project is not None:
            if graph.features is None:
                raise ConfigError("EdgeInput: it projects edge features, the graph has none.")
            parts.append(as_residual(self.project, graph.features))
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _embedded(self, categories: Int[Tensor, "*b n k"]) -> Float[Tensor, "*b n k d_e"]:
        """One graph of all examples is looked up once: gradients add up over examples first."""
        assert self.category is not None
        shared = categories.ndim == 3 and categories.stride(0) == 0
        if torch.compiler.is_compiling() or not shared:
            return self.category(categories)
        return self.category(categories[0]).expand(*categories.shape, -1).contiguous()


class FirstEdges(nn.Module):
    """The edges that enter the first layer, and those that stay beside them in every layer.

    By default the input edges fill the slots, and referral replaces them. With `given` they stay:
    every sublayer sees them, any number per node, and there are no slots before the first
    referral has made some. (Slots that begin empty would dilute the first layers: each is one more
    even edge.) With `empty` every sublayer also sees one empty edge.

    >>> from graph_machine.spaces import DenseSpace
    >>> first = FirstEdges(d_edge=8, given=True, empty=True)
    >>> nodes, edges = torch.randn(1, 3, 64), torch.randn(1, 3, 2, 8)  # b n d_n, b n g d_e
    >>> targets = torch.tensor([[[1, 2], [0, -1], [0, -1]]])  # b n g
    >>> state = first(nodes, edges, targets, DenseSpace())
    >>> state.edge_features.shape, state.given.features.shape  # b n 0 d_e, b n g+1 d_e
    (torch.Size([1, 3, 0, 8]), torch.Size([1, 3, 3, 8]))
    """

    def __init__(self, *, d_edge: int, given: bool, empty: bool) -> None:
        super().__init__()
        self.given = given
        self.empty = nn.Embedding(1, d_edge) if empty else None

    def forward(
        self,
        nodes: Float[Tensor, "b n d_n"],
        edges: Float[Tensor, "b n g d_e"],
        targets: Int[Tensor, "b n g"],
        space: AddressSpace,
        visibility: Visibility = Visibility(),
    ) -> GraphState:
        """The state before the first layer."""
        b, n, slots = targets.shape
        first = 0 if self.given else slots  # of the input edges, those in slots
        stay, stay_targets = edges[:, :, first:], targets[:, :, first:]
        edges, targets = edges[:, :, :first], targets[:, :, :first]
        if self.given and slots == 0 and self.empty is None:  # a slot without an edge
            stay, stay_targets = (
                edges.new_zeros(b, n, 1, edges.shape[-1]),
                targets.new_full((b, n, 1), -1),
            )
        if self.empty is not None:
            stay = torch.cat([stay, self.empty.weight.expand(b, n, 1, -1)], dim=2)
        addresses = space.initial(targets, nodes, visibility)
        given = None
        if stay.shape[2]:
            given = GivenEdges(stay, stay_targets, self.empty is not None)
        return GraphState(nodes, edges, addresses, visibility, given)


class ProjectedEdges(nn.Module):
    """A Transformer's access to the input edges: projected into node features (appendix C.1).

    Per edge: node embeddings averaged by the address, beside the edge embedding, through an MLP;
    the sum over a node's edges is added to the node.

    >>> projected = ProjectedEdges(d_node=64, d_edge=8)
    >>> nodes, edges = torch.randn(2, 9, 64), torch.randn(2, 9, 3, 8)
    >>> projected(nodes, edges, torch.full((2, 9, 3, 9), 1 / 9)).shape  # b n d_n
    torch.Size([2, 9, 64])
    """

    def __init__(self, *, d_node: int, d_edge: int, expansion: int = 4) -> None:
        super().__init__()
        self.up = nn.Linear(d_node + d_edge, expansion * d_node, bias=False)
        self.down = nn.Linear(expansion * d_node, d_node, bias=False)

    def forward(
        self,
        nodes: Float[Tensor, "b n d_n"],
        edges: Float[Tensor, "b n k d_e"],
        addresses: Float[Tensor, "b n k m"],
        exists: Bool[Tensor, "b n k"] | None = None,
    ) -> Float[Tensor, "b n d_n"]:
        """Nodes plus what their input edges carry; `exists` is False at slots that do not count."""
        targets = torch.einsum("bnkm,bmd->bnkd", addresses.to(nodes.dtype), nodes)
        hidden = nn.functional.silu(self.up(torch.cat([targets, edges], dim=-1)))
        hidden = hidden if exists is None else hidden * exists.unsqueeze(-1)
        return nodes + self.down(hidden).sum(dim=-2)

    def rows(
        self,
        nodes: Float[Tensor, "r d_n"],
        edges: Float[Tensor, "r k d_e"],
        targets: Int[Tensor, "r k"],
        used: Int[Tensor, " e"] | None = None,
        blank: Float[Tensor, "r d_n"] | None = None,
        *,
        fused: bool = False,
    ) -> Float[Tensor, "r d_n"]:
        """The same for rows of nodes whose targets are other rows.

        `used` are the slots that hold an edge, counted through all r k: then one node of large
        degree does not make all others expensive. An empty slot sees `blank`, or does not count.
        `fused` allows a kernel.
        """
        to_nodes, to_edges = self.up.weight.split([nodes.shape[-1], edges.shape[-1]], dim=1)
        seen = nn.functional.linear(nodes, to_nodes)  # r x: once per node, not once per edge
        sums = None
        if blank is None and fused:
            sums = messages(seen, edges, to_edges, targets)
        if sums is not None:
            return nodes + self.down(sums)
        if used is not None and blank is None:
            found = seen[targets.flatten()[used]]
            hidden = found + nn.functional.linear(edges.flatten(0, 1)[used], to_edges)
            hidden = nn.functional.silu(hidden)
            sums = hidden.new_zeros(len(nodes), hidden.shape[-1])
            sums = sums.index_add(0, used // targets.shape[1], hidden)
        else:
            empty = (targets < 0).unsqueeze(-1)
            found = seen[targets.clamp_min(0)]
            if blank is not None:
                found = torch.where(empty, nn.functional.linear(blank, to_nodes)[:, None], found)
            hidden = nn.functional.silu(found + nn.functional.linear(edges, to_edges))
            sums = (hidden if blank is not None else hidden * ~empty).sum(dim=1)
        return nodes + self.down(sums)
