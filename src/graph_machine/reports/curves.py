"""Learning curves of the metric that decides, on the eval split, with a band over seeds.

Against steps, against time (evaluations included, on the machine of each run) and against the
operations of training (matrix products; see training/flops.py). Time is CPU time where every run
counted it, spread evenly over its steps, and wall time elsewhere.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from graph_machine.errors import ConfigError, DataError, MissingExtraError
from graph_machine.files import atomic_path
from graph_machine.reports.runs import RunRecord
from graph_machine.reports.summary import Group

Against = Literal["steps", "seconds", "flops", "cpu"]
AGAINST: tuple[Against, ...] = ("steps", "seconds", "flops")

MOST = 8  # curves in one picture; more cannot be told apart
SECONDS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
FLOPS = (("EFLOP", 1e18), ("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9))


def load_figure() -> Any:
    """matplotlib's Figure without pyplot: no display, no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "analysis", "Drawing curves") from None
    return Figure


class Curve(NamedTuple):
    """One condition: where the evaluations lie, and the metric over its seeds."""

    at: Float[np.ndarray, "evals"]  # steps, seconds or operations; the mean over the seeds
    mean: Float[np.ndarray, "evals"]
    low: Float[np.ndarray, "evals"]
    high: Float[np.ndarray, "evals"]


def eval_curve(run: RunRecord, against: Against = "steps") -> dict[int, tuple[float, float]]:
    """Step -> (place on the axis, the metric that decides); without what was not recorded."""
    found = {}
    for record in run.stored.evaluations:
        value = record.get(run.deciding)
        if not isinstance(value, (int, float)):
            continue
        step = record["step"]
        if against == "seconds":
            place = record.get("seconds")
        elif against == "cpu":
            place = step * ((run.result or {}).get("cpu_seconds") or 0) / run.config.train.steps
        else:
            place = step if against == "steps" else step * (run.flops_per_step or 0)
        if place:
            found[step] = (float(place), run.points(value))
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


def times(group: Group, against: Sequence[Against]) -> list[Against]:
    """The axes with CPU time in place of wall time, where every run of the group counted it.

    Wall time says little of runs that shared their machine.
    """
    counted = all("cpu_seconds" in (run.result or {}) for run in group.runs)
    return ["cpu" if axis == "seconds" and counted else axis for axis in against]


def curves_of(group: Group, against: Against) -> dict[str, Curve]:
    """By label, the conditions of table 1 first."""
    several = len({run.signature.overrides for run in group.runs}) > 1
    rows: dict[str, dict[str, list[RunRecord]]] = {}  # condition -> label -> runs
    for run in group.runs:
        label = run.row if several else run.condition
        rows.setdefault(run.condition, {}).setdefault(label, []).append(run)
    found = {}
    order = {line.condition: None for section in group.sections for line in section.lines}
    for name, runs in (row for condition in order for row in rows.get(condition, {}).items()):
        # A run that stopped early would cut the curve of all seeds short: finished ones, if any.
        runs = [run for run in runs if run.finished] or runs
        curve = band(runs, against)
        if curve is not None:
            found[f"{name} ({len(runs)} seed{'s' if len(runs) > 1 else ''})"] = curve
    return found


def draw(group: Group, against: Sequence[Against] = AGAINST) -> Any:
    """A figure of the group's conditions, a panel for each axis; None if nothing was measured."""
    panels = [(axis, found) for axis in times(group, against) if (found := curves_of(group, axis))]
    if not panels:
        return None
    width = 9.0 if len(panels) == 1 else 2.6 + 3.7 * len(panels)
    figure = load_figure()(figsize=(width, 4.6), layout="constrained")
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
        axes.set(xlabel=label, **({"ylim": (-0.02 * top, 1.02 * top)} if measure.share else {}))
        axes.set_xlim(left=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    solved = f"{measure.title} solved" if measure.title == "boards" else measure.title
    row[0].set_ylabel(f"{solved} on the eval split{', %' if measure.share else ''}")
    row[-1].legend(
        *row[0].get_legend_handles_labels(),
        frameon=False,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        fontsize=9,
    )
    count = max(len(found) for _, found in panels)
    left = f" (the first {MOST} of {count} conditions)" if count > MOST else ""
    row[0].set_title(f"{group.title}{left}", loc="left", fontsize=11)
    return figure


def svg(group: Group, against: Sequence[Against] = AGAINST) -> str | None:
    """The curves as an SVG element, for a page."""
    figure = draw(group, against)
    if figure is None:
        return None
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def save(groups: Sequence[Group], path: Path, against: Sequence[Against] = AGAINST) -> list[Path]:
    """Draw the learning curves: one picture per group (needs matplotlib).

    The file is `path`, with a number added where there are several groups. Returns the files.
    """
    if path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"--curves should end in .png or .svg, got '{path.name}'.")
    figures = [figure for group in groups if (figure := draw(group, against)) is not None]
    if not figures:
        raise DataError("No curves to draw: these runs have no evaluations in metrics.jsonl.")
    written = []
    for index, figure in enumerate(figures):
        name = path if len(figures) == 1 else path.with_stem(f"{path.stem}-{index + 1}")
        with atomic_path(name) as temporary:
            figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=150)
        written.append(name)
    return written
