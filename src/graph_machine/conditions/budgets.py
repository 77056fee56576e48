"""Named budgets: how much of the paper's recipe a run can afford.

A budget gives the base config for a box shape; a condition then changes that base, so every
condition of a budget differs from its neighbours only in what the paper says it does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graph_machine.conditions.families import FAMILIES
from graph_machine.conditions.registry import BASE, CONDITIONS
from graph_machine.config import TASK_CONFIGS, ExperimentConfig, SudokuConfig
from graph_machine.errors import ConfigError
from graph_machine.registry import Registry

SUDOKU = SudokuConfig.name


@dataclass(frozen=True)
class Budget:
    """A named size of run; `box` is the board that it is meant for."""

    name: str
    doc: str
    box: str
    base: Callable[[str], ExperimentConfig]


BUDGETS: Registry[Budget] = Registry("budget", "graph-machine train --help")


def _paper(box: str) -> ExperimentConfig:
    return BASE.with_task(box=box)


def _cpu(box: str) -> ExperimentConfig:
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


def _smoke(box: str) -> ExperimentConfig:
    """Seconds: shows that everything runs, not that anything is learned."""
    base = BASE.replace(task=SudokuConfig(box=box, puzzles=2_000))
    small = base.with_model(num_layers=2, d_node=16)
    return small.with_train(
        steps=20, batch_size=16, log_every=5, eval_every=10, eval_examples=64, save_every=5
    )


for _budget in (
    Budget("paper", "the recipe at full size", "3x3", _paper),
    Budget("cpu", "small boards, minutes on two cores", "2x2", _cpu),
    Budget("smoke", "seconds, to see that everything runs", "2x2", _smoke),
):
    BUDGETS.add(_budget.name, _budget)


def base_for(budget: str, box: str | None = None, task: str = SUDOKU) -> ExperimentConfig:
    """The config that conditions of this budget change; `box` defaults to the budget's own.

    >>> base_for("cpu").model.num_layers
    6
    """
    found = BUDGETS[budget]
    if task == SUDOKU:
        return found.base(found.box if box is None else box)
    if box is not None:
        raise ConfigError(f"--box is for Sudoku; the task {task} has its own settings (--set).")
    if task in FAMILIES and budget in FAMILIES[task].bases:
        return FAMILIES[task].bases[budget]()
    return found.base(found.box).replace(task=TASK_CONFIGS[task]())


def config_for(
    condition: str,
    budget: str = "paper",
    box: str | None = None,
    settings: Sequence[str] = (),
    task: str | None = None,
) -> ExperimentConfig:
    """A condition at a budget, resolved; then settings as a user types them, later ones last.

    `task` defaults to the one that the condition is made for.

    >>> config_for("transformer", "cpu").differences(base_for("cpu"))
    {'model.num_edges': 0, 'model.num_edge_sublayers': 0, 'model.attention_experts': 'node'}
    """
    chosen = CONDITIONS[condition]
    config = chosen.change(base_for(budget, box, chosen.task if task is None else task))
    return with_settings(config, settings)


def with_settings(config: ExperimentConfig, settings: Sequence[str]) -> ExperimentConfig:
    """Changed by `KEY=VALUE` texts, later ones last."""
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set takes KEY=VALUE, got '{setting}'.")
        config = config.set(key, value)
    return config
