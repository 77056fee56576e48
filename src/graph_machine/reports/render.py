"""A report as Markdown, CSV and JSON."""

import csv
import io
import json
from collections.abc import Callable

from graph_machine.reports.summary import Group, Line, Report, Section, number, report_dict

COLUMNS = (
    "boards %",
    "deviation",
    "max",
    "seeds",
    "cells %",
    "parameters",
    "minutes",
    "TFLOP",
    "budget",
    "paper %",
)


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


def cells(line: Line) -> list[str]:
    """The cells of a row after its label, as COLUMNS says."""
    if line.missing:
        return [standing(line), "", "", "0", "", "", "", "", line.budget, paper_text(line)]
    return [
        number(line.mean),
        number(line.deviation),
        number(line.best),
        seeds_text(line),
        number(line.cells),
        "" if line.parameters is None else f"{line.parameters:,}",
        number(None if line.seconds is None else line.seconds / 60),
        "" if line.flops is None else compact(line.flops / 1e12),
        line.budget,
        paper_text(line),
    ]


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def _section_md(section: Section) -> list[str]:
    lines = [f"### {section.heading}", ""]
    lines.append("| " + " | ".join(["condition", *section.columns, *COLUMNS]) + " |")
    lines.append("| --- |" + " --- |" * len(section.columns) + " ---: |" * 8 + " --- | ---: |")
    lines += [
        "| " + " | ".join(_escape(c) for c in [line.label, *line.details, *cells(line)]) + " |"
        for line in section.lines
    ]
    found = [line.comparison for line in section.lines if line.comparison is not None]
    if found:
        lines += ["", f"Paired by seed, against {section.reference}, in points of board accuracy:"]
        lines += ["", *[f"- {comparison}" for comparison in found]]
    if section.note:
        lines += ["", f"Note: {section.note}"]
    return [*lines, ""]


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
            lines += ["Reference, without learning, on the same test puzzles:", ""]
            lines += [f"- {name}: {value:.1f}%" for name, value in group.baselines.items()]
            lines.append("")
        for text in filter(None, (folded_text(group), absent_text(group))):
            lines += [text, ""]
    if report.problems:
        lines += ["## Not counted", "", *[f"- {text}" for text in report.problems], ""]
    lines.append(
        "Mean, deviation (n - 1) and maximum are over seeds; p-values flip signs of the paired "
        "differences. Minutes are wall time on the machine of each run, evaluations included; "
        "TFLOP are the matrix products of all training steps."
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
        kind = group.signature
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
                        line.best,
                        len(line.scores),
                        line.cells,
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
                    ]
                )
    return out.getvalue()


def json_text(report: Report) -> str:
    """The report as JSON.

    >>> json_text(Report(groups=()))[0]
    '{'
    """
    return json.dumps(report_dict(report), indent=2) + "\n"


RENDERERS: dict[str, Callable[[Report], str]] = {
    "md": report_markdown,
    "csv": csv_text,
    "json": json_text,
}
