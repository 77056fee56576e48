"""Edges in a maze: for every open cell, where one of its slots points, sublayer by sublayer."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int, Integer

from graph_machine.analysis.figures.node_link import FAINT, Pointing, arrow, new_edges, wrong_nodes
from graph_machine.analysis.figures.style import (
    INFERRED,
    LINE,
    NOTE_SIZE,
    THIN,
    TITLE_SIZE,
    WRONG,
    new_figure,
)
from graph_machine.analysis.regions import hop_distances
from graph_machine.errors import DataError
from graph_machine.records.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4
# Tokens of a maze.
WALL = 0
ENDS = {2: "S", 3: "G"}
PATH_COLOUR = "#f6d55c"
CAPTION = (
    "Each open cell's heaviest target in the slot that reaches farthest along the passages;\n"
    "darker arrows have more weight (below {faint:g}: left out). Yellow: the shortest path.\n"
    "Rings: cells that the model answers wrongly."
)


def passages(cells: Integer[np.ndarray, "n"], side: int) -> Int[np.ndarray, "n 4"]:
    """The open neighbours of every open cell; -1 where there is none.

    >>> passages(np.array([2, 1, 0, 3]), side=2).tolist()  # S . over # G
    [[-1, -1, -1, 1], [-1, 3, 0, -1], [-1, -1, -1, -1], [1, -1, -1, -1]]
    """
    n = len(cells)
    places = np.arange(n)
    rows, columns = np.divmod(places, side)
    found = np.full((n, 4), -1)
    for slot, (down, right) in enumerate(((-1, 0), (1, 0), (0, -1), (0, 1))):
        row, column = rows + down, columns + right
        inside = (row >= 0) & (row < n // side) & (column >= 0) & (column < side)
        targets = np.where(inside, row * side + column, places)
        linked = inside & (cells != WALL) & (cells[targets] != WALL)
        found[linked, slot] = targets[linked]
    return found


def edges_in_maze(record: Record, *, sample: int = 0) -> "Figure":
    """The maze with its shortest path, then the new edges of every edge sublayer or round."""
    stages, tokens, paths = new_edges(record), record.tokens, record.solutions
    if record.grid is None or tokens is None or paths is None or not stages:
        raise DataError(
            "Edges in a maze need a recording of address_outs, with tokens and answers."
        )
    if len(record.sources) != record.nodes:
        raise DataError("Edges in a maze need a recording of all sources (--sources all).")
    cells, path = tokens[record.row(sample)], paths[record.row(sample)]
    hops = hop_distances(passages(cells, record.grid[1]))
    opened = cells != WALL
    # Both ends are on the path in any case: they are no question.
    wrong = wrong_nodes(record, sample) & opened & ~np.isin(cells, list(ENDS))
    count = len(stages) + 1
    rows, columns = -(-count // COLUMNS), min(COLUMNS, count)
    figure = new_figure(2.1 * columns, 2.3 * rows + 0.75)
    figure.suptitle(f"{record.name}: edges in one maze", fontsize=TITLE_SIZE + 2, weight="bold")
    figure.subplots_adjust(
        left=0.02, right=0.98, top=1 - 0.45 / figure.get_figheight(),
        bottom=0.55 / figure.get_figheight(), wspace=0.05, hspace=0.12,
    )  # fmt: skip
    for number in range(count):
        axes = figure.add_subplot(rows, columns, number + 1)
        found, title = None, "the maze"
        if number:
            name, place = stages[number - 1]
            found = Pointing.farthest(record.of_sample(place, sample), hops)
            far = found.hops[opened & ~np.isnan(found.hops)]
            reach = f", {far.mean():.1f} steps on average" if far.size else ""
            title = f"{name}, slot {found.slot}{reach}"
        _draw(axes, cells.reshape(record.grid), path.reshape(record.grid), found, wrong)
        axes.set_title(title, fontsize=TITLE_SIZE, pad=2)
    figure.text(0.02, 0.02, CAPTION.format(faint=FAINT), fontsize=NOTE_SIZE, color=LINE)
    return figure


def _draw(
    axes: "Axes",
    cells: Integer[np.ndarray, "rows columns"],
    path: Integer[np.ndarray, "rows columns"],
    found: Pointing | None,
    wrong: np.ndarray,
) -> None:
    from matplotlib.colors import ListedColormap

    kinds = np.where(cells == WALL, 1, np.where(path > 0, 2, 0))
    colours = ListedColormap(["white", THIN, PATH_COLOUR])
    axes.imshow(kinds, cmap=colours, vmin=0, vmax=2, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    for token, letter in ENDS.items():
        row, column = divmod(int((cells == token).argmax()), cells.shape[1])
        axes.text(column, row, letter, ha="center", va="center", fontsize=NOTE_SIZE, weight="bold")
    rows, columns = np.divmod(np.arange(cells.size), cells.shape[1])
    places = np.stack([columns, rows], axis=-1).astype(np.float64)
    opened = cells.ravel() != WALL
    axes.scatter(*places[wrong].T, s=22, facecolors="none", edgecolors=WRONG, linewidths=0.8)
    if found is None:
        return
    axes.scatter(*places[opened].T, s=2, color=INFERRED, zorder=3)
    for node, (target, weight) in enumerate(zip(found.targets, found.weights, strict=True)):
        if opened[node] and node != target and weight >= FAINT:
            arrow(axes, places[node], places[target], float(weight))
