"""The state of a Graph Machine: node features, edge features, edge addresses (paper, 2.1)."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from graph_machine.errors import ShapeError

if TYPE_CHECKING:
    from graph_machine.spaces.base import Addresses

T = TypeVar("T")


def at(value: T, where: Any) -> T:
    """Index every tensor of a dataclass, tuple or list, to select examples of the batch or nodes.

    If `where` holds indices, a tensor with a single example is kept for all of them.

    >>> mask = torch.tensor([[True, True], [True, False]])  # b n
    >>> at(Visibility(mask), torch.tensor([1])).node_mask
    tensor([[ True, False]])
    """
    found: Any = value
    if isinstance(value, Tensor):
        serves_all = value.ndim == 0 or (isinstance(where, Tensor) and len(value) == 1)
        found = value if serves_all else value[where]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        found = type(value)(*(at(part, where) for part in value))
    elif isinstance(value, list):
        found = [at(part, where) for part in value]
    elif is_dataclass(found):
        parts = {field.name: at(getattr(value, field.name), where) for field in fields(found)}
        found = replace(found, **parts)
    return found


@dataclass(frozen=True)
class Visibility:
    """Which nodes may be targeted: real ones; with `causal`, none that come later.

    One mask serves sharpening, attention and referral. If every address and every n2 lies in the
    past, so does every referral, and the whole model is causal.

    >>> Visibility(causal=True).pairs(3, torch.device("cpu"))
    tensor([[[ True, False, False],
             [ True,  True, False],
             [ True,  True,  True]]])
    """

    node_mask: Bool[Tensor, "b n"] | None = None  # True: a real node, False: padding
    causal: bool = False

    def pairs(self, num_nodes: int, device: torch.device) -> Bool[Tensor, "b n m"] | None:
        """True where source n may target m; axes of size 1 broadcast. None: everything may."""
        allowed = None if self.node_mask is None else self.node_mask.unsqueeze(-2)  # b 1 m
        if self.causal:
            past = torch.ones(num_nodes, num_nodes, dtype=torch.bool, device=device).tril()
            allowed = past.unsqueeze(0) if allowed is None else past & allowed
        return allowed


@dataclass(frozen=True)
class GivenEdges:
    """Edges that no layer changes: those of the input graph, and one empty edge.

    A node has up to g of them; a target of -1 means no edge. The empty edge, if there is one,
    points evenly at all visible nodes; its features come last.

    >>> targets = torch.tensor([[[1, 2], [0, -1], [0, -1]]])  # b n g
    >>> GivenEdges(torch.zeros(1, 3, 3, 8), targets, empty=True).exists[0, 1]
    tensor([ True, False,  True])
    """

    features: Float[Tensor, "b n s d_e"]  # s = g, and one more with an empty edge
    targets: Int[Tensor, "b n g"]
    empty: bool = False

    @property
    def exists(self) -> Bool[Tensor, "b n s"]:
        """False at padding."""
        there = self.targets >= 0
        return nn.functional.pad(there, (0, 1), value=True) if self.empty else there


@dataclass(frozen=True)
class GraphState:
    """The state between layers. A Transformer has no edges: both edge fields are None.

    >>> from graph_machine.spaces import DenseSpace
    >>> nodes, edges = torch.zeros(1, 4, 64), torch.zeros(1, 4, 3, 8)  # b n d_n, b n k d_e
    >>> targets = torch.tensor([[[0, 1, -1], [1, 2, -1], [2, 3, -1], [3, 0, -1]]])  # b n k
    >>> state = GraphState(nodes, edges, DenseSpace().initial(targets, nodes)).check()
    >>> state.addresses.to_dense().shape  # b n k n
    torch.Size([1, 4, 3, 4])
    """

    node_features: Float[Tensor, "b n d_n"]  # X_n
    edge_features: Float[Tensor, "b n k d_e"] | None = None  # X_e
    addresses: "Addresses | None" = None  # P_e
    visibility: Visibility = Visibility()
    given: GivenEdges | None = None  # edges in addition to X_e and P_e; no referral changes them

    def replace(self, **changes: Any) -> "GraphState":
        """The same state with some fields changed."""
        return replace(self, **changes)

    def rows(self, rows: Int[Tensor, "r"]) -> "GraphState":
        """The states of some examples of the batch, by index."""
        return at(self, rows)

    def check(self) -> "GraphState":
        """Raise ShapeError for inconsistent shapes, features that are not finite, and empty graphs.

        It reads values, so call it once per batch, outside of layers.
        """
        b, n, _ = self.node_features.shape
        if b == 0 or n == 0:
            raise ShapeError(f"GraphState: the graph is empty: node_features is (b, n) = {(b, n)}.")
        if (self.edge_features is None) != (self.addresses is None):
            raise ShapeError("GraphState: edge_features and addresses belong together.")
        if self.edge_features is not None and self.addresses is not None:
            if self.edge_features.shape[:2] != (b, n):
                raise ShapeError(
                    f"GraphState: edge_features should be (b, n, k, d_e) = ({b}, {n}, any, any), "
                    f"got {tuple(self.edge_features.shape)}."
                )
            slots = tuple(self.edge_features.shape[:3])
            if self.addresses.slots != slots:
                raise ShapeError(
                    f"GraphState: addresses should have (b, n, k) = {slots}, "
                    f"got {self.addresses.slots}."
                )
            if slots[2] == 0 and self.given is None:
                raise ShapeError("GraphState: k = 0 edge slots; leave edges out instead (None).")
        mask = self.visibility.node_mask
        if mask is not None:
            if mask.shape != (b, n):
                raise ShapeError(
                    f"GraphState: node_mask should be (b, n) = ({b}, {n}), got {tuple(mask.shape)}."
                )
            empty = (~mask.any(dim=-1)).nonzero()
            if len(empty):
                raise ShapeError(f"GraphState: graph {int(empty[0])} of the batch has no nodes.")
        for name in ("node_features", "edge_features"):
            value = getattr(self, name)
            if value is not None and not bool(torch.isfinite(value).all()):
                where = tuple((~torch.isfinite(value)).nonzero()[0].tolist())
                raise ShapeError(f"GraphState: {name} is not finite at {where}.")
        return self


# States go in and out of exported models; torch.export wants its containers registered by name.
torch.export.register_dataclass(GivenEdges, serialized_type_name="graph_machine.GivenEdges")
torch.export.register_dataclass(Visibility, serialized_type_name="graph_machine.Visibility")
torch.export.register_dataclass(GraphState, serialized_type_name="graph_machine.GraphState")
