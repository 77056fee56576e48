"""`graph-machine report`: the paper's tables and learning curves from run folders."""

import sys
from collections.abc import Sequence

from graph_machine.errors import ConfigError, MissingExtraError, count_of
from graph_machine.files import write_text
from graph_machine.lab.cli._options import Axis, ReportOptions
from graph_machine.lab.conditions.registry import CONDITIONS
from graph_machine.lab.reports import curves
from graph_machine.lab.reports.page import renew_page
from graph_machine.lab.reports.render import RENDERERS, html
from graph_machine.lab.reports.runs import Runs, load_runs, write_study
from graph_machine.lab.reports.summary import Report, build_report, compare

FORMATS = {".md": "md", ".html": "html", ".htm": "html", ".json": "json", ".csv": "csv"}


def as_html(report: Report, against: Sequence[Axis]) -> str:
    try:
        return html(report, [curves.svg(group, against) for group in report.groups])
    except MissingExtraError as error:
        print(f"graph-machine report: no curves in the page: {error}", file=sys.stderr)
        return html(report)


def comparisons(found: Runs, names: str) -> list[str]:
    """One line per budget in which both conditions have a seed in common."""
    pair = [name.strip() for name in names.split(",")]
    if len(pair) != 2:
        raise ConfigError(f"--compare takes two conditions, such as gm,transformer, got '{names}'.")
    known = {run.condition for run in found.runs}
    for name in pair:
        if name not in known:
            _ = CONDITIONS[name]  # a name that does not exist has its own error
            raise ConfigError(f"No run of '{name}' here. There are: {', '.join(sorted(known))}.")
    lines = []
    for group in build_report(found).groups:
        scores = [
            {r.seed: r.score for r in group.runs if r.condition == name and r.finished}
            for name in pair
        ]
        result = compare(pair[0], pair[1], *scores)
        if result is not None:
            digits = group.measures[0].digits
            lines.append(f"{group.title} ({group.budget})\n  {result.text(digits)}")
    if not lines:
        raise ConfigError(
            f"'{pair[0]}' and '{pair[1]}' have no finished seed in common at the same budget."
        )
    return lines


def _format(args: ReportOptions) -> str:
    """The format to write; `--out` and `--format` must not contradict each other."""
    if args.out is None:
        return args.format or "md"
    ending = FORMATS.get(args.out.suffix.lower())
    if ending is None and args.format is None:
        raise ConfigError(
            f"--out should end in {', '.join(FORMATS)}, or say --format; got '{args.out.name}'."
        )
    if ending is not None and args.format not in (None, ending):
        raise ConfigError(f"--out {args.out.name} is not --format {args.format}; leave one out.")
    return args.format or ending or "md"


def main(args: ReportOptions) -> int:
    kind = _format(args)
    found = load_runs(args.runs)
    problems = found.problems
    if args.compare:
        print("\n".join(comparisons(found, args.compare)))
        return 0
    if args.pack is not None:
        write_study(args.pack, found.runs)
        print(f"Packed {count_of(len(found.runs), 'runs')} into {args.pack}", file=sys.stderr)
    elif args.into is not None:
        renew_page(args.into, found)
        print(f"Renewed {args.into}", file=sys.stderr)
    else:
        report = build_report(found, args.table)
        problems = report.problems
        if args.curves is None or args.out is not None or args.format is not None:
            text = as_html(report, args.against) if kind == "html" else RENDERERS[kind](report)
            if args.out is None:
                print(text, end="")
            else:
                write_text(args.out, text)
                print(f"Wrote {args.out}", file=sys.stderr)
        if args.curves is not None:
            for path in curves.save(report.groups, args.curves, args.against):
                print(f"Wrote {path}", file=sys.stderr)
    for problem in problems:
        print(f"graph-machine report: not counted: {problem}", file=sys.stderr)
    return 0
