"""The moving picture of the README: edges of one cell growing over the layers of a trained model.

    python docs/diagrams/growth.py --model gm-9x9 --row 5 --column 3   # part of `make pictures`

Shown in each layer: of the cell's new edges, the one that overlaps most with its box, row, column,
and everything that it may not repeat (all three together).
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from canvas import Canvas, colour

from graph_machine import GraphMachine
from graph_machine.lab.analysis.regions import make_regions, overlaps
from graph_machine.nn import listen

IMAGES = Path(__file__).parent.parent / "images"
BOARDS = {
    "box": "its box",
    "column": "its column",
    "row": "its row",
    "cross+box": "all that it may not repeat",
}
SIDE, LEFT, TOP = 180, 32, 84  # of a board and of the first one's corner
HOLD, FADE = 1.1, 0.5  # seconds
GRID, BOX = (9, 9), (3, 3)
# 29 clues, from `graph-machine data generate --box 3x3 --count 3 --seed 12 --max-clues-extra 20`.
PUZZLE = "56..2...4......18..1....265..83.........9....9275...1.1.523.....96.8.42....7...3."


def edges_by_layer(model: GraphMachine, puzzle: str, cell: int) -> list[np.ndarray]:
    """The cell's edges (slot, target): as given, then what each layer's referral makes of them."""
    frames: list[np.ndarray] = []

    def keep(path: str, tensor: Tensor) -> None:
        if path == "layers.0.edge.0.address_ins" or path.endswith("address_outs"):
            frames.append(tensor[0, cell].float().numpy())

    with listen(model, keep):
        model.predict([puzzle])
    return frames


def best_edges(frames: list[np.ndarray], cell: int) -> dict[str, np.ndarray]:
    """Region -> (frame, target): in each frame the edge that overlaps most with the region."""
    regions = make_regions(GRID, BOX)
    chosen = {}
    for name in BOARDS:
        mask = regions[name][None, cell : cell + 1]
        # Given are the cell itself and its neighbours; edges without a target are left out.
        rows = [frames[0][frames[0].max(axis=-1) > 0.5].mean(axis=0)]
        for edges in frames[1:]:
            scores = overlaps(edges[:, None], mask)[0, :, 0]
            rows.append(edges[int(scores.argmax())])
        chosen[name] = np.stack(rows)
    return chosen


def timeline(count: int) -> tuple[str, float]:
    """Key times of frames that are held, then fade into the next, and the whole duration."""
    step = HOLD + FADE
    total = step * count + HOLD  # the last frame stays a little longer
    times = []
    for frame in range(count):
        times += [frame * step / total, (frame * step + HOLD) / total]
    times[-1] = (total - FADE) / total
    return ";".join(f"{time:.4f}" for time in [*times, 1.0]), total


def moving(values: np.ndarray, times: str, total: float) -> str:
    """An animation of fill-opacity through the frames and back to the first."""
    held = [f"{value:.2f}".rstrip("0").rstrip(".") for value in values for _ in range(2)]
    stops = ";".join([*held, held[0]])
    return (
        f'<animate attributeName="fill-opacity" values="{stops}" keyTimes="{times}" '
        f'dur="{total:.1f}s" repeatCount="indefinite"/>'
    )


def cell_at(x: float, y: float, target: int) -> str:
    """Position and size of a cell of the board with its corner at x, y, as SVG attributes."""
    size = SIDE / GRID[1]
    row, col = divmod(target, GRID[1])
    return (
        f'x="{x + col * size + 1:g}" y="{y + row * size + 1:g}" '
        f'width="{size - 2:g}" height="{size - 2:g}" rx="2"'
    )


def draw_board(
    canvas: Canvas, x: float, weights: np.ndarray, cell: int, times: str, total: float
) -> None:
    """One board; weights are (frame, target), each frame scaled to its own maximum."""
    canvas.rect(x, TOP, SIDE, SIDE, "panel", "line", 3)
    # Not below four times a uniform weight, so that a spread-out edge looks pale.
    top = np.maximum(weights.max(axis=1, keepdims=True), 4 / weights.shape[1])
    strengths = weights / top
    strengths[strengths < 0.03] = 0
    for target in np.flatnonzero(strengths.any(axis=0)):
        values = strengths[:, target]
        canvas.add(
            f'<rect {cell_at(x, TOP, int(target))} fill="{colour("address")}" '
            f'fill-opacity="{values[-1]:.2f}">{moving(values, times, total)}</rect>'
        )
    for line in range(1, 3):
        at = line * SIDE / 3
        canvas.arrow(f"M{x},{TOP + at:g} h{SIDE}", "line", 1, head=False)
        canvas.arrow(f"M{x + at:g},{TOP} v{SIDE}", "line", 1, head=False)
    canvas.add(
        f'<rect {cell_at(x, TOP, cell)} fill="none" stroke="{colour("node")}" stroke-width="2.4"/>'
    )


def draw_clock(canvas: Canvas, count: int, times: str, total: float) -> None:
    """Which layer it is, in words and as a row of bars."""
    labels = ["given: its neighbours", *(f"after layer {layer}" for layer in range(count - 1))]
    step = (canvas.width - 2 * LEFT) / count
    for frame, label in enumerate(labels):
        shown = np.eye(count)[frame]
        canvas.add(
            f'<text x="{canvas.width - LEFT}" y="38" text-anchor="end" class="title" '
            f'fill="{colour("address")}" fill-opacity="{shown[-1]:g}">'
            f"{label}{moving(shown, times, total)}</text>"
        )
        lit = np.maximum(np.arange(count) >= frame, 0.15)
        canvas.add(
            f'<rect x="{LEFT + frame * step:g}" y="{TOP + SIDE + 22}" width="{step - 6:g}" '
            f'height="6" rx="3" fill="{colour("address")}">{moving(lit, times, total)}</rect>'
        )


def draw(model: GraphMachine, puzzle: str, cell: int) -> Canvas:
    frames = edges_by_layer(model, puzzle, cell)
    times, total = timeline(len(frames))
    width = LEFT + len(BOARDS) * (SIDE + 24) + 8
    canvas = Canvas(width, TOP + SIDE + 50, "Edges of one cell over the layers of a Graph Machine")
    words = "One cell, four of its edges: the one closest to ..."
    canvas.text(LEFT, 38, words, anchor="start", style="title")
    for board, (name, weights) in enumerate(best_edges(frames, cell).items()):
        x = LEFT + board * (SIDE + 24)
        canvas.text(x + SIDE / 2, TOP - 12, BOARDS[name], "quiet")
        draw_board(canvas, x, weights, cell, times, total)
    draw_clock(canvas, len(frames), times, total)
    return canvas


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--model", default="gm-9x9", help="a model of 9x9 boards")
    parser.add_argument("--row", type=int, default=5, help="of the source cell, from 1")
    parser.add_argument("--column", type=int, default=3, help="of the source cell, from 1")
    parser.add_argument("--puzzle", default=PUZZLE)
    parser.add_argument("--out", type=Path, default=IMAGES / "growth.svg")
    options = parser.parse_args()
    model = GraphMachine.from_pretrained(options.model)
    cell = (options.row - 1) * GRID[1] + options.column - 1
    draw(model, options.puzzle, cell).write(options.out)


if __name__ == "__main__":
    main()
