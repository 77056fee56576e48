"""A report as Markdown, HTML, CSV and JSON. Text that comes from files is escaped everywhere.

The HTML page is the Markdown with a style and curves. It needs nothing else, and its content
security policy forbids scripts and everything from elsewhere.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graph_machine.files import fill
from graph_machine.lab.conditions.tables import PaperValue
from graph_machine.lab.reports.summary import Report, Section

HERE = Path(__file__).parent  # of the templates
HOW = (
    "Mean, deviation (n - 1) and the best value are over seeds; p-values flip the signs of the "
    "paired differences. Minutes are wall time on the machine of each run, evaluations "
    "included; TFLOP are the matrix products of all training steps."
)


def escaped(text: object) -> str:
    """A value as Markdown text: no HTML, no links, no control characters, no end of a cell.

    >>> escaped("<img src=x> | [a](b)")
    '&lt;img src=x> \\\\| \\\\[a](b)'
    """
    shown = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", str(text))
    shown = re.sub(r"([\\|\[])", r"\\\1", shown)
    return shown.replace("&", "&amp;").replace("<", "&lt;")


def markdown_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str] = ()
) -> list[str]:
    """Lines of a table; the first column and those named in `left` are aligned left."""
    sides = [" --- |" if i == 0 or name in left else " ---: |" for i, name in enumerate(head)]
    lines = ["| " + " | ".join(map(escaped, line)) + " |" for line in (head, *rows)]
    return [lines[0], "|" + "".join(sides), *lines[1:]]


def decimal(value: float | None, digits: int = 1) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def section_table(section: Section) -> str:
    """The lines of its table."""
    first, *rest = section.measures

    def texts(row: Any) -> dict[str, str]:
        others = ", ".join(f"{n} {status}" for status, n in row.unfinished.items())
        mean, seeds = decimal(row.mean, first.digits), str(row.seeds)
        tera = None if row.flops is None else row.flops / 1e12
        if not row.seeds:
            mean = f"missing ({others})" if others else "missing"
        elif others:
            seeds += f" (+ {others})"
        return {
            "condition": row.label,
            **dict(zip(section.about.columns, row.details)),
            first.heading: mean,
            "deviation": decimal(row.deviation, first.digits),
            "max" if first.higher_is_better else "min": decimal(row.best, first.digits),
            "seeds": seeds,
            **{measure.heading: decimal(row.second, measure.digits) for measure in rest[:1]},
            "parameters": "" if row.parameters is None else f"{row.parameters:,}",
            "minutes": decimal(None if row.seconds is None else row.seconds / 60),
            "TFLOP": "" if tera is None else f"{tera:,.0f}" if tera >= 100 else f"{tera:.3g}",
            "budget": row.steps_batch_board_layers,
            **({"paper %": paper_text(row.paper)} if section.about.in_paper else {}),
        }

    rows, left = [texts(row) for row in section.rows], ("budget", *section.about.columns)
    return "\n".join(markdown_table([*rows[0]], [[*row.values()] for row in rows], left))


def paper_text(paper: PaperValue | None) -> str:
    """The paper's mean, with deviation and maximum where it prints them."""
    if paper is None:
        return ""
    text = f"{paper.mean:.1f}"
    if paper.deviation is not None:
        text += f" ± {paper.deviation:.1f}"
    if paper.best is not None:
        text += f" (max {paper.best:.1f})"
    if paper.cells is not None:
        text += f", cells {paper.cells:.1f}"
    return text


def _pages(report: Report) -> list[str]:
    """The report as Markdown in parts: a title, each group, and the end."""
    groups = [
        fill(HERE / "group.md.jinja", group=group, escaped=escaped, table=section_table)
        for group in report.groups
    ]
    listed = "".join(f"- {escaped(text)}\n" for text in report.problems)
    problems = f"## Not counted\n\n{listed}\n" if listed else ""
    return ["# Graph Machine: runs\n", *groups, f"{problems}{HOW}\n"]


def report_markdown(report: Report) -> str:
    """The report as Markdown, one table per section.

    >>> print(report_markdown(Report(groups=())).splitlines()[0])
    # Graph Machine: runs
    """
    return "\n".join(_pages(report))


def csv_text(report: Report) -> str:
    """One row per table row and budget; empty cells are missing.

    >>> csv_text(Report(groups=())).partition(",")[0]
    'table'
    """
    return report.rows.to_csv(index=False, lineterminator="\n")


def _rows_data(section: Section) -> list[dict[str, Any]]:
    """Rows as escaped data; the numbers are not rounded."""
    same = ["label", "condition", "mean", "deviation", "max", "best", "seeds", "scores", "second"]
    same += ["parameters", "seconds", "flops", "unfinished", "details", "paper", "comparison"]
    table = section.table[same].assign(budget=section.table["steps_batch_board_layers"])
    table["missing"] = section.table["seeds"] == 0
    for measure in section.measures[1:2]:  # it also has its own name, such as cell_accuracy
        table[measure.name] = table["second"]
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def json_text(report: Report) -> str:
    """The report as JSON.

    >>> sorted(json.loads(json_text(Report(groups=()))))
    ['format', 'groups', 'problems', 'unit', 'version']
    """
    first = [group.measures[0] for group in report.groups]
    units = [f"{m.words} in percent" if m.is_share else m.title for m in first]
    whole = list(dict.fromkeys(units))
    data = {
        "format": "graph-machine-report",
        "version": 1,
        "unit": whole[0] if len(whole) == 1 else whole,
        "groups": [
            {
                "title": group.title,
                "unit": unit,
                "metrics": [{"name": m.name, **m.facts()} for m in group.measures],
                "budget": group.budget,
                "warning": group.warning,
                "is_paper_recipe": group.signature.is_paper_recipe,
                "overrides": group.signature.overrides,
                "data": group.signature.data,
                "baselines": group.baselines,
                "tables_without_runs": group.absent,
                "tables": [
                    {
                        "table": section.name,
                        "title": section.about.title,
                        "note": section.about.note,
                        "reference": section.reference,
                        "columns": section.about.columns,
                        "rows": _rows_data(section),
                    }
                    for section in group.sections
                ],
            }
            for group, unit in zip(report.groups, units, strict=True)
        ],
        "problems": report.problems,
    }
    return json.dumps(data, indent=2, default=asdict) + "\n"


RENDERERS: dict[str, Callable[[Report], str]] = {
    "md": report_markdown,
    "csv": csv_text,
    "json": json_text,
}


def html(report: Report, curves: list[str | None] | None = None) -> str:
    """The report as one self-contained page. `curves` are SVG elements, one per group (or None).

    >>> html(Report(groups=())).splitlines()[0]
    '<!doctype html>'
    """
    from markdown_it import MarkdownIt

    # HTML in the text stays text.
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    drawn = [None, *(curves or [None] * len(report.groups)), None]
    body = "".join(
        markdown.render(text) + (f"<figure>{picture}</figure>" if picture else "")
        for text, picture in zip(_pages(report), drawn, strict=True)
    )
    return fill(HERE / "report.html.jinja", body=body)
