"""Plots by layer: temperatures and entropies, reach and regions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_machine.lab.analysis.detectors import MADE
from graph_machine.lab.analysis.figures.board import LINE, NOTE_SIZE, TITLE_SIZE, new_figure
from graph_machine.lab.analysis.statistics import PAPER, TABLES, Group, Table, statistics_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b")
STYLES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dash-dot"}


def layers_figure(groups: Sequence[Group]) -> "Figure":
    """The four tables layer by layer: a panel each, a colour per column, a line style per model.

    Bands are one deviation over seeds. Ticks at the right are the paper's means over all layers,
    at its own budget.
    """
    notes = [
        f"{word}: {group.condition} ({group.budget}; seeds: {len(group.found)})"
        for word, group in zip(STYLES.values(), groups)
    ]
    notes.append("Ticks at the right: the paper's means, of its own budget.")
    if any(group.has_core for group in groups):
        notes.append("Layers before the recurrent core; statistics.md has the core.")
    height = 6.4 + 0.12 * len(notes)
    figure = new_figure(7.4, height)
    axes = figure.subplots(2, 2)
    for table, panel in zip(TABLES, np.ravel(axes)):
        _plot_table(panel, table, groups)
    figure.text(0.02, 0.01, "\n".join(notes), fontsize=NOTE_SIZE, va="bottom")
    bottom = (0.75 + 0.12 * len(notes)) / height
    figure.subplots_adjust(left=0.07, right=0.97, top=0.95, bottom=bottom, hspace=0.48, wspace=0.18)
    return figure


def finish(panel: "Axes", title: str, **legend: Any) -> None:
    """Title, ticks at whole layers only, grid and legend."""
    from matplotlib.ticker import MaxNLocator

    panel.set_title(title, fontsize=TITLE_SIZE + 1)
    panel.set_xlabel("layer", fontsize=TITLE_SIZE, labelpad=1)
    panel.tick_params(labelsize=NOTE_SIZE)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.grid(color="#e6e6e6", linewidth=0.5)
    panel.legend(**{"fontsize": NOTE_SIZE, "frameon": False} | legend)


def _plot_table(panel: "Axes", table: Table, groups: Sequence[Group]) -> None:
    frames = [statistics_frame([group]) for group, _ in zip(groups, STYLES)]
    for number, column in enumerate(table.columns):
        colour, label = COLOURS[number], column.heading
        # Later headings of a sublayer are short in the table; a legend names them in full.
        if ":" not in label and len(table.columns) > 2:
            label = f"{column.quantity.partition('.')[0]} sublayer: {label}"
        for frame, style in zip(frames, STYLES):
            mine = frame[(frame["quantity"] == column.quantity) & (frame["round"] == 0)]
            if mine.empty:
                continue
            layers = mine.groupby("layer")["value"].agg(["mean", "std"])
            x, y, band = layers.index, layers["mean"], layers["std"]
            look = {"color": colour, "linewidth": 1.2, "marker": "o", "markersize": 2}
            panel.plot(x, y, style, label=label, **look)
            label = "_"
            if band.notna().all():
                panel.fill_between(x, y - band, y + band, color=colour, alpha=0.15, linewidth=0)
        for kind in dict.fromkeys(group.kind for group in groups):
            if column.quantity in PAPER[kind]:
                panel.axhline(PAPER[kind][column.quantity], xmin=0.975, color=colour, linewidth=2)
    if "temp" in table.key:
        from matplotlib.ticker import LogLocator, NullLocator

        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        panel.yaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_formatter("{x:g}")
    else:
        panel.set_ylim(0, 1.02)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12)}
    columns = 2 if len(table.columns) < 6 else 3
    finish(panel, table.title, fontsize=NOTE_SIZE - 0.5, ncols=columns, **place)
    for spine in panel.spines.values():
        spine.set(color=LINE, linewidth=0.6)


def reach_figure(groups: Sequence[Group]) -> "Figure | None":
    """Reach of new edges in hops, and the overlap with each region, layer by layer."""
    made = [(group, group.found[0].by_layer) for group in groups]
    made = [(group, by_layer) for group, by_layer in made if by_layer("edge:out.all")]
    if not made:
        return None
    figure = new_figure(7.4, 2.9)
    left, right = figure.subplots(1, 2)
    tops: list[tuple[int, float]] = []
    for (group, by_layer), colour in zip(made, COLOURS):
        for quantity, style, size, word in (
            ("farthest", "-o", 3, "most"), ("reach", ":o", 2, "mean")
        ):  # fmt: skip
            hops = {n: v for n, v in by_layer(f"edge:out.{quantity}").items() if not np.isnan(v)}
            name = f"{group.condition}: {word}"
            left.plot([*hops], [*hops.values()], style, color=colour, markersize=size, label=name)
            tops += hops.items()
    if tops:
        layers, most = sorted({layer for layer, _ in tops}), max(value for _, value in tops)
        doubling = [min(2.0 ** (layer + 1), most) for layer in layers]
        left.plot(layers, doubling, color="#999999", linewidth=0.8, label="doubling: 2, 4, 8")
    first, by_layer = made[0]
    wanted = {name: by_layer(f"edge:out.{name}") for name in (*MADE, "self")}
    for (name, best), colour in zip(((n, b) for n, b in wanted.items() if b), COLOURS):
        right.plot([*best], [*best.values()], "-o", color=colour, markersize=3, label=name)
    right.set_ylim(0, 1.02)
    finish(left, "Reach of new edges (hops with 5% of the mass)")
    finish(right, f"{first.condition}: overlap of each cell's best slot")
    note = "; ".join(f"{group.condition}: {group.budget}" for group, _ in made)
    figure.text(0.02, 0.02, note, fontsize=NOTE_SIZE)
    figure.subplots_adjust(left=0.06, right=0.98, top=0.91, bottom=0.2, wspace=0.16)
    return figure
