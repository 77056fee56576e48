"""Edge-augmented attention as a layer (paper, section 2.2)."""

from jaxtyping import Float
from torch import Tensor, nn

from graph_machine.errors import ShapeError, check_choice
from graph_machine.nn.basic import RMSNorm
from graph_machine.nn.heads import EXPERTS, Experts, HeadProjection, Heads
from graph_machine.ops.inputs import AttentionInputs
from graph_machine.spaces import Addresses, AttentionOut, Context, attend_without_edges
from graph_machine.state import Visibility


class EdgeAugmentedAttention(Heads):
    """Multi-head attention over nodes, steered by edges.

    With experts `node` it is a Transformer's attention and needs no edges; with `edge`, only edges
    decide where to look. `rotary` holds angles (n, d_key / 2) for queries and n2 keys. With
    `edge_values` a node also reads the features of its own edges, by the weights it gives them.

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
