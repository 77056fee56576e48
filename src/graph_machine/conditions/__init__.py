"""What the paper varies: conditions, the tables that show them, and budgets to run them at."""

from graph_machine.conditions import boards as _boards  # registers its conditions
from graph_machine.conditions import graphs as _graphs
from graph_machine.conditions import sudoku as _sudoku
from graph_machine.conditions.budgets import BUDGETS, base_for, config_for
from graph_machine.conditions.families import FAMILIES, Family, add_family
from graph_machine.conditions.registry import CONDITIONS, Condition, condition
from graph_machine.conditions.tables import TABLES

del _boards, _graphs, _sudoku

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
