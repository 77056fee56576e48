"""Edge Transformer (Bergen, O'Donnell and Bahdanau, 2021): a state for every pair of nodes.

A baseline for comparison. Triangular attention takes n³ time and memory per head; a Graph
Machine keeps k edges per node instead of n.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from graph_machine.config import ModelConfig
from graph_machine.spaces.dense import DenseAddresses
from graph_machine.state import GraphState, Visibility

AT_ONCE = 2**24  # numbers of the largest temporary tensor, where one row of pairs fits into that


class TriangularAttention(nn.Module):
    """The pair (i, j) attends over nodes l, along the pairs (i, l) and (l, j).

    A value is the product of a part of each: a_ij = sum over l of alpha_ilj (V1 x_il * V2 x_lj),
    where alpha_ilj is the softmax over l of (Q x_il) . (K x_lj) / sqrt(d), in every head.

    >>> TriangularAttention(d=16, num_heads=2)(torch.randn(1, 3, 3, 16)).shape  # b i j d
    torch.Size([1, 3, 3, 16])
    """

    def __init__(self, d: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.first, self.second = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.out = nn.Linear(d, d, bias=False)

    def forward(
        self, x: Float[Tensor, "b n n d"], node_mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n n d"]:
        """Updates of all pairs, without attention to padding."""
        b, n, _, d = x.shape
        heads = (b, n, n, self.num_heads, d // self.num_heads)
        projections = (self.query, self.key, self.first, self.second)
        queries, keys, first, second = (project(x).view(heads) for project in projections)
        queries = queries * heads[-1] ** -0.5
        size = max(1, AT_ONCE // (b * n * n * d))
        found = []
        for rows in torch.arange(n, device=x.device).split(size):
            logits = torch.einsum("bilhd,bljhd->bhilj", queries[:, rows], keys)
            if node_mask is not None:
                hidden = ~node_mask[:, None, None, :, None]
                logits = logits.masked_fill(hidden, torch.finfo(logits.dtype).min)
            weights = logits.softmax(dim=-2)
            found.append(torch.einsum("bhilj,bilhd,bljhd->bijhd", weights, first[:, rows], second))
        return self.out(torch.cat(found, dim=1).flatten(-2))


class EdgeTransformerLayer(nn.Module):
    """Triangular attention and a feed-forward network, residual and pre-norm."""

    def __init__(self, d: int, num_heads: int, expansion: int) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = TriangularAttention(d, num_heads)
        self.feed_forward = nn.Sequential(
            nn.Linear(d, expansion * d), nn.GELU(), nn.Linear(expansion * d, d)
        )

    def forward(
        self, x: Float[Tensor, "b n n d"], node_mask: Bool[Tensor, "b n"] | None
    ) -> Float[Tensor, "b n n d"]:
        x = x + self.attention(self.attention_norm(x), node_mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class EdgeTransformer(nn.Module):
    """`num_layers` of an Edge Transformer.

    The first state of a pair is the sum of a projection of each node, of the input edges between
    them, and of whether they are the same node. A node's state is that of its pair with itself.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.d_node
        self.source, self.target = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.edge = nn.Linear(config.d_edge, d, bias=False)
        self.same = nn.Embedding(2, d)
        self.layers = nn.ModuleList(
            EdgeTransformerLayer(d, config.num_heads, config.expansion)
            for _ in range(config.num_layers)
        )

    def pairs(
        self,
        nodes: Float[Tensor, "b n d"],
        edges: Float[Tensor, "b n g e"],
        targets: Int[Tensor, "b n g"],
    ) -> Float[Tensor, "b n n d"]:
        """The states of all pairs before the first layer."""
        b, n, _ = nodes.shape
        graph, node, slot = (targets >= 0).nonzero(as_tuple=True)
        places = (graph, node, targets[graph, node, slot])
        there = edges.new_zeros(b, n, n, edges.shape[-1])
        there = there.index_put(places, edges[graph, node, slot], accumulate=True)
        same = torch.eye(n, dtype=torch.long, device=nodes.device)
        both = self.source(nodes).unsqueeze(2) + self.target(nodes).unsqueeze(1)
        return both + self.edge(there) + self.same(same)

    def forward(
        self,
        nodes: Float[Tensor, "b n d"],
        edges: Float[Tensor, "b n g e"],
        targets: Int[Tensor, "b n g"],
        node_mask: Bool[Tensor, "b n"] | None = None,
    ) -> GraphState:
        """A state with n edges per node: edge m of a node points at node m and holds their pair."""
        x = self.pairs(nodes, edges, targets)
        for layer in self.layers:
            x = layer(x, node_mask)
        b, n = x.shape[:2]
        own = x.diagonal(dim1=1, dim2=2).mT
        addresses = torch.eye(n, dtype=x.dtype, device=x.device).expand(b, n, n, n)
        return GraphState(own, x, DenseAddresses(addresses), Visibility(node_mask))
