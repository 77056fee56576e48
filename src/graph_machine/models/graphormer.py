"""A Transformer whose attention sees distances in the input graph, after Graphormer (2021).

A baseline for comparison: what edges do in a Graph Machine is a fixed bias here.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from graph_machine.config import ModelConfig

FARTHEST = 8  # steps; nodes farther away than that, or in another part, share one bias


def distances(targets: Int[Tensor, "b n g"], farthest: int = FARTHEST) -> Int[Tensor, "b n n"]:
    """Steps from node to node along the edges; `farthest` + 1 where it takes more or none leads.

    >>> distances(torch.tensor([[[1], [2], [-1]]]))[0]
    tensor([[0, 1, 2],
            [9, 0, 1],
            [9, 9, 0]])
    """
    b, n, _ = targets.shape
    graph, node, slot = (targets >= 0).nonzero(as_tuple=True)
    own = torch.eye(n, device=targets.device).expand(b, n, n)  # float: CUDA multiplies no integers
    step = own.index_put((graph, node, targets[graph, node, slot]), own.new_ones(()))
    found = torch.full((b, n, n), farthest + 1, device=targets.device)
    reached = own
    for distance in range(farthest + 1):
        found = found.where((reached == 0) | (found < distance), distance)
        reached = (reached @ step).clamp_max(1)
    return found


class BiasedLayer(nn.Module):
    """A Transformer layer, residual and pre-norm, with a bias on the logits of attention.

    torch's own layer returns NaN for such a bias in evaluation (torch 2.13).
    """

    def __init__(self, d: int, num_heads: int, expansion: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.projection, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.feed_forward = nn.Sequential(
            nn.Linear(d, expansion * d), nn.GELU(), nn.Linear(expansion * d, d)
        )

    def forward(
        self, nodes: Float[Tensor, "b n d"], bias: Float[Tensor, "b h n n"]
    ) -> Float[Tensor, "b n d"]:
        heads = self.projection(self.attention_norm(nodes)).unflatten(-1, (3, self.num_heads, -1))
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)
        found = scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
        nodes = nodes + self.out(found.transpose(1, 2).flatten(2))
        return nodes + self.feed_forward(self.feed_forward_norm(nodes))


class Graphormer(nn.Module):
    """`num_layers` Transformer layers with a bias per head on the attention logits.

    The bias of (i, j) is learned for their distance, plus a projection of the input edges from i to
    j. Against the published model, a bias of edges farther along the shortest path and embeddings
    of degrees are left out: test graphs have degrees that training graphs do not have.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, self.num_heads = config.d_node, config.num_heads
        self.distance = nn.Embedding(FARTHEST + 2, self.num_heads)
        self.edge = nn.Linear(config.d_edge, self.num_heads, bias=False)
        self.layers = nn.ModuleList(
            BiasedLayer(d, self.num_heads, config.expansion) for _ in range(config.num_layers)
        )

    def bias(
        self, edges: Float[Tensor, "b n g e"], targets: Int[Tensor, "b n g"]
    ) -> Float[Tensor, "b n n h"]:
        """What every head adds to the logits of a pair."""
        graph, node, slot = (targets >= 0).nonzero(as_tuple=True)
        places = (graph, node, targets[graph, node, slot])
        along = self.edge(edges[graph, node, slot])
        return self.distance(distances(targets)).index_put(places, along, accumulate=True)

    def forward(
        self,
        nodes: Float[Tensor, "b n d"],
        edges: Float[Tensor, "b n g e"],
        targets: Int[Tensor, "b n g"],
        node_mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n d"]:
        bias = self.bias(edges, targets).movedim(-1, 1)
        if node_mask is not None:
            bias = bias.masked_fill(~node_mask[:, None, None, :], float("-inf"))
        for layer in self.layers:
            nodes = layer(nodes, bias)
        return nodes if node_mask is None else nodes * node_mask.unsqueeze(-1)
