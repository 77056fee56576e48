"""Jigsaw Sudoku and mazes: budgets, conditions and the tables that compare them.

Every condition has QK-norm: with it, rates as high as these budgets need are stable.
"""

from graph_machine.conditions.families import add_family
from graph_machine.conditions.registry import BASE, NO_EDGES, Change, condition, recurrent
from graph_machine.conditions.tables import add_table
from graph_machine.config import ExperimentConfig, JigsawConfig, MazeConfig, TaskConfig

TRANSFORMER = {**NO_EDGES, "position": "sinusoidal"}
WITH_EDGES = {"num_edges": BASE.model.num_edges, "project_input_edges": True}
PREAGGREGATED = {"referral": "preaggregated"}
SPARSE = {**PREAGGREGATED, "address_space": "sparse", "sparse_chains": 8}
STATIC = {"num_edge_sublayers": 0}
PROJECTED = "input edges projected into nodes, sinusoidal positions"
# Transformers learn little or nothing of these boards at GM's 4e-3 (docs/jigsaw.md, docs/maze.md).
TRANSFORMER_LR = 2e-3
# Mazes: small matrices take some seeds past 1,000 steps before they begin to learn (docs/maze.md).
SHARED = {"jigsaw": {"qk_norm": True}, "maze": {"qk_norm": True, "init": "torch"}}


def _cpu(
    task: TaskConfig, *, layers: int, steps: int, batch: int, peak_lr: float
) -> ExperimentConfig:
    """Minutes on one core."""
    return (
        BASE.replace(task=task)
        .with_model(num_layers=layers)
        .with_train(
            steps=steps,
            batch_size=batch,
            peak_lr=peak_lr,
            log_every=10,
            eval_every=250,
            eval_examples=500,
            test_examples=1_000,
            save_every=100,
        )
    )


def _smoke(task: TaskConfig) -> ExperimentConfig:
    """Seconds: shows that everything runs, not that anything is learned."""
    small = BASE.replace(task=task).with_model(num_layers=2, d_node=16)
    return small.with_train(
        steps=20, batch_size=16, log_every=5, eval_every=10, eval_examples=64, save_every=5
    )


add_family(
    "jigsaw",
    "jigsaw-gm",
    paper=lambda: BASE.replace(task=JigsawConfig(side=9, puzzles=1_000_000, clues_extra=16)),
    cpu=lambda: _cpu(JigsawConfig(), layers=6, steps=1_500, batch=32, peak_lr=4e-3),
    smoke=lambda: _smoke(JigsawConfig(side=4, puzzles=400, clues_extra=4)),
)
add_family(
    "maze",
    "maze-gm",
    paper=lambda: BASE.replace(task=MazeConfig(side=30, mazes=1_000_000)),
    cpu=lambda: _cpu(
        MazeConfig(side=7, mazes=20_000), layers=4, steps=500, batch=32, peak_lr=4e-3
    ).with_model(d_node=32),
    smoke=lambda: _smoke(MazeConfig(side=5, mazes=400)),
)


def in_rounds(**model: object) -> Change:
    """One layer, then one node sublayer up to 16 times: a search along passages needs many steps
    that are all alike. Rounds are drawn, so that more of them than were trained with stay useful.
    """
    core = {"num_layers": 1, "core_layers": 1, "rounds": 16}
    return lambda base: base.with_model(**core | model).with_train(rounds_min=8)


def _add(task: str, name: str, doc: str, change: Change) -> None:
    """A condition of a task, with what all of that task share."""
    condition(f"{task}-{name}", doc, beyond_paper=True, task=task)(
        lambda base: change(base.with_model(**SHARED[task]))
    )


def _gm(task: str, name: str, doc: str, **model: object) -> None:
    _add(task, name, doc, lambda base: base.with_model(**model))


def _transformer(task: str, name: str, doc: str, change: Change) -> None:
    """At a learning rate at which Transformers learn such boards too."""

    def slower(base: ExperimentConfig) -> ExperimentConfig:
        return change(base.with_train(peak_lr=min(base.train.peak_lr, TRANSFORMER_LR)))

    _add(task, f"transformer{name}", doc, slower)


_gm("jigsaw", "gm", "GM, pre-aggregated referral", **PREAGGREGATED)
_gm("jigsaw", "gm-joint", "GM, joint referral as in the paper")
_gm("jigsaw", "static", "input edges are never updated", **STATIC)
_add(
    "jigsaw",
    "gm-recurrent",
    "GM, a recurrent core with fixed edges, pre-aggregated referral",
    recurrent(**PREAGGREGATED),
)
_transformer(
    "jigsaw",
    "",
    f"Transformer, {PROJECTED}",
    lambda base: base.with_model(**TRANSFORMER | WITH_EDGES),
)
_transformer(
    "jigsaw",
    "-recurrent",
    f"recurrent Transformer, {PROJECTED}",
    recurrent(**TRANSFORMER | WITH_EDGES),
)
# The ceiling for telling: no region has to be found.
_transformer(
    "jigsaw",
    "-told",
    "Transformer that is given the region of every cell, sinusoidal positions",
    lambda base: base.with_model(**TRANSFORMER).with_task(told=True),
)

_gm("maze", "gm", "GM, pre-aggregated referral", **PREAGGREGATED)
_gm(
    "maze",
    "gm-sparse",
    "GM, sparse addresses of 8 entries, pre-aggregated, 8 n2 a head",
    **SPARSE,
)
_gm("maze", "static", "input edges are never updated", **STATIC)
_add(
    "maze",
    "gm-recurrent",
    "GM, a recurrent core with fixed edges",
    in_rounds(**PREAGGREGATED),
)
_add(
    "maze",
    "gm-recurrent-sparse",
    "GM, a recurrent core with fixed edges, sparse addresses of 8 entries",
    in_rounds(**SPARSE),
)
# Self and four neighbours: attention sees five cells, whatever the size of the maze.
_add(
    "maze",
    "gm-recurrent-local",
    "GM, a recurrent core along the input edges alone, sparse addresses of one entry",
    in_rounds(**STATIC, address_space="sparse", sparse_s=1, num_edges=5),
)
_transformer(
    "maze",
    "-recurrent",
    f"recurrent Transformer, {PROJECTED}",
    in_rounds(**TRANSFORMER | WITH_EDGES),
)
_transformer(
    "maze",
    "-edges",
    f"Transformer, {PROJECTED}",
    lambda base: base.with_model(**TRANSFORMER | WITH_EDGES),
)
_transformer(
    "maze",
    "",
    "Transformer, sinusoidal positions",
    lambda base: base.with_model(**TRANSFORMER),
)

add_table(
    "jigsaw",
    "Jigsaw Sudoku",
    jigsaw_gm="GM, pre-aggregated",
    jigsaw_gm_joint="GM, joint",
    jigsaw_gm_recurrent="GM, recurrent core",
    jigsaw_static="Edges never updated",
    jigsaw_transformer="Transformer, projected edges",
    jigsaw_transformer_recurrent="Transformer, recurrent core, projected edges",
    jigsaw_transformer_told="Transformer, regions given",
)
add_table(
    "maze",
    "Mazes",
    maze_gm="GM, pre-aggregated",
    maze_gm_recurrent="GM, recurrent core",
    maze_gm_recurrent_local="GM, recurrent core, input edges alone",
    maze_static="Edges never updated",
    maze_transformer_recurrent="Transformer, recurrent core, projected edges",
    maze_transformer_edges="Transformer, projected edges",
    maze_transformer="Transformer",
)
