"""The config of a model. GM, Transformer and every ablation are settings of this one config."""

from dataclasses import dataclass
from typing import Literal

from graph_machine.config.base import Bounds, Config, field, require, required


def spread(count: int, places: int) -> tuple[int, ...]:
    """Distribute `count` things evenly over `places`, each at the start of its group."""
    counts = [0] * places
    for index in range(count):
        counts[index * places // count] += 1
    return tuple(counts)


# Far above anything sensible: a config from elsewhere should not be able to fill the memory.
WIDTH, COUNT, COUNT_OR_ZERO = Bounds(1, 16_384), Bounds(1, 1_024), Bounds(0, 1_024)
MOST_ROUNDS = 100_000
SUBLAYERS, ROUNDS = Bounds(0, 4_096), Bounds(1, MOST_ROUNDS)
FROM_0, FROM_1, ABOVE_0 = Bounds(0), Bounds(1), Bounds(0, above=True)


@dataclass(frozen=True)
class ModelConfig(Config):
    """Defaults are the paper's GM (table 1, appendix B).

    >>> ModelConfig(num_layers=4, num_edge_sublayers=2).schedule()
    (1, 0, 1, 0)
    """

    d_node: int = field(64, "d_n: width of node features", WIDTH)
    d_edge: int = field(8, "d_e: width of edge features", WIDTH)
    num_layers: int = field(32, "l: number of node sublayers", COUNT)
    num_edges: int = field(
        8, "k: edge slots per node, and referral heads; 0: no edges", COUNT_OR_ZERO
    )
    num_edge_sublayers: int | None = field(
        None, "edge sublayers, spread evenly over the layers; none: one per layer", SUBLAYERS
    )
    num_heads: int = field(8, "h: attention heads", COUNT)
    d_attn_key: int = field(8, "d_ak: key size of attention", WIDTH)
    d_attn_value: int = field(8, "d_av: value size of attention", WIDTH)
    d_ref_key: int = field(8, "d_rk: key size of referral", WIDTH)
    expansion: int = field(4, "expansion of the feed-forward networks", COUNT)

    core_layers: int = field(
        0, "node sublayers of a recurrent core after the layers; 0: no core", COUNT_OR_ZERO
    )
    core_edge_sublayers: int = field(
        0,
        "edge sublayers of the core, spread evenly; 0: edges stay as the layers made them",
        SUBLAYERS,
    )
    rounds: int = field(1, "times the core is applied, unless a call sets another number", ROUNDS)
    core_input: Literal["add", "none"] = field(
        "add", "the input of the core is added again in every round, through a linear map"
    )
    core_state: Literal["normed", "gated", "plain"] = field(
        "normed", "the state between rounds: normalised, also gated, or unchanged"
    )
    core_noise: float = field(
        0.0, "standard deviation of noise that training adds to nodes between rounds", FROM_0
    )

    given_edges: Literal["first", "always"] = field(
        "first", "input edges fill the slots before the first layer, or every sublayer sees them"
    )
    empty_edge: bool = field(False, "every sublayer sees one edge that points evenly at all nodes")
    edge_values: bool = field(False, "attention also returns the values of a node's own edges")
    edge_ends: bool = field(
        False, "given edges also carry the features of their target nodes; needs `always`"
    )

    global_heads: int = field(
        0, "attention heads that begin almost without the edge expert (t_edge 0.1)", COUNT_OR_ZERO
    )

    body: Literal[
        "graph-machine", "gine", "gat", "gps", "mpnn", "graphormer", "edge-transformer"
    ] = field(
        "graph-machine",
        "the layers; the others are baselines on graphs (gine, gat, gps, mpnn: PyG, extra pyg)",
    )
    attention_experts: Literal["both", "node", "edge"] = field(
        "both", "experts in attention; `node`: as in a Transformer"
    )
    referral_experts: Literal["both", "node", "edge"] = field("both", "n2 experts in referral")
    referral: Literal["joint", "conditional", "preaggregated"] = field(
        "joint", "how (n2, e2) pairs are weighted"
    )
    sharpener: Literal["projection", "learned", "fixed", "off"] = field(
        "projection", "t_sharpener: where edge temperatures come from"
    )
    sharpener_value: float = field(1.0, "the temperature of a fixed sharpener", FROM_0)
    separate_roles: bool = field(
        False, "sharpen addresses separately as e1 (to find n2) and as e2 (to be collected)"
    )
    factor_temps: bool = field(True, "t_node, t_edge, t_e2: learned factor temperatures")
    temperature: Literal["softplus", "exp"] = field("softplus", "positive function behind them")

    position: Literal["none", "sinusoidal", "rotary", "row-column"] = field(
        "none", "positional encoding on top of the per-position embedding"
    )
    position_base: float = field(
        10_000.0, "base of sinusoidal and rotary encodings", Bounds(1, above=True)
    )
    rotary_referral: bool = field(True, "rotary positions also rotate queries and keys of referral")
    project_input_edges: bool = field(
        False, "project the input edges into node features (appendix C.1)"
    )

    address_space: Literal["weight", "logit", "sparse", "compressed", "hard"] = field(
        "weight", "representation of edge addresses"
    )
    logit_scale: float = field(
        5.0, "factor from input weights to logits in the logit and compressed spaces"
    )
    top_s: int | None = field(None, "s: simulated sparsity of dense addresses; none: dense", FROM_1)
    gumbel_tau: float = field(0.0, "tau: scale of Gumbel noise when the top s are chosen", FROM_0)
    address_eps: float = field(
        1e-8,
        "epsilon: floor of address mass before a logarithm",
        Bounds(0, 1e-2, above=True, below=True),
    )
    sparse_s: int = field(8, "s: entries of an address in the sparse space", COUNT)
    sparse_s_start: int | None = field(
        None, "s (sparse_s or top_s) at the start of training; none: no annealing", FROM_1
    )
    sparse_s_attention: int | None = field(
        None, "entries per edge that attention sees; none: all", FROM_1
    )
    sparse_s_referral: int | None = field(
        None, "entries per edge that lead to n2; none: all", FROM_1
    )
    sparse_chains: int | None = field(
        None,
        "(n2, e2) pairs, pre-aggregated n2, kept per head in sparse referral; none: all",
        FROM_1,
    )
    gumbel_tau_start: float | None = field(
        None, "tau at the start of training; none: no annealing", FROM_0
    )
    anneal: float = field(
        1.0,
        "share of the training after which s and tau have their final values",
        Bounds(0, 1, above=True),
    )
    compressed_c: int = field(32, "c: width of an address in the compressed space", WIDTH)
    decoder: Literal["position", "features"] = field(
        "features", "decoder of the compressed space: a row per position, or from node features"
    )
    estimator: Literal["reinforce", "straight-through"] = field(
        "reinforce", "gradient of the choices of the hard space"
    )

    edge_residual: bool = field(True, "new edge features are added to the old ones")
    qk_norm: bool = field(False, "RMS norm (no scale) on queries and n2 keys")
    init: Literal["matrices", "normal", "torch"] = field(
        "matrices", "initialisation: normal matrices, also normal embeddings, or torch's own"
    )
    init_std: float = field(0.02, "standard deviation of the normal initialisation", ABOVE_0)

    @property
    def edge_sublayers(self) -> int:
        """The number of edge sublayers, resolved."""
        return self.num_layers if self.num_edge_sublayers is None else self.num_edge_sublayers

    @property
    def has_edges(self) -> bool:
        """Whether the states of this model have edges."""
        return self.attention_experts != "node" or self.refers

    @property
    def refers(self) -> bool:
        """Whether any layer makes new edges."""
        return self.edge_sublayers > 0 or self.core_edge_sublayers > 0

    @property
    def reads_edges(self) -> bool:
        """Whether the model reads input edges."""
        return self.has_edges or self.project_input_edges or self.body != "graph-machine"

    @property
    def own_layers(self) -> int:
        """Layers with weights of their own: an MPNN applies one again and again."""
        return 1 if self.body == "mpnn" else self.num_layers

    @property
    def has_core(self) -> bool:
        """Whether layers are repeated in rounds."""
        return self.core_layers > 0

    def schedule(self) -> tuple[int, ...]:
        """Edge sublayers before each node sublayer: spread evenly, at the start of each group."""
        return spread(self.edge_sublayers, self.num_layers)

    def core_schedule(self) -> tuple[int, ...]:
        """Edge sublayers before each node sublayer of the core."""
        return spread(self.core_edge_sublayers, self.core_layers)

    def validate(self) -> None:
        if self.num_edges == 0:
            require(
                not self.has_edges and not self.project_input_edges,
                "num_edges = 0 leaves no edges: set attention_experts=node, num_edge_sublayers=0 "
                "and project_input_edges=false, or give num_edges.",
            )
        require(
            self.gumbel_tau == 0 or self.top_s is not None or self.address_space == "sparse",
            "gumbel_tau needs top_s or address_space=sparse.",
        )
        require(
            self.top_s is None or self.address_space == "weight",
            "top_s simulates sparsity in the weight space; set address_space=weight.",
        )
        self.validate_space()
        self.validate_core()
        self.validate_given()
        if self.position == "sinusoidal":
            require(self.d_node % 4 == 0, "sinusoidal positions need d_node divisible by 4.")
        if self.position == "rotary":
            require(self.d_attn_key % 4 == 0, "rotary positions need d_attn_key divisible by 4.")
            require(self.d_ref_key % 4 == 0, "rotary positions need d_ref_key divisible by 4.")

    def validate_core(self) -> None:
        """Settings of the recurrent core."""
        require(
            self.body == "graph-machine" or not (self.has_edges or self.has_core),
            f"body={self.body} has no Graph Machine layers: set attention_experts=node, "
            f"num_edge_sublayers=0 and no core.",
        )
        require(
            self.body == "graph-machine" or self.d_node % self.num_heads == 0,
            f"body={self.body}: d_node should be divisible by num_heads, got {self.d_node} and "
            f"{self.num_heads}.",
        )
        require(
            self.has_core or self.rounds == 1,
            f"rounds = {self.rounds} needs a core to repeat: set core_layers.",
        )
        require(
            self.has_core or self.core_edge_sublayers == 0,
            "core_edge_sublayers needs a core: set core_layers.",
        )

    def validate_given(self) -> None:
        """Settings of edges that stay."""
        require(
            self.reads_edges or self.given_edges == "first",
            "given_edges=always needs a model that reads edges.",
        )
        require(self.has_edges or not self.empty_edge, "empty_edge needs a model with edges.")
        require(
            not self.edge_ends or (self.has_edges and self.given_edges == "always"),
            "edge_ends needs a model with edges and given_edges=always.",
        )
        require(
            not self.edge_values or self.attention_experts != "node",
            "edge_values needs edges in attention: set attention_experts=both or edge.",
        )
        temps = self.attention_experts == "both" and self.factor_temps
        require(
            not self.global_heads or temps,
            "global_heads needs attention_experts=both and factor_temps.",
        )
        require(
            self.global_heads <= self.num_heads,
            f"global_heads = {self.global_heads} of num_heads = {self.num_heads}.",
        )

    def validate_space(self) -> None:
        """Settings of the spaces beyond the paper's dense ones."""
        starts = (self.sparse_s_start, self.gumbel_tau_start)
        require(
            starts == (None, None) or self.top_s is not None or self.address_space == "sparse",
            "sparse_s_start and gumbel_tau_start need top_s, or address_space=sparse.",
        )
        if self.address_space == "compressed":
            require(
                self.referral != "conditional",
                "the compressed space supports only joint and preaggregated referral.",
            )
        if self.address_space == "hard":
            require(
                self.sharpener == "off", "the hard space has nothing to sharpen: sharpener=off."
            )
            require(
                self.referral != "preaggregated",
                "the hard space supports only joint and conditional referral.",
            )


MOST = 10_000_000  # far above anything sensible, see config/model.py


@dataclass(frozen=True)
class InputSpec(Config):
    """Declared by the task and stored with the weights: all that a model knows about its task.

    A model returns outputs of shape (b, q, o): q places with o numbers each. `output` says what a
    place is: a node (q = n), an edge slot (q = n k), the whole graph (q = 1), or a pair of nodes
    that comes with the example. It can also be a choice that every node makes: one of its input
    edges (`slot`: q = n, o = k) or any node (`pointer`: o = n, q = n + `graph_choices`).

    >>> spec = InputSpec(num_tokens=10, num_outputs=9, num_nodes=81, grid=(9, 9), graph="grid",
    ...                  num_edge_categories=6)
    >>> spec.output
    'node'
    """

    num_tokens: int | None = required("number of different tokens; none: nodes have features only")
    num_outputs: int = required("number of different answers at a place (regression: of numbers)")
    output: Literal["node", "edge", "slot", "pointer", "graph", "pair"] = field(
        "node",
        "what is predicted: nodes, edge slots, a choice of input edge or node, the graph, or pairs "
        "of nodes",
    )
    graph_choices: int = field(
        0, "nodes that the graph as a whole chooses, after the choices of the nodes (pointer)"
    )
    output_kind: Literal["classes", "numbers"] = field(
        "classes", "answers are classes or numbers (regression)"
    )
    num_nodes: int | None = field(None, "n, if it is the same in every example")
    learned_places: bool = field(
        True,
        "each of num_nodes positions has its own embedding; false: other sizes fit the weights",
    )
    node_features: int = field(0, "size of node features, with or without tokens")
    edge_features: int = field(0, "size of the features of input edges, besides their category")
    grid: tuple[int, ...] | None = field(None, "rows and columns, if the nodes form a grid")
    graph: Literal["grid", "sequence", "given"] = field("given", "where input edges come from")
    num_edge_categories: int = field(0, "categories of input edges, `empty` included; 0: none")
    causal: bool = field(False, "no node sees a later one")
    alphabet: str | None = field(None, "one character per token, to read inputs from text")
    answers: str | None = field(None, "one character per output, to write answers as text")
    keeps_givens: bool = field(
        True, "a node whose token is the character of an answer keeps that answer"
    )

    def validate(self) -> None:
        sizes = ("num_tokens", "num_outputs", "num_nodes", "num_edge_categories")
        for name in (*sizes, "node_features", "edge_features"):
            require((getattr(self, name) or 0) <= MOST, f"{name} should be at most {MOST:,}.")
        require(self.num_outputs >= 1, "a spec needs outputs.")
        require(
            (self.num_tokens or 0) >= 1 or (self.num_tokens is None and self.node_features >= 1),
            "a spec needs tokens or node features.",
        )
        for name in ("node_features", "edge_features", "num_edge_categories", "graph_choices"):
            require(getattr(self, name) >= 0, f"{name} should not be negative.")
        require(
            self.graph_choices == 0 or self.output == "pointer",
            "graph_choices needs output=pointer.",
        )
        if self.graph == "grid":
            require(
                self.grid is not None and len(self.grid) == 2 and min(self.grid) >= 1,
                "a grid graph needs grid = (rows, columns).",
            )
            require(
                self.num_nodes == self.grid[0] * self.grid[1] if self.grid else False,
                f"num_nodes should be rows x columns of the grid {self.grid}.",
            )
        for name, size in (("alphabet", self.num_tokens), ("answers", self.num_outputs)):
            text = getattr(self, name)
            require(text is None or len(text) == size, f"{name} should have {size} characters.")

    def given_answers(self) -> tuple[int, ...] | None:
        """For each token the answer that it gives away, or -1; None: tokens give no answers."""
        if self.alphabet is None or self.answers is None or self.output != "node":
            return None
        return tuple(map(self.answers.find, self.alphabet)) if self.keeps_givens else None
