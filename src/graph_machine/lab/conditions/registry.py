"""Every trained condition of the paper: a name, and how it differs from GM.

A condition is a function from the base config to a changed one. To add your own row:

    @condition("gm-wide", "a wider GM")
    def gm_wide(base):
        return base.with_model(d_node=128)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graph_machine.errors import ConfigError
from graph_machine.lab.config import TASK_CONFIGS, ExperimentConfig
from graph_machine.registry import Registry

Change = Callable[[ExperimentConfig], ExperimentConfig]
Settings = Mapping[str, object]

BASE = ExperimentConfig()


@dataclass(frozen=True)
class Condition:
    """A named difference from the base config.

    >>> CONDITIONS["gm-rope"].changes
    {'model.position': 'rotary', 'model.position_base': 10.0}
    """

    name: str
    doc: str
    change: Change
    beyond_paper: bool = False
    task: str = BASE.task.name  # the task that it is made for

    @property
    def base(self) -> ExperimentConfig:
        """The paper's recipe, on the condition's task."""
        return BASE if self.task == BASE.task.name else BASE.replace(task=TASK_CONFIGS[self.task]())

    @property
    def config(self) -> ExperimentConfig:
        """At the paper's size; a budget changes a smaller base."""
        return self.changed(self.base)

    def changed(self, base: ExperimentConfig) -> ExperimentConfig:
        """The base as the condition changes it; an error that names a condition without result."""
        found = self.change(base)
        if not isinstance(found, ExperimentConfig):
            raise ConfigError(
                f"The condition '{self.name}' should return a changed config, got "
                f"{type(found).__name__}; end its function with: return base.with_model(...)"
            )
        return found

    @property
    def changes(self) -> dict[str, object]:
        """Setting -> value, for everything that differs from the base."""
        return self.config.differences(self.base)


CONDITIONS: Registry[Condition] = Registry("condition", "graph-machine conditions", from_users=True)
# Names in the records of earlier versions.
OLD_NAMES = {"jigsaw-transformer-told": "jigsaw-transformer-regions"}


def current_name(condition: str) -> str:
    """What a condition that a run has recorded is called now.

    >>> current_name("jigsaw-transformer-told")
    'jigsaw-transformer-regions'
    """
    return OLD_NAMES.get(condition, condition)


def condition(
    name: str, doc: str, *, beyond_paper: bool = False, task: str = BASE.task.name
) -> Callable[[Change], Change]:
    """Register a function as a condition; a name that is taken is an error.

    `task` names the task that it is made for: its base config has that task, and `train NAME` takes
    it unless `--task` says another. Left out, it is Sudoku. `beyond_paper` marks what the paper
    does not have.

    >>> @condition("gm-wider-still", "a GM of width 256", beyond_paper=True)
    ... def gm_wider_still(base):
    ...     return base.with_model(d_node=256)
    """

    def add(change: Change) -> Change:
        CONDITIONS.add(name, Condition(name, doc, change, beyond_paper, task))
        return change

    return add


def changes(
    model: Settings, *, train: Settings | None = None, task: Settings | None = None
) -> Change:
    """Other settings of the model, of training and of the task."""
    return lambda base: base.with_model(**model).with_train(**train or {}).with_task(**task or {})


def _gm(name: str, doc: str, *, beyond_paper: bool = False, **model: object) -> None:
    condition(name, doc, beyond_paper=beyond_paper)(changes(model))


NO_EDGES = {"attention_experts": "node", "num_edge_sublayers": 0, "num_edges": 0}


def _transformer(name: str, doc: str, **model: object) -> None:
    condition(name, doc)(changes({**NO_EDGES, **model}))


def transformer_2x(base: ExperimentConfig) -> ExperimentConfig:
    """Twice as wide in hidden and head sizes, twice as deep; sinusoidal positions."""
    m = base.model
    return base.with_model(
        **NO_EDGES,
        position="sinusoidal",
        d_node=2 * m.d_node,
        d_attn_key=2 * m.d_attn_key,
        d_attn_value=2 * m.d_attn_value,
        num_layers=2 * m.num_layers,
    )


# Table 1: the main five.
_transformer("transformer", "only the node expert, no edges")
_gm("transformer-static", "input edges are never updated", num_edge_sublayers=0)
_transformer("transformer-sin-pe", "2D sinusoidal positions, base 10000", position="sinusoidal")
condition("transformer-sin-pe-2x", "twice as wide and deep, sinusoidal positions")(transformer_2x)
_gm("gm", "the Graph Machine of the paper")

# Table 2: positional encodings on GM.
_gm("gm-sin-pe", "GM with sinusoidal positions, base 10000", position="sinusoidal")
_gm("gm-rope", "GM with rotary positions, base 10", position="rotary", position_base=10.0)

# Table 3: edge degree.
_gm("gm-degree-5", "five edges per node: no empty slot inside the board", num_edges=5)


# Table 4: number of edge sublayers.
def edge_sublayers(share: int) -> Change:
    """One edge sublayer for every `share` layers, so that a shallower budget keeps the ratio."""
    return lambda base: base.with_model(num_edge_sublayers=max(1, base.model.num_layers // share))


for _count in (4, 8, 16):
    condition(f"gm-edge-sublayers-{_count}", f"{_count} edge sublayers for 32 node sublayers")(
        edge_sublayers(32 // _count)
    )

# Table 5: attention experts.
_gm("gm-edge-expert", "only the edge expert in attention", attention_experts="edge")

# Table 6: sharpener temperature.
_gm("gm-sharpener-off", "no sharpening (temperature 1)", sharpener="off")
for _value in (1.1, 1.5):
    _gm(
        f"gm-sharpener-{_value}",
        f"fixed sharpener temperature {_value}",
        sharpener="fixed",
        sharpener_value=_value,
    )
_gm("gm-sharpener-learned", "one learned temperature per slot and layer", sharpener="learned")

# Tables 7 and 8: factor temperatures, entropy losses.
_gm("gm-no-factor-temps", "factor temperatures off", factor_temps=False)
condition("gm-no-entropy-losses", "entropy losses off")(changes({}, train={"entropy_weight": 0.0}))

# Appendix C.1: projected input edges.
_transformer(
    "transformer-project-edges",
    "input edges projected into node features",
    num_edges=BASE.model.num_edges,
    project_input_edges=True,
)

# Appendix C.2, C.3: Transformer-sin-PE-2x without factor temperatures, without entropy losses.
condition("transformer-sin-pe-2x-no-factor-temps", "2x without factor temperatures")(
    lambda base: transformer_2x(base).with_model(factor_temps=False)
)
condition("transformer-sin-pe-2x-no-entropy-losses", "2x without entropy losses")(
    lambda base: transformer_2x(base).with_train(entropy_weight=0.0)
)

# Appendix C.4: positional encodings on the Transformer. Base 10 is the paper's Transformer-RoPE.
for _base in (10, 100, 1000, 10000):
    _transformer(
        "transformer-rope" if _base == 10 else f"transformer-rope-{_base}",
        f"rotary positions, base {_base}",
        position="rotary",
        position_base=float(_base),
    )
for _base in (10, 100, 1000):
    _transformer(
        f"transformer-sin-pe-{_base}",
        f"sinusoidal positions, base {_base}",
        position="sinusoidal",
        position_base=float(_base),
    )
_transformer("transformer-row-column", "learned row + column embeddings", position="row-column")

# Appendix C.5: logit space.
_gm("gm-logit-space", "addresses are logits", address_space="logit")

# Appendix C.6: simulated sparsity.
for _s in (1, 4, 16):
    _gm(f"gm-top-{_s}", f"addresses keep their top {_s} entries", top_s=_s)
for _tau in (0.01, 0.1, 1.0):
    _gm(
        f"gm-top-4-tau-{_tau:g}",
        f"top 4 chosen with Gumbel noise of scale {_tau:g}",
        top_s=4,
        gumbel_tau=_tau,
    )

# Beyond the paper: variants that it names without a result.
_gm("gm-conditional", "e2 given n2", referral="conditional", beyond_paper=True)
_gm(
    "gm-preaggregated", "each n2 mixes its edges first", referral="preaggregated", beyond_paper=True
)


# Beyond the paper: a recurrent core after a few layers (docs/recurrent.md), all with QK-norm.
def recurrent(**model: object) -> Change:
    """At most 4 layers, then a core of two node sublayers."""

    def change(base: ExperimentConfig) -> ExperimentConfig:
        core = {"core_layers": 2, "rounds": 16, "qk_norm": True}
        changed = base.with_model(num_layers=min(4, base.model.num_layers), **{**core, **model})
        return changed.with_train(rounds_min=2, rounds_start=8, grad_rounds=8, ema=0.999)

    return change


for _name, _doc, _model in (
    ("gm-recurrent", "edges fixed in the core", {"referral": "preaggregated"}),
    (
        "gm-sin-pe-recurrent",
        "edges fixed in the core, sinusoidal positions",
        {"referral": "preaggregated", "position": "sinusoidal"},
    ),
    (
        "gm-recurrent-referral",
        "the core refers in every round",
        {"referral": "preaggregated", "core_edge_sublayers": 1},
    ),
    ("transformer-recurrent", "a recurrent Transformer", NO_EDGES),
    (
        "transformer-sin-pe-recurrent",
        "a recurrent Transformer with sinusoidal positions",
        {**NO_EDGES, "position": "sinusoidal"},
    ),
):
    condition(_name, _doc, beyond_paper=True)(recurrent(**_model))

# Beyond the paper: what to begin with (docs/recommended.md). Edges of the input stay, nodes read
# them, and answers are also read out between layers. An empty edge helps only where nodes have to
# find each other by content, as in sequences.
RECOMMENDED: Settings = {
    "given_edges": "always",
    "edge_values": True,
    "referral": "preaggregated",
    "qk_norm": True,
}
LAYER_LOSS = 0.5


@condition("gm-recommended", "given edges stay, answers between layers", beyond_paper=True)
def _recommended(base: ExperimentConfig) -> ExperimentConfig:
    return base.with_model(**RECOMMENDED).with_train(layer_loss=LAYER_LOSS)


@condition("gm-recommended-recurrent", "the same, a recurrent core", beyond_paper=True)
def _recommended_recurrent(base: ExperimentConfig) -> ExperimentConfig:
    return recurrent(**RECOMMENDED)(base).with_train(layer_loss=LAYER_LOSS)


# Beyond the paper: other ways of storing addresses (docs/scale.md).
for _s in (4, 16):
    _gm(
        f"gm-sparse-{_s}",
        f"sparse addresses of {_s} entries, 16 chains a head",
        address_space="sparse",
        sparse_s=_s,
        sparse_chains=16,
        beyond_paper=True,
    )
_gm(
    "gm-sparse-annealed",
    "sparse, s from 64 to 8 and tau from 1 to 0 over the first half",
    address_space="sparse",
    sparse_s=8,
    sparse_s_start=64,
    sparse_chains=16,
    gumbel_tau_start=1.0,
    anneal=0.5,
    beyond_paper=True,
)
_gm(
    "gm-sparse-preaggregated",
    "sparse addresses of 8 entries, pre-aggregated, 8 n2 a head",
    address_space="sparse",
    sparse_chains=8,
    referral="preaggregated",
    beyond_paper=True,
)
_gm(
    "gm-compressed",
    "compressed addresses of width 32, decoder from node features",
    address_space="compressed",
    beyond_paper=True,
)
_gm(
    "gm-compressed-position",
    "compressed addresses of width 32, a decoder row per position",
    address_space="compressed",
    decoder="position",
    beyond_paper=True,
)
for _name, _estimator in (("gm-hard", "reinforce"), ("gm-hard-through", "straight-through")):
    _gm(
        _name,
        f"one target per edge, chosen; trained by {_estimator}",
        address_space="hard",
        sharpener="off",
        estimator=_estimator,
        beyond_paper=True,
    )
