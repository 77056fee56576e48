"""`graph-machine report`: the paper's tables and learning curves from run folders."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from graph_machine.errors import ConfigError, MissingExtraError, count_of
from graph_machine.files import write_text
from graph_machine.lab.cli._options import Picture, options, read

if TYPE_CHECKING:
    from graph_machine.lab.reports.runs import Runs
    from graph_machine.lab.reports.summary import Report

Axis = Literal["steps", "seconds", "flops"]
FORMATS = {".md": "md", ".html": "html", ".htm": "html", ".json": "json", ".csv": "csv"}


@options
class Args:
    """Tables of the paper from run folders; runs of different budgets are never mixed."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = (Path("runs"),)
    """folders to look for runs in, and study files (see --pack)"""
    table: tuple[str, ...] = ()
    """only these tables: 1 to 8, C.1 to C.6 (of the paper), jigsaw, maze, pointers, algorithms,
    recall, text, beyond; default: all that have runs"""
    format: Literal["md", "html", "json", "csv"] | None = None
    """default: by the ending of --out, else md"""
    out: Path | None = None
    """file to write; default: print"""
    curves: Picture | None = None
    """draw learning curves into this .png or .svg instead of printing; with --out or --format, do
    both (a page of html has curves inside)"""
    against: tuple[Axis, ...] = ("steps", "seconds", "flops")
    """axes of the learning curves, a panel for each"""
    into: Path | None = None
    """instead of printing, renew the marked tables and curves inside this page of Markdown"""
    pack: Path | None = None
    """instead of printing, write the records of all runs into this NAME.study.jsonl: settings,
    results and evaluations, without training lines"""
    compare: str = ""
    """instead of tables, a paired test of two conditions, such as gm,transformer"""


def as_html(report: "Report", against: Sequence[Axis]) -> str:
    from graph_machine.lab.reports import curves
    from graph_machine.lab.reports.render import html

    try:
        return html(report, [curves.svg(group, against) for group in report.groups])
    except MissingExtraError as error:
        print(f"graph-machine report: no curves in the page: {error}", file=sys.stderr)
        return html(report)


def comparisons(found: "Runs", names: str) -> list[str]:
    """One line per budget in which both conditions have a seed in common."""
    from graph_machine.lab.conditions.registry import CONDITIONS
    from graph_machine.lab.reports.compare import compare
    from graph_machine.lab.reports.summary import build_report

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


def _format(args: Args) -> str:
    """What is written; `--out` and `--format` should not say different things."""
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


def main(argv: list[str]) -> int:
    args = read(Args, argv, "report")
    kind = _format(args)
    from graph_machine.lab.reports.page import renew_page
    from graph_machine.lab.reports.render import RENDERERS
    from graph_machine.lab.reports.runs import load_runs, write_study
    from graph_machine.lab.reports.summary import build_report

    found = load_runs(args.runs)
    if args.compare:
        print("\n".join(comparisons(found, args.compare)))
        return 0
    if args.pack is not None:
        write_study(args.pack, [run.stored for run in found.runs])
        print(f"Packed {count_of(len(found.runs), 'runs')} into {args.pack}", file=sys.stderr)
        return _not_counted(found.problems)
    if args.into is not None:
        renew_page(args.into, found)
        print(f"Renewed {args.into}", file=sys.stderr)
        return _not_counted(found.problems)
    report = build_report(found, args.table)
    if args.curves is None or args.out is not None or args.format is not None:
        text = as_html(report, args.against) if kind == "html" else RENDERERS[kind](report)
        if args.out is None:
            print(text, end="")
        else:
            write_text(args.out, text)
            print(f"Wrote {args.out}", file=sys.stderr)
    if args.curves is not None:
        from graph_machine.lab.reports import curves

        for path in curves.save(report.groups, args.curves, args.against):
            print(f"Wrote {path}", file=sys.stderr)
    return _not_counted(report.problems)


def _not_counted(problems: Sequence[str]) -> int:
    for problem in problems:
        print(f"graph-machine report: not counted: {problem}", file=sys.stderr)
    return 0
