"""The paper's 14 accuracy tables as data: row label, condition, seeds, the paper's number.

Tasks beyond the paper add tables of their own.

A row in brackets repeats a main condition, so its number is the ten-seed mean of table 1.
"""

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


def main_row(label: str, condition: str, *details: str) -> Row:
    return Row(label, condition, MAIN[condition], seeds=10, details=details)


def row(label: str, condition: str, mean: float) -> Row:
    return Row(label, condition, PaperValue(mean))


TABLES: Registry[Table] = Registry("table", "graph-machine report --help")


def _add(name: str, title: str, *rows: Row, note: str = "", columns: tuple[str, ...] = ()) -> None:
    TABLES.add(name, Table(name, title, rows, note, columns=columns))


def add_conditions(task: str, title: str, *rows: tuple[str, str, str, Change]) -> None:
    """The conditions of a task beyond the paper, and the table that compares them.

    A row has a name (after the task's), its label in the table (empty: it is not there), what it
    is, and its change of the base. The others are compared with the first row.
    """
    for name, _, doc, change in rows:
        condition(f"{task}-{name}", doc, beyond_paper=True, task=task)(change)
    made = [Row(label, f"{task}-{name}", None) for name, label, _, _ in rows if label]
    TABLES.add(task, Table(task, title, tuple(made), task=task))


_add(
    "1",
    "Comparison against baselines",
    main_row("Transformer", "transformer", "1x", "each", "node"),
    main_row("Transformer-static", "transformer-static", "1x", "each", "node, edge"),
    main_row("Transformer-sin-PE", "transformer-sin-pe", "1x", "each, sin PE", "node"),
    main_row("Transformer-sin-PE-2x", "transformer-sin-pe-2x", "2x", "each, sin PE", "node"),
    main_row("GM", "gm", "1x", "each", "node, edge"),
    columns=("scale", "node embeddings", "attention"),
)
_add(
    "2",
    "Positional encoding",
    row("Sin PE, base 10000", "gm-sin-pe", 86.4),
    row("RoPE, base 10", "gm-rope", 76.5),
    main_row("(None: GM)", "gm"),
)
_add(
    "3",
    "Edge degree",
    main_row("(0: Transformer)", "transformer"),
    row("5", "gm-degree-5", 63.2),
    main_row("(8: GM)", "gm"),
)
_add(
    "4",
    "Number of edge sublayers",
    main_row("(0: Transformer-static)", "transformer-static"),
    row("4", "gm-edge-sublayers-4", 59.7),
    row("8", "gm-edge-sublayers-8", 83.3),
    row("16", "gm-edge-sublayers-16", 72.2),
    main_row("(32: GM)", "gm"),
    note="The paper's mean for 16 contains an outlier: 51.5 beside 79.1 and 85.9.",
)
_add(
    "5",
    "Attention experts",
    main_row("(Node: Transformer)", "transformer"),
    main_row("(Node and edge: GM)", "gm"),
    row("Edge", "gm-edge-expert", 28.1),
)
_add(
    "6",
    "Sharpener temperature",
    main_row("(Fixed = 0: Transformer)", "transformer"),
    row("Fixed = 1, off", "gm-sharpener-off", 77.5),
    row("Fixed = 1.1", "gm-sharpener-1.1", 76.8),
    row("Fixed = 1.5", "gm-sharpener-1.5", 72.5),
    row("Learned values per edge", "gm-sharpener-learned", 80.8),
    main_row("(Learned projection: GM)", "gm"),
)
_add(
    "7",
    "Factor temperatures",
    row("Off", "gm-no-factor-temps", 60.6),
    main_row("(On: GM)", "gm"),
)
_add(
    "8",
    "Entropy losses",
    row("Off", "gm-no-entropy-losses", 84.5),
    main_row("(On: GM)", "gm"),
)
_add(
    "C.1",
    "Transformer: project input edges",
    row("On", "transformer-project-edges", 60.1),
    main_row("(Off: Transformer)", "transformer"),
)
_add(
    "C.2",
    "Transformer-sin-PE-2x: factor temperatures",
    main_row("(On: Transformer-sin-PE-2x)", "transformer-sin-pe-2x"),
    row("Off", "transformer-sin-pe-2x-no-factor-temps", 83.7),
    note="The paper's text calls dropping them a slight improvement; its table shows a loss.",
)
_add(
    "C.3",
    "Transformer-sin-PE-2x: entropy losses",
    main_row("(On: Transformer-sin-PE-2x)", "transformer-sin-pe-2x"),
    row("Off", "transformer-sin-pe-2x-no-entropy-losses", 87.6),
    note="The paper's text refers to the table before this one.",
)
_add(
    "C.4",
    "Transformer: positional encodings",
    main_row("(Off: Transformer)", "transformer"),
    row("RoPE, base 10", "transformer-rope", 75.9),
    row("RoPE, base 100", "transformer-rope-100", 67.7),
    row("RoPE, base 1000", "transformer-rope-1000", 74.1),
    row("RoPE, base 10000", "transformer-rope-10000", 71.2),
    row("Sinusoidal PE, base 10", "transformer-sin-pe-10", 77.1),
    row("Sinusoidal PE, base 100", "transformer-sin-pe-100", 80.3),
    row("Sinusoidal PE, base 1000", "transformer-sin-pe-1000", 80.2),
    main_row("(Sinusoidal PE, base 10000: Transformer-sin-PE)", "transformer-sin-pe"),
    row("Learned row-column factorised PE", "transformer-row-column", 74.6),
    note="The paper's text refers to the table of C.2.",
)
_add(
    "C.5",
    "Edge address space",
    main_row("(Weight: GM)", "gm"),
    row("Logit", "gm-logit-space", 72.3),
)
_add(
    "C.6",
    "GM: address sparsity",
    main_row("(s = 0: Transformer)", "transformer"),
    row("s = 1", "gm-top-1", 36.2),
    row("s = 4", "gm-top-4", 50.9),
    row("s = 16", "gm-top-16", 70.3),
    main_row("(s = 81: GM)", "gm"),
    row("s = 4, tau = 0.01", "gm-top-4-tau-0.01", 27.5),
    row("s = 4, tau = 0.1", "gm-top-4-tau-0.1", 30.4),
    row("s = 4, tau = 1", "gm-top-4-tau-1", 53.6),
)


def tables_of(condition: str) -> list[str]:
    """The tables that a condition appears in."""
    return [t.name for t in TABLES.values() if any(r.condition == condition for r in t.rows)]
