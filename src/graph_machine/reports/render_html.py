"""A report as one HTML page that needs nothing else: styles, tables, bars and curves inside."""

from html import escape

from graph_machine.reports.measures import Measure
from graph_machine.reports.render import absent_text, cells, columns_of, paired_text
from graph_machine.reports.summary import Group, Line, Report, Section, number

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


def _row(line: Line, section: Section) -> str:
    label, values = escape(line.label), [escape(text) for text in cells(line, section)]
    last = len(values) - 1 - section.has_paper  # the budget; what the paper says follows it
    first = f'<td title="{escape(line.condition)}">{label}</td>'
    first += "".join(f'<td class="left">{escape(text)}</td>' for text in line.details)
    if line.missing:
        body = "".join(f"<td>{text}</td>" for text in values[:last])
        kind = ' class="missing"'
    else:
        body = _bar(line.mean or 0.0, values[0], section.measures[0])
        body += "".join(f"<td>{text}</td>" for text in values[1:last])
        kind = ""
    body += f'<td class="left">{values[last]}</td>'
    body += "".join(f'<td class="paper">{text}</td>' for text in values[last + 1 :])
    return f"<tr{kind}>{first}{body}</tr>"


def _bar(value: float, text: str, measure: Measure) -> str:
    """A cell whose background is as long as a share."""
    if not measure.share:
        return f"<td>{text}</td>"
    return f'<td class="bar" style="--share: {value:.1f}%">{text}</td>'


def _section(section: Section) -> str:
    head = "".join(
        f'<th class="left">{c}</th>' if c in ("budget", *section.columns) else f"<th>{c}</th>"
        for c in ("condition", *section.columns, *columns_of(section))
    )
    rows = "".join(_row(line, section) for line in section.lines)
    found = [line.comparison for line in section.lines if line.comparison is not None]
    tests = ""
    if found:
        digits = section.measures[0].digits
        items = "".join(f"<li>{escape(comparison.told(digits))}</li>" for comparison in found)
        tests = f'<div class="tests">{escape(paired_text(section))}<ul>{items}</ul></div>'
    note = f'<p class="tests">{escape(section.note)}</p>' if section.note else ""
    # A table of which only the rows in brackets were run is there, but folded.
    fold = "open" if section.has_own_runs else ""
    more = "" if section.has_own_runs else ' <span class="paper">(no runs of its own rows)</span>'
    return (
        f'<details class="card" {fold}><summary>{escape(section.heading)}{more}</summary>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{tests}{note}</details>"
    )


def _group(group: Group, curves: str | None) -> str:
    parts = [f"<h2>{escape(group.title)}</h2>", f'<p class="soft">{escape(group.budget)}</p>']
    if group.warning:
        parts.append(f'<p class="warn">{escape(group.warning)}</p>')
    parts += [_section(section) for section in group.sections]
    if curves:
        parts.append(
            '<section class="card"><h3>Learning curves (mean and range over seeds)</h3>'
            f"<figure>{curves}</figure></section>"
        )
    if group.baselines:
        measure = group.measures[0]
        items = "".join(
            f"<tr><td>{escape(name)}</td>{_bar(value, number(value, measure.digits), measure)}</tr>"
            for name, value in group.baselines.items()
        )
        parts.append(
            '<section class="card"><h3>Reference: without learning, on the same test '
            f"{escape(group.examples_word)}</h3><table><tbody>{items}</tbody></table></section>"
        )
    if group.absent:
        parts.append(f'<p class="soft">{escape(absent_text(group))}</p>')
    return "".join(parts)


def html(report: Report, curves: list[str | None] | None = None) -> str:
    """The report as one self-contained page. `curves` are SVG elements, one per group (or None).

    >>> html(Report(groups=())).splitlines()[0]
    '<!doctype html>'
    """
    drawn = curves or [None] * len(report.groups)
    body = "".join(_group(g, c) for g, c in zip(report.groups, drawn, strict=True))
    if report.problems:
        items = "".join(f"<li>{escape(text)}</li>" for text in report.problems)
        body += f"<h2>Not counted</h2><ul>{items}</ul>"
    runs = sum(len(group.runs) for group in report.groups)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Graph Machine: runs</title><style>{STYLE}</style></head><body><main>"
        f'<h1>Graph Machine: runs</h1><p class="soft">{runs} runs, {len(report.groups)} budgets. '
        "Mean, deviation (n - 1) and the best value are over seeds; p-values flip the signs of the "
        "paired differences. Minutes are wall time on the machine of each run, evaluations "
        "included; TFLOP are the matrix products of all training steps.</p>"
        f"{body}</main></body></html>\n"
    )
