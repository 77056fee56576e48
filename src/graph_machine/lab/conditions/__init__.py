"""What the paper varies: conditions, the tables that show them, and budgets to run them at."""

from graph_machine.lab.conditions.budgets import (
    BUDGETS,
    FAMILIES,
    Family,
    add_family,
    base_for,
    config_for,
)
from graph_machine.lab.conditions.registry import CONDITIONS, Condition, condition
from graph_machine.lab.conditions.tables import TABLES

__all__ = [
    "BUDGETS",
    "CONDITIONS",
    "FAMILIES",
    "TABLES",
    "Condition",
    "Family",
    "add_family",
    "base_for",
    "condition",
    "config_for",
]
