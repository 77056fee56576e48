"""A report as Markdown, HTML, CSV and JSON. Text that comes from files is escaped everywhere.

The HTML page needs nothing else: styles, tables, bars and curves are inside, and its content
security policy forbids scripts and everything from elsewhere.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from graph_machine.lab.reports.compare import Measure
from graph_machine.lab.reports.summary import Group, Report, Section

HOW = (
    "Mean, deviation (n - 1) and the best value are over seeds; p-values flip the signs of the "
    "paired differences. Minutes are wall time on the machine of each run, evaluations "
    "included; TFLOP are the matrix products of all training steps."
)


def plain(text: object) -> str:
    """A value as Markdown text: no HTML, no links, no control characters, no end of a cell.

    >>> plain("<img src=x> | [a](b)")
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
    lines = ["| " + " | ".join(map(plain, line)) + " |" for line in (head, *rows)]
    return [lines[0], "|" + "".join(sides), *lines[1:]]


def number(value: float | None, digits: int = 1) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def columns_of(section: Section) -> list[str]:
    """Headings of the cells of a row after its label and details."""
    first, *rest = section.measures
    names = [first.heading, "deviation", first.extreme, "seeds", *(m.heading for m in rest[:1])]
    names += ["parameters", "minutes", "TFLOP", "budget"]
    return [*names, "paper %"] if section.has_paper else names


def paper_text(row: Any) -> str:
    """The paper's mean, with deviation and maximum where it prints them."""
    paper = row.paper
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


def compact(value: float) -> str:
    """Three significant digits without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cells(row: Any, section: Section) -> list[str]:
    """The cells of a row after its label and details, as `columns_of` says."""
    first, *rest = section.measures
    others = ", ".join(f"{n} {status}" for status, n in row.unfinished.items())
    if not row.seeds:
        missing = f"missing ({others})" if others else "missing"
        found = [missing, "", "", "0", *([""] if rest else []), "", "", ""]
    else:
        found = [
            number(row.mean, first.digits),
            number(row.deviation, first.digits),
            number(row.best, first.digits),
            f"{row.seeds} (+ {others})" if others else str(row.seeds),
            *(number(row.second, measure.digits) for measure in rest[:1]),
            "" if row.parameters is None else f"{row.parameters:,}",
            number(None if row.seconds is None else row.seconds / 60),
            "" if row.flops is None else compact(row.flops / 1e12),
        ]
    budget = row.steps_batch_board_layers
    return [*found, budget, *([paper_text(row)] if section.has_paper else [])]


def comparisons(section: Section) -> tuple[str, list[str]]:
    """The line above the paired comparisons of a section, and the comparisons."""
    first = section.measures[0]
    head = f"Paired by seed, against {section.reference}, in {first.difference}:"
    return head, [found.text(first.digits) for found in section.table["comparison"] if found]


def absent_text(group: Group) -> str:
    if not group.absent:
        return ""
    return f"No runs at this budget for any row of table {', '.join(group.absent)}."


def folded_text(group: Group) -> str:
    names = ", ".join(section.name for section in group.sections if section.folded)
    if not names:
        return ""
    return f"Only rows that repeat table 1 were run of table {names}; --table shows them."


def _section_md(section: Section) -> list[str]:
    head = ["condition", *section.columns, *columns_of(section)]
    rows = [[row.label, *row.details, *cells(row, section)] for row in section.rows]
    lines = [f"### {plain(section.heading)}", ""]
    lines += markdown_table(head, rows, left=("budget", *section.columns))
    title, found = comparisons(section)
    if found:
        lines += ["", plain(title), "", *[f"- {plain(text)}" for text in found]]
    if section.note:
        lines += ["", f"Note: {section.note}"]
    return [*lines, ""]


def report_markdown(report: Report) -> str:
    """The report as Markdown, one table per section.

    >>> print(report_markdown(Report(groups=())).splitlines()[0])
    # Graph Machine: runs
    """
    lines = ["# Graph Machine: runs", ""]
    for group in report.groups:
        lines += [f"## {plain(group.title)}", "", f"Budget: {plain(group.budget)}.", ""]
        if group.warning:
            lines += [f"> **{group.warning}**", ""]
        for section in group.sections:
            lines += [] if section.folded else _section_md(section)
        if group.baselines:
            lines += [f"Reference, without learning, on the same test {group.examples_word}:", ""]
            show = group.measures[0].show
            lines += [f"- {plain(name)}: {show(value)}" for name, value in group.baselines.items()]
            lines.append("")
        for text in filter(None, (folded_text(group), absent_text(group))):
            lines += [text, ""]
    if report.problems:
        lines += ["## Not counted", "", *[f"- {plain(text)}" for text in report.problems], ""]
    return "\n".join([*lines, HOW]) + "\n"


def csv_text(report: Report) -> str:
    """One row per table row and budget; empty cells are missing.

    >>> csv_text(Report(groups=())).partition(",")[0]
    'table'
    """
    return report.rows.to_csv(index=False, lineterminator="\n")


def _row_data(row: Any, section: Section) -> dict[str, Any]:
    """A row as plain data; the numbers are not rounded."""
    same = ("label", "condition", "mean", "deviation", "max", "best", "seeds", "scores", "second")
    same += ("parameters", "seconds", "flops", "unfinished", "details")
    # The metric after the deciding one also has its own name, such as cell_accuracy.
    named = {measure.name: row.second for measure in section.measures[1:2]}
    return named | {
        **{name: getattr(row, name) for name in same},
        "missing": not row.seeds,
        "budget": row.steps_batch_board_layers,
        "paper": asdict(row.paper) if row.paper else None,
        "comparison": asdict(row.comparison) if row.comparison else None,
    }


def json_text(report: Report) -> str:
    """The report as JSON.

    >>> sorted(json.loads(json_text(Report(groups=()))))
    ['format', 'groups', 'problems', 'unit', 'version']
    """
    units = list(dict.fromkeys(group.measures[0].unit for group in report.groups))
    data = {
        "format": "graph-machine-report",
        "version": 1,
        "unit": units[0] if len(units) == 1 else units,
        "groups": [
            {
                "title": group.title,
                "unit": group.measures[0].unit,
                "metrics": [measure._asdict() for measure in group.measures],
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
                        "title": section.title,
                        "note": section.note,
                        "reference": section.reference,
                        "columns": section.columns,
                        "rows": [_row_data(row, section) for row in section.rows],
                    }
                    for section in group.sections
                ],
            }
            for group in report.groups
        ],
        "problems": report.problems,
    }
    return json.dumps(data, indent=2) + "\n"


RENDERERS: dict[str, Callable[[Report], str]] = {
    "md": report_markdown,
    "csv": csv_text,
    "json": json_text,
}

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6b7e; --line: #dde3ea;
  --paper: #fff; --back: #f4f6f9; --bar: #cfe0fb; --mark: #2563c9; --warn: #fff3d6;
  --warn-ink: #6b4a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf2; --soft: #9aa8ba; --line: #2c3644;
  --paper: #171d26; --back: #10151c; --bar: #23406f; --mark: #7db0ff; --warn: #3a2f12;
  --warn-ink: #f3d58a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .25rem; }
h3, summary { font-size: 1rem; font-weight: 600; margin: 0; padding: .9rem 1rem .6rem; }
summary { cursor: pointer; }
summary .paper { font-weight: 400; font-size: .88rem; }
.soft { color: var(--soft); margin: .1rem 0 .9rem; }
.warn { background: var(--warn); color: var(--warn-ink); border-radius: 8px;
  padding: .7rem 1rem; margin: .75rem 0 1rem; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  margin: 1rem 0; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .38rem .6rem; text-align: right; white-space: nowrap;
  border-top: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); font-size: .82rem; }
th:first-child, td:first-child, .left { text-align: left; }
td.bar { min-width: 6.5rem; background: linear-gradient(90deg, var(--bar) var(--share),
  transparent var(--share)); font-weight: 600; }
tr.missing td { color: var(--soft); font-style: italic; }
.paper { color: var(--soft); }
td.paper { white-space: normal; min-width: 8rem; }
.tests { padding: .6rem 1rem .8rem; margin: 0; color: var(--soft); font-size: .88rem;
  border-top: 1px solid var(--line); }
.tests li { margin-left: 1rem; }
figure { margin: 0; padding: 1rem; }
figure svg { width: 100%; height: auto; background: #fff; border-radius: 6px; }
"""


def tag(name: str, text: str, kind: str = "") -> str:
    """An element with text, which is escaped."""
    opening = f'{name} class="{kind}"' if kind else name
    return f"<{opening}>{escape(text)}</{name}>"


def _bar(value: float, text: str, measure: Measure) -> str:
    """A cell whose background is as long as a share."""
    if not measure.share:
        return tag("td", text)
    return f'<td class="bar" style="--share: {value:.1f}%">{escape(text)}</td>'


def _row_html(row: Any, section: Section) -> str:
    texts = cells(row, section)
    last = len(texts) - 1 - section.has_paper  # the budget; what the paper says follows it
    body = f'<td title="{escape(row.condition)}">{escape(row.label)}</td>'
    body += "".join(tag("td", text, "left") for text in row.details)
    if row.seeds:
        body += _bar(row.mean, texts[0], section.measures[0])
    else:
        body += tag("td", texts[0])
    body += "".join(tag("td", text) for text in texts[1:last]) + tag("td", texts[last], "left")
    body += "".join(tag("td", text, "paper") for text in texts[last + 1 :])
    return f"<tr>{body}</tr>" if row.seeds else f'<tr class="missing">{body}</tr>'


def _section_html(section: Section) -> str:
    left = ("budget", *section.columns)
    names = ("condition", *section.columns, *columns_of(section))
    head = "".join(tag("th", name, "left" if name in left else "") for name in names)
    rows = "".join(_row_html(row, section) for row in section.rows)
    title, found = comparisons(section)
    tests = ""
    if found:
        items = "".join(tag("li", text) for text in found)
        tests = f'<div class="tests">{escape(title)}<ul>{items}</ul></div>'
    note = tag("p", section.note, "tests") if section.note else ""
    # A table of which only the rows in brackets were run is there, but folded.
    fold = "open" if section.has_own_runs else ""
    more = "" if section.has_own_runs else ' <span class="paper">(no runs of its own rows)</span>'
    return (
        f'<details class="card" {fold}><summary>{escape(section.heading)}{more}</summary>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{tests}{note}</details>"
    )


def _group_html(group: Group, curves: str | None) -> str:
    parts = [tag("h2", group.title), tag("p", group.budget, "soft")]
    if group.warning:
        parts.append(tag("p", group.warning, "warn"))
    parts += [_section_html(section) for section in group.sections]
    if curves:
        parts.append(
            '<section class="card"><h3>Learning curves (mean and range over seeds)</h3>'
            f"<figure>{curves}</figure></section>"
        )
    if group.baselines:
        measure = group.measures[0]
        items = "".join(
            f"<tr>{tag('td', name)}{_bar(value, number(value, measure.digits), measure)}</tr>"
            for name, value in group.baselines.items()
        )
        title = f"Reference: without learning, on the same test {group.examples_word}"
        parts.append(
            f'<section class="card">{tag("h3", title)}<table><tbody>{items}</tbody></table>'
            "</section>"
        )
    if group.absent:
        parts.append(tag("p", absent_text(group), "soft"))
    return "".join(parts)


def html(report: Report, curves: list[str | None] | None = None) -> str:
    """The report as one self-contained page. `curves` are SVG elements, one per group (or None).

    >>> html(Report(groups=())).splitlines()[0]
    '<!doctype html>'
    """
    drawn = curves or [None] * len(report.groups)
    body = "".join(_group_html(g, c) for g, c in zip(report.groups, drawn, strict=True))
    if report.problems:
        items = "".join(tag("li", text) for text in report.problems)
        body += f"<h2>Not counted</h2><ul>{items}</ul>"
    runs = sum(len(group.runs) for group in report.groups)
    about = f"{runs} runs, {len(report.groups)} budgets. {HOW}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Graph Machine: runs</title><style>{STYLE}</style></head><body><main>"
        f"<h1>Graph Machine: runs</h1>{tag('p', about, 'soft')}{body}</main></body></html>\n"
    )
