"""What an encoder makes of a graph does not depend on the graphs beside it, nor on ties."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from graph_machine import GraphEncoder
from support.cases import spread

SPACES: dict[str, dict[str, Any]] = {
    "weight": {},
    "top": {"top_s": 2},
    "sparse": {"address_space": "sparse"},
    "few": {"address_space": "sparse", "sparse_s": 4, "sparse_chains": 5},
    "conditional": {"address_space": "sparse", "sparse_chains": 5, "referral": "conditional"},
    "preaggregated": {"address_space": "sparse", "sparse_s": 3, "referral": "preaggregated"},
    "seen": {"address_space": "sparse", "sparse_s_attention": 2, "sparse_s_referral": 2},
    "hard": {"address_space": "hard", "sharpener": "off", "estimator": "straight-through"},
}


def ring(n: int, first: int = 0) -> Tensor:
    nodes = torch.arange(n)
    return torch.stack([nodes, (nodes + 1) % n]) + first


def make(**settings: Any) -> GraphEncoder:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_node": 8, "d_edge": 4, "num_layers": 2, "num_heads": 2, "d_in": 3}
    encoder = GraphEncoder(**sizes, direction="undirected", padding=None, **settings)
    spread(encoder.double(), 0.4)
    return encoder.eval()


@pytest.mark.parametrize("num_edges", [4, 6])
@pytest.mark.parametrize("space", SPACES)
def test_a_graph_alone_and_among_larger_ones(space: str, num_edges: int) -> None:
    """Equal nodes and empty slots make equally good chains, of which a few are taken."""
    encoder = make(num_edges=num_edges, **SPACES[space])
    others = torch.randn(24, 3, dtype=torch.float64)
    for n in (3, 5, 9, 13):
        batch = torch.tensor([0] * n + [1] * 24)
        for x in (torch.ones(n, 3, dtype=torch.float64), others[:n] * 2):
            alone = encoder.encode(x, ring(n), top=3)
            edges = torch.cat([ring(n), ring(24, n)], dim=1)
            among = encoder.encode(torch.cat([x, others]), edges, None, batch, top=3)
            assert_close(among.nodes[:n], alone.nodes)
            assert alone.edge_features is not None
            assert among.edge_features is not None
            assert_close(among.edge_features[:n], alone.edge_features)
