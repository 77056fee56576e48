"""Budgets of tasks other than Sudoku: a family has a base config for each named budget.

    add_family("shift", "shift-gm", cpu=lambda: BASE.replace(task=ShiftConfig()))

A task without a family is run on the base of its budget, with the task's own defaults.
"""

from collections.abc import Callable
from dataclasses import dataclass

from graph_machine.config import ExperimentConfig
from graph_machine.registry import Registry

Base = Callable[[], ExperimentConfig]


@dataclass(frozen=True)
class Family:
    """A task, the condition that is trained when none is named, and its base configs."""

    task: str
    condition: str
    bases: dict[str, Base]  # by budget


FAMILIES: Registry[Family] = Registry("task with budgets of its own")


def add_family(task: str, condition: str, **bases: Base) -> None:
    """Register the base configs of a task, by budget."""
    FAMILIES.add(task, Family(task, condition, bases))
