"""Edge-centric referral as a layer (paper, section 2.3)."""

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor, nn

from graph_machine.errors import check_choice
from graph_machine.nn.basic import RMSNorm
from graph_machine.nn.heads import EXPERTS, Experts, HeadProjection, Heads
from graph_machine.ops.inputs import ReferralInputs
from graph_machine.ops.referral import REFERRAL_KINDS, ReferralKind
from graph_machine.spaces import Addresses, Context, ReferralOut
from graph_machine.state import Visibility


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
