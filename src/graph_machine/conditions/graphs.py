"""Pointers, algorithms, recall and text: budgets, conditions and the tables that compare them.

Every condition has QK-norm, as those on boards, and mostly torch's initialisation: small
matrices drown the numbers at nodes and edges in the embedding of the token. Names (random numbers
that a node is known by) are what a Transformer and GNNs can tell nodes by; Graph Machines point at
nodes and are given none, except where it is said.
"""

from typing import Any

from graph_machine.conditions.families import add_family
from graph_machine.conditions.registry import BASE, NO_EDGES, condition
from graph_machine.conditions.tables import add_table
from graph_machine.config import (
    AlgorithmsConfig,
    ExperimentConfig,
    PointersConfig,
    RecallConfig,
    TaskConfig,
    TextConfig,
)

Settings = dict[str, object]

SHARED: Settings = {"qk_norm": True, "init": "torch"}
TRANSFORMER: Settings = {**NO_EDGES}
WITH_EDGES: Settings = {"num_edges": BASE.model.num_edges, "project_input_edges": True}
# One layer, then one layer with the same weights again and again, edges and nodes.
RECURRENT: Settings = {"num_layers": 1, "core_layers": 1, "core_edge_sublayers": 1, "rounds": 6}


def _cpu(
    task: TaskConfig,
    *,
    layers: int,
    steps: int,
    width: int = 64,
    peak_lr: float = 2e-3,
    tested: int = 1_024,
) -> ExperimentConfig:
    """Minutes on one core."""
    base = BASE.replace(task=task).with_model(num_layers=layers, d_node=width)
    return base.with_train(
        steps=steps,
        batch_size=32,
        peak_lr=peak_lr,
        log_every=10,
        eval_every=250,
        eval_examples=256,
        test_examples=tested,
        save_every=250,
    )


def _smoke(task: TaskConfig) -> ExperimentConfig:
    """Seconds: shows that everything runs, not that anything is learned."""
    small = BASE.replace(task=task).with_model(num_layers=2, d_node=16)
    return small.with_train(
        steps=20,
        batch_size=16,
        log_every=5,
        eval_every=10,
        eval_examples=32,
        test_examples=64,
        save_every=5,
    )


def _family(
    task: TaskConfig, small: TaskConfig, cpu_task: TaskConfig | None = None, **cpu: Any
) -> None:
    add_family(
        task.name,
        f"{task.name}-gm",
        paper=lambda: BASE.replace(task=task),
        cpu=lambda: _cpu(cpu_task or task, **cpu),
        smoke=lambda: _smoke(small),
    )


_family(
    PointersConfig(),
    PointersConfig(nodes=10, train_hops=2, test_hops=4),
    layers=4,
    steps=100,
    width=32,
)
_family(
    AlgorithmsConfig(),
    AlgorithmsConfig(train_nodes=6, test_nodes="6,8"),
    layers=4,
    steps=300,
    width=32,
    tested=256,
)
_family(
    RecallConfig(),
    RecallConfig(length=12, pairs=4, test_pairs=5, keys=6),
    layers=2,
    steps=600,
    width=32,
)
_family(
    TextConfig(),
    TextConfig(length=16, most=40_000),
    cpu_task=TextConfig(length=64),
    layers=2,
    steps=250,
    peak_lr=5e-3,
)


def _add(
    task: str,
    name: str,
    doc: str,
    model: Settings,
    *,
    train: Settings | None = None,
    changes: Settings | None = None,
) -> None:
    def change(base: ExperimentConfig) -> ExperimentConfig:
        changed = base.with_model(**{**SHARED, **model}).with_train(**(train or {}))
        return changed.with_task(**(changes or {}))

    condition(f"{task}-{name}", doc, beyond_paper=True, task=task)(change)


NAMELESS: Settings = {"name_width": 0}
# Rounds are drawn, so that more of them than were trained with stay useful.
ROUNDS: Settings = {"rounds_min": 2, "round_loss": "last"}
PYG: Settings = {"attention_experts": "node", "num_edge_sublayers": 0}
EDGES = TRANSFORMER | WITH_EDGES
TOLD = "input edges projected into nodes"

for _task in ("pointers", "algorithms"):
    # Without names there is nothing but edges in `pointers`, and no number that could drown.
    start: Settings = {"init": "matrices" if _task == "pointers" else "torch"}
    _add(_task, "gm", "GM", start, changes=NAMELESS)
    _add(
        _task,
        "gm-recurrent",
        "GM, one layer and a recurrent core with referral",
        RECURRENT | start,
        train=ROUNDS,
        changes=NAMELESS,
    )
    static: Settings = {"num_edge_sublayers": 0} | start
    _add(_task, "static", "input edges are never updated", static, changes=NAMELESS)
    slower: Settings = {"peak_lr": 1e-3} if _task == "pointers" else {}
    _add(_task, "transformer", f"Transformer, nodes with names, {TOLD}", EDGES, train=slower)
    _add(
        _task,
        "transformer-nameless",
        f"Transformer, no names, {TOLD}",
        EDGES,
        train=slower,
        changes=NAMELESS,
    )
    for _body in ("gine", "gps"):
        _add(_task, _body, f"{_body.upper()} of PyG, nodes with names", PYG | {"body": _body})

for _task in ("recall", "text"):
    # It decides how fast a Transformer learns recall; GM learns it faster with torch's own.
    start = {"init": "matrices" if _task == "recall" else "torch"}
    plain = TRANSFORMER | start
    _add(_task, "gm", "GM, the nearest positions as input edges", start)
    _add(_task, "transformer", "Transformer, learned positions", plain)
    _add(
        _task,
        "transformer-rope",
        "Transformer, learned and rotary positions",
        plain | {"position": "rotary"},
    )

add_table(
    "pointers",
    "Pointer chasing",
    pointers_gm="GM",
    pointers_gm_recurrent="GM, recurrent",
    pointers_static="Edges never updated",
    pointers_transformer="Transformer, projected edges",
    pointers_transformer_nameless="Transformer, projected edges, no names",
    pointers_gine="GINE",
    pointers_gps="GPS",
)
add_table(
    "algorithms",
    "Graph algorithms",
    algorithms_gm="GM",
    algorithms_gm_recurrent="GM, recurrent",
    algorithms_transformer="Transformer, projected edges",
    algorithms_gine="GINE",
    algorithms_gps="GPS",
)
for _name, _title in (("recall", "Associative recall"), ("text", "Bytes of text")):
    add_table(
        _name,
        _title,
        **{
            f"{_name}_gm": "GM",
            f"{_name}_transformer": "Transformer",
            f"{_name}_transformer_rope": "Transformer, rotary",
        },
    )
