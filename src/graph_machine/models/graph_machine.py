"""The model: input layer, layers, readout. GM and Transformer are one class."""

from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError, ShapeError
from graph_machine.graphs import InputGraph
from graph_machine.models.build import Assembly, default_graph, initialise
from graph_machine.models.checkpoint import open_checkpoint, save_model
from graph_machine.models.edge_transformer import EdgeTransformer
from graph_machine.models.predict import MOST_FROM_FILE, check_count, predict
from graph_machine.models.readout import CHOICES, IMPOSSIBLE, chooses_by_input_edges, make_readout
from graph_machine.nn import Entropies, NodeInput
from graph_machine.nn.stack import mean_entropies
from graph_machine.nn.taps import Tapped
from graph_machine.ops.address.dense import one_hot_addresses
from graph_machine.spaces import Context
from graph_machine.state import GivenEdges, GraphState, Visibility


class ModelOut(NamedTuple):
    """The result of a forward pass.

    `logits` are the outputs (b, q, o); `state` is the graph after the last layer. If requested,
    `round_logits` (r, b, q, o) are the outputs of single rounds of a recurrent core, and
    `layer_logits` the outputs after every layer except the last before the answer.
    """

    logits: Tensor  # b q o: an output per node, edge slot or graph, as in the spec
    entropies: Entropies  # for the entropy losses; empty unless requested
    state: GraphState  # after the last layer
    round_logits: tuple[Tensor, ...] = ()  # of the last rounds of a core, if requested, in order
    layer_logits: tuple[Tensor, ...] = ()  # of the layers before the answer, if requested


class GraphMachine(Assembly, Tapped):
    """A Graph Machine over tokens at nodes, with hard input edges.

    `config` describes the model, `spec` its task; the model knows nothing else about the task. A
    Transformer is a config whose attention has only the node expert.

    >>> import torch
    >>> from graph_machine.graphs import grid_graph
    >>> spec = InputSpec(num_tokens=10, num_outputs=9, num_nodes=81, num_edge_categories=6)
    >>> model = GraphMachine(ModelConfig(num_layers=2), spec)
    >>> graph = grid_graph(9, 9, num_edges=8)
    >>> model(torch.zeros(1, 81, dtype=torch.long), graph).logits.shape  # b n outputs
    torch.Size([1, 81, 9])
    >>> GraphMachine.from_pretrained("gm-4x4").predict(["..3...4..4...2.."]).texts
    ['4132234114233214']
    """

    targets: Tensor | None
    categories: Tensor | None

    def __init__(self, config: ModelConfig, spec: InputSpec) -> None:
        super().__init__()
        self.spec = spec
        grid = None if spec.grid is None else (spec.grid[0], spec.grid[1])
        self.nodes = NodeInput(
            num_tokens=spec.num_tokens,
            d_features=spec.node_features,
            d_node=config.d_node,
            num_positions=spec.num_nodes if spec.learned_places else None,
            grid=grid,
            position=config.position,
            position_base=config.position_base,
        )
        self.assemble(
            config,
            num_categories=spec.num_edge_categories or None,
            d_edge_features=spec.edge_features or None,
            grid=grid,
            num_nodes=spec.num_nodes,
        )
        self.readout: Any = make_readout(config, spec)
        graph = default_graph(config, spec) if config.reads_edges else None
        self.register_buffer("targets", None if graph is None else graph.targets, persistent=False)
        categories = None if graph is None else graph.categories
        self.register_buffer("categories", categories, persistent=False)
        initialise(self, config)

    def for_spec(self, spec: InputSpec) -> "GraphMachine":
        """This model for examples of another size, with the same weights: itself, if that is its
        own spec.

        >>> import torch
        >>> from graph_machine.lab.config import MazeConfig
        >>> from graph_machine.lab.tasks.base import task_of
        >>> small, large = (task_of(MazeConfig(side=side)).spec for side in (5, 9))
        >>> model = GraphMachine(ModelConfig(num_layers=1), small).for_spec(large)
        >>> model(torch.zeros(1, 81, dtype=torch.long)).logits.shape
        torch.Size([1, 81, 2])
        """
        if spec == self.spec:
            return self
        other = GraphMachine(self.config, spec)
        other.load_state_dict(self.state_dict())
        other.backend = self.backend
        return other.to(next(self.parameters()).device).train(self.training)

    @property
    def any_degree(self) -> bool:
        """Whether nodes may have any number of input edges."""
        return self.config.given_edges == "always"

    def input_graph(self, graph: InputGraph | None, batch: int, nodes: int) -> InputGraph:
        """The graph of this call (or the task's own), with a batch axis."""
        # C kernels write where edges point. Elsewhere, a look at values would make the host wait.
        look = graph is not None and graph.targets.is_cpu and not torch.compiler.is_compiling()
        if graph is None:
            if self.targets is None or self.categories is None:
                raise ShapeError(
                    "GraphMachine: this model needs graphs (graph=given in its spec), got none."
                )
            targets, categories = self.targets, self.categories
            if self.spec.graph == "sequence":
                targets, categories = targets[:nodes], categories[:nodes]
            targets, categories = (one.expand(batch, -1, -1) for one in (targets, categories))
            graph = InputGraph(targets, categories, self.spec.num_edge_categories)
        elif not self.any_degree and graph.num_edges < self.config.num_edges:
            graph = graph.with_slots(self.config.num_edges)
        elif not self.any_degree and graph.num_edges > self.config.num_edges:
            raise ShapeError(
                f"GraphMachine: the graph has {graph.num_edges} edge slots per node (self edge "
                f"included), the model {self.config.num_edges}. Set "
                f"model.num_edges={graph.num_edges} or model.given_edges=always, or use graphs "
                f"with fewer neighbours."
            )
        width = 0 if graph.features is None else graph.features.shape[-1]
        slots = graph.num_edges if self.any_degree else self.config.num_edges
        shape = (nodes, slots, self.spec.edge_features)
        if (*graph.targets.shape[-2:], width) != shape:
            raise ShapeError(
                f"GraphMachine: the graph should have (n, k) = {shape[:2]} and {shape[2]} edge "
                f"features, got {tuple(graph.targets.shape[-2:])} and {width}."
            )
        if look and graph.targets.numel() and (most := int(graph.targets.max())) >= nodes:
            raise ShapeError(f"GraphMachine: targets should be -1 to {nodes - 1}, got {most}.")
        return graph if graph.targets.shape[:-2] == (batch,) else graph.expand(batch)

    def initial_state(
        self,
        tokens: Int[Tensor, "b n"] | None,
        graph: InputGraph | None,
        node_mask: Tensor | None,
        features: Float[Tensor, "b n f"] | None = None,
    ) -> GraphState:
        """Embedded nodes and the input edges: the state before the first layer."""
        nodes = self.nodes(tokens, features)
        visibility = Visibility(node_mask, self.spec.causal)
        if node_mask is not None:
            nodes = nodes * node_mask.unsqueeze(-1)
        if self.edges is None:
            return GraphState(nodes, visibility=visibility)
        graph = self.input_graph(graph, *nodes.shape[:2])
        edges, targets = self.edges(graph), graph.targets
        if self.projected is not None:  # nodes plus what their input edges carry
            n = nodes.shape[1]
            addresses = one_hot_addresses(targets, n, visibility.pairs(n, nodes.device))
            # Empty slots count as edges; the padding of `given_edges=always` does not.
            nodes = self.projected(
                nodes, edges, addresses, targets >= 0 if self.any_degree else None
            )
        if isinstance(self.body, EdgeTransformer):
            return self.body(nodes, edges, targets, node_mask)
        if self.body is not None:
            nodes = self.body(nodes, edges, targets, node_mask)
        if self.space is None:
            by_edges = chooses_by_input_edges(self.config, self.spec)
            given = GivenEdges(edges, targets) if by_edges else None
            return GraphState(nodes, visibility=visibility, given=given)
        return self.first(nodes, edges, targets, self.space, visibility)

    def forward(
        self,
        tokens: Int[Tensor, "b n"] | None,
        graph: InputGraph | None = None,
        node_mask: Tensor | None = None,
        features: Float[Tensor, "b n f"] | None = None,
        pairs: Int[Tensor, "b q 2"] | None = None,
        *,
        entropies: bool = False,
        raw_entropies: bool = False,
        rounds: int | None = None,
        grad_rounds: int | None = None,
        keep_rounds: int = 0,
        keep_layers: bool = False,
    ) -> ModelOut:
        """Outputs at every place. `node_mask` is False at padding, in batches of graphs. `pairs`
        are the queried (source, target) nodes, if the spec's output is `pair`.

        A recurrent core runs `rounds` times (default: as in the config). Gradients flow through
        the last `grad_rounds` of them (default: all). With `keep_rounds`, the logits of that many
        last rounds are returned, too, the answer included; with `keep_layers`, the outputs of the
        readout for the states between layers.
        """
        if self.core is not None or (rounds, grad_rounds, keep_rounds) != (None, None, 0):
            rounds = self.check_rounds(rounds, grad_rounds, keep_rounds)
        shape = self.check_inputs(tokens, features, pairs)
        context = Context(backend=self.backend, entropies=entropies, raw_entropies=raw_entropies)
        state = self.initial_state(tokens, graph, node_mask, features)
        between: list[GraphState] | None = [] if keep_layers else None
        state, referral, attention = self.stack.run(state, context, between)
        asked = self.slots_asked(graph, shape) if self.spec.output == "slot" else pairs
        if between and self.core is None:
            between.pop()  # the answer's own
        layers = tuple(self.outputs(one, asked) for one in between or ())
        if self.core is None:
            logits = self.report("logits", self.outputs(state, asked))
            return ModelOut(logits, mean_entropies(referral, attention), state, (), layers)
        keep = max(1, keep_rounds)
        out = self.core(state, context, rounds=rounds, grad_rounds=grad_rounds, keep=keep)
        found = mean_entropies([*referral, *out.referral], [*attention, *out.attention])
        logits = [self.outputs(kept, asked) for kept in out.states]
        logits[-1] = self.report("logits", logits[-1])
        kept = tuple(logits) if keep_rounds else ()
        return ModelOut(logits[-1], found, out.state, kept, layers)

    def outputs(self, state: GraphState, asked: Tensor | None) -> Float[Tensor, "b q o"]:
        """Outputs of the state after the layers or after any round.

        `asked` are the targets of the input edges (b, n, k) for a choice among them, or the queried
        pairs (b, q, 2). A pointer is chosen as in attention: by the node expert and, with edges,
        the edge expert.
        """
        nodes = self.norm(state.node_features, self.backend)
        kind, mask = self.spec.output, state.visibility.node_mask
        if kind == "edge":
            assert state.edge_features is not None
            return self.readout(state.edge_features).flatten(1, 2)  # b (n k) o
        if kind == "graph":
            count = nodes.shape[1] if mask is None else mask.sum(dim=1).view(-1, 1)
            nodes = nodes if mask is None else nodes * mask.unsqueeze(-1)
            return self.readout(nodes.sum(dim=1) / count).unsqueeze(1)  # b 1 o
        if kind == "pair":
            return self.readout.of_state(nodes, state, asked)
        if kind not in CHOICES:
            return self.readout(nodes)
        found = self.readout(nodes, state)
        if kind == "slot":
            assert asked is not None
            return found.gather(-1, asked.clamp_min(0)).masked_fill(asked < 0, IMPOSSIBLE)
        return found if mask is None else found.masked_fill(~mask.unsqueeze(1), IMPOSSIBLE)

    def slots_asked(self, graph: InputGraph | None, shape: tuple[int, int]) -> Int[Tensor, "b n k"]:
        """Where the input edges point, if an answer is one of them."""
        if self.edges is None and graph is not None:
            return graph.expand(shape[0]).targets  # a model that does not look at edges
        return self.input_graph(graph, *shape).targets

    def check_inputs(
        self, tokens: Tensor | None, features: Tensor | None, pairs: Tensor | None
    ) -> tuple[int, int]:
        """Check the inputs against the spec; returns (b, n)."""
        spec = self.spec
        if (pairs is None) == (spec.output == "pair"):
            raise ShapeError(f"GraphMachine: {'no ' if pairs is None else ''}pairs were given.")
        if (tokens is None) != (spec.num_tokens is None):
            raise ShapeError(f"GraphMachine: {'no ' if tokens is None else ''}tokens were given.")
        if (0 if features is None else features.shape[-1]) != spec.node_features:
            raise ShapeError(
                f"GraphMachine: node features should be (b, n, {spec.node_features}), got "
                f"{None if features is None else tuple(features.shape)}."
            )
        given = tokens if tokens is not None else features
        assert given is not None
        if given.ndim != (2 if given is tokens else 3) or 0 in given.shape:
            raise ShapeError(f"GraphMachine: tokens should be (b, n), got {tuple(given.shape)}.")
        if given is tokens and given.is_floating_point():
            raise ShapeError(
                f"GraphMachine: tokens should be whole numbers, got {given.dtype}: tokens.long()."
            )
        wanted = spec.num_nodes
        if wanted is not None and given.shape[1] != wanted and spec.graph != "sequence":
            raise ShapeError(
                f"GraphMachine: tokens should be (b, n) = (any, {wanted}), "
                f"got {tuple(given.shape)}."
            )
        return given.shape[0], given.shape[1]

    def iterate(
        self,
        tokens: Int[Tensor, "b n"] | None,
        graph: InputGraph | None = None,
        node_mask: Tensor | None = None,
        features: Float[Tensor, "b n f"] | None = None,
        pairs: Int[Tensor, "b q 2"] | None = None,
    ) -> Generator[Float[Tensor, "b q o"], Tensor | None, None]:
        """Yield the outputs after every round, without end; the caller decides when to stop.

        Send indices of examples to continue only with these.
        """
        if self.core is None:
            raise ConfigError("rounds: this model has no recurrent core to repeat.")
        shape = self.check_inputs(tokens, features, pairs)
        asked = self.slots_asked(graph, shape) if self.spec.output == "slot" else pairs
        context = Context(backend=self.backend)
        start = self.initial_state(tokens, graph, node_mask, features)
        entered = self.stack.run(start, context).state
        return self._each(self.core.iterate(entered, context), asked)

    def _each(
        self, states: Generator[GraphState, Tensor | None, None], asked: Tensor | None
    ) -> Generator[Tensor, Tensor | None, None]:
        """Outputs of states; a separate generator, so `iterate` raises errors when it is called."""
        rows = None
        while True:
            state = states.send(rows)
            rows = yield self.outputs(state, asked)
            if rows is not None and asked is not None:
                asked = asked[rows]

    def check_rounds(
        self, rounds: int | None, grad_rounds: int | None = None, keep_rounds: int = 0
    ) -> int:
        """The number of rounds of a call, by default the config's; invalid numbers are errors."""
        if self.core is None:
            asked = (rounds, grad_rounds, keep_rounds or None)
            for name, value in zip(("rounds", "grad_rounds", "keep_rounds"), asked):
                if value is not None:
                    raise ConfigError(f"{name}: this model has no recurrent core to repeat.")
            return self.config.rounds
        if rounds is None:
            rounds = self.config.rounds
            if rounds > MOST_FROM_FILE:
                raise ConfigError(
                    f"The model's own config has rounds = {rounds:,}, above {MOST_FROM_FILE:,}: "
                    f"set the number with rounds= (--rounds on the command line)."
                )
        check_count("rounds", rounds, 1)
        check_count("grad_rounds", 1 if grad_rounds is None else grad_rounds, 1)
        check_count("keep_rounds", keep_rounds, 0)
        if keep_rounds > rounds:
            raise ConfigError(
                f"keep_rounds should be at most rounds = {rounds}, got {keep_rounds}."
            )
        return rounds

    predict = predict

    def save_pretrained(self, folder: str | Path, **extra: Any) -> Path:
        """Write `config.json` and `model.safetensors`."""
        return save_model(self, folder, **extra)

    @classmethod
    def from_pretrained(cls, name: str | Path) -> "GraphMachine":
        """Load a checkpoint folder, a shipped model by its name, or one of the Hub
        (`hf:owner/name`, `hf:owner/name@revision`)."""
        return open_checkpoint(name).load(cls)
