"""Edges in a maze: for every open cell, where one of its slots points, sublayer by sublayer."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int, Integer

from graph_machine.analysis.figures.node_link import (
    FAINT,
    Pointing,
    arrow,
    new_edges,
    stage_panels,
    wrong_nodes,
)
from graph_machine.analysis.figures.style import INFERRED, NOTE_SIZE, THIN, WRONG
from graph_machine.analysis.regions import hop_distances
from graph_machine.errors import DataError
from graph_machine.records.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Tokens in recordings of mazes: a figure reads recordings only.
WALL, OPEN = 0, 1
ENDS = {2: "S", 3: "G"}
PATH_COLOUR = "#f6d55c"
CAPTION = (
    "Each open cell's heaviest target in the slot that reaches farthest along the passages;\n"
    "darker arrows have more weight (below {faint:g}: left out). Yellow: the shortest path.\n"
    "Dots: edges to the cell itself. Rings: cells that the model answers wrongly."
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
    tokens, paths = record.tokens, record.solutions
    if record.grid is None or tokens is None or paths is None or not new_edges(record):
        raise DataError(
            "Edges in a maze need a recording of address_outs, with tokens and answers."
        )
    if len(record.sources) != record.nodes:
        raise DataError("Edges in a maze need a recording of all sources (--sources all).")
    cells, path = (part[record.row(sample)] for part in (tokens, paths))
    # Both ends are on the path in any case: they are no question, and walls are none.
    wrong = wrong_nodes(record, sample) & (cells == OPEN)
    shape = record.grid
    return stage_panels(
        record,
        sample,
        hop_distances(passages(cells, record.grid[1])),
        lambda axes, found: _draw(axes, cells.reshape(shape), path.reshape(shape), found, wrong),
        title="edges in one maze",
        first="the maze",
        unit="steps",
        caption=CAPTION,
    )


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
    own = opened & (found.targets == np.arange(cells.size)) & (found.weights >= FAINT)
    is_end = np.isin(cells.ravel(), list(ENDS))
    beside = places + 0.32 * is_end[:, None]  # in the corner, where a letter stands
    axes.scatter(*beside[own].T, s=2, color=INFERRED, zorder=3)
    for node, (target, weight) in enumerate(zip(found.targets, found.weights, strict=True)):
        if opened[node] and node != target and weight >= FAINT:
            arrow(axes, places[node], places[target], float(weight))
