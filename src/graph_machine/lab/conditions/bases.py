"""The base configs of every task, by budget (see budgets.py)."""

from graph_machine.lab.conditions.budgets import add_bases, add_family, cpu_base, smoke_base
from graph_machine.lab.conditions.registry import BASE, Settings
from graph_machine.lab.config import (
    AlgorithmsConfig,
    ClrsConfig,
    ExperimentConfig,
    JigsawConfig,
    MazeConfig,
    PointersConfig,
    RecallConfig,
    RelationsConfig,
    SudokuConfig,
    TextConfig,
)


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

TRAIN: Settings = {"peak_lr": 2e-3, "test_examples": 1_024}
SMOKE: Settings = {"eval_examples": 32, "test_examples": 64}
add_bases(
    PointersConfig(),
    cpu=cpu_base(PointersConfig(), {"steps": 100, **TRAIN}, layers=4, width=32),
    smoke=smoke_base(PointersConfig(nodes=10, train_hops=2, test_hops=4), SMOKE),
)
add_bases(
    AlgorithmsConfig(),
    cpu=cpu_base(
        AlgorithmsConfig(), {"steps": 300, **TRAIN, "test_examples": 256}, layers=4, width=32
    ),
    smoke=smoke_base(AlgorithmsConfig(train_nodes=6, test_nodes="6,8"), SMOKE),
)
add_bases(
    RecallConfig(),
    cpu=cpu_base(RecallConfig(), {"steps": 600, **TRAIN}, layers=2, width=32),
    smoke=smoke_base(RecallConfig(length=12, pairs=4, test_pairs=5, keys=6), SMOKE),
)
add_bases(
    TextConfig(),
    cpu=cpu_base(TextConfig(length=64), {"steps": 250, **TRAIN, "peak_lr": 5e-3}, layers=2),
    smoke=smoke_base(TextConfig(length=16, most=40_000), SMOKE),
)
_relations = RelationsConfig(view="arriving", branches=2, grown_steps=6)
# Routes get shorter in larger graphs: units of weights that vary teach finer differences. A model
# that never met a position of 0 takes the first node of a file for something else.
_clrs = ClrsConfig(least_scale=0.2, first_at_zero=True)
for _config, _own in (
    (_clrs, {"steps": 3_000, "batch_size": 32, "ema": 0.99}),
    (_relations, {"steps": 1_000, "batch_size": 64}),
):
    _train = {**_own, "peak_lr": 2e-3, "test_examples": 2_048}
    _few = {"steps": 10, "batch_size": 8, "eval_every": 5, "eval_examples": 8, "test_examples": 18}
    add_bases(
        _config,
        cpu=cpu_base(_config, _train, layers=4, width=32),
        smoke=smoke_base(_config, _few),
    )
