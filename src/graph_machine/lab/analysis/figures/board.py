"""A board drawn as a board: lines, characters, the source cell marked, weights as colour.

Also how figures look and how they are written (vector PDF and PNG, without global state), and
contact sheets: one edge or head of every source cell at once.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from graph_machine.errors import DataError, MissingExtraError
from graph_machine.files import write_bytes
from graph_machine.lab.analysis.figures.edges_to_show import look
from graph_machine.lab.records.drawing import FILLED, no_characters, token_characters
from graph_machine.lab.records.naming import Shorthand
from graph_machine.lab.records.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WEIGHT_COLOURS = "Blues"
LINE = "#303030"
THIN = "#c8c8c8"
SOURCE = "#d62728"
WRONG = "#d62728"
INFERRED = "#2a6f97"
TITLE_SIZE = 7.0
NOTE_SIZE = 6.0
DPI = 200


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure in inches, without pyplot."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "analysis", "Drawing figures") from None
    return Figure(figsize=(width, height), facecolor="white")


def save(
    figure: "Figure", path: str | os.PathLike[str], formats: tuple[str, ...] = ("pdf", "png")
) -> list[Path]:
    """Write a figure under `path` with each format's suffix."""
    path = Path(path)
    written = []
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
    digits: Int[np.ndarray, "n"] | None = None  # in place of marks: Sudoku's, 0 is a blank
    marks: Sequence[str] | None = None  # a character per cell, empty where there is none
    inferred: Sequence[str] | None = None
    wrong: Bool[np.ndarray, "n"] | None = None
    note: str | None = None  # below the board; by default the largest weight
    top: float | None = None  # weight of the darkest colour; by default as SCALE_NOTE says
    regions: Shaped[np.ndarray, "n"] | None = None  # of this board, where boards differ


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
        known = None if sample is None else record.regions
        regions = None if known is None or sample is None else known[record.row(sample)]
        return cls(rows, cols, record.box, regions)


def draw(axes: "Axes", panel: Panel, geometry: Geometry) -> None:
    """Draw one panel."""
    rows, cols = geometry.rows, geometry.cols
    # The cells of a sequence are taller than wide: as squares they would be a hairline.
    aspect = "auto" if rows == 1 else "equal"
    axes.set(xlim=(0, cols), ylim=(rows, 0), xticks=[], yticks=[], aspect=aspect)
    top = panel.top
    if panel.values is not None:
        if top is None:
            top = max(float(np.max(panel.values)), FLOOR_TIMES / panel.values.size)
        axes.pcolormesh(
            np.asarray(panel.values, dtype=np.float64).reshape(rows, cols),
            cmap=WEIGHT_COLOURS,
            vmin=0,
            vmax=top,
        )
    _lines(axes, geometry, geometry.regions if panel.regions is None else panel.regions)
    _characters(axes, panel, geometry, top)
    if panel.source is not None:
        row, col = divmod(panel.source, cols)
        _frame(axes, row, col, SOURCE)
    if panel.title:
        axes.set_title(panel.title, fontsize=TITLE_SIZE, pad=2)
    note = panel.note
    if note is None and panel.values is not None:
        note = _weight(float(np.max(panel.values)))
    if note:
        axes.set_xlabel(note, fontsize=NOTE_SIZE, labelpad=1.5)


def _weight(value: float) -> str:
    return f"{value:.2f}" if value >= 0.005 else f"{value:.0e}"


def _lines(
    axes: "Axes", geometry: Geometry, regions: Shaped[np.ndarray, "n"] | None = None
) -> None:
    rows, cols = geometry.rows, geometry.cols
    box = geometry.box or (rows, cols)
    axes.hlines(range(1, rows), 0, cols, colors=THIN, linewidth=0.3)
    axes.vlines(range(1, cols), 0, rows, colors=THIN, linewidth=0.3)
    axes.hlines(range(box[0], rows, box[0]), 0, cols, colors=LINE, linewidth=0.8)
    axes.vlines(range(box[1], cols, box[1]), 0, rows, colors=LINE, linewidth=0.8)
    if regions is not None:
        _borders(axes, regions.reshape(rows, cols))
    for spine in axes.spines.values():
        spine.set(color=LINE, linewidth=1.0)


def _borders(axes: "Axes", regions: Shaped[np.ndarray, "rows cols"]) -> None:
    """A line wherever two neighbours are in different regions."""
    row, col = np.nonzero(regions[1:] != regions[:-1])
    axes.hlines(row + 1, col, col + 1, colors=LINE, linewidth=1.2)
    row, col = np.nonzero(regions[:, 1:] != regions[:, :-1])
    axes.vlines(col + 1, row, row + 1, colors=LINE, linewidth=1.2)


def _frame(axes: "Axes", row: int, col: int, colour: str) -> None:
    from matplotlib.patches import Rectangle

    place = (col + 0.06, row + 0.06)
    axes.add_patch(Rectangle(place, 0.88, 0.88, fill=False, edgecolor=colour, linewidth=1.2))


def _characters(axes: "Axes", panel: Panel, geometry: Geometry, top: float | None) -> None:
    marks = panel.marks
    if marks is None:
        if panel.digits is None:
            return
        marks = [_digit(int(digit)) for digit in panel.digits]
    # Characters fill about two thirds of a small cell, whatever the board's size on paper.
    height = axes.get_window_extent().height / axes.figure.dpi * 72
    size = min(0.62 * height / geometry.rows, LARGEST_DIGIT)
    for cell, mark in enumerate(marks):
        row, col = divmod(cell, geometry.cols)
        answer = "" if panel.inferred is None else panel.inferred[cell]
        wrong = panel.wrong is not None and bool(panel.wrong[cell])
        if wrong:
            _frame(axes, row, col, WRONG)
        if mark == FILLED:
            _wall(axes, row, col, 1.0 if panel.values is None else 0.75)  # a weight shows through
        if not (answer or mark) or mark == FILLED:
            continue
        dark = panel.values is not None and top and panel.values[cell] > 0.55 * top
        colour = WRONG if wrong else "white" if dark else INFERRED if answer else "black"
        axes.text(
            col + 0.5,
            row + 0.54,
            answer or mark,
            fontsize=size,
            ha="center",
            va="center",
            color=colour,
            fontweight="normal" if answer else "bold",
        )


def _wall(axes: "Axes", row: int, col: int, alpha: float) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((col, row), 1, 1, facecolor=WALL_COLOUR, alpha=alpha, linewidth=0))


def _digit(digit: int) -> str:
    return "" if digit == 0 else f"{digit}" if digit < 10 else chr(55 + digit)


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
    left = margin + (0.058 * max((_width(label) for label in labels), default=0))
    head = 0.34 + (0.24 if title else 0.0)
    # A bold title of 9 points takes about 0.085 inches a character.
    width = max(left + count * (wide + gap_x), 0.085 * len(title)) + margin
    lines = _wrap(caption, width - 2 * margin)
    foot = 0.20 + 0.11 * len(lines)
    height = head + len(rows) * (tall + gap_y) - gap_y + 0.16 + foot
    figure = new_figure(width, height)
    for i, row in enumerate(rows):
        bottom = height - head - tall - i * (tall + gap_y)
        if i < len(labels):
            figure.text(
                margin / width,
                (bottom + tall / 2) / height,
                labels[i],
                fontsize=TITLE_SIZE,
                va="center",
            )
        for j, panel in enumerate(row):
            if panel is None:
                continue
            place = (left + j * (wide + gap_x), bottom, wide, tall)
            box = (place[0] / width, place[1] / height, wide / width, tall / height)
            draw(figure.add_axes(box), panel, geometry)
    if title:
        figure.text(margin / width, 1 - 0.2 / height, title, fontsize=9, fontweight="bold")
    figure.text(
        margin / width, 0.08 / height, "\n".join(lines), fontsize=NOTE_SIZE, color=LINE, va="bottom"
    )
    return figure


def _width(text: str) -> int:
    return max(len(line) for line in text.split("\n"))


def _wrap(text: str, inches: float) -> list[str]:
    """Lines of a caption that fit the figure's width, at about 23 characters an inch."""
    import textwrap

    return textwrap.wrap(text, max(20, int(inches * 23)))


def with_cells(panel: Panel, record: Record, sample: int) -> Panel:
    """The panel with what stands in the cells of a sample, and with its own regions."""
    own = Geometry.of(record, sample).regions
    return replace(panel, marks=token_characters(record, sample), regions=own)


def cells_note(record: Record) -> str:
    """What the characters in the boards are, where there are any."""
    return "" if no_characters(record) else "Characters: what is given. "


STRIPS = 4  # sequences side by side


def sheet(
    record: Record, short: str | Shorthand, *, sample: int = 0, name: str | None = None
) -> "Figure":
    """All source cells of `s0l1e2r`, `l0r2` or `l0a3`; `name` picks another tensor of that head."""
    short = Shorthand.parse(short) if isinstance(short, str) else short
    sample = sample if short.sample is None else short.sample
    geometry = Geometry.of(record, sample)
    boards: list[Panel | None] = [
        Panel(record.label(cell), look(record, short, cell, sample, name), cell)
        if cell in record.sources
        else None
        for cell in range(record.nodes)
    ]
    # A whole sequence side by side would be metres wide.
    line = geometry.cols if geometry.rows > 1 else STRIPS
    rows = [boards[start : start + line] for start in range(0, len(boards), line)]
    return panels(
        rows,
        geometry,
        title=f"{record.name}: {short} {name or short.path().rpartition('.')[2]} of all source "
        f"cells, sample {sample}",
        size=0.8,
    )


def sheet_names(record: Record) -> list[str]:
    """Every new edge and attention head of a recording, in shorthand."""
    found = []
    for path in record.layer_paths:
        if path.name == "address_outs":
            found += [
                Shorthand(path.layer, "referral", i, sublayer=path.index)
                for i in range(record.tensors[str(path)].shape[2])
            ]
        elif path.name == "weights":
            found += [
                Shorthand(path.layer, "attention", i, sublayer=path.index)
                for i in range(record.tensors[str(path)].shape[1])
            ]
    if not found:
        raise DataError(f"The recording of {record.name} has neither address_outs nor weights.")
    return [str(short) for short in found]
