"""Budgets of tasks: a family has a base config for each named budget.

    add_family("shift", "shift-gm", cpu=lambda: BASE.replace(task=ShiftConfig()))

A task without a family is run on the base of its budget, with the task's own defaults.
"""

from collections.abc import Callable
from dataclasses import dataclass

from graph_machine.lab.conditions.registry import BASE, Settings
from graph_machine.lab.config import ExperimentConfig, TaskConfig
from graph_machine.registry import Registry

Base = Callable[..., ExperimentConfig]


@dataclass(frozen=True)
class Family:
    """A task, the condition that is trained when none is named, and its base configs.

    >>> FAMILIES["jigsaw"].condition
    'jigsaw-gm'
    """

    task: str
    condition: str
    bases: dict[str, Base]  # by budget
    size: str = ""  # the setting that they may be called with, if any: `box`, in Sudoku


FAMILIES: Registry[Family] = Registry("task with its own budgets")


def add_family(task: str, condition: str, *, size: str = "", **bases: Base) -> None:
    """Register the base configs of a task, by budget; with `size`, they take that setting.

    >>> from graph_machine.lab.conditions import base_for
    >>> add_family("my-task", "gm", smoke=lambda: base_for("smoke"))
    >>> FAMILIES["my-task"].condition
    'gm'
    """
    FAMILIES.add(task, Family(task, condition, bases, size))


def add_bases(paper: TaskConfig, *, cpu: ExperimentConfig, smoke: ExperimentConfig) -> None:
    """The family of a task beyond the paper; `paper` is the task at full size."""
    name, whole = paper.name, BASE.replace(task=paper)
    add_family(name, f"{name}-gm", paper=lambda: whole, cpu=lambda: cpu, smoke=lambda: smoke)


def cpu_base(
    task: TaskConfig, train: Settings, *, layers: int, width: int = BASE.model.d_node
) -> ExperimentConfig:
    """Minutes on one core; `train` are settings of training."""
    usual = {"batch_size": 32, "log_every": 10, "eval_every": 250, "eval_examples": 256}
    base = BASE.replace(task=task).with_model(num_layers=layers, d_node=width)
    return base.with_train(**{**usual, "save_every": 250, **train})


def smoke_base(task: TaskConfig, train: Settings | None = None) -> ExperimentConfig:
    """Seconds: shows that everything runs, not that anything is learned."""
    usual = {"steps": 20, "batch_size": 16, "log_every": 5, "eval_every": 10, "eval_examples": 64}
    small = BASE.replace(task=task).with_model(num_layers=2, d_node=16)
    return small.with_train(**{**usual, "save_every": 5, **(train or {})})
