"""Boards: budgets of Sudoku (by box shape), and budgets and conditions of jigsaw Sudoku and mazes.

Conditions of jigsaw Sudoku and mazes have QK-norm: with it, rates as high as these budgets need
are stable.
"""

from graph_machine.lab.conditions.budgets import add_bases, add_family, cpu_base, smoke_base
from graph_machine.lab.conditions.registry import (
    BASE,
    NO_EDGES,
    RECOMMENDED,
    Change,
    Settings,
    changes,
    recurrent,
)
from graph_machine.lab.conditions.tables import OwnRow, add_conditions
from graph_machine.lab.config import ExperimentConfig, JigsawConfig, MazeConfig, SudokuConfig


def _sudoku_for_cpu(box: str = "2x2") -> ExperimentConfig:
    """A few minutes on two cores for 4x4 boards, more for larger ones.

    There are only some 3,500 minimal 4x4 puzzles up to relabelling, so every condition relabels its
    training puzzles: no test puzzle is met in training under any labels, and none is learned by
    heart. (Moving lines as well could turn a training puzzle into a test puzzle.)
    """
    layers, steps, batch, puzzles = {
        "2x2": (6, 500, 64, 3_000),
        "2x3": (6, 1_000, 32, 100_000),
    }.get(box, (8, 2_000, 64, 100_000))
    train = {
        "steps": steps,
        "batch_size": batch,
        # So few steps of 6x6 boards want a higher rate, in GM and Transformers (docs/evidence.md).
        "peak_lr": 4e-3 if box == "2x3" else BASE.train.peak_lr,
        "eval_every": 100,
        "eval_examples": 1_024,
        "test_examples": None if box == "2x2" else 1_000,  # of 4x4 puzzles there are few
        "save_every": 100,
    }
    task = SudokuConfig(box=box, puzzles=puzzles, augment="relabel")
    return cpu_base(task, train, layers=layers)


add_family(
    SudokuConfig.name,
    "gm",
    size="box",
    paper=lambda box="3x3": BASE.with_task(box=box),
    cpu=_sudoku_for_cpu,
    smoke=lambda box="2x2": smoke_base(SudokuConfig(box=box, puzzles=2_000)),
)

TESTS = {"peak_lr": 4e-3, "eval_examples": 500, "test_examples": 1_000, "save_every": 100}
add_bases(
    JigsawConfig(side=9, puzzles=1_000_000, clues_extra=16),
    cpu=cpu_base(JigsawConfig(), {"steps": 1_500, **TESTS}, layers=6),
    smoke=smoke_base(JigsawConfig(side=4, puzzles=400, clues_extra=4)),
)
add_bases(
    MazeConfig(side=30, mazes=1_000_000),
    cpu=cpu_base(MazeConfig(side=7, mazes=20_000), {"steps": 500, **TESTS}, layers=4, width=32),
    smoke=smoke_base(MazeConfig(side=5, mazes=400)),
)

TRANSFORMER = {**NO_EDGES, "position": "sinusoidal"}
WITH_EDGES = {**TRANSFORMER, "num_edges": BASE.model.num_edges, "project_input_edges": True}
PREAGGREGATED = {"referral": "preaggregated"}
SPARSE = {**PREAGGREGATED, "address_space": "sparse", "sparse_chains": 8}
STATIC = {"num_edge_sublayers": 0}
PROJECTED = "input edges projected into nodes, sinusoidal positions"
# Transformers learn little or nothing of these boards at GM's 4e-3 (docs/jigsaw.md, docs/maze.md).
TRANSFORMER_LR = 2e-3
QK_NORM = {"qk_norm": True}
# Mazes: small matrices take some seeds past 1,000 steps before they begin to learn (docs/maze.md).
MAZE = {**QK_NORM, "init": "torch"}


def in_rounds(**model: object) -> Change:
    """One layer, then one node sublayer up to 16 times: a search along passages needs many steps
    that are all alike. Rounds are drawn, so that more of them than were trained with stay useful.
    """
    core = {"num_layers": 1, "core_layers": 1, "rounds": 16}
    return changes(MAZE, core, model, train={"rounds_min": 8})


def slower(change: Change) -> Change:
    """At a learning rate at which Transformers learn such boards too."""
    return lambda base: change(base.with_train(peak_lr=min(base.train.peak_lr, TRANSFORMER_LR)))


def gnns(shared: Settings) -> dict[str, OwnRow]:
    """Message passing along the input edges, by PyG's own layers."""
    return {
        body: (
            body.upper(),
            f"{body.upper()} of PyG, sinusoidal positions",
            slower(changes(shared, WITH_EDGES, {"project_input_edges": False, "body": body})),
        )
        for body in ("gine", "gps")
    }


# Name: label in the table (empty: not there), what it is, its change of the base.
JIGSAW = {
    "gm": ("GM, pre-aggregated", "GM, pre-aggregated referral", changes(QK_NORM, PREAGGREGATED)),
    "gm-joint": ("GM, joint", "GM, joint referral as in the paper", changes(QK_NORM)),
    "gm-recurrent": (
        "GM, recurrent core",
        "GM, a recurrent core with fixed edges, pre-aggregated referral",
        recurrent(**PREAGGREGATED),
    ),
    "static": ("Edges never updated", "input edges are never updated", changes(QK_NORM, STATIC)),
    "transformer": (
        "Transformer, projected edges",
        f"Transformer, {PROJECTED}",
        slower(changes(QK_NORM, WITH_EDGES)),
    ),
    "transformer-recurrent": (
        "Transformer, recurrent core, projected edges",
        f"recurrent Transformer, {PROJECTED}",
        slower(recurrent(**WITH_EDGES)),
    ),
    # A ceiling: no region has to be found.
    "transformer-regions": (
        "Transformer, regions given",
        "Transformer that is given the region of every cell, sinusoidal positions",
        slower(changes(QK_NORM, TRANSFORMER, task={"regions_in_tokens": True})),
    ),
}
add_conditions("jigsaw", "Jigsaw Sudoku", JIGSAW | gnns(QK_NORM))
MAZES = {
    "gm": ("GM, pre-aggregated", "GM, pre-aggregated referral", changes(MAZE, PREAGGREGATED)),
    "gm-sparse": (
        "",
        "GM, sparse addresses of 8 entries, pre-aggregated, 8 n2 a head",
        changes(MAZE, SPARSE),
    ),
    "gm-recurrent": (
        "GM, recurrent core",
        "GM, a recurrent core with fixed edges",
        in_rounds(**PREAGGREGATED),
    ),
    "gm-recommended": (
        "GM, recurrent core, given edges",
        "the same, given edges stay, edge values",
        in_rounds(**RECOMMENDED),
    ),
    "gm-recurrent-sparse": (
        "",
        "GM, a recurrent core with fixed edges, sparse addresses of 8 entries",
        in_rounds(**SPARSE),
    ),
    # Self and four neighbours: attention sees five cells, whatever the size of the maze.
    "gm-recurrent-local": (
        "GM, recurrent core, input edges alone",
        "GM, a recurrent core along the input edges alone, sparse addresses of one entry",
        in_rounds(**STATIC, address_space="sparse", sparse_s=1, num_edges=5),
    ),
    "static": ("Edges never updated", "input edges are never updated", changes(MAZE, STATIC)),
    "transformer-recurrent": (
        "Transformer, recurrent core, projected edges",
        f"recurrent Transformer, {PROJECTED}",
        slower(in_rounds(**WITH_EDGES)),
    ),
    "transformer-edges": (
        "Transformer, projected edges",
        f"Transformer, {PROJECTED}",
        slower(changes(MAZE, WITH_EDGES)),
    ),
    "transformer": (
        "Transformer",
        "Transformer, sinusoidal positions",
        slower(changes(MAZE, TRANSFORMER)),
    ),
}
add_conditions("maze", "Mazes", MAZES | gnns(MAZE))
