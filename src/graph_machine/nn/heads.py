"""Projections into heads, gathered into as few matrix products as possible."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graph_machine.errors import ShapeError, check_choice
from graph_machine.nn.basic import NORM_EPS, RMSNorm
from graph_machine.ops.backend import resolve
from graph_machine.ops.inputs import AttentionInputs, ReferralInputs
from graph_machine.ops.position import rotate
from graph_machine.ops.referral import REFERRAL_KINDS, ReferralKind
from graph_machine.ops.rows import NORMED, project_heads, split_heads
from graph_machine.spaces import Addresses, AttentionOut, Context, ReferralOut, attend_without_edges
from graph_machine.state import Visibility

Experts = Literal["both", "node", "edge"]
EXPERTS: tuple[str, ...] = get_args(Experts)
GLOBAL_TEMP = 0.1  # t_edge at which global heads begin


class Heads(nn.Module):
    """A layer that projects nodes into heads, and how it wants them."""

    temperature: str
    qk_norm: bool
    rotary: Tensor | None
    edge_scales: Tensor | None  # (h,), logarithms of what t_edge is multiplied by; attention only


class HeadProjection(nn.Module):
    """One Linear whose output is cut into named parts of (heads x width) columns."""

    def __init__(self, dim: int, num_heads: int, widths: Mapping[str, int]) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.widths = dict(widths)
        self.linear = nn.Linear(dim, num_heads * sum(widths.values()), bias=False)

    def forward(
        self, x: Float[Tensor, "b n d"], layer: Heads, context: Context, norm: RMSNorm | None = None
    ) -> dict[str, Tensor]:
        """Name -> (b, h, n, width), temperatures (b, h, n) reported as `..._factor_temps`.

        Rows are normed first, if there is a norm. Queries and keys are normed and turned as the
        layer says.
        """
        wanted: dict[str, Any] = {
            "temperature_kind": layer.temperature,
            "qk_norm": layer.qk_norm,
            "eps": NORM_EPS,
        }
        sizes, weight = (self.num_heads, self.widths), self.linear.weight
        parts = None
        if resolve(context.backend, "HeadProjection") == "fused":
            parts = project_heads(
                x, None if norm is None else norm.weight, weight, *sizes, **wanted
            )
        if parts is None:
            x = x if norm is None else norm(x, context.backend)
            parts = split_heads(self.linear(x), *sizes, **wanted)
        for name, part in parts.items():
            if name == "edge_temps" and layer.edge_scales is not None:
                part = part * layer.edge_scales.exp().unsqueeze(-1)
            if name.endswith("_temps"):
                parts[name] = context.report(name.replace("_temps", "_factor_temps"), part)
            elif layer.rotary is not None and name in NORMED:
                parts[name] = rotate(part, layer.rotary)
        return parts

    def weights(self) -> dict[str, Float[Tensor, "h w d"]]:
        """Name -> this part of the weight, for implementations that absorb it."""
        sizes = [self.num_heads * width for width in self.widths.values()]
        parts = self.linear.weight.split(sizes, dim=0)
        return {
            name: part.unflatten(0, (self.num_heads, width))
            for (name, width), part in zip(self.widths.items(), parts)
        }


class EdgeAugmentedAttention(Heads):
    """Multi-head attention over nodes, steered by edges.

    With experts `node` it is a Transformer's attention and needs no edges; with `edge`, only edges
    decide where to look. `rotary` holds angles (n, d_key / 2) for queries and n2 keys. With
    `edge_values` a node also reads the features of its own edges, by the weights it gives them. The
    last `global_heads` heads begin with edge factors that are almost even (t_edge of 0.1 instead of
    1), as if they had the node expert alone; every head learns this number.

    >>> import torch
    >>> attention = EdgeAugmentedAttention(d_node=64, d_edge=8, experts="node")
    >>> attention(torch.randn(2, 9, 64)).outs.shape  # b n d_n
    torch.Size([2, 9, 64])
    """

    def __init__(
        self,
        *,
        d_node: int,
        d_edge: int,
        num_heads: int = 8,
        d_key: int = 8,
        d_value: int = 8,
        experts: Experts = "both",
        factor_temps: bool = True,
        temperature: str = "softplus",
        qk_norm: bool = False,
        rotary: Float[Tensor, "n half"] | None = None,
        edge_values: bool = False,
        global_heads: int = 0,
    ) -> None:
        super().__init__()
        check_choice("EdgeAugmentedAttention", "experts", experts, EXPERTS)
        self.experts = experts
        self.temperature = temperature
        self.qk_norm = qk_norm
        widths = {"queries": d_key, "values": d_value}
        if experts != "edge":
            widths |= {"keys": d_key} | ({"node_temps": 1} if factor_temps else {})
        if experts != "node" and factor_temps:
            widths |= {"edge_temps": 1}
        self.from_nodes = HeadProjection(d_node, num_heads, widths)
        self.from_edges = None
        if experts != "node":
            edge_widths = {"keys": d_key} | ({"values": d_value} if edge_values else {})
            self.from_edges = HeadProjection(d_edge, num_heads, edge_widths)
        self.out = nn.Linear(num_heads * d_value, d_node, bias=False)
        self.register_buffer("rotary", rotary, persistent=False)
        self.global_heads = global_heads
        self.edge_scales = nn.Parameter(torch.zeros(num_heads)) if global_heads else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Global heads begin almost without the edge expert, the others with all of it."""
        if self.edge_scales is not None:
            nn.init.zeros_(self.edge_scales)
            nn.init.constant_(self.edge_scales[-self.global_heads :], math.log(GLOBAL_TEMP))

    def project(
        self,
        nodes: Float[Tensor, "b n d_n"],
        edges: Float[Tensor, "b n k d_e"] | None,
        context: Context,
        norm: RMSNorm | None = None,
    ) -> AttentionInputs:
        """Queries, keys, values and temperatures, in one product over the (normed) nodes."""
        parts = self.from_nodes(nodes, self, context, norm)
        weights = {} if self.from_edges is None else self.from_edges.weights()
        return AttentionInputs(
            n1_queries=parts["queries"],
            n2_values=context.report("n2_values", parts["values"]),
            n2_keys=parts.get("keys"),
            e1_features=edges if self.from_edges is not None else None,
            e1_key_weights=weights.get("keys"),
            e1_value_weights=weights.get("values"),
            edge_factor_temps=parts.get("edge_temps"),
            node_factor_temps=parts.get("node_temps"),
        )

    def forward(
        self,
        nodes: Float[Tensor, "b n d_n"],
        edges: Float[Tensor, "b n k d_e"] | None = None,
        addresses: Addresses | None = None,
        visibility: Visibility = Visibility(),
        context: Context = Context(),
        *,
        norm: RMSNorm | None = None,
        project_out: bool = True,
    ) -> AttentionOut:
        """Normed nodes and edges and sharpened addresses in, (b, n, d_n) and entropies out.

        With a `norm`, nodes are normed here. Without `project_out`, outs are what the heads
        collect, side by side: (b, n, h v).
        """
        if self.from_edges is not None and (edges is None or addresses is None):
            raise ShapeError(
                f"EdgeAugmentedAttention: experts '{self.experts}' need edges and addresses; "
                f"for attention without edges choose experts='node'."
            )
        inputs = self.project(nodes, edges, context, norm)
        if addresses is None or self.from_edges is None:
            result = attend_without_edges(inputs, visibility, context)
        else:
            result = addresses.attend(inputs, visibility, context)
        outs = result.outs.transpose(1, 2).flatten(-2).to(nodes.dtype)
        return AttentionOut(self.out(outs) if project_out else outs, result.entropies)


class EdgeCentricReferral(Heads):
    """New edges from the edges of the nodes that edges point to; its k heads are the new slots.

    >>> import torch
    >>> from graph_machine.spaces import DenseSpace
    >>> nodes, edges = torch.randn(2, 9, 64), torch.randn(2, 9, 3, 8)  # b n d_n, b n k d_e
    >>> addresses = DenseSpace().initial(torch.zeros(2, 9, 3, dtype=torch.long), nodes)
    >>> referral = EdgeCentricReferral(d_node=64, d_edge=8, num_edges=3)
    >>> referral(nodes, edges, addresses).features.shape  # b n k d_e
    torch.Size([2, 9, 3, 8])
    """

    def __init__(
        self,
        *,
        d_node: int,
        d_edge: int,
        num_edges: int,
        d_key: int = 8,
        kind: ReferralKind = "joint",
        experts: Experts = "both",
        factor_temps: bool = True,
        temperature: str = "softplus",
        qk_norm: bool = False,
        rotary: Float[Tensor, "n half"] | None = None,
    ) -> None:
        super().__init__()
        check_choice("EdgeCentricReferral", "experts", experts, EXPERTS)
        check_choice("EdgeCentricReferral", "kind", kind, REFERRAL_KINDS)
        self.kind: ReferralKind = kind
        self.experts = experts
        self.temperature = temperature
        self.qk_norm = qk_norm
        widths = {"queries": d_key, "values": d_edge}
        if experts != "edge":
            widths |= {"keys": d_key} | ({"n2_node_temps": 1} if factor_temps else {})
        if factor_temps:
            widths |= ({"n2_edge_temps": 1} if experts != "node" else {}) | {"e2_temps": 1}
        self.from_nodes = HeadProjection(d_node, num_edges, widths)
        edge_widths = {"e1_keys": d_key, "e1_values": d_edge, "e2_keys": d_key, "e2_values": d_edge}
        self.from_edges = HeadProjection(d_edge, num_edges, edge_widths)
        self.out = nn.Linear(d_edge, d_edge, bias=False)
        self.register_buffer("rotary", rotary, persistent=False)

    def project(
        self,
        nodes: Float[Tensor, "b n d_n"],
        edges: Float[Tensor, "b n k d_e"],
        context: Context,
        norm: RMSNorm | None = None,
    ) -> ReferralInputs:
        """Queries, keys, values and temperatures, in one product over the (normed) nodes."""
        parts = self.from_nodes(nodes, self, context, norm)
        weights = self.from_edges.weights()
        return ReferralInputs(
            n1_queries=parts["queries"],
            n2_values=context.report("n2_values", parts["values"]),
            n2_keys=parts.get("keys"),
            edge_expert=self.experts != "node",
            kind=self.kind,
            edge_features=edges,
            e1_key_weights=weights["e1_keys"],
            e1_value_weights=weights["e1_values"],
            e2_key_weights=weights["e2_keys"],
            e2_value_weights=weights["e2_values"],
            n2_edge_factor_temps=parts.get("n2_edge_temps"),
            n2_node_factor_temps=parts.get("n2_node_temps"),
            e2_factor_temps=parts.get("e2_temps"),
        )

    def forward(
        self,
        nodes: Float[Tensor, "b n d_n"],
        edges: Float[Tensor, "b n k d_e"],
        addresses: Addresses,
        collected: Addresses | None = None,
        visibility: Visibility = Visibility(),
        context: Context = Context(),
        *,
        norm: RMSNorm | None = None,
        project_out: bool = True,
    ) -> ReferralOut:
        """Normed nodes and edges and sharpened addresses in; features, addresses, entropies out.

        `collected` are the addresses in their role as e2, where they are sharpened apart. With a
        `norm`, nodes are normed here. Without `project_out`, features are not projected.
        """
        if context.training is None:
            context = replace(context, training=self.training)
        inputs = self.project(nodes, edges, context, norm)
        e2 = addresses if collected is None else collected
        result = addresses.refer(inputs, e2, visibility, context)
        features = result.features.to(edges.dtype)
        return result._replace(features=self.out(features) if project_out else features)
