"""The paper's tables from run records: what was measured, at which budget, and the paper's value.

Runs are grouped by their signature (budget, board, settings, data) and groups are never mixed, so
every mean is over runs that differ in their seed alone. Missing rows are shown as missing. Each
table is a DataFrame; `Report.frame` has all of them.

Conditions are paired by seed: the same seed has the same split of data. The interval is Student's,
for the mean difference; the p-value comes from flipping the signs of the differences, in every way
up to 16 seeds. With few seeds the smallest possible p-value is large (2 / 2^n), and the text says
so.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_machine.errors import ConfigError, MissingExtraError, count_of
from graph_machine.lab.conditions.registry import BASE
from graph_machine.lab.conditions.tables import TABLES, ConditionTable, Row
from graph_machine.lab.reports.runs import RunRecord, Runs, Signature, load_pandas
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.tasks.scores import Metric

if TYPE_CHECKING:
    from pandas import DataFrame

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

DRAWS = 100_000  # of sign patterns; up to 16 seeds there are fewer, and all of them are tried

# Columns of `Report.frame` and of the CSV file.
FIELDS = (
    "table", "label", "condition", "mean", "deviation", "max", "seeds", "cell_accuracy",
    "parameters", "seconds", "flops", "budget_name", "steps_batch_board_layers", "overrides",
    "data", "data_source", "paper_recipe", "paper_mean", "paper_cell_accuracy", "difference",
    "difference_low", "difference_high", "p_value", "reference", "metric", "best", "second_metric",
    "second",
)  # fmt: skip


# Columns of a table that are from its comparison with the reference.
COMPARED = {
    "difference": "mean", "difference_low": "low", "difference_high": "high",
    "p_value": "p_value", "reference": "second",
}  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """Mean difference `first - second` over the seeds that both have.

    >>> print(compare("gm", "transformer", {0: 96.0, 1: 95.0}, {0: 83.0, 1: 84.0}))
    gm - transformer: +12.0 (95% interval -0.7 to +24.7), p = 0.5, 2 seeds: too few ...
    """

    first: str
    second: str
    seeds: tuple[int, ...]
    mean: float
    low: float | None  # 95% interval; None below two seeds
    high: float | None
    p_value: float | None  # None below two seeds
    exact: bool = True

    @property
    def smallest_p(self) -> float:
        """The p-value if all seeds agree: the smallest that this number of seeds can give."""
        return min(1.0, 2.0 ** (1 - len(self.seeds)))

    @property
    def note(self) -> str:
        """Why there are too few seeds for a test; empty if there are enough."""
        n = len(self.seeds)
        if n < 2:
            return "one seed: no test is possible"
        if self.smallest_p > 0.05:
            return f"{n} seeds: too few for p below {self.smallest_p:g}, whatever the difference"
        return ""

    def __str__(self) -> str:
        return self.text()

    def text(self, digits: int = 1) -> str:
        """One line, with `digits` decimal places."""
        text = f"{self.first} - {self.second}: {self.mean:+.{digits}f}"
        if self.low is not None and self.high is not None:
            text += f" (95% interval {self.low:+.{digits}f} to {self.high:+.{digits}f})"
        if self.p_value is not None:
            text += f", p = {self.p_value:.3g}"
        return text + ", " + (self.note or f"{len(self.seeds)} seeds")


def compare(
    first: str, second: str, scores: Mapping[int, float], others: Mapping[int, float]
) -> Comparison | None:
    """Paired comparison of two conditions' scores by seed; None if they share no seed.

    >>> compare("gm", "transformer", {0: 96.0, 1: 95.0}, {0: 83.0, 1: 84.0}).mean
    12.0
    """
    seeds = tuple(sorted(scores.keys() & others.keys()))
    if not seeds:
        return None
    differences = np.array([scores[s] - others[s] for s in seeds])
    mean, n = float(differences.mean()), len(seeds)
    if n < 2:
        return Comparison(first, second, seeds, mean, None, None, None)
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtraError("scipy", "analysis", "A paired test") from None
    half = float(stats.t.ppf(0.975, n - 1) * stats.sem(differences))
    # Whole numbers have exact sums, so that sign patterns of the same sum count as equal.
    whole = np.rint(differences * 1e9)
    test = stats.permutation_test(
        (whole,), np.sum, permutation_type="samples", n_resamples=DRAWS, vectorized=True, rng=0
    )
    around = mean - half, mean + half, float(test.pvalue)
    return Comparison(first, second, seeds, mean, *around, exact=2**n <= DRAWS)


@dataclass(frozen=True)
class Section:
    """One table of the paper (or the conditions beyond it) in one group.

    `table` has the columns `FIELDS`, and besides: `scores` (by seed), `unfinished` (status ->
    number of runs without a result), `details`, `paper` (PaperValue) and `comparison`.
    """

    about: ConditionTable
    table: "DataFrame"
    measures: tuple[Metric, ...]  # the first one decides
    reference: str  # the condition that the others are compared with
    folded: bool = False  # not asked for by name, and only rows of table 1 were run

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def rows(self) -> list[Any]:
        """The rows of `table`, with its columns as attributes."""
        return [*self.table.itertuples()]

    @property
    def heading(self) -> str:
        title = self.about.title
        return title if self.name == BEYOND else f"Table {self.name}: {title}"


@dataclass(frozen=True)
class BudgetGroup:
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
    def measures(self) -> tuple[Metric, ...]:
        """The metrics of its task; the first one decides."""
        return self.runs[0].measures

    @property
    def examples_word(self) -> str:
        """What its task calls examples: `puzzles`."""
        return task_of(self.runs[0].config.task).examples_word


@dataclass(frozen=True)
class Report:
    """Tables of all groups, and the records that were not counted. Made by `build_report`."""

    groups: tuple[BudgetGroup, ...]
    problems: tuple[str, ...] = ()

    @property
    def rows(self) -> "DataFrame":
        """All tables below one another, with None where a value is missing."""
        pandas = load_pandas()
        tables = [section.table for group in self.groups for section in group.sections]
        empty = pandas.DataFrame(columns=list(FIELDS), dtype=object)
        return pandas.concat(tables or [empty], ignore_index=True)[list(FIELDS)]

    @property
    def frame(self) -> "DataFrame":
        """The report as a DataFrame: a row per table row and budget, NaN where a value is missing.

        Its columns are those of the CSV file.
        """
        return self.rows.fillna(float("nan")).infer_objects()


def row_budget(run: RunRecord) -> str:
    """Steps, batch, board and layers of a run, in a few words."""
    train, model = run.config.train, run.config.model
    return (
        f"{count_of(train.steps, 'steps')} x {train.batch_size}, {run.signature.board}, "
        f"{count_of(model.num_layers, 'layers')}"
    )


def table_row(row: Row, runs: Sequence[RunRecord]) -> dict[str, Any]:
    """The metric that decides over the seeds of one group; shares are in percent."""
    finished = [(run, run.result) for run in runs if run.result is not None]
    scores = {run.seed: run.score for run, _ in finished}
    values, seconds = [*scores.values()], [result.seconds for _, result in finished]
    others = [v for run, _ in finished if (v := run.second_score) is not None]
    second = float(np.mean(others)) if others else None
    measures = runs[0].measures if runs else ()
    paper = row.paper
    return {
        "label": row.label,
        "condition": row.condition,
        "mean": float(np.mean(values)) if values else None,
        "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None,  # of the sample
        "max": max(values, default=None),
        "best": measures[0].best(values) if measures else None,
        "seeds": len(scores),
        "cell_accuracy": second if "cell_accuracy" in [m.name for m in measures[1:2]] else None,
        "second": second,
        "parameters": finished[0][1].parameters if finished else None,
        "seconds": float(np.mean(seconds)) if seconds else None,  # wall time
        "flops": finished[0][0].flops if finished else None,  # of all steps; matrix products alone
        "steps_batch_board_layers": row_budget(runs[0]) if runs else "",
        "paper_mean": paper.mean if paper else None,
        "paper_cell_accuracy": paper.cells if paper else None,
        "scores": scores,
        "unfinished": dict(Counter(run.status for run in runs if not run.finished)),
        "details": row.details,
        "paper": paper,
    }


def make_section(table: ConditionTable, by_condition: Mapping[str, Sequence[RunRecord]]) -> Section:
    """The rows of a table, those without runs included, each compared with the reference.

    This is GM if it is in the table, else the main condition that its rows vary.
    """
    first = next(iter(by_condition.values()))[0]
    kind, measures = first.signature, first.measures
    conditions = [row.condition for row in table.rows]
    reference = "gm" if "gm" in conditions else conditions[0]
    if "gm" not in conditions and table.in_paper:
        reference = next(row.condition for row in table.rows if row.label.startswith("("))
    shared = {
        "table": table.name,
        "budget_name": kind.budget,
        "overrides": " ".join(kind.overrides),
        "data": kind.data,
        "data_source": first.info.data.source,
        "paper_recipe": kind.is_paper_recipe,
        "metric": measures[0].name,
        "second_metric": measures[1].name if len(measures) > 1 else None,
    }
    rows = [table_row(row, by_condition.get(row.condition, ())) for row in table.rows]
    base = next((row["scores"] for row in rows if row["condition"] == reference), {})
    for row in rows:
        found = None
        if row["condition"] != reference:
            found = compare(row["condition"], reference, row["scores"], base)
        row |= {**shared, "comparison": found}
        row |= {name: getattr(found, part, None) for name, part in COMPARED.items()}
    # As objects: None stays None, and whole numbers stay whole.
    made = load_pandas().DataFrame(rows, dtype=object)
    return Section(table, made, measures, reference)


def other_conditions(by_condition: Mapping[str, Any], task: str) -> ConditionTable:
    """Conditions that are in no table of their task, and GM to compare them with."""
    tables = [table for table in TABLES.values() if table.task == task]
    in_tables = {row.condition for table in tables for row in table.rows}
    rows = [Row(name, name, None) for name in by_condition if name not in in_tables]
    if rows and "gm" in by_condition and "gm" in in_tables:
        rows.append(Row("(GM)", "gm", None))
    title = f"Conditions, {task}" if not tables else "Other conditions"
    if task == BASE.task.name:
        title = "Conditions beyond the paper"
    return ConditionTable(BEYOND, title, tuple(rows), task=task)


def baselines_of(runs: Sequence[RunRecord]) -> dict[str, float]:
    """What symbolic methods solve, as the runs recorded it, averaged over test splits.

    Without a record it follows from the ratings if every test puzzle has one: rating 0 means that
    naked and hidden singles solve the puzzle; the exact solver solves all with one solution.
    """
    found: dict[str, list[float]] = {}
    for run, result in ((run, run.result) for run in runs if run.result is not None):
        recorded = result.baselines or {}
        for name, value in recorded.items():
            share = value.get(run.measures[0].name) if isinstance(value, dict) else value
            if isinstance(share, (int, float)):
                found.setdefault(name, []).append(run.measures[0].points(share))
        bands = result.groups.get("rating", {})
        rated = {name: band["examples"] for name, band in bands.items()}
        if not recorded and rated and (count := sum(rated.values())) == result.test_examples:
            easy = 100.0 * rated.get("0.0", 0) / count
            found.setdefault("singles only (by rating)", []).append(easy)
            found.setdefault("exact solver (one solution each)", []).append(100.0)
    return {name: float(np.mean(values)) for name, values in found.items()}


def warning_of(run: RunRecord) -> str:
    if run.config.task.name != BASE.task.name:
        return ""  # nothing here is a table of the paper
    if not run.signature.is_paper_recipe:
        return REDUCED
    if run.info.data.source == "generated":
        return GENERATED
    return FEWER if (run.info.data.size or 0) < PAPER_PUZZLES else ""


def make_group(runs: Sequence[RunRecord], chosen: Sequence[str]) -> BudgetGroup:
    """The tables of one budget; those that are chosen by name are there even without a run."""
    first = runs[0]
    by_condition: dict[str, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda r: r.seed):
        by_condition.setdefault(run.condition, []).append(run)
    task = first.config.task.name
    sections, absent = [], []
    known = {name: table for name, table in TABLES.items() if table.task == task}
    known[BEYOND] = other_conditions(by_condition, task)
    for name in [n for n in chosen if n in known] if chosen else known:
        if not known[name].rows:
            continue
        section = make_section(known[name], by_condition)
        if chosen or any(section.table["steps_batch_board_layers"]):
            # Rows in brackets repeat conditions of table 1.
            own = [row for row in section.rows if not row.label.startswith("(")]
            folded = not chosen and not any(row.steps_batch_board_layers for row in own)
            sections.append(replace(section, folded=folded))
        else:
            absent.append(name)
    kind, data, word = first.signature, first.info.data, task_of(first.config.task).examples_word
    # `4x4 boards`, `text 64-bytes`, `maze-9x9`
    board = kind.board if kind.board.startswith(task) else f"{task} {kind.board}"
    board = f"{kind.board} boards" if first.measures[0].title == "boards" else board
    changed = f"; changed: {', '.join(kind.overrides)}" if kind.overrides else ""
    shown = row_budget(next((r for r in runs if r.condition == "gm"), first))
    examples = word if data.size is None else f"{data.size:,} {word}"
    return BudgetGroup(
        kind,
        f"{kind.budget} budget, {board}{', settings changed' if changed else ''}",
        f"{shown}; {examples}, {data.source} (data {data.identity[:12]}){changed}",
        warning_of(first),
        tuple(sections),
        tuple(absent),
        baselines_of(runs),
        tuple(runs),
    )


def build_report(found: Runs, tables: Sequence[str] = ()) -> Report:
    """Every table of the paper that has runs (or the chosen ones), once for each budget.

    >>> from graph_machine.lab.reports.runs import Runs
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
