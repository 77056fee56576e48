"""Learning curves: board accuracy on the eval split, with a band over seeds (needs matplotlib)."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_machine.errors import ConfigError, DataError, MissingExtraError
from graph_machine.experiments.report import Group
from graph_machine.experiments.results import Run
from graph_machine.files import atomic_path

MOST = 8  # curves in one picture; more cannot be told apart


def load_figure() -> Any:
    """matplotlib's Figure without pyplot: no display, no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "analysis", "Drawing curves") from None
    return Figure


def eval_curve(run: Run) -> dict[int, float]:
    """Board accuracy in percent by step."""
    return {
        record["step"]: 100.0 * record["board_accuracy"]
        for record in run.metrics()
        if record.get("kind") == "eval" and "board_accuracy" in record and "step" in record
    }


def band(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Steps that all seeds reached, with mean, lowest and highest accuracy over the seeds."""
    curves = [curve for run in runs if (curve := eval_curve(run))]
    if not curves:
        return None
    steps = sorted(set.intersection(*[set(curve) for curve in curves]))
    if not steps:
        return None
    values = np.array([[curve[step] for step in steps] for curve in curves])
    return np.array(steps), values.mean(0), values.min(0), values.max(0)


def draw(group: Group) -> Any:
    """A figure of the group's conditions, those of table 1 first; None if nothing was measured."""
    by_condition: dict[str, list[Run]] = {}
    for run in group.runs:
        by_condition.setdefault(run.condition, []).append(run)
    # A run that stopped early would cut the curve of all seeds short: finished ones, if any.
    for name, runs in by_condition.items():
        by_condition[name] = [run for run in runs if run.finished] or runs
    order = {line.condition: None for section in group.sections for line in section.lines}
    names = [name for name in order if name in by_condition]
    found = [(name, data) for name in names if (data := band(by_condition[name])) is not None]
    if not found:
        return None
    figure = load_figure()(figsize=(9, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for name, (steps, mean, low, high) in found[:MOST]:
        marker = "o" if len(steps) == 1 else None
        seeds = len(by_condition[name])
        label = f"{name} ({seeds} seed{'s' if seeds > 1 else ''})"
        (drawn,) = axes.plot(steps, mean, label=label, linewidth=1.8, marker=marker)
        axes.fill_between(steps, low, high, alpha=0.18, color=drawn.get_color(), linewidth=0)
    axes.set(xlabel="step", ylabel="boards solved on the eval split, %", ylim=(-2, 102))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    left = f" (the first {MOST} of {len(found)} conditions)" if len(found) > MOST else ""
    axes.set_title(f"{group.title}{left}", loc="left", fontsize=11)
    return figure


def svg(group: Group) -> str | None:
    """The curves as an SVG element, for a page."""
    figure = draw(group)
    if figure is None:
        return None
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def save(groups: Sequence[Group], path: Path) -> list[Path]:
    """One picture per group: `path` itself, or with a number where there are several groups."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"--curves should end in .png or .svg, got '{path.name}'.")
    figures = [figure for group in groups if (figure := draw(group)) is not None]
    if not figures:
        raise DataError("No curves to draw: these runs have no evaluations in metrics.jsonl.")
    written = []
    for index, figure in enumerate(figures):
        name = path if len(figures) == 1 else path.with_stem(f"{path.stem}-{index + 1}")
        with atomic_path(name) as temporary:
            figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=150)
        written.append(name)
    return written
