"""Readouts: from the last state to a model's outputs (b, q, o); see `InputSpec` on places q."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.nn.basic import RMSNorm
from graph_machine.ops.numerics import ADDRESS_EPS, temperature
from graph_machine.state import GraphState

if TYPE_CHECKING:
    from graph_machine.models.encoder import Encoded

CHOICES = ("slot", "pointer")  # answers that are nodes
IMPOSSIBLE = -1e9  # the logit of a choice that is not there; finite, so that losses stay finite


class Choice(nn.Module):
    """Every node scores every node, as attention does: by queries and keys, and by its edges.

    These are the edges of the state, or those of the input graph in a model that keeps none.
    `d_edge` None: a model that sees no edges, which has only the node expert. After the rows of the
    nodes come `graph_choices` rows, for choices of the graph as a whole.
    """

    def __init__(self, d_node: int, d_edge: int | None, graph_choices: int = 0) -> None:
        super().__init__()
        self.query = nn.Linear(d_node, d_node, bias=False)
        self.key = nn.Linear(d_node, d_node, bias=False)
        self.edge_norm = self.edge_query = self.edge_temps = None
        if d_edge is not None:
            self.edge_norm = RMSNorm(d_edge)
            self.edge_query = nn.Linear(d_node, d_edge, bias=False)
            self.edge_temps = nn.Linear(d_node, 1, bias=False)
        self.whole = nn.Linear(d_node, graph_choices, bias=False) if graph_choices else None

    def forward(self, nodes: Float[Tensor, "b n d"], state: GraphState) -> Float[Tensor, "b q m"]:
        scores = self.pointers(nodes, state)
        return scores if self.whole is None else torch.cat([scores, self.whole(nodes).mT], dim=1)

    def pointers(self, nodes: Float[Tensor, "b n d"], state: GraphState) -> Float[Tensor, "b n m"]:
        """The scores of every node for every node."""
        scale = nodes.shape[-1] ** -0.5
        scores = torch.einsum("bnd,bmd->bnm", self.query(nodes) * scale, self.key(nodes))
        if self.edge_norm is None or self.edge_query is None or self.edge_temps is None:
            return scores
        made, given = state.edge_features, state.given
        parts = [*([] if made is None else [made]), *([] if given is None else [given.features])]
        features, k = torch.cat(parts, dim=2), 0 if made is None else made.shape[2]
        e1_scores = torch.einsum("bne,bnke->bnk", self.edge_query(nodes), self.edge_norm(features))
        if given is not None:
            exists = nn.functional.pad(given.exists, (k, 0), value=True)
            e1_scores = e1_scores.masked_fill(~exists, IMPOSSIBLE)
        e1_weights = e1_scores.softmax(dim=-1)
        masses = torch.zeros_like(scores)
        if state.addresses is not None:
            to = state.addresses.to_dense()
            masses = torch.einsum("bnk,bnkm->bnm", e1_weights[..., :k], to)
        if given is not None:
            masses = masses + given_masses(e1_weights[..., k:], state)
        temps = temperature(self.edge_temps(nodes), "softplus")
        return scores + temps * masses.clamp_min(ADDRESS_EPS).log()


def given_masses(weights: Float[Tensor, "b n s"], state: GraphState) -> Float[Tensor, "b n m"]:
    """Where given edges of these weights point; the empty edge points at all visible nodes."""
    given, n = state.given, weights.shape[1]
    assert given is not None
    g = given.targets.shape[2]
    masses = weights.new_zeros(len(weights), n, n)
    masses = masses.scatter_add(-1, given.targets.clamp_min(0), weights[..., :g])
    if given.empty:
        mask = state.visibility.pairs(n, weights.device)
        even = 1.0 / n if mask is None else mask / mask.sum(dim=-1, keepdim=True)
        masses = masses + weights[..., -1:] * even
    return masses


class PairReadout(nn.Module):
    """An answer about two nodes, such as a relation or a link.

    It reads both nodes, and the edges of the first weighted by their mass on the second. With
    `given_edges=always` these include the edges of the input graph. `d_edge` None: a model without
    edges. Call it with the result of `GraphEncoder.encode` and pairs in PyG's form (2, q); it
    returns (q, o).

    >>> from graph_machine.models import GraphEncoder
    >>> encoder = GraphEncoder(d_node=16, num_layers=1, num_edges=4, num_tokens=1)
    >>> edge_index = torch.tensor([[0, 1], [1, 2]])
    >>> found = encoder.encode(torch.zeros(3, dtype=torch.long), edge_index)
    >>> readout = PairReadout(d_node=16, d_edge=8, num_outputs=1)
    >>> readout(found, torch.tensor([[0, 2], [2, 0]])).shape  # q o
    torch.Size([2, 1])
    """

    def __init__(self, d_node: int, d_edge: int | None, num_outputs: int) -> None:
        super().__init__()
        self.edge_norm = None if d_edge is None else RMSNorm(d_edge)
        self.up = nn.Linear(2 * d_node + (d_edge or 0), 2 * d_node, bias=False)
        self.down = nn.Linear(2 * d_node, num_outputs, bias=False)

    def forward(self, found: "Encoded", pairs: Int[Tensor, "2 q"]) -> Float[Tensor, "q o"]:
        """Answers about `pairs`, node ids as in `edge_label_index`."""
        source, target = pairs
        edges = masses = None
        if self.edge_norm is not None:
            if found.edge_features is None or found.edge_targets is None:
                raise ConfigError("PairReadout: this encoder has no edges; leave out d_edge.")
            assert found.edge_weights is not None
            there = found.edge_targets[source] == target[:, None, None]  # q k top
            edges, masses = found.edge_features[source], found.edge_weights[source] * there
            masses = masses.sum(dim=-1)
        return self.read(found.nodes[source], found.nodes[target], edges, masses)

    def of_state(
        self, nodes: Float[Tensor, "b n d"], state: GraphState, pairs: Int[Tensor, "b q 2"]
    ) -> Float[Tensor, "b q o"]:
        """The same for a padded batch; `nodes` are those of the state, normalised."""
        rows = torch.arange(len(pairs), device=pairs.device)[:, None]
        source, target = pairs.unbind(dim=-1)
        edges = masses = None
        if self.edge_norm is not None:
            assert state.edge_features is not None
            assert state.addresses is not None
            edges = state.edge_features[rows, source]
            masses = state.addresses.to_dense()[rows, source, :, target]  # b q k
            if state.given is not None:
                direct = state.given.targets[rows, source]  # b q g
                there = (direct == target.unsqueeze(-1)).to(masses.dtype)
                stay = state.given.features[rows, source, : direct.shape[-1]]
                edges, masses = torch.cat([edges, stay], 2), torch.cat([masses, there], -1)
        return self.read(nodes[rows, source], nodes[rows, target], edges, masses)

    def read(
        self,
        source: Float[Tensor, "*q d"],
        target: Float[Tensor, "*q d"],
        edges: Float[Tensor, "*q k e"] | None,
        masses: Float[Tensor, "*q k"] | None,
    ) -> Float[Tensor, "*q o"]:
        """From both nodes, the first one's edges, and their mass on the second."""
        parts = [source, target]
        if self.edge_norm is not None and edges is not None and masses is not None:
            parts.append(torch.einsum("...k,...ke->...e", masses, self.edge_norm(edges)))
        return self.down(nn.functional.silu(self.up(torch.cat(parts, dim=-1))))


class GraphReadout(nn.Module):
    """An answer about every graph of a flat batch: mean, maximum and sum of its nodes, then an MLP.

    Call it with the output of a `GraphEncoder` and PyG's batch vector. Pass `num_graphs` if the
    last graphs may have no nodes, or to avoid a device synchronisation.

    >>> readout = GraphReadout(d_node=16, num_outputs=2)
    >>> readout(torch.randn(5, 16), torch.tensor([0, 0, 1, 1, 1])).shape  # b o
    torch.Size([2, 2])
    """

    def __init__(self, d_node: int, num_outputs: int) -> None:
        super().__init__()
        self.up = nn.Linear(3 * d_node, 2 * d_node)
        self.down = nn.Linear(2 * d_node, num_outputs)

    def forward(
        self,
        nodes: Float[Tensor, "n d"],
        batch: Int[Tensor, " n"] | None = None,
        num_graphs: int | None = None,
    ) -> Float[Tensor, "b o"]:
        """Without a batch vector, all nodes are one graph."""
        if batch is None:
            batch = torch.zeros(len(nodes), dtype=torch.long, device=nodes.device)
            num_graphs = 1
        count = int(batch.max()) + 1 if num_graphs is None else num_graphs
        sums = nodes.new_zeros(count, nodes.shape[-1]).index_add(0, batch, nodes)
        sizes = nodes.new_zeros(count, 1).index_add(0, batch, torch.ones_like(nodes[:, :1]))
        rows = batch.unsqueeze(-1).expand_as(nodes)
        most = torch.zeros_like(sums).scatter_reduce(0, rows, nodes, "amax", include_self=False)
        # Sums grow with the graph: in units of ten nodes they begin at the size of the others.
        parts = [sums / sizes.clamp_min(1), most, sums / 10]
        return self.down(nn.functional.silu(self.up(torch.cat(parts, dim=-1))))


def chooses_by_input_edges(config: ModelConfig, spec: InputSpec) -> bool:
    """Whether a model that keeps no edges chooses nodes by the input edges as well.

    It does where the answer is one of these edges, and where they are seen at every stage
    (`given_edges=always`), as by the decoder of CLRS-30. Elsewhere the answer may be far away, and
    a choice that begins with neighbours is harder to learn (docs/log.md).
    """
    asked = spec.output == "slot" or (spec.output == "pointer" and config.given_edges == "always")
    return asked and config.reads_edges and not config.has_edges


def make_readout(config: ModelConfig, spec: InputSpec) -> nn.Module:
    """The last layer: linear, a choice among nodes, or an answer about pairs of nodes."""
    d_edge = config.d_edge if config.has_edges or chooses_by_input_edges(config, spec) else None
    if config.body == "edge-transformer":
        d_edge = config.d_node  # its state has an edge for every pair of nodes
    if spec.output in CHOICES:
        return Choice(config.d_node, d_edge, spec.graph_choices)
    if spec.output == "pair":
        return PairReadout(config.d_node, d_edge, spec.num_outputs)
    if spec.output == "edge" and not config.has_edges:
        raise ConfigError("outputs at edge slots need a model with edges.")
    if spec.output == "edge":
        last = nn.Linear(config.d_edge, spec.num_outputs, bias=False)
        return nn.Sequential(RMSNorm(config.d_edge), last)
    return nn.Linear(config.d_node, spec.num_outputs, bias=False)
