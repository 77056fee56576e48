"""Accuracy by group of examples (hops, nodes, ratings): a row and a curve for each condition."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_machine.errors import ConfigError
from graph_machine.files import atomic_path
from graph_machine.reports.curves import load_figure
from graph_machine.reports.runs import RunRecord

ByCondition = Mapping[str, Sequence[RunRecord]]


def metric_of(runs: Sequence[RunRecord]) -> str:
    """The last metric that the task reports: that of single nodes, where there is one."""
    return [*runs[0].metrics][-1]


def group_scores(runs: Sequence[RunRecord], by: str) -> dict[str, list[float]]:
    """By group, a score for each seed; in percent, where it is a share."""
    found: dict[str, list[float]] = {}
    for run in runs:
        groups = (run.result or {}).get("groups", {})
        if by not in groups:
            known = ", ".join(groups) or "none"
            raise ConfigError(f"The runs of {run.condition} have no groups '{by}'; known: {known}.")
        metric = metric_of(runs)
        for name, facts in groups[by].items():
            if metric in facts:
                found.setdefault(name, []).append(run.points(facts[metric], metric))
    return found


def group_rows(conditions: ByCondition, by: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table: the mean over seeds; lowest and highest where they differ."""
    found = {label(name, runs): group_scores(runs, by) for name, runs in conditions.items()}
    groups = _groups(found)
    digits = next(iter(conditions.values()))[0].measures[-1].digits
    rows = [
        [name, *(_cell(scores.get(group, []), digits) for group in groups)]
        for name, scores in found.items()
    ]
    return [by, *groups], rows


def label(condition: str, runs: Sequence[RunRecord]) -> str:
    return f"{condition} ({len(runs)} seed{'s' if len(runs) > 1 else ''})"


def _groups(found: Mapping[str, Mapping[str, list[float]]]) -> list[str]:
    """Every group of any condition, in their order."""
    return list(dict.fromkeys(group for scores in found.values() for group in scores))


def _cell(scores: Sequence[float], digits: int) -> str:
    if not scores:
        return ""
    low, mean, high = (f"{f(scores):.{digits}f}" for f in (min, np.mean, max))
    return mean if low == high else f"{mean} ({low} to {high})"


def draw_groups(conditions: ByCondition, by: str) -> Any:
    """A curve of every condition against the group; the band is from the lowest to the highest."""
    found = {label(name, runs): group_scores(runs, by) for name, runs in conditions.items()}
    groups = _groups(found)
    figure = load_figure()(figsize=(8.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, scores in found.items():
        places = [groups.index(group) for group in scores]
        values = list(scores.values())
        axes.plot(places, [np.mean(v) for v in values], marker="o", markersize=3.5, label=name)
        axes.fill_between(
            places, [min(v) for v in values], [max(v) for v in values], alpha=0.18, linewidth=0
        )
    axes.set_xticks(range(len(groups)), groups)
    first = next(iter(conditions.values()))
    metric = metric_of(first)
    share = first[0].metrics[metric]["share"]
    axes.set(xlabel=by, ylabel=f"{metric.replace('_', ' ')}{', %' if share else ''}")
    if share:
        axes.set_ylim(-2, 102)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def save_groups(conditions: ByCondition, by: str, path: Path) -> None:
    """The picture as .png or .svg."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"file=... should end in .png or .svg, got '{path.name}'.")
    figure = draw_groups(conditions, by)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=150)
