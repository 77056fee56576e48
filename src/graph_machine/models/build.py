"""From a config to layers. Initialisation is gathered here, in one place."""

from torch import Tensor, nn

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.graphs import InputGraph, grid_graph, sequence_graph
from graph_machine.nn import EdgeSublayer, Layer, NodeSublayer, RecurrentCore
from graph_machine.ops.position import rotary_angles
from graph_machine.spaces import SPACES, AddressSpace


def rotary(config: ModelConfig, spec: InputSpec, d_key: int) -> Tensor | None:
    if config.position != "rotary":
        return None
    if spec.grid is None:
        raise ConfigError("rotary positions need a grid.")
    return rotary_angles(spec.grid[0], spec.grid[1], d_key, config.position_base)


def build_core(config: ModelConfig, spec: InputSpec) -> RecurrentCore | None:
    """The recurrent core; None where the config has none."""
    if not config.has_core:
        return None
    return RecurrentCore(
        build_layers(config, spec, config.core_schedule()),
        d_node=config.d_node,
        inject=config.core_input == "add",
        state=config.core_state,
    )


def build_layers(
    config: ModelConfig, spec: InputSpec, schedule: tuple[int, ...] | None = None
) -> list[Layer]:
    """One layer per node sublayer, with the edge sublayers that the schedule puts before it."""
    shared = {
        "d_node": config.d_node,
        "d_edge": config.d_edge,
        "num_edges": config.num_edges,
        "expansion": config.expansion,
        "factor_temps": config.factor_temps,
        "temperature": config.temperature,
        "sharpener": config.sharpener,
        "sharpener_value": config.sharpener_value,
        "qk_norm": config.qk_norm,
    }

    def edge_sublayer() -> EdgeSublayer:
        return EdgeSublayer(
            **shared,
            d_key=config.d_ref_key,
            kind=config.referral,
            experts=config.referral_experts,
            separate_roles=config.separate_roles,
            residual=config.edge_residual,
            rotary=rotary(config, spec, config.d_ref_key) if config.rotary_referral else None,
        )

    def node_sublayer() -> NodeSublayer:
        return NodeSublayer(
            **shared,
            num_heads=config.num_heads,
            d_key=config.d_attn_key,
            d_value=config.d_attn_value,
            experts=config.attention_experts,
            rotary=rotary(config, spec, config.d_attn_key),
        )

    return [
        Layer([edge_sublayer() for _ in range(count)], [node_sublayer()])
        for count in (config.schedule() if schedule is None else schedule)
    ]


def build_space(config: ModelConfig, spec: InputSpec) -> AddressSpace:
    """The address space with the settings that it reads."""
    settings: dict[str, object] = {"eps": config.address_eps}
    annealing = {
        "s_start": config.sparse_s_start,
        "gumbel_tau": config.gumbel_tau,
        "gumbel_tau_start": config.gumbel_tau_start,
        "anneal": config.anneal,
    }
    if config.address_space == "weight":
        settings |= {"top_s": config.top_s, **annealing}
    if config.address_space == "logit":
        settings |= {"scale": config.logit_scale}
    if config.address_space == "sparse":
        settings |= {
            "s": config.sparse_s,
            "s_attention": config.sparse_s_attention,
            "s_referral": config.sparse_s_referral,
            "chains": config.sparse_chains,
            **annealing,
        }
    if config.address_space == "compressed":
        settings = {
            "c": config.compressed_c,
            "decoder": config.decoder,
            "d_node": config.d_node,
            "num_positions": spec.num_nodes,
            "scale": config.logit_scale,
        }
    if config.address_space == "hard":
        settings |= {"estimator": config.estimator}
    return SPACES[config.address_space](**settings)


def default_graph(config: ModelConfig, spec: InputSpec) -> InputGraph | None:
    """The input graph that a task's spec stands for; None where graphs come with the data."""
    if spec.graph == "grid" and spec.grid is not None:
        return grid_graph(spec.grid[0], spec.grid[1], config.num_edges)
    if spec.graph == "sequence" and spec.num_nodes is not None:
        return sequence_graph(spec.num_nodes, config.num_edges)
    return None


def initialise(model: nn.Module, config: ModelConfig) -> None:
    """`torch`: as the modules come (uniform by fan-in; embeddings normal with std 1).

    `matrices`: every matrix normal with `init_std`, embeddings as they come. `normal`: embeddings
    too, which drowns them in positional encodings of size 1. Norm scales stay 1 and learned
    sharpener values 0 (temperature 1) in all. The paper does not say which it uses.
    """
    if config.init == "torch":
        return
    kinds = (nn.Linear,) if config.init == "matrices" else (nn.Linear, nn.Embedding)
    for module in model.modules():
        if isinstance(module, kinds):
            nn.init.normal_(module.weight, std=config.init_std)
