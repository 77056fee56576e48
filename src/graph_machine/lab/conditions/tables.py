"""The paper's 14 accuracy tables (tables.toml): row label, condition, seeds, the paper's number.

Conditions (conditions.toml), with a table for each task beyond the paper.

A row in brackets repeats a main condition, so its number is the ten-seed mean of table 1.
"""

import tomllib
from dataclasses import dataclass
from typing import Any

from graph_machine.lab.conditions.registry import BASE, HERE, change_of, condition
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
_paper = tomllib.loads((HERE / "tables.toml").read_text(encoding="utf-8"))
for _name, _table in _paper.items():
    _table["rows"] = tuple(_row(*each) for each in _table["rows"])
    _table["columns"] = tuple(_table.get("columns", ()))
    TABLES.add(_name, ConditionTable(_name, **_table))


_rows = tomllib.loads((HERE / "conditions.toml").read_text(encoding="utf-8"))
_sets = _rows.pop("sets")
_in_paper = {row.condition for table in TABLES.values() for row in table.rows}
for _task, _table in _rows.items():
    _labelled = []
    for _name, _doc, *_words in _table["rows"]:
        _how, *_own = _words or [""]
        _add = condition(_name, _doc, beyond_paper=_name not in _in_paper, task=_task)
        _add(change_of(_how, _sets, *_own))
        _labelled += [Row(own["label"], _name, None) for own in _own if "label" in own]
    if _labelled:  # the others are compared with the first row
        TABLES.add(_task, ConditionTable(_task, _table["title"], tuple(_labelled), task=_task))


def tables_of(condition: str) -> list[str]:
    """The tables that a condition appears in."""
    return [t.name for t in TABLES.values() if any(r.condition == condition for r in t.rows)]
