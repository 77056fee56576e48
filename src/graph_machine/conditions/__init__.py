"""What the paper varies: conditions, the tables that show them, and budgets to run them at."""

from graph_machine.conditions.budgets import BUDGETS, base_for, config_for
from graph_machine.conditions.registry import CONDITIONS, Condition, condition
from graph_machine.conditions.tables import TABLES

__all__ = ["BUDGETS", "CONDITIONS", "TABLES", "Condition", "base_for", "condition", "config_for"]
