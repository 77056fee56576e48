"""Sudoku, the task of the paper: its base config for every budget, by box shape."""

from graph_machine.conditions.families import add_family
from graph_machine.conditions.registry import BASE
from graph_machine.config import ExperimentConfig, SudokuConfig


def _paper(box: str = "3x3") -> ExperimentConfig:
    return BASE.with_task(box=box)


def _cpu(box: str = "2x2") -> ExperimentConfig:
    """A few minutes on two cores for 4x4 boards, more for larger ones.

    There are only some 3,500 minimal 4x4 puzzles up to relabelling, so every condition relabels its
    training puzzles: no test puzzle is met in training under any labels, and none is learned by
    heart. (Moving lines as well could turn a training puzzle into a test puzzle.)
    """
    layers, steps, batch, puzzles = {
        "2x2": (6, 500, 64, 3_000),
        "2x3": (6, 1_000, 32, 100_000),
    }.get(box, (8, 2_000, 64, 100_000))
    # So few steps of 6x6 boards want a higher rate, GM and Transformer alike (docs/evidence.md).
    peak_lr = 4e-3 if box == "2x3" else BASE.train.peak_lr
    base = BASE.replace(task=SudokuConfig(box=box, puzzles=puzzles, augment="relabel"))
    return base.with_model(num_layers=layers).with_train(
        steps=steps,
        batch_size=batch,
        peak_lr=peak_lr,
        log_every=10,
        eval_every=100,
        eval_examples=1_024,
        test_examples=None if box == "2x2" else 1_000,  # of 4x4 puzzles there are few
        save_every=100,
    )


def _smoke(box: str = "2x2") -> ExperimentConfig:
    """Seconds: shows that everything runs, not that anything is learned."""
    base = BASE.replace(task=SudokuConfig(box=box, puzzles=2_000))
    small = base.with_model(num_layers=2, d_node=16)
    return small.with_train(
        steps=20, batch_size=16, log_every=5, eval_every=10, eval_examples=64, save_every=5
    )


add_family(SudokuConfig.name, "gm", size="box", paper=_paper, cpu=_cpu, smoke=_smoke)
