"""Hard edges learn to find a pointer: k-hop retrieval on random functional graphs.

Every node holds a label and points at one other node. It must answer with the label that it finds
after following `hops` pointers. Two referrals are enough for four hops, if each new edge is the
right one of its two-hop edges. Referral is trained by REINFORCE or straight-through:

    python examples/hard_pointers.py --estimator reinforce --hops 4 --steps 400
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from graph_machine.nn import EdgeSublayer, GraphMachineStack, Layer, NodeSublayer, RMSNorm
from graph_machine.ops.referral.hard import policy_loss
from graph_machine.spaces import HardSpace
from graph_machine.state import GraphState


@dataclass(frozen=True)
class Settings:
    """Defaults take about a minute on one CPU core."""

    estimator: Literal["reinforce", "straight-through"] = "reinforce"
    hops: Literal[1, 2, 4, 8] = 4
    num_nodes: int = 12
    num_labels: int = 8
    steps: int = 400
    batch_size: int = 64
    lr: float = 5e-3
    entropy_bonus: float = 0.02
    seed: int = 0


class PointerModel(nn.Module):
    """Two slots (self, pointer), a referral for every doubling, one attention along the edges."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        sizes: dict[str, Any] = {"d_node": 32, "d_edge": 8, "num_edges": 2, "sharpener": "off"}
        referrals = settings.hops.bit_length() - 1
        self.labels = nn.Embedding(settings.num_labels, 32)
        self.slots = nn.Embedding(2, 8)
        self.space = HardSpace(estimator=settings.estimator)
        edge = [EdgeSublayer(**sizes) for _ in range(referrals)]
        node = [NodeSublayer(**sizes, num_heads=2, experts="edge")]
        self.stack = GraphMachineStack([Layer(edge, node)])
        self.readout = nn.Sequential(RMSNorm(32), nn.Linear(32, settings.num_labels, bias=False))

    def forward(self, labels: Tensor, pointers: Tensor) -> tuple[Tensor, GraphState]:
        b, n = labels.shape
        nodes = self.labels(labels)
        own = torch.arange(n, device=labels.device).expand(b, n)
        targets = torch.stack([own, pointers], dim=-1)
        edges = self.slots.weight.expand(b, n, 2, -1)
        state = GraphState(nodes, edges, self.space.initial(targets, nodes))
        state, _ = self.stack(state)
        return self.readout(state.node_features), state


def make_batch(settings: Settings) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, pointers, and the label after `hops` pointers."""
    shape = (settings.batch_size, settings.num_nodes)
    labels = torch.randint(settings.num_labels, shape)
    pointers = torch.randint(settings.num_nodes, shape)
    reached = torch.arange(settings.num_nodes).expand(shape)
    for _ in range(settings.hops):
        reached = pointers.gather(1, reached)
    return labels, pointers, labels.gather(1, reached)


def train(settings: Settings) -> float:
    """Train from scratch; returns the accuracy on new graphs, with the most probable choices."""
    torch.manual_seed(settings.seed)
    model = PointerModel(settings)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
    for _ in range(settings.steps):
        labels, pointers, answers = make_batch(settings)
        logits, state = model(labels, pointers)
        losses = functional.cross_entropy(logits.transpose(1, 2), answers, reduction="none")
        loss = losses.mean()
        policy = None if state.addresses is None else state.addresses.policy
        if policy is not None:
            loss = loss - settings.entropy_bonus * policy.entropy
            if policy.log_probs is not None:
                # One loss per node: a node's choices answer for its own answer.
                loss = loss + policy_loss(losses, policy.log_probs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        batches = [make_batch(settings) for _ in range(8)]
        right = [(model(x, p)[0].argmax(dim=-1) == y).float().mean() for x, p, y in batches]
    return float(torch.stack(right).mean())


def main() -> None:
    import tyro

    settings = tyro.cli(Settings)
    print(f"{settings.estimator}, {settings.hops} hops: accuracy {train(settings):.3f}")


if __name__ == "__main__":
    main()
