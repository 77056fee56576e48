"""A report as Markdown and CSV."""

import csv
import io
from collections.abc import Callable

from graph_machine.reports.render_json import json_text
from graph_machine.reports.summary import Group, Line, Report, Section, number


def columns_of(section: Section) -> list[str]:
    """What stands in the cells of a row after its label and details."""
    first, *rest = section.measures
    names = [first.heading, "deviation", first.extreme, "seeds", *(m.heading for m in rest[:1])]
    names += ["parameters", "minutes", "TFLOP", "budget"]
    return [*names, "paper %"] if section.has_paper else names


def paper_text(line: Line) -> str:
    """The paper's mean, with deviation and maximum where it prints them."""
    if line.paper is None:
        return ""
    text = f"{line.paper.mean:.1f}"
    if line.paper.deviation is not None:
        text += f" ± {line.paper.deviation:.1f}"
    if line.paper.best is not None:
        text += f" (max {line.paper.best:.1f})"
    if line.paper.cells is not None:
        text += f", cells {line.paper.cells:.1f}"
    return text


def standing(line: Line) -> str:
    """`missing`, with what is known of runs that have no result yet."""
    if not line.unfinished:
        return "missing"
    return "missing (" + ", ".join(f"{n} {status}" for status, n in line.unfinished.items()) + ")"


def seeds_text(line: Line) -> str:
    text = str(len(line.scores))
    if line.unfinished:
        text += " (+ " + ", ".join(f"{n} {status}" for status, n in line.unfinished.items()) + ")"
    return text


def compact(value: float) -> str:
    """Three digits that count, and no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cells(line: Line, section: Section) -> list[str]:
    """The cells of a row after its label and details, as `columns_of` says."""
    first, *rest = section.measures
    if line.missing:
        found = [standing(line), "", "", "0", *([""] if rest else []), "", "", ""]
    else:
        found = [
            number(line.mean, first.digits),
            number(line.deviation, first.digits),
            number(first.best(line.scores.values()), first.digits),
            seeds_text(line),
            *(number(line.second, measure.digits) for measure in rest[:1]),
            "" if line.parameters is None else f"{line.parameters:,}",
            number(None if line.seconds is None else line.seconds / 60),
            "" if line.flops is None else compact(line.flops / 1e12),
        ]
    return [*found, line.budget, *([paper_text(line)] if section.has_paper else [])]


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def _section_md(section: Section) -> list[str]:
    lines = [f"### {section.heading}", ""]
    names = columns_of(section)
    lines.append("| " + " | ".join(["condition", *section.columns, *names]) + " |")
    sides = [" --- |" if name == "budget" else " ---: |" for name in names]
    lines.append("| --- |" + " --- |" * len(section.columns) + "".join(sides))
    for line in section.lines:
        row = [line.label, *line.details, *cells(line, section)]
        lines.append("| " + " | ".join(_escape(c) for c in row) + " |")
    found = [line.comparison for line in section.lines if line.comparison is not None]
    if found:
        lines += ["", paired_text(section)]
        digits = section.measures[0].digits
        lines += ["", *[f"- {comparison.told(digits)}" for comparison in found]]
    if section.note:
        lines += ["", f"Note: {section.note}"]
    return [*lines, ""]


def paired_text(section: Section) -> str:
    """The line above the comparisons of a section."""
    return f"Paired by seed, against {section.reference}, in {section.measures[0].difference}:"


def absent_text(group: Group) -> str:
    if not group.absent:
        return ""
    return f"No runs at this budget for any row of table {', '.join(group.absent)}."


def folded_text(group: Group) -> str:
    names = ", ".join(section.name for section in group.sections if section.folded)
    if not names:
        return ""
    return f"Only rows that repeat table 1 were run of table {names}; --table shows them."


def report_markdown(report: Report) -> str:
    """The report as Markdown, one table per section.

    >>> print(report_markdown(Report(groups=())).splitlines()[0])
    # Graph Machine: runs
    """
    lines = ["# Graph Machine: runs", ""]
    for group in report.groups:
        lines += [f"## {group.title}", "", f"Budget: {group.budget}.", ""]
        if group.warning:
            lines += [f"> **{group.warning}**", ""]
        for section in group.sections:
            lines += [] if section.folded else _section_md(section)
        if group.baselines:
            lines += [f"Reference, without learning, on the same test {group.examples_word}:", ""]
            show = group.measures[0].show
            lines += [f"- {name}: {show(value)}" for name, value in group.baselines.items()]
            lines.append("")
        for text in filter(None, (folded_text(group), absent_text(group))):
            lines += [text, ""]
    if report.problems:
        lines += ["## Not counted", "", *[f"- {text}" for text in report.problems], ""]
    lines.append(
        "Mean, deviation (n - 1) and the best value are over seeds; p-values flip signs of the "
        "paired differences. Minutes are wall time on the machine of each run, evaluations "
        "included; TFLOP are the matrix products of all training steps."
    )
    return "\n".join(lines) + "\n"


CSV_FIELDS = (
    "table",
    "label",
    "condition",
    "mean",
    "deviation",
    "max",
    "seeds",
    "cell_accuracy",
    "parameters",
    "seconds",
    "flops",
    "budget_name",
    "steps_batch_board_layers",
    "overrides",
    "data",
    "data_source",
    "paper_recipe",
    "paper_mean",
    "paper_cell_accuracy",
    "difference",
    "difference_low",
    "difference_high",
    "p_value",
    "reference",
    "metric",
    "best",
    "second_metric",
    "second",
)


def csv_text(report: Report) -> str:
    """One row per table row and budget; empty cells are missing.

    >>> csv_text(Report(groups=())).partition(",")[0]
    'table'
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_FIELDS)
    for group in report.groups:
        kind, first = group.signature, group.measures[0]
        second = next((measure.name for measure in group.measures[1:]), None)
        for section in group.sections:
            for line in section.lines:
                found = line.comparison
                writer.writerow(
                    [
                        section.name,
                        line.label,
                        line.condition,
                        line.mean,
                        line.deviation,
                        max(line.scores.values(), default=None),
                        len(line.scores),
                        line.second if second == "cell_accuracy" else None,
                        line.parameters,
                        line.seconds,
                        line.flops,
                        kind.budget,
                        line.budget,
                        " ".join(kind.overrides),
                        kind.data,
                        group.runs[0].data.get("source"),
                        kind.is_paper_recipe,
                        line.paper.mean if line.paper else None,
                        line.paper.cells if line.paper else None,
                        *(
                            (found.mean, found.low, found.high, found.p_value, found.second)
                            if found
                            else (None,) * 5
                        ),
                        first.name,
                        first.best(line.scores.values()),
                        second,
                        line.second,
                    ]
                )
    return out.getvalue()


RENDERERS: dict[str, Callable[[Report], str]] = {
    "md": report_markdown,
    "csv": csv_text,
    "json": json_text,
}
