"""Every trained condition of the paper: a name, and how it differs from GM.

A condition is a function from the base config to a changed one. To add your own row:

    @condition("gm-wide", "a wider GM")
    def gm_wide(base):
        return base.with_model(d_node=128)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from graph_machine.errors import ConfigError
from graph_machine.lab.config import TASK_CONFIGS, ExperimentConfig, SudokuConfig
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
    *model: Settings, train: Settings | None = None, task: Settings | None = None
) -> Change:
    """Other settings of the model (later ones last), of training and of the task."""
    settings = {name: value for some in model for name, value in some.items()}
    return lambda base: (
        base.with_model(**settings).with_train(**train or {}).with_task(**task or {})
    )


def _gm(name: str, doc: str, *, beyond_paper: bool = False, **model: object) -> None:
    condition(name, doc, beyond_paper=beyond_paper)(changes(model))


NO_EDGES = {"attention_experts": "node", "num_edge_sublayers": 0, "num_edges": 0}


def _transformer(name: str, doc: str, **model: object) -> None:
    condition(name, doc)(changes(NO_EDGES, model))


def transformer_2x(base: ExperimentConfig) -> ExperimentConfig:
    """Twice as wide in hidden and head sizes, twice as deep; sinusoidal positions."""
    names = ("d_node", "d_attn_key", "d_attn_value", "num_layers")
    twice = {name: 2 * getattr(base.model, name) for name in names}
    return base.with_model(**NO_EDGES, position="sinusoidal", **twice)


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
    _doc = f"fixed sharpener temperature {_value}"
    _gm(f"gm-sharpener-{_value}", _doc, sharpener="fixed", sharpener_value=_value)
_gm("gm-sharpener-learned", "one learned temperature per slot and layer", sharpener="learned")

# Tables 7 and 8: factor temperatures, entropy losses.
_gm("gm-no-factor-temps", "factor temperatures off", factor_temps=False)
condition("gm-no-entropy-losses", "entropy losses off")(changes({}, train={"entropy_weight": 0.0}))

# Appendix C.1: projected input edges.
_doc = "input edges projected into node features"
_projected = {"num_edges": BASE.model.num_edges, "project_input_edges": True}
_transformer("transformer-project-edges", _doc, **_projected)

# Appendix C.2, C.3: Transformer-sin-PE-2x without factor temperatures, without entropy losses.
condition("transformer-sin-pe-2x-no-factor-temps", "2x without factor temperatures")(
    lambda base: transformer_2x(base).with_model(factor_temps=False)
)
condition("transformer-sin-pe-2x-no-entropy-losses", "2x without entropy losses")(
    lambda base: transformer_2x(base).with_train(entropy_weight=0.0)
)

# Appendix C.4: positional encodings on the Transformer. Base 10 is the paper's Transformer-RoPE.
for _base in (10, 100, 1000, 10000):
    _name = "transformer-rope" if _base == 10 else f"transformer-rope-{_base}"
    _doc = f"rotary positions, base {_base}"
    _transformer(_name, _doc, position="rotary", position_base=float(_base))
for _base in (10, 100, 1000):
    _name, _doc = f"transformer-sin-pe-{_base}", f"sinusoidal positions, base {_base}"
    _transformer(_name, _doc, position="sinusoidal", position_base=float(_base))
_transformer("transformer-row-column", "learned row + column embeddings", position="row-column")

# Appendix C.5: logit space.
_gm("gm-logit-space", "addresses are logits", address_space="logit")

# Appendix C.6: simulated sparsity.
for _s in (1, 4, 16):
    _gm(f"gm-top-{_s}", f"addresses keep their top {_s} entries", top_s=_s)
for _tau in (0.01, 0.1, 1.0):
    _doc = f"top 4 chosen with Gumbel noise of scale {_tau:g}"
    _gm(f"gm-top-4-tau-{_tau:g}", _doc, top_s=4, gumbel_tau=_tau)


# Beyond the paper.
def recurrent(**model: object) -> Change:
    """At most 4 layers, then a core of two node sublayers (docs/recurrent.md), with QK-norm."""

    def change(base: ExperimentConfig) -> ExperimentConfig:
        core = {"core_layers": 2, "rounds": 16, "qk_norm": True}
        changed = base.with_model(num_layers=min(4, base.model.num_layers), **{**core, **model})
        return changed.with_train(rounds_min=2, rounds_start=8, grad_rounds=8, ema=0.999)

    return change


_ours = partial(_gm, beyond_paper=True)
PREAGGREGATED = {"referral": "preaggregated"}
SPARSE = {"address_space": "sparse", "sparse_chains": 16}

# Variants that the paper names without a result.
_ours("gm-conditional", "e2 given n2", referral="conditional")
_ours("gm-preaggregated", "each n2 mixes its edges first", **PREAGGREGATED)

# A recurrent core after a few layers.
SINES = {"position": "sinusoidal"}
for _name, _model, _doc in (
    ("gm-recurrent", PREAGGREGATED, "edges fixed in the core"),
    ("gm-sin-pe-recurrent", PREAGGREGATED | SINES, "edges fixed in the core, sinusoidal positions"),
    (
        "gm-recurrent-referral",
        {**PREAGGREGATED, "core_edge_sublayers": 1},
        "the core refers in every round",
    ),
    ("transformer-recurrent", NO_EDGES, "a recurrent Transformer"),
    (
        "transformer-sin-pe-recurrent",
        {**NO_EDGES, **SINES},
        "a recurrent Transformer with sinusoidal positions",
    ),
):
    condition(_name, _doc, beyond_paper=True)(recurrent(**_model))

# What to begin with (docs/recommended.md). Edges of the input stay, nodes read them, and answers
# are also read out between layers. The empty edge makes seeds more alike where there is no core.
RECOMMENDED: Settings = {
    "given_edges": "always",
    "edge_values": True,
    "referral": "preaggregated",
    "qk_norm": True,
}
LAYER_LOSS = 0.5


_doc = "given edges stay, answers between layers"
condition("gm-recommended", _doc, beyond_paper=True)(
    changes(RECOMMENDED, {"empty_edge": True}, train={"layer_loss": LAYER_LOSS})
)
condition("gm-recommended-recurrent", f"{_doc}, a recurrent core", beyond_paper=True)(
    lambda base: recurrent(**RECOMMENDED)(base).with_train(
        # It keeps 6x6 Sudoku from being learned (docs/recommended.md, one seed).
        layer_loss=0.0 if base.task.name == SudokuConfig.name else LAYER_LOSS
    )
)

# Other ways of storing addresses (docs/scale.md).
for _s in (4, 16):
    _doc = f"sparse addresses of {_s} entries, 16 chains a head"
    _ours(f"gm-sparse-{_s}", _doc, **SPARSE, sparse_s=_s)
_doc = "sparse, s from 64 to 8 and tau from 1 to 0 over the first half"
_annealed = {"sparse_s": 8, "sparse_s_start": 64, "gumbel_tau_start": 1.0, "anneal": 0.5}
_ours("gm-sparse-annealed", _doc, **SPARSE, **_annealed)
_doc = "sparse addresses of 8 entries, pre-aggregated, 8 n2 a head"
_ours("gm-sparse-preaggregated", _doc, **{**SPARSE, "sparse_chains": 8}, **PREAGGREGATED)
_doc = "compressed addresses of width 32, "
_ours("gm-compressed", _doc + "decoder from node features", address_space="compressed")
_ours(
    "gm-compressed-position",
    _doc + "a decoder row per position",
    address_space="compressed",
    decoder="position",
)
for _name, _estimator in (("gm-hard", "reinforce"), ("gm-hard-through", "straight-through")):
    _doc = f"one target per edge, chosen; trained by {_estimator}"
    _ours(_name, _doc, address_space="hard", sharpener="off", estimator=_estimator)
