"""Layers of PyTorch Geometric instead of Graph Machine layers: baselines on graphs.

Input layers, readout, loss and training are the same; only the layers differ.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from graph_machine.config import ModelConfig
from graph_machine.errors import MissingExtraError
from graph_machine.nn.basic import RMSNorm


class PygBody(nn.Module):
    """`num_layers` of GINE or GATv2 (residual, pre-norm), or of GPS (GINE beside full attention).

    GATv2 has a network of two layers behind it, as GINE does. With hidden sizes of 8 d in GINE, 7 d
    behind GATv2 and 4 d in the GINE of GPS, a layer has about as many parameters as a Transformer
    layer of the same width.

    `mpnn` is one layer that is applied `num_layers` times, as processors of CLRS-30 are: the
    maximum of messages, which are made of both nodes and the edge between them. A node sees its
    input again every time.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        try:
            from torch_geometric.nn import GATv2Conv, GINEConv, GPSConv, PNAConv, Sequential
        except ImportError:
            raise MissingExtraError("torch_geometric", "pyg", f"body={config.body}") from None
        self.kind = config.body
        width, heads = config.d_node, config.num_heads

        def mlp(expansion: int) -> nn.Module:
            hidden = expansion * width
            return nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width))

        def gine(expansion: int) -> Any:
            return GINEConv(mlp(expansion), edge_dim=config.d_edge)

        def gat() -> Any:
            conv = GATv2Conv(
                width, width // heads, heads, edge_dim=config.d_edge, add_self_loops=False
            )
            call = "x, edge_index, edge_attr"
            return Sequential(call, [(conv, f"{call} -> x"), (mlp(7), "x -> x")])

        def mpnn() -> Any:
            sizes = {"edge_dim": config.d_edge, "pre_layers": 2, "divide_input": False}
            unused = torch.ones(1, dtype=torch.long)  # degrees, for other scalers than identity
            conv = PNAConv(width, width, ["max"], ["identity"], unused, **sizes)
            call = "x, edge_index, edge_attr"
            mixed = nn.Linear(2 * width, width)  # what the node holds, and its input
            return Sequential(call, [(mixed, "x -> x"), (conv, f"{call} -> x"), (mlp(7), "x -> x")])

        make: dict[str, Callable[[], Any]] = {"gine": lambda: gine(8), "gat": gat, "mpnn": mpnn}
        make["gps"] = lambda: GPSConv(width, gine(4), heads=heads, norm="layer_norm")
        count = config.own_layers
        self.times = config.num_layers // count
        self.layers = nn.ModuleList(make[self.kind]() for _ in range(count))
        norms = 0 if self.kind == "gps" else count
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(norms))

    def forward(
        self,
        nodes: Float[Tensor, "b n d"],
        edges: Float[Tensor, "b n k d_e"],
        targets: Int[Tensor, "b n k"],
        node_mask: Bool[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b n d"]:
        """Messages flow from the targets of a node's edges to the node."""
        b, n, _ = nodes.shape
        real = (
            torch.ones_like(targets[..., 0], dtype=torch.bool) if node_mask is None else node_mask
        )
        places = (real.flatten().cumsum(0) - 1).view(b, n)  # rows of real nodes
        graph, node, slot = ((targets >= 0) & real.unsqueeze(-1)).nonzero(as_tuple=True)
        source = places[graph, targets[graph, node, slot]]
        edge_index = torch.stack([source, places[graph, node]])
        edge_attr = edges[graph, node, slot]
        batch = torch.arange(b, device=nodes.device).unsqueeze(-1).expand(b, n)[real]
        x = first = nodes[real]
        if self.kind == "gps":
            for layer in self.layers:
                x = layer(x, edge_index, batch, edge_attr=edge_attr)
        for layer, norm in [*zip(self.layers, self.norms)] * self.times:
            seen = torch.cat([norm(x), first], dim=-1) if self.kind == "mpnn" else norm(x)
            x = x + layer(seen, edge_index, edge_attr)
        return torch.zeros_like(nodes).masked_scatter(real.unsqueeze(-1), x)
