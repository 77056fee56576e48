"""Build layers from a config, and initialise them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.overrides import TorchFunctionMode

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.graphs import GRID_CATEGORIES, InputGraph, grid_graph, sequence_graph
from graph_machine.models.edge_transformer import EdgeTransformer
from graph_machine.models.graphormer import Graphormer
from graph_machine.models.pyg_body import PygBody
from graph_machine.nn import (
    EdgeInput,
    EdgeSublayer,
    FirstEdges,
    GraphMachineStack,
    Layer,
    NodeSublayer,
    ProjectedEdges,
    RecurrentCore,
    RMSNorm,
)
from graph_machine.ops.backend import Backend
from graph_machine.ops.position import rotary_angles
from graph_machine.spaces import SPACES, AddressSpace

Grid = tuple[int, int]  # rows, columns

BODIES: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "edge-transformer": EdgeTransformer,
    "graphormer": Graphormer,
}
GRID_DEGREE = len(GRID_CATEGORIES) - 1  # a cell itself and its four neighbours


class Assembly(nn.Module):
    """What `GraphMachine` and `GraphEncoder` share: input edges, address space, layers, core, norm.

    The two differ in node input and readout.
    """

    def assemble(
        self,
        config: ModelConfig,
        *,
        num_categories: int | None,
        d_edge_features: int | None,
        grid: Grid | None = None,
        num_nodes: int | None = None,
    ) -> None:
        """Make the shared parts, between the node input and the readout."""
        self.config = config
        self.backend: Backend = "auto"  # how ops are carried out; not part of what the model is
        self.edges = self.space = self.projected = self.body = None
        self.first: Any = None
        if config.reads_edges:
            self.edges = EdgeInput(
                d_edge=config.d_edge, num_categories=num_categories, d_features=d_edge_features
            )
        if config.has_edges:
            self.space = build_space(config, num_nodes)
            self.first = FirstEdges(
                d_edge=config.d_edge, given=config.given_edges == "always", empty=config.empty_edge
            )
        if config.project_input_edges:
            self.projected = ProjectedEdges(
                d_node=config.d_node, d_edge=config.d_edge, expansion=config.expansion
            )
        own = config.body == "graph-machine"
        if not own:
            self.body = BODIES.get(config.body, PygBody)(config)
        made = config.given_edges == "first"
        layers = build_layers(config, grid, config.schedule(), made) if own else []
        self.stack = GraphMachineStack(layers)
        self.core = None
        if config.has_core:
            self.core = RecurrentCore(
                build_layers(config, grid, config.core_schedule(), made or config.refers),
                d_node=config.d_node,
                inject=config.core_input == "add",
                state=config.core_state,
                noise=config.core_noise,
            )
        self.norm = RMSNorm(config.d_node)

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    def reset_parameters(self) -> None:
        """Reinitialise all weights, as the constructor does."""
        for module in self.modules():
            reset = getattr(module, "reset_parameters", None)
            if module is not self and callable(reset):
                reset()
        initialise(self, self.config)

    def set_progress(self, fraction: float) -> None:
        """Set the completed share of training, for address spaces with annealing."""
        if self.space is not None:
            self.space.set_progress(fraction)

    def extra_repr(self) -> str:
        """Shown by `print`."""
        return f"{self.num_parameters:,} parameters"


def rotary(config: ModelConfig, grid: Grid | None, d_key: int) -> Tensor | None:
    if config.position != "rotary":
        return None
    if grid is None:
        raise ConfigError("rotary positions need a grid.")
    return rotary_angles(*grid, d_key, config.position_base)


def build_layers(
    config: ModelConfig, grid: Grid | None, schedule: tuple[int, ...], made: bool
) -> list[Layer]:
    """One layer per node sublayer, with the edge sublayers that the schedule puts before it.

    `made` says whether slots hold edges before the first layer. If not, it has nothing to sharpen.
    """
    names = ("d_node", "d_edge", "num_edges", "expansion", "factor_temps", "temperature")
    names += ("sharpener_value", "qk_norm", "edge_ends")
    shared: dict[str, Any] = {name: getattr(config, name) for name in names}

    def edge_sublayer(made: bool) -> EdgeSublayer:
        return EdgeSublayer(
            **shared,
            sharpener=config.sharpener if made else "off",
            d_key=config.d_ref_key,
            kind=config.referral,
            experts=config.referral_experts,
            separate_roles=config.separate_roles and made,
            residual=config.edge_residual,
            rotary=rotary(config, grid, config.d_ref_key) if config.rotary_referral else None,
        )

    def node_sublayer(made: bool) -> NodeSublayer:
        return NodeSublayer(
            **shared,
            sharpener=config.sharpener if made else "off",
            num_heads=config.num_heads,
            d_key=config.d_attn_key,
            d_value=config.d_attn_value,
            experts=config.attention_experts,
            edge_values=config.edge_values,
            global_heads=config.global_heads,
            rotary=rotary(config, grid, config.d_attn_key),
        )

    layers = []
    for count in schedule:
        edges = [edge_sublayer(made or index > 0) for index in range(count)]
        made = made or count > 0
        layers.append(Layer(edges, [node_sublayer(made)]))
    return layers


# Settings of the address spaces, and the fields of the config that hold them.
ANNEALED = {"s_start": "sparse_s_start", "gumbel_tau": "gumbel_tau", "anneal": "anneal"}
ANNEALED |= {"gumbel_tau_start": "gumbel_tau_start", "eps": "address_eps"}
ENTRIES = {"s_attention": "sparse_s_attention", "s_referral": "sparse_s_referral"}
SPACE_FIELDS = {
    "weight": {"top_s": "top_s", **ANNEALED},
    "logit": {"scale": "logit_scale", "eps": "address_eps"},
    "sparse": {"s": "sparse_s", "chains": "sparse_chains", **ENTRIES, **ANNEALED},
    "compressed": {"c": "compressed_c", "decoder": "decoder", "d_node": "d_node"},
    "hard": {"estimator": "estimator", "eps": "address_eps"},
}


def build_space(config: ModelConfig, num_nodes: int | None) -> AddressSpace:
    """The address space of a config, with its settings."""
    kind = config.address_space
    settings = {name: getattr(config, own) for name, own in SPACE_FIELDS[kind].items()}
    if kind == "compressed":
        settings |= {"num_positions": num_nodes, "scale": config.logit_scale}
    return SPACES[kind](**settings)


def default_graph(config: ModelConfig, spec: InputSpec) -> InputGraph | None:
    """The input graph of a task's spec; None if graphs come with the data."""
    if spec.graph == "grid" and spec.grid is not None:
        always = config.given_edges == "always"  # then slots say nothing about degree
        return grid_graph(spec.grid[0], spec.grid[1], GRID_DEGREE if always else config.num_edges)
    if spec.graph == "sequence" and spec.num_nodes is not None:
        return sequence_graph(spec.num_nodes, config.num_edges, empty_slot=not config.empty_edge)
    return None


def initialise(model: nn.Module, config: ModelConfig) -> None:
    """Initialise by the setting `init`. The paper does not say which one it uses.

    `torch`: PyTorch's defaults (uniform by fan-in; embeddings normal with std 1). `matrices`: every
    matrix normal with `init_std`, embeddings as in `torch`. `normal`: embeddings with `init_std`,
    too, so positional encodings of size 1 drown them. In all three, norm scales are 1 and learned
    sharpener values 0 (temperature 1).
    """
    if config.init == "torch":
        return
    kinds = (nn.Linear,) if config.init == "matrices" else (nn.Linear, nn.Embedding)
    for module in model.modules():
        if isinstance(module, kinds):
            nn.init.normal_(module.weight, std=config.init_std)


# torch calls those of `init` with names of arguments, and those of tensors without.
FILLS = {init.normal_, init.uniform_, init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_}


class ShapesOnly(TorchFunctionMode):
    """Layers built in this context have weights without memory; load them with `assign=True`.

    Constants (positions, input graphs) are real. No random numbers are drawn: on the meta device,
    torch would import its compiler for them, which takes longer than opening a model.

    >>> with ShapesOnly():
    ...     torch.nn.Linear(3, 4).weight
    Parameter containing:
    tensor(..., device='meta', size=(4, 3), requires_grad=True)
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in FILLS:
            return args[0] if args else kwargs["tensor"]
        if func is torch.empty and kwargs.get("device") is None:
            kwargs = kwargs | {"device": "meta"}
        return func(*args, **kwargs)
