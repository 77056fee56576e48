"""Where one slot of every node points, sublayer by sublayer: on a graph, and in a maze."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from graph_machine.errors import DataError
from graph_machine.lab.analysis.figures.board import (
    INFERRED,
    LINE,
    NOTE_SIZE,
    THIN,
    TITLE_SIZE,
    WRONG,
    new_figure,
)
from graph_machine.lab.analysis.figures.edges_to_show import Choice
from graph_machine.lab.analysis.regions import hop_distances
from graph_machine.lab.records.drawing import (
    FILLED,
    graph_layout,
    known_asked,
    marked_nodes,
    token_characters,
)
from graph_machine.lab.records.record import KIND_COLOURS, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4
FAINT = 0.15  # arrows of less weight are left out
CAPTION = (
    "Each node's heaviest target in the slot that reaches farthest; darker arrows have more weight "
    "(below {faint:g}: left out).\nBlue nodes point at themselves. Grey lines: input edges. "
    "Red rings: nodes that the model answers wrongly."
)
MARKED = " Square: the node that stands out in the input."
GIVEN_EDGES = (
    "\nOrange lines: given edges, which stay in every layer; the wider, the more the slot's head "
    "looks along them (e1).\nShares: kinds of edges that a new edge was made of (e2)."
)
MOST_NUMBERED = 40  # nodes: more numbers would hide the graph


@dataclass(frozen=True)
class Pointing:
    """One slot of every node: its heaviest target, how heavy it is, and how far away."""

    slot: int
    targets: Int[np.ndarray, "n"]
    weights: Float[np.ndarray, "n"]
    hops: Float[np.ndarray, "n"]  # along the input edges; NaN where there is no path
    used: Float[np.ndarray, "n g"] | None = None  # given edges, by the weight that e1 gives them

    @classmethod
    def farthest(
        cls, addresses: Float[np.ndarray, "n k m"], hops: Int[np.ndarray, "n m"]
    ) -> "Pointing":
        """The slot whose addresses lie farthest away on average, weighed by their mass.

        Mass on unreachable nodes counts as none: a slot that is spread out over
        everything reaches nothing in particular.
        """
        n = len(hops)
        near = np.where(hops < n, hops, 0)
        mean = np.einsum("nkm,nm->k", addresses * (addresses >= FAINT), near) / n
        slot = int(mean.argmax())
        targets = addresses[:, slot].argmax(axis=-1)
        distance = np.take_along_axis(hops, targets[:, None], axis=1)[:, 0].astype(np.float64)
        weights = np.take_along_axis(addresses[:, slot], targets[:, None], axis=1)[:, 0]
        return cls(slot, targets, weights, np.where(distance < n, distance, np.nan))

    def draw(self, axes: "Axes", places: np.ndarray, there: np.ndarray | None = None) -> None:
        """An arrow from every node, or those `there`, to its target; darker with more weight."""
        for node, (target, weight) in enumerate(zip(self.targets, self.weights, strict=True)):
            if node != target and weight >= FAINT and (there is None or there[node]):
                look = {"alpha": min(1.0, float(weight)), "color": INFERRED}
                bend = {"connectionstyle": "arc3,rad=0.12"}
                arrow(axes, places[node], places[target], **look, **bend)


def new_edges(record: Record) -> list[tuple[str, str]]:
    """(title, path) of every edge sublayer's new addresses, in the order in which they are made."""
    found = []
    for path in record.paths:
        if path.name != "address_outs":
            continue
        words = path.prefix.split(".")
        number = int(words[1]) if words[0] == "rounds" else -1
        title = f"layer {path.layer}" if number < 0 else f"round {number + 1}"
        if number >= 0 and path.layer:
            title += f", layer {path.layer}"
        found.append((number, path.layer, path.index, title, str(path)))
    return [(title, text) for *_, title, text in sorted(found)]


def layout(targets: Int[np.ndarray, "n k"]) -> Float[np.ndarray, "n 2"]:
    """Places of nodes in the unit square, the same as in the explorer."""
    nodes, slots = np.nonzero(targets >= 0)
    return graph_layout(len(targets), np.stack([nodes, targets[nodes, slots]], axis=1))


def edges_on_graph(record: Record, choice: Choice) -> "Figure":
    """The input graph, then the new edges of every edge sublayer or round."""
    targets, sample = record.inputs("targets"), choice.sample
    if targets is None or not new_edges(record) or len(record.sources) != record.nodes:
        raise DataError(
            "Edges on a graph need a recording of address_outs from all sources, with its input "
            "graph."
        )
    mask = record.inputs("node_mask")  # the rest is padding
    own = record.nodes if mask is None else int(mask[record.row(sample)].sum())
    given = targets[record.row(sample), :own]
    places, wrong = layout(given), wrong_nodes(record, sample)[:own]
    caption, stay = CAPTION, record.edges(sample).stay
    if stay:
        caption = caption.replace(" Grey lines: input edges.", "") + GIVEN_EDGES
    marked = [node for node in marked_nodes(record, sample) if node < own]
    return stage_panels(
        record,
        sample,
        hop_distances(given),
        lambda axes, found: _draw(axes, places, given, found, wrong, marked),
        title="edges on one graph",
        first="given edges" if stay else "input edges",
        unit="hops",
        caption=caption + (MARKED if marked else ""),
    )


def stage_panels(
    record: Record,
    sample: int,
    hops: Int[np.ndarray, "n m"],
    draw: Callable[["Axes", Pointing | None], None],
    *,
    title: str,
    first: str,
    unit: str,
    caption: str,
) -> "Figure":
    """A panel of the input, then one for the new edges of every edge sublayer or round: the
    slot that reaches farthest by `hops`, which `draw` puts on the panel."""
    stages = new_edges(record)
    rows, columns = -(-(len(stages) + 1) // COLUMNS), min(COLUMNS, len(stages) + 1)
    lines = caption.count("\n") + 1
    below = 0.25 + 0.1 * lines
    figure = new_figure(2.1 * columns, 2.25 * rows + 0.3 + below)
    height = figure.get_figheight()
    figure.suptitle(f"{record.name}: {title}", fontsize=TITLE_SIZE + 2, weight="bold")
    figure.subplots_adjust(
        left=0.02, right=0.98, top=1 - 0.45 / height, bottom=below / height,
        wspace=0.05, hspace=0.12,
    )  # fmt: skip
    for number, (name, path) in enumerate([(first, None), *stages], start=1):
        axes = figure.add_subplot(rows, columns, number)
        found = None
        if path is not None:
            own = len(hops)  # the rest is padding
            found = Pointing.farthest(record.of_sample(path, sample)[:own, :, :own], hops)
            far = found.hops[~np.isnan(found.hops)]
            reach = f", {far.mean():.1f} {unit} on average" if far.size else ""
            name = f"{name}, slot {found.slot}{reach}"
            found, shares = given_shares(record, path, sample, found, own)
            name += shares
        draw(axes, found)
        axes.set_title(name, fontsize=TITLE_SIZE, pad=2)
    note = caption.format(faint=FAINT)
    figure.text(0.02, 0.02, note, fontsize=NOTE_SIZE, color=LINE, wrap=True)
    return figure


def given_shares(
    record: Record, path: str, sample: int, found: Pointing, own: int
) -> tuple[Pointing, str]:
    """How the head of a slot uses given edges, and what its new edges were made of, in words."""
    base, words = path.removesuffix("address_outs"), ""
    if not record.edges(sample).stay:
        return found, ""
    if f"{base}e1_weights" in record:
        weights = record.of_sample(f"{base}e1_weights", sample)[found.slot, :own]  # n t
        edges = record.edges(sample, weights.shape[-1])
        used = weights[:, edges.made : edges.made + edges.targets.shape[1]]
        found = replace(found, used=used)
    if f"{base}e2_weights" in record:
        weights = record.of_sample(f"{base}e2_weights", sample)[found.slot, :own]  # n m t
        shares = record.edges(sample, weights.shape[-1]).shares(weights.sum(axis=1))
        words = "\n" + ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items())
    return found, words


def wrong_nodes(record: Record, sample: int) -> np.ndarray:
    answers, solutions = record.answers, record.solutions
    if answers is None or solutions is None or answers.shape[1:] != (record.nodes,):
        return np.zeros(record.nodes, dtype=bool)
    row, asked = record.row(sample), known_asked(record, sample)
    wrong = answers[row] != solutions[row]
    return wrong if asked is None else wrong & asked


def _draw(
    axes: "Axes",
    places: Float[np.ndarray, "n 2"],
    given: Int[np.ndarray, "n k"],
    found: Pointing | None,
    wrong: np.ndarray,
    marked: list[int],
) -> None:
    axes.set_axis_off()
    axes.set(xlim=(-0.06, 1.06), ylim=(1.06, -0.06))  # downwards, as in the explorer
    nodes, slots = np.nonzero(given >= 0)
    links = set(zip(nodes.tolist(), given[nodes, slots].tolist(), strict=True))
    if found is not None and found.used is not None:
        style = {"color": KIND_COLOURS["given"], "zorder": 1}
        for node, target, weight in zip(nodes, given[nodes, slots], found.used[nodes, slots]):
            axes.plot(*places[[node, target]].T, linewidth=0.5 + 4 * float(weight), **style)
        links = set()
    for node, target in sorted(links):
        if found is None and (target, node) not in links:
            arrow(axes, places[node], places[target], color=LINE, connectionstyle="arc3,rad=0.0")
        else:
            axes.plot(*places[[node, target]].T, color=THIN, linewidth=0.6, zorder=1)
    loops = (given == np.arange(len(given))[:, None]).sum(axis=1)
    # Every node of a pointer graph has an edge to itself; the ends have a second one.
    own = loops > loops[(given >= 0).any(axis=1)].min(initial=given.shape[1])
    if found is not None:
        own = (found.targets == np.arange(len(places))) & (found.weights >= FAINT)
        found.draw(axes, places)
    inks = np.where(own, INFERRED, LINE)
    rings = np.where(wrong, WRONG, inks)
    square = np.isin(np.arange(len(places)), marked)
    for some, marker, size in ((~square, "o", 7), (square, "s", 26)):
        axes.scatter(
            *places[some].T, s=size, c=inks[some], edgecolors=rings[some].tolist(), marker=marker,
            linewidths=0.8, zorder=3,
        )  # fmt: skip
    if found is None and len(places) <= MOST_NUMBERED:
        _number(axes, places, links)


def _number(axes: "Axes", places: Float[np.ndarray, "n 2"], links: set[tuple[int, int]]) -> None:
    """Numbers beside nodes, in the middle of the widest gap between their links."""
    for node, place in enumerate(places):
        near = sorted({a + b - node for a, b in links if node in (a, b) and a != b})
        angles = np.sort(np.arctan2(*(places[near] - place).T[::-1])) if near else np.zeros(1)
        gaps = np.diff(angles, append=angles[0] + 2 * np.pi)
        free = angles[gaps.argmax()] + gaps.max() / 2
        axes.annotate(
            str(node), tuple(place), (6 * np.cos(free), -6 * np.sin(free)),
            textcoords="offset points", ha="center", va="center", fontsize=NOTE_SIZE - 1,
        )  # fmt: skip


def arrow(axes: "Axes", start: np.ndarray, end: np.ndarray, **look: Any) -> None:
    style = {"arrowstyle": "-|>", "mutation_scale": 5, "shrinkA": 1, "shrinkB": 2, "linewidth": 0.6}
    axes.annotate("", xy=tuple(end), xytext=tuple(start), arrowprops=style | look)


PATH_COLOUR = "#f6d55c"
MAZE_CAPTION = (
    "Each open cell's heaviest target in the slot that reaches farthest along the passages;\n"
    "darker arrows have more weight (below {faint:g}: left out). Yellow: the shortest path.\n"
    "Dots: edges to the cell itself. Rings: cells that the model answers wrongly."
)


def passages(walls: Bool[np.ndarray, "n"], side: int) -> Int[np.ndarray, "n 4"]:
    """The open neighbours of every open cell; -1 if there is none.

    >>> passages(np.array([False, False, True, False]), side=2).tolist()  # two rows: . . and # .
    [[-1, -1, -1, 1], [-1, 3, 0, -1], [-1, -1, -1, -1], [1, -1, -1, -1]]
    """
    open_cells = np.where(walls, -1, np.arange(len(walls))).reshape(-1, side)
    around = np.pad(open_cells, 1, constant_values=-1)
    near = (around[:-2, 1:-1], around[2:, 1:-1], around[1:-1, :-2], around[1:-1, 2:])
    return np.where(walls[:, None], -1, np.stack(near, axis=-1).reshape(-1, 4))


def edges_in_maze(record: Record, choice: Choice) -> "Figure":
    """The maze with its shortest path, then the new edges of every edge sublayer or round."""
    sample = choice.sample
    marks, paths = token_characters(record, sample), record.solutions
    if record.grid is None or marks is None or paths is None or not new_edges(record):
        raise DataError(
            "Edges in a maze need a recording of address_outs, with tokens and answers."
        )
    if len(record.sources) != record.nodes:
        raise DataError("Edges in a maze need a recording of all sources (--sources all).")
    cells, path = np.array(marks), paths[record.row(sample)]
    # Walls and both ends are not asked: both ends are always on the path.
    wrong = wrong_nodes(record, sample) & (cells == "")
    side = record.grid[1]
    return stage_panels(
        record,
        sample,
        hop_distances(passages(cells == FILLED, side)),
        lambda axes, found: _draw_maze(axes, cells, path, side, found, wrong),
        title="edges in one maze",
        first="the maze",
        unit="steps",
        caption=MAZE_CAPTION,
    )


def _draw_maze(
    axes: "Axes",
    cells: np.ndarray,
    path: np.ndarray,
    side: int,
    found: Pointing | None,
    wrong: np.ndarray,
) -> None:
    """`cells` are the characters of the maze: a letter at both ends, empty where it is open."""
    from matplotlib.colors import ListedColormap

    walls = cells == FILLED
    kinds = np.where(walls, 1, np.where(path > 0, 2, 0)).reshape(-1, side)
    colours = ListedColormap(["white", THIN, PATH_COLOUR])
    axes.imshow(kinds, cmap=colours, vmin=0, vmax=2, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    rows, columns = np.divmod(np.arange(cells.size), side)
    places = np.stack([columns, rows], axis=-1).astype(np.float64)
    ends = ~walls & (cells != "")
    for node in np.flatnonzero(ends):
        place = {"ha": "center", "va": "center", "fontsize": NOTE_SIZE, "weight": "bold"}
        axes.text(columns[node], rows[node], cells[node], **place)
    axes.scatter(*places[wrong].T, s=22, facecolors="none", edgecolors=WRONG, linewidths=0.8)
    if found is None:
        return
    own = ~walls & (found.targets == np.arange(cells.size)) & (found.weights >= FAINT)
    beside = places + 0.32 * ends[:, None]  # in the corner, beside the letter
    axes.scatter(*beside[own].T, s=2, color=INFERRED, zorder=3)
    found.draw(axes, places, ~walls)
