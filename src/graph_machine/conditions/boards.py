"""Jigsaw Sudoku and mazes: budgets, conditions and the tables that compare them.

Every condition has QK-norm: with it, rates as high as these budgets need are stable.
"""

from graph_machine.conditions.families import add_family
from graph_machine.conditions.registry import BASE, NO_EDGES, condition, recurrent
from graph_machine.conditions.tables import add_table
from graph_machine.config import ExperimentConfig, JigsawConfig, MazeConfig, TaskConfig

TRANSFORMER = {**NO_EDGES, "position": "sinusoidal", "qk_norm": True}
WITH_EDGES = {"num_edges": BASE.model.num_edges, "project_input_edges": True}
# A Transformer learns nothing of these boards at GM's 4e-3 (docs/jigsaw.md, docs/maze.md).
JIGSAW_LR, MAZE_LR = 2e-3, 1e-3


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
        MazeConfig(side=7, mazes=20_000), layers=4, steps=1_000, batch=32, peak_lr=4e-3
    ).with_model(d_node=32),
    smoke=lambda: _smoke(MazeConfig(side=5, mazes=400)),
)


def _add(task: str, name: str, doc: str, **model: object) -> None:
    condition(f"{task}-{name}", doc, beyond_paper=True, task=task)(
        lambda base: base.with_model(**{"qk_norm": True, **model})
    )


def slower(base: ExperimentConfig, most: float = JIGSAW_LR) -> ExperimentConfig:
    """A budget with a learning rate at which Transformers learn such boards too."""
    return base.with_train(peak_lr=min(base.train.peak_lr, most))


PREAGGREGATED = {"referral": "preaggregated"}

_add("jigsaw", "gm", "GM, pre-aggregated referral", **PREAGGREGATED)
_add("jigsaw", "gm-joint", "GM, joint referral as in the paper")
_add("jigsaw", "static", "input edges are never updated", num_edge_sublayers=0)


@condition(
    "jigsaw-transformer",
    "Transformer, input edges projected into nodes, sinusoidal positions",
    beyond_paper=True,
    task="jigsaw",
)
def transformer(base: ExperimentConfig) -> ExperimentConfig:
    return slower(base).with_model(**TRANSFORMER | WITH_EDGES)


@condition(
    "jigsaw-transformer-told",
    "Transformer that is given the region of every cell, sinusoidal positions",
    beyond_paper=True,
    task="jigsaw",
)
def transformer_told(base: ExperimentConfig) -> ExperimentConfig:
    """The ceiling for telling: no region has to be found."""
    return slower(base).with_model(**TRANSFORMER).with_task(told=True)


condition(
    "jigsaw-gm-recurrent",
    "GM, a recurrent core with fixed edges, pre-aggregated referral",
    beyond_paper=True,
    task="jigsaw",
)(recurrent(**PREAGGREGATED))


@condition(
    "jigsaw-transformer-recurrent",
    "recurrent Transformer, input edges projected into nodes, sinusoidal positions",
    beyond_paper=True,
    task="jigsaw",
)
def transformer_recurrent(base: ExperimentConfig) -> ExperimentConfig:
    return recurrent(**TRANSFORMER | WITH_EDGES)(slower(base))


_add("maze", "gm", "GM, pre-aggregated referral", **PREAGGREGATED)


def in_rounds(base: ExperimentConfig, **model: object) -> ExperimentConfig:
    """One layer, then one node sublayer up to 16 times: a search along passages needs many steps
    that are all alike. Rounds are drawn, so that more of them than were trained with stay useful.
    """
    core = {"num_layers": 1, "core_layers": 1, "rounds": 16, "qk_norm": True}
    return base.with_model(**core | model).with_train(rounds_min=8)


def _add_recurrent(name: str, doc: str, **model: object) -> None:
    condition(f"maze-{name}", doc, beyond_paper=True, task="maze")(
        lambda base: in_rounds(base, **model)
    )


_add_recurrent("gm-recurrent", "GM, a recurrent core with fixed edges", **PREAGGREGATED)
_add_recurrent(
    "gm-recurrent-sparse",
    "GM, a recurrent core with fixed edges, sparse addresses of 8 entries",
    address_space="sparse",
    sparse_chains=8,
    **PREAGGREGATED,
)
_add(
    "maze",
    "gm-sparse",
    "GM, sparse addresses of 8 entries, pre-aggregated, 8 n2 a head",
    address_space="sparse",
    sparse_chains=8,
    **PREAGGREGATED,
)
_add("maze", "static", "input edges are never updated", num_edge_sublayers=0)


@condition(
    "maze-transformer-recurrent",
    "recurrent Transformer, input edges projected into nodes, sinusoidal positions",
    beyond_paper=True,
    task="maze",
)
def maze_transformer_recurrent(base: ExperimentConfig) -> ExperimentConfig:
    return in_rounds(slower(base, MAZE_LR), **TRANSFORMER | WITH_EDGES)


@condition(
    "maze-transformer-edges",
    "Transformer, input edges projected into nodes, sinusoidal positions",
    beyond_paper=True,
    task="maze",
)
def maze_transformer_edges(base: ExperimentConfig) -> ExperimentConfig:
    return slower(base, MAZE_LR).with_model(**TRANSFORMER | WITH_EDGES)


@condition("maze-transformer", "Transformer, sinusoidal positions", beyond_paper=True, task="maze")
def maze_transformer(base: ExperimentConfig) -> ExperimentConfig:
    return slower(base, MAZE_LR).with_model(**TRANSFORMER)


add_table(
    "jigsaw",
    "Jigsaw Sudoku",
    jigsaw_gm="GM, pre-aggregated",
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
    maze_transformer_recurrent="Transformer, recurrent core, projected edges",
    maze_transformer_edges="Transformer, projected edges",
    maze_transformer="Transformer",
)
