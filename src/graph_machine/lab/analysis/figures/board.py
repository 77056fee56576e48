"""A board drawn as a board: lines, characters, the source cell marked, weights as colour.

Also how figures look and how they are written (vector PDF and PNG, without global state), and
contact sheets: one edge or head of every source cell at once.
"""

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from graph_machine.errors import DataError, MissingExtraError
from graph_machine.files import write_bytes
from graph_machine.lab.analysis.figures.edges_to_show import Source, heads_of
from graph_machine.lab.records.drawing import FILLED, no_characters, token_characters
from graph_machine.lab.records.naming import Shorthand
from graph_machine.lab.records.record import KIND_COLOURS, Kind, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Of a board's weights, by the kind of edge that it shows.
WEIGHT_COLOURS: dict[Kind, str] = {"made": "Blues", "given": "Oranges", "empty": "Greys"}
LINE, THIN, INFERRED = "#303030", "#c8c8c8", "#2a6f97"
SOURCE = WRONG = "#d62728"
TITLE_SIZE, NOTE_SIZE, DPI = 7.0, 6.0, 200


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure in inches, without pyplot."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "analysis", "Drawing figures") from None
    return Figure(figsize=(width, height), facecolor="white")


def save_figure(
    figure: "Figure", path: str | os.PathLike[str], formats: tuple[str, ...] = ("pdf", "png")
) -> list[Path]:
    """Write a figure under `path` with each format's suffix."""
    path, written = Path(path), []
    for kind in formats:
        file = path.with_name(f"{path.name}.{kind}")
        # Fonts as outlines that stay text, and no date: the same figure is the same file.
        metadata = {"CreationDate": None} if kind == "pdf" else {}
        # In memory first: on a full disk the PDF backend fails with an error of its own.
        drawn = BytesIO()
        figure.savefig(drawn, format=kind, dpi=DPI, metadata=metadata)
        write_bytes(file, drawn.getvalue())
        written.append(file)
    return written


# Colours end at this many times the uniform weight, or
# at its own largest weight if that is more. A uniform board is pale.
FLOOR_TIMES = 4
WALL_COLOUR = "#8a94a0"
LARGEST_DIGIT = 9.0  # points
# A sequence is a strip: this many times as wide as a board, and this many inches tall.
STRIP_WIDE, STRIP_TALL = 2.0, 0.16
SCALE_NOTE = (
    "Colour: white is 0, the darkest blue is the board's own largest weight (written below it), or "
    f"{FLOOR_TIMES} times the uniform weight if that is more. Red frame: source cell."
)


@dataclass(frozen=True)
class Panel:
    """One board of a figure. `marks` stand in black, `inferred` in blue in their place."""

    title: str = ""
    values: Float[np.ndarray, "n"] | None = None
    source: int | None = None
    marks: Sequence[str] | None = None  # a character per cell, empty where there is none
    inferred: Sequence[str] | None = None
    wrong: Bool[np.ndarray, "n"] | None = None
    note: str | None = None  # below the board; by default the largest weight
    top: float | None = None  # of the darkest colour; by default as SCALE_NOTE says
    regions: Shaped[np.ndarray, "n"] | None = None  # of this board, where boards differ
    kind: Kind = "made"  # of the edge that is shown


@dataclass(frozen=True)
class Geometry:
    """Rows and columns of a board and of its boxes; nodes in a sequence are drawn in one row."""

    rows: int
    cols: int
    box: tuple[int, int] | None
    regions: Shaped[np.ndarray, "n"] | None = None  # the region of each cell, in place of boxes

    @classmethod
    def of(cls, record: Record, sample: int | None = None) -> "Geometry":
        """The board of a recording; with the regions of a sample, where each has its own."""
        if record.graph_is_given:
            raise DataError("This figure shows a board, and the nodes of this recording form none.")
        rows, cols = record.grid or (1, record.nodes)
        known = None if sample is None or record.regions is None else record.row(sample)
        own = None if known is None or record.regions is None else record.regions[known]
        return cls(rows, cols, record.box, own)


def draw_panel(axes: "Axes", panel: Panel, geometry: Geometry) -> None:
    rows, cols = geometry.rows, geometry.cols
    # The cells of a sequence are taller than wide: as squares they would be a hairline.
    aspect = "auto" if rows == 1 else "equal"
    axes.set(xlim=(0, cols), ylim=(rows, 0), xticks=[], yticks=[], aspect=aspect)
    top = panel.top
    if panel.values is not None:
        if top is None:
            top = max(float(np.max(panel.values)), FLOOR_TIMES / panel.values.size)
        values = np.asarray(panel.values, dtype=np.float64).reshape(rows, cols)
        axes.pcolormesh(values, cmap=WEIGHT_COLOURS[panel.kind], vmin=0, vmax=top)
    _draw_lines(axes, geometry, panel.regions)
    _characters(axes, panel, geometry, top)
    if panel.source is not None:
        _square(axes, panel.source, cols, SOURCE)
    if panel.kind != "made":
        for spine in axes.spines.values():
            spine.set(color=KIND_COLOURS[panel.kind], linewidth=1.6)
    if panel.title:
        axes.set_title(panel.title, fontsize=TITLE_SIZE, pad=2)
    note = panel.note
    if note is None and panel.values is not None:
        most = float(np.max(panel.values))
        note = f"{most:.2f}" if most >= 0.005 else f"{most:.0e}"
    if note:
        axes.set_xlabel(note, fontsize=NOTE_SIZE, labelpad=1.5)


def _draw_lines(axes: "Axes", geometry: Geometry, own: Shaped[np.ndarray, "n"] | None) -> None:
    """Between cells, around blocks, and wherever two neighbours are in different regions."""
    rows, cols = geometry.rows, geometry.cols
    box, regions = geometry.box or (rows, cols), geometry.regions if own is None else own
    axes.hlines(range(1, rows), 0, cols, colors=THIN, linewidth=0.3)
    axes.vlines(range(1, cols), 0, rows, colors=THIN, linewidth=0.3)
    axes.hlines(range(box[0], rows, box[0]), 0, cols, colors=LINE, linewidth=0.8)
    axes.vlines(range(box[1], cols, box[1]), 0, rows, colors=LINE, linewidth=0.8)
    if regions is not None:
        regions = regions.reshape(rows, cols)
        row, col = np.nonzero(regions[1:] != regions[:-1])
        axes.hlines(row + 1, col, col + 1, colors=LINE, linewidth=1.2)
        row, col = np.nonzero(regions[:, 1:] != regions[:, :-1])
        axes.vlines(col + 1, row, row + 1, colors=LINE, linewidth=1.2)
    for spine in axes.spines.values():
        spine.set(color=LINE, linewidth=1.0)


def _square(axes: "Axes", cell: int, cols: int, frame: str = "", **style: Any) -> None:
    """A frame of some colour inside a cell, or the cell filled as `style` says."""
    from matplotlib.patches import Rectangle

    (row, col), inset = divmod(cell, cols), 0.06 if frame else 0.0
    style = {"fill": False, "edgecolor": frame, "linewidth": 1.2} if frame else style
    place, side = (col + inset, row + inset), 1 - 2 * inset
    axes.add_patch(Rectangle(place, side, side, **style))


def _characters(axes: "Axes", panel: Panel, geometry: Geometry, top: float | None) -> None:
    if panel.marks is None:
        return
    # Characters fill about two thirds of a small cell, whatever the board's size on paper.
    height = axes.get_window_extent().height / axes.figure.dpi * 72
    size = min(0.62 * height / geometry.rows, LARGEST_DIGIT)
    for cell, mark in enumerate(panel.marks):
        row, col = divmod(cell, geometry.cols)
        answer = "" if panel.inferred is None else panel.inferred[cell]
        wrong = panel.wrong is not None and bool(panel.wrong[cell])
        if wrong:
            _square(axes, cell, geometry.cols, WRONG)
        if mark == FILLED:
            alpha = 1.0 if panel.values is None else 0.75  # a weight shows through
            style = {"facecolor": WALL_COLOUR, "alpha": alpha, "linewidth": 0}
            _square(axes, cell, geometry.cols, **style)
        elif answer or mark:
            dark = panel.values is not None and top and panel.values[cell] > 0.55 * top
            colour = WRONG if wrong else "white" if dark else INFERRED if answer else "black"
            how = {"ha": "center", "va": "center", "fontsize": size, "color": colour}
            weight = "normal" if answer else "bold"
            axes.text(col + 0.5, row + 0.54, answer or mark, fontweight=weight, **how)


def panels(
    rows: Sequence[Sequence[Panel | None]],
    geometry: Geometry,
    *,
    labels: Sequence[str] = (),
    title: str = "",
    caption: str = SCALE_NOTE,
    size: float = 0.95,
) -> "Figure":
    """Boards in rows (None: a gap), `size` inches each, with a label left of each row."""
    count = max(len(row) for row in rows)
    wide = size * geometry.cols / max(geometry.rows, geometry.cols)
    tall = size * geometry.rows / max(geometry.rows, geometry.cols)
    if geometry.rows == 1:
        wide, tall = STRIP_WIDE * size, STRIP_TALL
    gap_x, gap_y, margin = 0.10, 0.34, 0.12
    words = [line for label in labels for line in label.split("\n")]
    left = margin + 0.058 * max(map(len, words), default=0)
    head = 0.34 + (0.24 if title else 0.0)
    # A bold title of 9 points takes about 0.085 inches a character.
    width = max(left + count * (wide + gap_x), 0.085 * len(title)) + margin
    # A caption has about 23 characters an inch.
    lines = textwrap.wrap(caption, max(20, int((width - 2 * margin) * 23)))
    foot = 0.20 + 0.11 * len(lines)
    height = head + len(rows) * (tall + gap_y) - gap_y + 0.16 + foot
    figure = new_figure(width, height)
    for i, row in enumerate(rows):
        bottom = height - head - tall - i * (tall + gap_y)
        if i < len(labels):
            at = (margin / width, (bottom + tall / 2) / height)
            figure.text(*at, labels[i], fontsize=TITLE_SIZE, va="center")
        for j, panel in enumerate(row):
            if panel is not None:
                x = left + j * (wide + gap_x)
                box = (x / width, bottom / height, wide / width, tall / height)
                draw_panel(figure.add_axes(box), panel, geometry)
    if title:
        figure.text(margin / width, 1 - 0.2 / height, title, fontsize=9, fontweight="bold")
    how = {"fontsize": NOTE_SIZE, "color": LINE, "va": "bottom"}
    figure.text(margin / width, 0.08 / height, "\n".join(lines), **how)
    return figure


def with_cells(panel: Panel, at: Source) -> Panel:
    """The panel with the characters in the cells of a sample, and with its own regions."""
    own = Geometry.of(at.record, at.sample).regions
    return replace(panel, marks=token_characters(at.record, at.sample), regions=own)


def cells_note(record: Record) -> str:
    """A note on the characters in the boards, if there are any."""
    return "" if no_characters(record) else "Characters: what is given. "


STRIPS = 4  # sequences side by side


def sheet(record: Record, short: str | Shorthand, *, sample: int = 0) -> "Figure":
    """All source cells of `s0l1e2r`, `l0r2` or `l0a3`."""
    short = Shorthand.parse(short) if isinstance(short, str) else short
    sample = sample if short.sample is None else short.sample
    geometry = Geometry.of(record, sample)
    boards: list[Panel | None] = [
        Panel(record.label(cell), Source(record, cell, sample).look(short), cell)
        if cell in record.sources
        else None
        for cell in range(record.nodes)
    ]
    # A whole sequence side by side would be metres wide.
    line = geometry.cols if geometry.rows > 1 else STRIPS
    rows = [boards[start : start + line] for start in range(0, len(boards), line)]
    name = short.path().rpartition(".")[2]
    title = f"{record.name}: {short} {name} of all source cells, sample {sample}"
    return panels(rows, geometry, title=title, size=0.8)


def sheet_names(record: Record) -> list[str]:
    """Every new edge and attention head of a recording, in shorthand."""
    known = {path.name for path in record.layer_paths}
    names = [name for name in ("address_outs", "weights") if name in known]
    if not names:
        raise DataError(f"The recording of {record.name} has neither address_outs nor weights.")
    found = [every for name in names for every in heads_of(record, name)]
    return [str(head) for _, heads in sorted(found, key=lambda item: item[0]) for head in heads]
