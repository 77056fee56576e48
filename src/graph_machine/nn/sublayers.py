"""The two sublayers of a Graph Machine (paper, section 2.1 and figures 3 and 4)."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graph_machine.errors import ShapeError
from graph_machine.nn.basic import RMSNorm, Sharpener, SharpenerKind, SwiGLU, residual_ffn
from graph_machine.nn.heads import EdgeAugmentedAttention, EdgeCentricReferral, Experts
from graph_machine.nn.taps import Tapped
from graph_machine.ops.inputs import FactorEntropies
from graph_machine.ops.referral import ReferralKind
from graph_machine.spaces import Addresses, Context
from graph_machine.state import GraphState


def sharpened(
    state: GraphState, temps: Tensor | None, context: Context, role: str = ""
) -> Addresses:
    """Addresses as this sublayer sees them, reported as `sharpener_temps` and `address_ins`."""
    assert state.addresses is not None
    if temps is not None:
        temps = context.report(f"sharpener_temps{role}", temps)
    return reported(
        state.addresses.sharpen(temps, state.visibility, context), f"address_ins{role}", context
    )


def reported(addresses: Addresses, name: str, context: Context) -> Addresses:
    """Addresses after their tap, which sees weights and may replace them."""
    if context.tap is None:
        return addresses
    seen = addresses.to_dense()
    changed = context.report(name, seen)
    return addresses if changed is seen else addresses.with_dense(changed)


def ends_of(
    state: GraphState, ends: nn.Linear | None, norm: RMSNorm, context: Context
) -> Float[Tensor, "b n d_e"] | None:
    """What nodes add to the given edges that point at them (`edge_ends`)."""
    return None if ends is None else ends(norm(state.node_features, context.backend))


def all_edges(
    state: GraphState,
    sharpener: Sharpener,
    norm: RMSNorm,
    context: Context,
    ends: Float[Tensor, "b n d_e"] | None,
) -> tuple[Tensor, Addresses]:
    """Normed features and sharpened addresses of every edge that a sublayer sees.

    Those that referral made come first, then given edges, then the empty edge. The last two are
    not sharpened: a single target and an even spread stay what they are. `ends` is what a node
    adds to the given edges that point at it: slots are weighed before nodes are looked at, and so
    an edge is weighed and read together with the node at its end, as in message passing.
    """
    assert state.edge_features is not None
    given = state.given
    if given is None:
        temps, made = sharpener.beside(state.edge_features, norm, context.backend)
        return made, sharpened(state, temps, context)
    stay = given.features
    if ends is not None:
        rows = torch.arange(len(ends), device=ends.device)[:, None, None]
        added = ends[rows, given.targets.clamp_min(0)]  # b n g d_e
        stay = stay + functional.pad(added, (0, 0, 0, int(given.empty)))
    temps, edges = sharpener.with_staying(
        state.edge_features, norm, stay, given.targets, context.backend
    )
    return edges, sharpened(state, temps, context).beside(given)


class PreparedEdges(NamedTuple):
    """What attention takes of edges: normed features (b, n, k, d_e) and sharpened addresses."""

    features: Tensor
    addresses: Addresses

    def settled(self) -> "PreparedEdges":
        """The same, to be attended along many times."""
        return self._replace(addresses=self.addresses.settled())


# Per node sublayer of a layer; None where it uses no edges, or makes them anew every time.
FixedEdges = list[PreparedEdges | None]


class NodeSublayer(Tapped):
    """Nodes exchange features: edge-augmented attention, then a feed-forward network.

    >>> from graph_machine.spaces import DenseSpace
    >>> import torch
    >>> nodes, edges = torch.randn(2, 9, 64), torch.randn(2, 9, 3, 8)  # b n d_n, b n k d_e
    >>> addresses = DenseSpace().initial(torch.zeros(2, 9, 3, dtype=torch.long), nodes)
    >>> sublayer = NodeSublayer(d_node=64, d_edge=8, num_edges=3)
    >>> state, entropies = sublayer(GraphState(nodes, edges, addresses))
    >>> state.node_features.shape  # edges are only read
    torch.Size([2, 9, 64])
    """

    def __init__(
        self,
        *,
        d_node: int,
        d_edge: int = 8,
        num_edges: int = 8,
        num_heads: int = 8,
        d_key: int = 8,
        d_value: int = 8,
        expansion: int = 4,
        experts: Experts = "both",
        factor_temps: bool = True,
        temperature: str = "softplus",
        sharpener: SharpenerKind = "projection",
        sharpener_value: float = 1.0,
        qk_norm: bool = False,
        rotary: Tensor | None = None,
        edge_values: bool = False,
        edge_ends: bool = False,
        global_heads: int = 0,
    ) -> None:
        super().__init__()
        self.uses_edges = experts != "node"
        self.node_norm = RMSNorm(d_node)
        if self.uses_edges:
            self.edge_norm = RMSNorm(d_edge)
            how: dict[str, Any] = {"kind": sharpener, "value": sharpener_value}
            how |= {"d_edge": d_edge, "num_edges": num_edges, "temperature": temperature}
            self.sharpener = Sharpener(**how)
        sizes = {"d_node": d_node, "d_edge": d_edge, "d_key": d_key, "d_value": d_value}
        style: dict[str, Any] = {"factor_temps": factor_temps, "temperature": temperature}
        style |= {"experts": experts, "qk_norm": qk_norm, "rotary": rotary}
        style |= {"num_heads": num_heads, "edge_values": edge_values}
        style |= {"global_heads": global_heads}
        self.attention = EdgeAugmentedAttention(**sizes, **style)
        reads_ends = edge_ends and self.uses_edges
        self.ends = nn.Linear(d_node, d_edge, bias=False) if reads_ends else None
        self.ffn_norm = RMSNorm(d_node)
        self.ffn = SwiGLU(d_node, expansion=expansion)

    def fix_edges(self, state: GraphState, context: Context = Context()) -> PreparedEdges | None:
        """What this sublayer makes of edges before attention; None where it uses none.

        A caller whose edges stay the same passes it to `forward` again and again, unless edges
        carry what the nodes at their ends hold (`edge_ends`).
        """
        if not self.uses_edges:
            return None
        if state.edge_features is None or state.addresses is None:
            raise ShapeError("NodeSublayer: an edge expert needs edges, the state has none.")
        context = self.local(context)
        ends = ends_of(state, self.ends, self.node_norm, context)
        return PreparedEdges(*all_edges(state, self.sharpener, self.edge_norm, context, ends))

    def forward(
        self, state: GraphState, context: Context = Context(), fixed: PreparedEdges | None = None
    ) -> tuple[GraphState, FactorEntropies]:
        """New node features, and the entropies of the factors where the context asks for them."""
        edges = self.fix_edges(state, context) if fixed is None else fixed
        context = self.local(context)
        attention, nodes = self.attention, state.node_features
        given = (nodes, *(edges or (None, None)), state.visibility, context)
        result = attention(*given, norm=self.node_norm, project_out=False)
        network = (attention.out, self.ffn_norm, self.ffn, context.backend, context.dropout)
        features = context.report("node_features", residual_ffn(nodes, result.outs, *network))
        return state.replace(node_features=features), result.entropies


class EdgeSublayer(Tapped):
    """Nodes exchange addresses: edge-centric referral, then a feed-forward network on edges.

    `separate_roles` sharpens an address once for finding n2 and once for being collected as e2.
    `residual` adds the new features to the old ones; addresses are always new.

    >>> from graph_machine.spaces import DenseSpace
    >>> import torch
    >>> nodes, edges = torch.randn(2, 9, 64), torch.randn(2, 9, 3, 8)  # b n d_n, b n k d_e
    >>> addresses = DenseSpace().initial(torch.zeros(2, 9, 3, dtype=torch.long), nodes)
    >>> sublayer = EdgeSublayer(d_node=64, d_edge=8, num_edges=3)
    >>> state, entropies = sublayer(GraphState(nodes, edges, addresses))
    >>> state.edge_features.shape, state.addresses.to_dense().shape  # nodes are only read
    (torch.Size([2, 9, 3, 8]), torch.Size([2, 9, 3, 9]))
    """

    def __init__(
        self,
        *,
        d_node: int,
        d_edge: int = 8,
        num_edges: int = 8,
        d_key: int = 8,
        expansion: int = 4,
        kind: ReferralKind = "joint",
        experts: Experts = "both",
        factor_temps: bool = True,
        temperature: str = "softplus",
        sharpener: SharpenerKind = "projection",
        sharpener_value: float = 1.0,
        separate_roles: bool = False,
        residual: bool = True,
        qk_norm: bool = False,
        rotary: Tensor | None = None,
        edge_ends: bool = False,
    ) -> None:
        super().__init__()
        self.residual = residual
        self.num_edges = num_edges
        self.node_norm = RMSNorm(d_node)
        self.edge_norm = RMSNorm(d_edge)

        edges: dict[str, Any] = {
            "d_edge": d_edge,
            "num_edges": num_edges,
            "temperature": temperature,
        }
        how = edges | {"kind": sharpener, "value": sharpener_value}
        self.sharpener = Sharpener(**how)
        self.e2_sharpener = Sharpener(**how) if separate_roles else None
        style = edges | {"kind": kind, "experts": experts, "factor_temps": factor_temps}
        style |= {"qk_norm": qk_norm, "rotary": rotary}
        self.referral = EdgeCentricReferral(d_node=d_node, d_key=d_key, **style)
        self.ends = nn.Linear(d_node, d_edge, bias=False) if edge_ends else None
        self.ffn_norm = RMSNorm(d_edge)
        self.ffn = SwiGLU(d_edge, expansion=expansion)

    def forward(
        self, state: GraphState, context: Context = Context()
    ) -> tuple[GraphState, FactorEntropies]:
        """New edges, and the entropies of the factors where the context asks for them."""
        if state.edge_features is None or state.addresses is None:
            raise ShapeError("EdgeSublayer: referral needs edges, the state has none.")
        context = self.local(context)
        old = state.edge_features
        residual = self.residual and old.shape[-2] > 0  # before the first referral there are none
        if residual and old.shape[-2] != self.num_edges:
            # Without this check k = 1 would broadcast.
            raise ShapeError(
                f"EdgeSublayer: the state has k = {old.shape[-2]} edge slots, the sublayer makes "
                f"num_edges = {self.num_edges}; a residual needs as many."
            )
        ends = ends_of(state, self.ends, self.node_norm, context)
        edges, addresses = all_edges(state, self.sharpener, self.edge_norm, context, ends)
        collected = None
        if self.e2_sharpener is not None:
            temps = self.e2_sharpener(old, context.backend)
            collected = sharpened(state, temps, context, role="_e2")
            collected = collected if state.given is None else collected.beside(state.given)
        sight, referral = state.visibility, self.referral
        given = (state.node_features, edges, addresses, collected, sight, context)
        result = referral(*given, norm=self.node_norm, project_out=False)
        network = (referral.out, self.ffn_norm, self.ffn, context.backend, context.dropout)
        features = residual_ffn(old if residual else None, result.features, *network)
        new = state.replace(
            edge_features=context.report("feature_outs", features),
            addresses=reported(result.addresses, "address_outs", context),
        )
        return new, result.entropies
