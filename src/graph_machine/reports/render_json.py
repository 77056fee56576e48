"""A report as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from graph_machine.reports.measures import Measure
from graph_machine.reports.summary import Line, Report


def line_dict(line: Line, measures: Sequence[Measure]) -> dict[str, Any]:
    """A line as plain data; the numbers are not rounded."""
    # The metric after the deciding one also has its own name, such as cell_accuracy.
    named = {} if len(measures) < 2 else {measures[1].name: line.second}
    return named | {
        "label": line.label,
        "condition": line.condition,
        "missing": line.missing,
        "mean": line.mean,
        "deviation": line.deviation,
        "max": max(line.scores.values(), default=None),
        "best": measures[0].best(line.scores.values()),
        "seeds": len(line.scores),
        "scores": line.scores,
        "second": line.second,
        "parameters": line.parameters,
        "seconds": line.seconds,
        "flops": line.flops,
        "budget": line.budget,
        "unfinished": line.unfinished,
        "details": line.details,
        "paper": asdict(line.paper) if line.paper else None,
        "comparison": asdict(line.comparison) if line.comparison else None,
    }


def report_dict(report: Report) -> dict[str, Any]:
    """The whole report as JSON data.

    >>> sorted(report_dict(Report(groups=())))
    ['format', 'groups', 'problems', 'unit', 'version']
    """
    units = list(dict.fromkeys(group.measures[0].unit for group in report.groups))
    return {
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
                        "rows": [line_dict(line, section.measures) for line in section.lines],
                    }
                    for section in group.sections
                ],
            }
            for group in report.groups
        ],
        "problems": report.problems,
    }


def json_text(report: Report) -> str:
    """The report as JSON.

    >>> json_text(Report(groups=()))[0]
    '{'
    """
    return json.dumps(report_dict(report), indent=2) + "\n"
