"""Edge Transformer (Bergen, O'Donnell and Bahdanau, 2021): a state for every pair of nodes.

A baseline for comparison. Triangular attention takes n³ time and memory per head; a Graph
Machine keeps k edges per node instead of n.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from graph_machine.config import ModelConfig
from graph_machine.spaces.dense import DenseAddresses
from graph_machine.state import GraphState, Visibility

# Numbers of a temporary tensor, where one row of pairs fits into that. A CPU's cache holds it.
AT_ONCE = {"cpu": 2**19}
AT_ONCE_ELSEWHERE = 2**24


class Triangles(torch.autograd.Function):
    """Triangular attention of all heads, some rows i at a time.

    One feature of a head follows the other, so that temporary tensors of (i, l, j) stay in the
    cache. The backward pass makes them again: nothing of size n³ is kept. Forming the values of all
    (i, l, j, d) at once, as the published code does, takes eight times as long on a CPU at n = 64.
    """

    @staticmethod
    def weights(
        queries: Float[Tensor, "b h d i l"],
        keys: Float[Tensor, "b h d l j"],
        hidden: Bool[Tensor, "b 1 1 l 1"] | None,
    ) -> Float[Tensor, "b h i l j"]:
        scores = queries[:, :, 0].unsqueeze(-1) * keys[:, :, 0].unsqueeze(2)
        for d in range(1, keys.shape[2]):
            scores.addcmul_(queries[:, :, d].unsqueeze(-1), keys[:, :, d].unsqueeze(2))
        if hidden is not None:
            scores.masked_fill_(hidden, torch.finfo(scores.dtype).min)
        scores -= scores.amax(3, keepdim=True)
        weights = scores.exp_()
        return weights.div_(weights.sum(3, keepdim=True))

    @staticmethod
    def forward(
        ctx: Any,
        queries: Float[Tensor, "b h d n n"],
        keys: Float[Tensor, "b h d n n"],
        first: Float[Tensor, "b h d n n"],
        second: Float[Tensor, "b h d n n"],
        hidden: Bool[Tensor, "b 1 1 n 1"] | None,
    ) -> Float[Tensor, "b h d n n"]:
        b, h, width, n, _ = keys.shape
        size = max(1, AT_ONCE.get(keys.device.type, AT_ONCE_ELSEWHERE) // (b * h * n * n))
        ctx.save_for_backward(queries, keys, first, second, hidden)
        ctx.rows = [slice(i, i + size) for i in range(0, n, size)]
        outs = torch.empty_like(queries)
        for rows in ctx.rows:
            weights = Triangles.weights(queries[..., rows, :], keys, hidden)
            for d in range(width):
                values = weights * first[:, :, d, rows].unsqueeze(-1)
                outs[:, :, d, rows] = values.mul_(second[:, :, d].unsqueeze(2)).sum(3)
        return outs

    @staticmethod
    @once_differentiable
    def backward(  # pyrefly: ignore[bad-override]  (the decorator's type hides the name ctx)
        ctx: Any, grads: Float[Tensor, "b h d n n"]
    ) -> tuple[Tensor | None, ...]:
        queries, keys, first, second, hidden = ctx.saved_tensors
        found = [torch.zeros_like(each) for each in (queries, keys, first, second)]
        for_queries, for_keys, for_first, for_second = found
        for rows in ctx.rows:
            weights = Triangles.weights(queries[..., rows, :], keys, hidden)
            for_scores, buffer = torch.zeros_like(weights), torch.empty_like(weights)
            for d in range(keys.shape[2]):
                one, two = first[:, :, d, rows].unsqueeze(-1), second[:, :, d].unsqueeze(2)
                grad = grads[:, :, d, rows].unsqueeze(3)
                for_scores.addcmul_(torch.mul(grad, two, out=buffer), one)
                for_first[:, :, d, rows] = buffer.mul_(weights).sum(4)
                for_second[:, :, d] += torch.mul(grad, one, out=buffer).mul_(weights).sum(2)
            for_scores *= weights
            for_scores.addcmul_(weights, for_scores.sum(3, keepdim=True), value=-1)
            for d in range(keys.shape[2]):
                one, two = queries[:, :, d, rows].unsqueeze(-1), keys[:, :, d].unsqueeze(2)
                for_queries[:, :, d, rows] = torch.mul(for_scores, two, out=buffer).sum(4)
                for_keys[:, :, d] += torch.mul(for_scores, one, out=buffer).sum(2)
        return *found, None


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
        n, heads = x.shape[1], (4, self.num_heads, x.shape[-1] // self.num_heads)
        with torch.autocast(x.device.type, enabled=False):  # sums over l stay float32
            projections = [self.query.weight * heads[-1] ** -0.5, self.key.weight]
            weights = torch.cat([*projections, self.first.weight, self.second.weight])
            parts = weights @ x.flatten(1, 2).mT.to(weights.dtype)  # b 4hd ij
            parts = parts.unflatten(1, heads).unflatten(-1, (n, n))
            hidden = None if node_mask is None else ~node_mask[:, None, None, :, None]
            outs = Triangles.apply(*parts.unbind(1), hidden)  # b h d i j
        return self.out(outs.flatten(-2).flatten(1, 2).mT).view(x.shape)


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
