"""Pictures of a report: learning curves, accuracy by group of examples, accuracy by rounds.

Learning curves are of the metric that decides, on the eval split, with a band over seeds: against
steps, time (evaluations included, on the machine of each run) and the operations of training
(matrix products; see training/flops.py). Time is CPU time if every run counted it, spread evenly
over its steps, and wall time otherwise.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from graph_machine.errors import ConfigError, DataError, MissingExtraError, count_of, did_you_mean
from graph_machine.files import write_bytes
from graph_machine.lab.reports.runs import RunRecord
from graph_machine.lab.reports.summary import BudgetGroup
from graph_machine.lab.tasks.scores import Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Against = Literal["steps", "seconds", "flops", "cpu"]
AGAINST: tuple[Against, ...] = ("steps", "seconds", "flops")

MOST = 8  # curves in one picture; more look alike
SECONDS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
FLOPS = (("EFLOP", 1e18), ("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9))


def empty_figure(width: float, height: float) -> "Figure":
    """An empty figure without pyplot: no display, no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "analysis", "Drawing curves") from None
    return Figure(figsize=(width, height), layout="constrained")


def add_legend(axes: "Axes", *entries: Any, **how: Any) -> None:
    """A legend whose text comes from files: a dollar sign in it is not mathematics."""
    for text in axes.legend(*entries, frameon=False, **how).get_texts():
        text.set_parse_math(False)


def save_picture(figure: "Figure", path: Path, dpi: int = 150) -> None:
    """Write a figure as .png or .svg."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"A picture's name should end in .png or .svg, got '{path.name}'.")
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=dpi)
    write_bytes(path, drawn.getvalue())


def tidy(axes: "Axes") -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


class Curve(NamedTuple):
    """One condition: where the evaluations lie, and the metric over its seeds."""

    at: Float[np.ndarray, "evals"]  # steps, seconds or operations; the mean over the seeds
    mean: Float[np.ndarray, "evals"]
    low: Float[np.ndarray, "evals"]
    high: Float[np.ndarray, "evals"]


def eval_curve(run: RunRecord, against: Against = "steps") -> dict[int, tuple[float, float]]:
    """Step -> (place on the axis, the metric that decides); evaluations without it are left out."""
    found = {}
    for record in run.evaluations:
        value = record.get(run.measures[0].name)
        if not isinstance(value, (int, float)):
            continue
        step = record["step"]
        if against == "seconds":
            place = record.get("seconds")
        elif against == "cpu":
            spent = run.result.cpu_seconds if run.result else None
            place = step * (spent or 0) / run.config.train.steps
        else:
            place = step if against == "steps" else step * (run.flops_per_step or 0)
        if place:
            found[step] = (float(place), run.measures[0].points(value))
    return found


def band(runs: Sequence[RunRecord], against: Against = "steps") -> Curve | None:
    """The evaluations that all seeds reached; mean, lowest and highest value over the seeds."""
    curves = [curve for run in runs if (curve := eval_curve(run, against))]
    steps = sorted(set.intersection(*[set(curve) for curve in curves])) if curves else []
    if not steps:
        return None
    values = np.array([[curve[step] for step in steps] for curve in curves])  # seeds evals 2
    accuracy = values[:, :, 1]
    return Curve(values[:, :, 0].mean(0), accuracy.mean(0), accuracy.min(0), accuracy.max(0))


def unit(against: Against, most: float) -> tuple[str, float]:
    """The label of an axis that reaches `most`, and what its values are divided by."""
    if against == "steps":
        return "step", 1.0
    sizes = FLOPS if against == "flops" else SECONDS
    name, size = next(((n, s) for n, s in sizes if most >= 2 * s), sizes[-1])
    what = {"seconds": "wall time", "cpu": "CPU time", "flops": "training compute"}[against]
    return f"{what}, {name}", size


def times(group: BudgetGroup, against: Sequence[Against]) -> list[Against]:
    """The axes with CPU time in place of wall time, where every run of the group counted it.

    Wall time says little of runs that shared their machine.
    """
    counted = all(run.result and run.result.cpu_seconds is not None for run in group.runs)
    return ["cpu" if axis == "seconds" and counted else axis for axis in against]


def curves_of(group: BudgetGroup, against: Against) -> dict[str, Curve]:
    """By label, the conditions of table 1 first."""
    several = len({run.signature.overrides for run in group.runs}) > 1
    rows: dict[str, dict[str, list[RunRecord]]] = {}  # condition -> label -> runs
    for run in group.runs:
        label = run.row if several else run.condition
        rows.setdefault(run.condition, {}).setdefault(label, []).append(run)
    found = {}
    order = {name: None for section in group.sections for name in section.table["condition"]}
    for name, runs in (row for condition in order for row in rows.get(condition, {}).items()):
        # A run that stopped early would cut the curve of all seeds short: finished ones, if any.
        runs = [run for run in runs if run.finished] or runs
        curve = band(runs, against)
        if curve is not None:
            found[f"{name} ({count_of(len(runs), 'seeds')})"] = curve
    return found


def draw_curves(group: BudgetGroup, against: Sequence[Against] = AGAINST) -> "Figure | None":
    """A figure of the group's conditions, a panel for each axis; None if nothing was measured."""
    panels = [(axis, found) for axis in times(group, against) if (found := curves_of(group, axis))]
    if not panels:
        return None
    width = 9.0 if len(panels) == 1 else 2.6 + 3.7 * len(panels)
    figure = empty_figure(width, 4.6)
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    colours: dict[str, Any] = {}  # a condition looks the same in every panel
    highest = max(curve.high.max() for _, found in panels for curve in found.values())
    measure = group.measures[0]
    # Of a share, low curves stay apart.
    top = 100.0 if highest > 50 else max(10.0, 1.15 * highest)
    for axes, (axis, found) in zip(row, panels, strict=True):
        shown = list(found.items())[:MOST]
        label, size = unit(axis, max(curve.at[-1] for _, curve in shown))
        for name, curve in shown:
            colour = colours.setdefault(name, f"C{len(colours)}")
            at, marker = curve.at / size, "o" if len(curve.at) == 1 else None
            axes.plot(at, curve.mean, label=name, linewidth=1.8, marker=marker, color=colour)
            axes.fill_between(at, curve.low, curve.high, alpha=0.18, color=colour, linewidth=0)
        axes.set(xlabel=label, **({"ylim": (-0.02 * top, 1.02 * top)} if measure.is_share else {}))
        axes.set_xlim(left=0)
        tidy(axes)
    solved = f"{measure.title} solved" if measure.title == "boards" else measure.title
    label = f"{solved} on the eval split{', %' if measure.is_share else ''}"
    row[0].set_ylabel(label, parse_math=False)
    entries = row[0].get_legend_handles_labels()
    add_legend(row[-1], *entries, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    count = max(len(found) for _, found in panels)
    left = f" (the first {MOST} of {count} conditions)" if count > MOST else ""
    row[0].set_title(f"{group.title}{left}", loc="left", fontsize=11, parse_math=False)
    return figure


def svg(group: BudgetGroup, against: Sequence[Against] = AGAINST) -> str | None:
    """The curves as an SVG element, for a page."""
    figure = draw_curves(group, against)
    if figure is None:
        return None
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def save(
    groups: Sequence[BudgetGroup], path: Path, against: Sequence[Against] = AGAINST
) -> list[Path]:
    """Draw the learning curves: one picture per group (needs matplotlib).

    The file is `path`, with a number added where there are several groups. Returns the files.
    """
    figures = [figure for group in groups if (figure := draw_curves(group, against)) is not None]
    if not figures:
        raise DataError("No curves to draw: these runs have no evaluations in metrics.jsonl.")
    written = []
    for index, figure in enumerate(figures):
        name = path if len(figures) == 1 else path.with_stem(f"{path.stem}-{index + 1}")
        save_picture(figure, name)
        written.append(name)
    return written


Rows = Mapping[str, Sequence[RunRecord]]  # by label


def group_metric(rows: Rows, name: str) -> Metric:
    """The metric of this name; without one, the task's last: that of single nodes, if any."""
    measures = {measure.name: measure for measure in next(iter(rows.values()))[0].measures}
    if name and name not in measures:
        raise ConfigError(f"Unknown metric '{name}' in a mark.{did_you_mean(name, measures)}")
    return measures[name or [*measures][-1]]


def group_scores(rows: Rows, by: str, metric: str = "") -> dict[str, dict[str, list[float]]]:
    """By label and group of examples, a score for each seed; in percent if it is a share."""
    measure = group_metric(rows, metric)
    found: dict[str, dict[str, list[float]]] = {}
    for label, runs in rows.items():
        mine = found.setdefault(f"{label} ({count_of(len(runs), 'seeds')})", {})
        for run in runs:
            groups = run.result.groups if run.result else {}
            if by not in groups:
                known = ", ".join(groups) or "none"
                raise ConfigError(
                    f"The runs of {run.condition} have no groups '{by}'; known: {known}."
                )
            for name, facts in groups[by].items():
                if facts.get(measure.name) is not None:
                    mine.setdefault(name, []).append(measure.points(facts[measure.name]))
    return found


def group_table(rows: Rows, by: str, metric: str = "") -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table: the mean over seeds, with lowest and highest if they differ."""
    found = group_scores(rows, by, metric)
    groups = list(dict.fromkeys(group for scores in found.values() for group in scores))
    digits = group_metric(rows, metric).digits

    def cell(scores: Sequence[float]) -> str:
        if not scores:
            return ""
        low, mean, high = (f"{f(scores):.{digits}f}" for f in (min, np.mean, max))
        return mean if low == high else f"{mean} ({low} to {high})"

    return [by, *groups], [
        [label, *(cell(scores.get(group, [])) for group in groups)]
        for label, scores in found.items()
    ]


def save_groups(rows: Rows, by: str, path: Path, metric: str = "") -> None:
    """A curve of every row against the group; the band is from the lowest seed to the highest."""
    found = group_scores(rows, by, metric)
    groups = list(dict.fromkeys(group for scores in found.values() for group in scores))
    columns = 2 if max(map(len, found)) < 56 else 1  # of the legend
    figure = empty_figure(8.4, 3.6 + 0.16 * len(found) / columns)
    axes = figure.subplots()
    for number, (label, scores) in enumerate(found.items()):
        places, values = [groups.index(group) for group in scores], list(scores.values())
        how = {"color": f"C{number % 10}", "linestyle": "-" if number < 10 else "--"}
        means = [np.mean(v) for v in values]
        axes.plot(places, means, marker="o", markersize=3.5, label=label, **how)
        low, high = ([f(v) for v in values] for f in (min, max))
        axes.fill_between(places, low, high, alpha=0.18, linewidth=0, color=how["color"])
    axes.set_xticks(range(len(groups)), groups, parse_math=False)
    measure = group_metric(rows, metric)
    axes.set_xlabel(by, parse_math=False)
    axes.set_ylabel(f"{measure.words}{', %' if measure.is_share else ''}", parse_math=False)
    if measure.is_share:
        axes.set_ylim(-2, 102)
    tidy(axes)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": columns}
    add_legend(axes, fontsize=7.5, **below)
    save_picture(figure, path)


def save_best(
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    published: Mapping[str, Mapping[str, float]],
    path: Path,
) -> None:
    """Scores in percent by label and board: small dots are seeds, large ones their mean, and
    upright lines are published."""
    boards = list(dict.fromkeys(board for rows in scores.values() for board in rows))
    figure = empty_figure(9.0, 0.8 + 0.62 * len(boards))
    axes = figure.subplots()
    for number, (label, rows) in enumerate(scores.items()):
        colour, shift = f"C{number % 10}", 0.5 * (number / max(1, len(scores) - 1) - 0.5)
        rows = {board: values for board, values in rows.items() if values}
        at = {board: boards.index(board) + shift for board in rows}
        for board, values in rows.items():
            axes.plot(
                values, [at[board]] * len(values), ".", color=colour, alpha=0.45, markersize=4
            )
        means = [np.mean(values) for values in rows.values()]
        axes.plot(means, list(at.values()), "o", color=colour, markersize=6, label=label)
    for number, (label, column) in enumerate(published.items()):
        known = [board for board in boards if board in column]
        places = np.array([boards.index(board) for board in known])
        found = [column[board] for board in known]
        axes.vlines(
            *(found, places - 0.4, places + 0.4),
            label=label,
            colors="0.25",
            linestyles="solid" if number else "dotted",
            linewidth=1.6,
        )
    axes.set_yticks(range(len(boards)), boards, parse_math=False)
    axes.set(xlabel="score, %", xlim=(-2, 102), ylim=(len(boards) - 0.5, -0.5))
    tidy(axes)
    add_legend(axes, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_picture(figure, path)


def draw_rounds(
    lines: Mapping[str, Sequence[float | None]],
    rounds: Sequence[int],
    trained: int,
    path: Path,
    title: str,
) -> None:
    """Accuracy against rounds, a line per metric; the trained number of rounds is marked.

    >>> shares = {"boards": [0.1, 0.4, 0.45]}
    >>> draw_rounds(shares, rounds=[5, 20, 80], trained=20, path=Path("rounds.png"), title="9x9")
    >>> Path("rounds.png").exists()
    True
    """
    figure = empty_figure(6.4, 4.0)
    axes = figure.subplots()
    for name, values in lines.items():
        axes.plot(rounds, [100 * (value or 0.0) for value in values], marker="o", label=name)
    axes.axvline(trained, color="0.6", linestyle=":", linewidth=1.2)
    axes.annotate(
        "trained", (trained, 0), xytext=(4, 4), textcoords="offset points", color="0.4", fontsize=9
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(rounds), [str(number) for number in rounds])
    axes.set_ylim(bottom=0, top=101)
    axes.set(xlabel="rounds", ylabel="right, %")
    axes.set_title(title, parse_math=False)
    axes.grid(alpha=0.25)
    add_legend(axes)
    save_picture(figure, path, dpi=140)
