"""The paper's 14 accuracy tables as data: row label, condition, seeds, the paper's number.

Tasks beyond the paper add tables of their own.

A row in brackets repeats a main condition, so its number is the ten-seed mean of table 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
class Table:
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


# Table -> rows: label, condition, the paper's mean (of a main condition, table 1 has it), details.
PAPER: dict[str, list[tuple]] = {
    "1: Comparison against baselines": [
        ("Transformer", "transformer", None, "1x", "each", "node"),
        ("Transformer-static", "transformer-static", None, "1x", "each", "node, edge"),
        ("Transformer-sin-PE", "transformer-sin-pe", None, "1x", "each, sin PE", "node"),
        ("Transformer-sin-PE-2x", "transformer-sin-pe-2x", None, "2x", "each, sin PE", "node"),
        ("GM", "gm", None, "1x", "each", "node, edge"),
    ],
    "2: Positional encoding": [
        ("Sin PE, base 10000", "gm-sin-pe", 86.4),
        ("RoPE, base 10", "gm-rope", 76.5),
        ("(None: GM)", "gm"),
    ],
    "3: Edge degree": [
        ("(0: Transformer)", "transformer"),
        ("5", "gm-degree-5", 63.2),
        ("(8: GM)", "gm"),
    ],
    "4: Number of edge sublayers": [
        ("(0: Transformer-static)", "transformer-static"),
        ("4", "gm-edge-sublayers-4", 59.7),
        ("8", "gm-edge-sublayers-8", 83.3),
        ("16", "gm-edge-sublayers-16", 72.2),
        ("(32: GM)", "gm"),
    ],
    "5: Attention experts": [
        ("(Node: Transformer)", "transformer"),
        ("(Node and edge: GM)", "gm"),
        ("Edge", "gm-edge-expert", 28.1),
    ],
    "6: Sharpener temperature": [
        ("(Fixed = 0: Transformer)", "transformer"),
        ("Fixed = 1, off", "gm-sharpener-off", 77.5),
        ("Fixed = 1.1", "gm-sharpener-1.1", 76.8),
        ("Fixed = 1.5", "gm-sharpener-1.5", 72.5),
        ("Learned values per edge", "gm-sharpener-learned", 80.8),
        ("(Learned projection: GM)", "gm"),
    ],
    "7: Factor temperatures": [("Off", "gm-no-factor-temps", 60.6), ("(On: GM)", "gm")],
    "8: Entropy losses": [("Off", "gm-no-entropy-losses", 84.5), ("(On: GM)", "gm")],
    "C.1: Transformer: project input edges": [
        ("On", "transformer-project-edges", 60.1),
        ("(Off: Transformer)", "transformer"),
    ],
    "C.2: Transformer-sin-PE-2x: factor temperatures": [
        ("(On: Transformer-sin-PE-2x)", "transformer-sin-pe-2x"),
        ("Off", "transformer-sin-pe-2x-no-factor-temps", 83.7),
    ],
    "C.3: Transformer-sin-PE-2x: entropy losses": [
        ("(On: Transformer-sin-PE-2x)", "transformer-sin-pe-2x"),
        ("Off", "transformer-sin-pe-2x-no-entropy-losses", 87.6),
    ],
    "C.4: Transformer: positional encodings": [
        ("(Off: Transformer)", "transformer"),
        ("RoPE, base 10", "transformer-rope", 75.9),
        ("RoPE, base 100", "transformer-rope-100", 67.7),
        ("RoPE, base 1000", "transformer-rope-1000", 74.1),
        ("RoPE, base 10000", "transformer-rope-10000", 71.2),
        ("Sinusoidal PE, base 10", "transformer-sin-pe-10", 77.1),
        ("Sinusoidal PE, base 100", "transformer-sin-pe-100", 80.3),
        ("Sinusoidal PE, base 1000", "transformer-sin-pe-1000", 80.2),
        ("(Sinusoidal PE, base 10000: Transformer-sin-PE)", "transformer-sin-pe"),
        ("Learned row-column factorised PE", "transformer-row-column", 74.6),
    ],
    "C.5: Edge address space": [("(Weight: GM)", "gm"), ("Logit", "gm-logit-space", 72.3)],
    "C.6: GM: address sparsity": [
        ("(s = 0: Transformer)", "transformer"),
        ("s = 1", "gm-top-1", 36.2),
        ("s = 4", "gm-top-4", 50.9),
        ("s = 16", "gm-top-16", 70.3),
        ("(s = 81: GM)", "gm"),
        ("s = 4, tau = 0.01", "gm-top-4-tau-0.01", 27.5),
        ("s = 4, tau = 0.1", "gm-top-4-tau-0.1", 30.4),
        ("s = 4, tau = 1", "gm-top-4-tau-1", 53.6),
    ],
}
NOTES = {
    "4": "The paper's mean for 16 contains an outlier: 51.5 beside 79.1 and 85.9.",
    "C.2": "The paper's text calls dropping them a slight improvement; its table shows a loss.",
    "C.3": "The paper's text refers to the table before this one.",
    "C.4": "The paper's text refers to the table of C.2.",
}
COLUMNS = {"1": ("scale", "node embeddings", "attention")}


def _row(label: str, condition: str, mean: float | None = None, *details: str) -> Row:
    if mean is None:
        return Row(label, condition, MAIN[condition], seeds=10, details=details)
    return Row(label, condition, PaperValue(mean))


TABLES: Registry[Table] = Registry("table", "graph-machine report --help")
for _heading, _rows in PAPER.items():
    _name, _, _title = _heading.partition(": ")
    _made = tuple(_row(*each) for each in _rows)
    _note, _columns = NOTES.get(_name, ""), COLUMNS.get(_name, ())
    TABLES.add(_name, Table(_name, _title, _made, _note, columns=_columns))


def add_conditions(task: str, title: str, conditions: Mapping[str, Change]) -> None:
    """The conditions of a task beyond the paper, and the table that compares them.

    The key of each is its name (after the task's), its label in the table (empty: it is not there)
    and what it is, with ` | ` between them. The others are compared with the first row.
    """
    rows = []
    for key, change in conditions.items():
        name, label, doc = (word.strip() for word in key.split("|"))
        condition(f"{task}-{name}", doc, beyond_paper=True, task=task)(change)
        rows += [Row(label, f"{task}-{name}", None)] if label else []
    TABLES.add(task, Table(task, title, tuple(rows), task=task))


def tables_of(condition: str) -> list[str]:
    """The tables that a condition appears in."""
    return [t.name for t in TABLES.values() if any(r.condition == condition for r in t.rows)]
