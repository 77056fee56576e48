"""Budgets of tasks: a family has a base config for each named budget.

    add_family("shift", "shift-gm", cpu=lambda: BASE.replace(task=ShiftConfig()))

A task without a family is run on the base of its budget, with the task's own defaults.
"""

from collections.abc import Callable
from dataclasses import dataclass

from graph_machine.config import ExperimentConfig
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

    >>> from graph_machine.conditions import base_for
    >>> add_family("my-task", "gm", smoke=lambda: base_for("smoke"))
    >>> FAMILIES["my-task"].condition
    'gm'
    """
    FAMILIES.add(task, Family(task, condition, bases, size))
