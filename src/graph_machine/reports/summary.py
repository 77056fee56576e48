"""The paper's tables from run folders: what was measured, at which budget, and the paper's value.

Runs are grouped by their signature (budget, board, settings, data) and groups are never mixed, so
every mean is over runs that differ in their seed alone. What is missing is shown as missing.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graph_machine.conditions.registry import BASE
from graph_machine.conditions.tables import TABLES, PaperValue, Row, Table
from graph_machine.errors import ConfigError, count_of
from graph_machine.reports.compare import Comparison, compare
from graph_machine.reports.measures import Measure
from graph_machine.reports.runs import RunRecord, Runs, Signature
from graph_machine.tasks.base import task_of

PAPER_BUDGET = "100,000 steps of 64 puzzles, 9x9, 32 layers, Sudoku-3M"
REDUCED = (
    "These are reduced runs, not the paper's: the column 'paper' was measured at "
    f"{PAPER_BUDGET}, and is here for orientation. Only rows of this section may be compared."
)
GENERATED = (
    "The paper's recipe, but on generated puzzles and not on Sudoku-3M: not the paper's result."
)
PAPER_PUZZLES = 2_500_000  # Sudoku-3M has about three million; fewer is a part of it
FEWER = "The paper's recipe, but on fewer puzzles than Sudoku-3M has: not the paper's result."
BEYOND = "beyond"


@dataclass(frozen=True)
class Line:
    """One row of a table: the metric that decides over the seeds of one group.

    Shares are in percent, here and everywhere in a report.
    """

    label: str
    condition: str
    scores: dict[int, float] = field(default_factory=dict)  # by seed
    parameters: int | None = None
    second: float | None = None  # mean of the metric after it: cells, in Sudoku
    seconds: float | None = None  # mean wall time, evaluations included
    flops: int | None = None  # of all steps together; matrix products alone
    budget: str = ""
    unfinished: dict[str, int] = field(default_factory=dict)  # status -> runs without a result
    paper: PaperValue | None = None
    paper_seeds: int = 0
    details: tuple[str, ...] = ()
    comparison: Comparison | None = None

    @property
    def missing(self) -> bool:
        return not self.scores

    @property
    def mean(self) -> float | None:
        return float(np.mean(list(self.scores.values()))) if self.scores else None

    @property
    def deviation(self) -> float | None:
        """Of the sample (n - 1); none for a single seed."""
        return float(np.std(list(self.scores.values()), ddof=1)) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class Section:
    """One table of the paper (or the conditions beyond it) in one group."""

    name: str
    title: str
    lines: tuple[Line, ...]
    measures: tuple[Measure, ...]  # the first one decides
    note: str = ""
    reference: str = ""  # the condition that the others are compared with
    columns: tuple[str, ...] = ()  # what the lines' details are
    folded: bool = False  # nobody asked for it, and only rows of table 1 were run

    @property
    def has_own_runs(self) -> bool:
        """Whether there is more than rows in brackets, which repeat conditions of table 1."""
        return any(line.budget for line in self.lines if not line.label.startswith("("))

    @property
    def has_paper(self) -> bool:
        """Whether the paper has a value for one of its rows."""
        return any(line.paper is not None for line in self.lines)

    @property
    def heading(self) -> str:
        return self.title if self.name == BEYOND else f"Table {self.name}: {self.title}"


@dataclass(frozen=True)
class Group:
    """All runs of one budget on the same data."""

    signature: Signature
    title: str
    budget: str
    warning: str
    sections: tuple[Section, ...]
    absent: tuple[str, ...]  # tables of the paper without any run here
    baselines: dict[str, float]  # symbolic references, by the metric that decides
    runs: tuple[RunRecord, ...]

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The metrics of its task; the first one decides."""
        return self.runs[0].measures

    @property
    def examples_word(self) -> str:
        """What its task calls examples: `puzzles`."""
        return task_of(self.runs[0].config.task).examples_word


@dataclass(frozen=True)
class Report:
    """Tables of all groups, and what could not be read. Made by `build_report`."""

    groups: tuple[Group, ...]
    problems: tuple[str, ...] = ()


def row_budget(run: RunRecord) -> str:
    """Steps, batch, board and layers of a run, in a few words."""
    train, model = run.config.train, run.config.model
    return (
        f"{count_of(train.steps, 'steps')} x {train.batch_size}, {run.signature.board}, "
        f"{count_of(model.num_layers, 'layers')}"
    )


def board_text(run: RunRecord) -> str:
    """What the examples of a run are: `4x4 boards`, `text 64-bytes`, `maze-9x9`."""
    board, task = run.signature.board, run.config.task.name
    if run.measures[0].title == "boards":
        return f"{board} boards"
    return board if board.startswith(task) else f"{task} {board}"


def data_text(run: RunRecord) -> str:
    data = run.data
    size, source = data.get("size"), str(data.get("source"))
    word = task_of(run.config.task).examples_word
    examples = f"{size:,} {word}" if isinstance(size, int) else word
    return f"{examples}, {source} (data {str(data.get('identity'))[:12]})"


def _line(label: str, condition: str, runs: Sequence[RunRecord], row: Row | None = None) -> Line:
    finished = [run for run in runs if run.result is not None]
    results = [run.result for run in finished if run.result is not None]
    second = [v for run in finished if (v := run.second_score) is not None]
    seconds = [r["seconds"] for r in results if "seconds" in r]
    return Line(
        label,
        condition,
        scores={run.seed: run.score for run in finished},
        parameters=next((r["parameters"] for r in results if "parameters" in r), None),
        second=float(np.mean(second)) if second else None,
        seconds=float(np.mean(seconds)) if seconds else None,
        flops=finished[0].flops if finished else None,
        budget=row_budget(runs[0]) if runs else "",
        unfinished=dict(Counter(run.status for run in runs if run.result is None)),
        paper=row.paper if row else None,
        paper_seeds=row.seeds if row else 0,
        details=row.details if row else (),
    )


def _compared(lines: Sequence[Line], reference: str) -> tuple[Line, ...]:
    """Each line with its paired comparison against the reference condition."""
    base = next((line for line in lines if line.condition == reference), None)
    result = []
    for line in lines:
        found = None
        if base is not None and line.condition != reference:
            found = compare(line.condition, reference, line.scores, base.scores)
        result.append(Line(**(vars(line) | {"comparison": found})))
    return tuple(result)


def reference_of(table: Table) -> str:
    """GM where it is in the table, else the main condition that its rows vary."""
    conditions = [row.condition for row in table.rows]
    if "gm" in conditions or not table.in_paper:
        return "gm" if "gm" in conditions else conditions[0]
    return next(row.condition for row in table.rows if row.label.startswith("("))


def table_section(table: Table, by_condition: Mapping[str, Sequence[RunRecord]]) -> Section:
    """The rows of a table, those without runs included."""
    lines = [
        _line(row.label, row.condition, by_condition.get(row.condition, ()), row)
        for row in table.rows
    ]
    reference = reference_of(table)
    return Section(
        table.name,
        table.title,
        _compared(lines, reference),
        measures_of(by_condition),
        table.note,
        reference,
        table.columns,
    )


def other_section(by_condition: Mapping[str, Sequence[RunRecord]], task: str) -> Section | None:
    """Conditions that no table of their task has, beside GM."""
    tables = [table for table in TABLES.values() if table.task == task]
    shown = {row.condition for table in tables for row in table.rows}
    names = [name for name in by_condition if name not in shown]
    if not names:
        return None
    lines = [_line(name, name, by_condition[name]) for name in names]
    reference = "gm" if "gm" in by_condition else names[0]
    if reference not in names:
        lines.append(_line("(GM)", "gm", by_condition["gm"]))
    title = f"Conditions, {task}" if not tables else "Other conditions"
    if task == BASE.task.name:
        title = "Conditions beyond the paper"
    measures = measures_of(by_condition)
    return Section(BEYOND, title, _compared(lines, reference), measures, "", reference)


def measures_of(by_condition: Mapping[str, Sequence[RunRecord]]) -> tuple[Measure, ...]:
    """The metrics of a group's runs, which have one task."""
    return next(iter(by_condition.values()))[0].measures


def baselines_of(runs: Sequence[RunRecord]) -> dict[str, float]:
    """What symbolic methods solve, as the runs recorded it, averaged over test splits.

    Without a record the ratings tell it, where every test puzzle has one: rating 0 means that naked
    and hidden singles solve the puzzle, and the exact solver solves what has one solution.
    """
    found: dict[str, list[float]] = {}
    for run in runs:
        result = run.result or {}
        recorded = result.get("baselines") or {}
        for name, value in recorded.items():
            share = value.get(run.deciding) if isinstance(value, dict) else value
            if isinstance(share, (int, float)):
                found.setdefault(name, []).append(run.points(share))
        bands = result.get("groups", {}).get("rating", {})
        rated = {name: band["examples"] for name, band in bands.items()}
        if not recorded and rated and sum(rated.values()) == result.get("test_examples"):
            easy = 100.0 * rated.get("0.0", 0) / result["test_examples"]
            found.setdefault("singles only (by rating)", []).append(easy)
            found.setdefault("exact solver (one solution each)", []).append(100.0)
    return {name: float(np.mean(values)) for name, values in found.items()}


def warning_of(run: RunRecord) -> str:
    if run.config.task.name != BASE.task.name:
        return ""  # nothing here is a table of the paper
    if not run.signature.is_paper_recipe:
        return REDUCED
    if run.data.get("source") == "generated":
        return GENERATED
    size = run.data.get("size")
    if not isinstance(size, int) or size < PAPER_PUZZLES:
        return FEWER
    return ""


def make_group(runs: Sequence[RunRecord], chosen: Sequence[str]) -> Group:
    """Tables that are asked for by name are there even without a run."""
    first = runs[0]
    by_condition: dict[str, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda r: r.seed):
        by_condition.setdefault(run.condition, []).append(run)
    sections, absent = [], []
    task = first.config.task.name
    own = [name for name, table in TABLES.items() if table.task == task]
    for name in [n for n in chosen if n in (*own, BEYOND)] if chosen else [*own, BEYOND]:
        section = (
            other_section(by_condition, task)
            if name == BEYOND
            else table_section(TABLES[name], by_condition)
        )
        if section is None:
            continue
        if chosen or any(line.budget for line in section.lines):
            folded = not chosen and not section.has_own_runs
            sections.append(replace(section, folded=folded))
        else:
            absent.append(name)
    kind = first.signature
    changed = f"; changed: {', '.join(kind.overrides)}" if kind.overrides else ""
    plain = next((r for r in runs if r.condition == "gm"), first)
    return Group(
        kind,
        f"{kind.budget} budget, {board_text(first)}"
        + (", settings changed" if kind.overrides else ""),
        f"{row_budget(plain)}; {data_text(first)}{changed}",
        warning_of(first),
        tuple(sections),
        tuple(absent),
        baselines_of(runs),
        tuple(runs),
    )


def build_report(found: Runs, tables: Sequence[str] = ()) -> Report:
    """Every table of the paper that has runs (or the chosen ones), once for each budget.

    >>> from graph_machine.reports.runs import Runs
    >>> build_report(Runs()).groups
    ()
    """
    chosen = [name if name == BEYOND else TABLES[name].name for name in tables]
    groups: dict[Signature, list[RunRecord]] = {}
    for run in found.runs:
        groups.setdefault(run.signature, []).append(run)
    # The paper's own recipe first.
    order = sorted(groups, key=lambda s: (not s.is_paper_recipe, s))
    made = [make_group(groups[kind], chosen) for kind in order]
    if chosen:  # a table is about one task, and says nothing about runs of another
        made = [group for group in made if group.sections]
        if found.runs and not made:
            raise ConfigError(f"No run here belongs to table {', '.join(chosen)}.")
    return Report(tuple(made), tuple(found.problems))


def number(value: float | None, digits: int = 1) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"
