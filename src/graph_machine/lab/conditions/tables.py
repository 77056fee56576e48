"""The paper's 14 accuracy tables (tables.toml): row label, condition, seeds, the paper's number.

Tasks beyond the paper add tables of their own.

A row in brackets repeats a main condition, so its number is the ten-seed mean of table 1.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph_machine.lab.conditions.registry import BASE, Change, condition
from graph_machine.registry import Registry


@dataclass(frozen=True)
class PaperValue:
    """Board accuracy in percent, as printed; `cells` is what the text says of cell accuracy."""

    mean: float
    deviation: float | None = None
    best: float | None = None
    cells: float | None = None


@dataclass(frozen=True)
class Row:
    label: str
    condition: str
    paper: PaperValue | None  # None: the paper has no such row
    seeds: int = 3
    details: tuple[str, ...] = ()  # as the table's columns say


@dataclass(frozen=True)
class ConditionTable:
    name: str
    title: str
    rows: tuple[Row, ...]
    note: str = ""
    task: str = BASE.task.name
    columns: tuple[str, ...] = ()  # what the paper says of each row beside its results

    @property
    def in_paper(self) -> bool:
        return any(row.paper is not None for row in self.rows)


MAIN = {
    "transformer": PaperValue(71.7, 3.2, 76.1, cells=96.3),
    "transformer-static": PaperValue(1.8, 1.9, 5.1, cells=77.3),
    "transformer-sin-pe": PaperValue(81.5, 0.5, 82.3),
    "transformer-sin-pe-2x": PaperValue(86.3, 2.5, 88.6),
    "gm": PaperValue(86.0, 3.7, 87.9),
}


def _row(label: str, condition: str, *given: Any) -> Row:
    if condition not in MAIN:
        return Row(label, condition, PaperValue(*given))
    return Row(label, condition, MAIN[condition], seeds=10, details=given)


TABLES: Registry[ConditionTable] = Registry("table", "graph-machine report --help")
_paper = tomllib.loads((Path(__file__).parent / "tables.toml").read_text(encoding="utf-8"))
for _name, _table in _paper.items():
    _table["rows"] = tuple(_row(*each) for each in _table["rows"])
    _table["columns"] = tuple(_table.get("columns", ()))
    TABLES.add(_name, ConditionTable(_name, **_table))


# Label in the table (empty: not there), what it is, its change of the base.
OwnRow = tuple[str, str, Change]


def add_conditions(task: str, title: str, conditions: Mapping[str, OwnRow]) -> None:
    """The conditions of a task beyond the paper, and the table that compares them.

    Names are completed by the task's. The others are compared with the first row.
    """
    rows = []
    for name, (label, doc, change) in conditions.items():
        condition(f"{task}-{name}", doc, beyond_paper=True, task=task)(change)
        rows += [Row(label, f"{task}-{name}", None)] if label else []
    TABLES.add(task, ConditionTable(task, title, tuple(rows), task=task))


def tables_of(condition: str) -> list[str]:
    """The tables that a condition appears in."""
    return [t.name for t in TABLES.values() if any(r.condition == condition for r in t.rows)]
