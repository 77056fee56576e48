"""From the last state to a model's outputs, (b, q, o): see `InputSpec` on places q."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.nn.basic import RMSNorm
from graph_machine.ops.numerics import ADDRESS_EPS
from graph_machine.ops.temperature import temperature
from graph_machine.state import GraphState

IMPOSSIBLE = -1e9  # the logit of a choice that is not there; finite, so that losses stay finite


class Choice(nn.Module):
    """Every node scores every node, as attention does: by queries and keys, and by its edges.

    `d_edge` None: a model without edges, which has only the node expert.
    """

    def __init__(self, d_node: int, d_edge: int | None) -> None:
        super().__init__()
        self.query = nn.Linear(d_node, d_node, bias=False)
        self.key = nn.Linear(d_node, d_node, bias=False)
        self.edge_norm = self.edge_query = self.edge_temps = None
        if d_edge is not None:
            self.edge_norm = RMSNorm(d_edge)
            self.edge_query = nn.Linear(d_node, d_edge, bias=False)
            self.edge_temps = nn.Linear(d_node, 1, bias=False)

    def forward(self, nodes: Float[Tensor, "b n d"], state: GraphState) -> Float[Tensor, "b n m"]:
        scale = nodes.shape[-1] ** -0.5
        scores = torch.einsum("bnd,bmd->bnm", self.query(nodes) * scale, self.key(nodes))
        if self.edge_norm is None or self.edge_query is None or self.edge_temps is None:
            return scores
        assert state.edge_features is not None
        assert state.addresses is not None
        edges = self.edge_norm(state.edge_features)
        e1_weights = torch.einsum("bne,bnke->bnk", self.edge_query(nodes), edges).softmax(dim=-1)
        masses = torch.einsum("bnk,bnkm->bnm", e1_weights, state.addresses.to_dense())
        temps = temperature(self.edge_temps(nodes), "softplus")
        return scores + temps * masses.clamp_min(ADDRESS_EPS).log()


def make_readout(config: ModelConfig, spec: InputSpec) -> nn.Module:
    """The last layer: linear, or a choice among nodes."""
    if spec.output in ("slot", "pointer"):
        return Choice(config.d_node, config.d_edge if config.has_edges else None)
    if spec.output == "edge" and not config.has_edges:
        raise ConfigError("outputs at edge slots need a model with edges.")
    if spec.output == "edge":
        last = nn.Linear(config.d_edge, spec.num_outputs, bias=False)
        return nn.Sequential(RMSNorm(config.d_edge), last)
    return nn.Linear(config.d_node, spec.num_outputs, bias=False)


def read_out(
    readout: nn.Module,
    nodes: Float[Tensor, "b n d"],
    state: GraphState,
    spec: InputSpec,
    targets: Int[Tensor, "b n k"] | None,
) -> Float[Tensor, "b q o"]:
    """`nodes` are normalised; `targets` are those of the input edges, for a choice among them.

    A pointer is chosen as attention chooses: node and edge expert together, where there are edges.
    """
    mask = state.visibility.node_mask
    if spec.output == "edge":
        assert state.edge_features is not None
        return readout(state.edge_features).flatten(1, 2)  # b (n k) o
    if spec.output == "graph":
        count = nodes.shape[1] if mask is None else mask.sum(dim=1).view(-1, 1)
        nodes = nodes if mask is None else nodes * mask.unsqueeze(-1)
        return readout(nodes.sum(dim=1) / count).unsqueeze(1)  # b 1 o
    if spec.output not in ("slot", "pointer"):
        return readout(nodes)
    found = readout(nodes, state)
    if spec.output == "pointer" and mask is not None:
        return found.masked_fill(~mask.unsqueeze(1), IMPOSSIBLE)
    if spec.output == "slot":
        assert targets is not None
        return found.gather(-1, targets.clamp_min(0)).masked_fill(targets < 0, IMPOSSIBLE)
    return found
