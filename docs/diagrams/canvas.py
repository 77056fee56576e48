"""A small SVG canvas: shapes in named colours that follow the reader's light or dark mode."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

# name -> (light, dark). Each picture has a ground of its own, so it can be read on any page.
COLOURS = {
    "ground": ("#ffffff", "#1b1e24"),
    "line": ("#d5dae2", "#3a404b"),
    "ink": ("#1f2937", "#e6e9ef"),
    "quiet": ("#657083", "#9aa4b5"),
    "panel": ("#f5f7fa", "#242932"),
    "node": ("#3566c9", "#7ba4ff"),
    "edge": ("#0c8a62", "#42c99a"),
    "address": ("#d9660f", "#ff9d4d"),
    "weight": ("#8b3fb8", "#cf94f2"),
    "value": ("#b3263f", "#ff7d92"),
}

STYLE = """
:root {{ {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
text {{ font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; font-size: 14px; }}
.mono {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 13px; }}
.small {{ font-size: 12px; }}
.title {{ font-size: 16px; font-weight: 600; }}
"""


def colour(name: str) -> str:
    return f"var(--{name})"


class Canvas:
    """Collects shapes; `write` makes one SVG file of them."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def add(self, part: str) -> None:
        self.parts.append(part)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "panel",
        stroke: str | None = "line",
        radius: float = 8,
        opacity: float = 1.0,
    ) -> None:
        edge = f' stroke="{colour(stroke)}"' if stroke else ""
        self.add(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" '
            f'fill="{colour(fill)}" fill-opacity="{opacity:g}"{edge}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        fill: str = "ink",
        anchor: str = "middle",
        style: str = "",
    ) -> None:
        self.add(
            f'<text x="{x:g}" y="{y:g}" fill="{colour(fill)}" text-anchor="{anchor}" '
            f'class="{style}">{escape(words)}</text>'
        )

    def lines(self, x: float, y: float, words: Sequence[str], step: float = 18, **how: str) -> None:
        for row, line in enumerate(words):
            self.text(x, y + row * step, line, **how)

    def box(
        self, x: float, y: float, width: float, height: float, words: str, tint: str = "quiet"
    ) -> None:
        """A labelled operation."""
        self.rect(x, y, width, height, "panel", tint)
        self.text(x + width / 2, y + height / 2 + 5, words, "ink")

    def circle(
        self, x: float, y: float, radius: float, words: str = "", fill: str = "node"
    ) -> None:
        self.add(
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{colour(fill)}" '
            f'fill-opacity="0.16" stroke="{colour(fill)}" stroke-width="1.6"/>'
        )
        if words:
            self.text(x, y + 5, words)

    def arrow(
        self,
        path: str,
        stroke: str = "quiet",
        width: float = 1.6,
        dashed: bool = False,
        head: bool = True,
    ) -> None:
        """A path (SVG path data) with an arrow head at its end."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        tip = f' marker-end="url(#tip-{stroke})"' if head else ""
        self.add(
            f'<path d="{path}" fill="none" stroke="{colour(stroke)}" '
            f'stroke-width="{width:g}"{dash}{tip}/>'
        )

    def grid(
        self,
        x: float,
        y: float,
        values: np.ndarray,
        fill: str,
        cell: float = 14,
        gap: int | None = None,
    ) -> tuple[float, float]:
        """A matrix as cells, dark where it is large; returns its width and height.

        With `gap`, a small space follows every `gap` columns.
        """
        low, high = float(values.min()), float(values.max())
        span = (high - low) or 1.0
        rows, columns = values.shape
        for row in range(rows):
            for column in range(columns):
                shift = 4 * (column // gap) if gap else 0
                strength = 0.08 + 0.87 * (float(values[row, column]) - low) / span
                self.add(
                    f'<rect x="{x + column * cell + shift:g}" y="{y + row * cell:g}" '
                    f'width="{cell - 1.5:g}" height="{cell - 1.5:g}" rx="2" '
                    f'fill="{colour(fill)}" fill-opacity="{strength:.2f}"/>'
                )
        extra = 4 * ((columns - 1) // gap) if gap else 0
        return columns * cell + extra, rows * cell

    def svg(self) -> str:
        light = " ".join(f"--{name}: {pair[0]};" for name, pair in COLOURS.items())
        dark = " ".join(f"--{name}: {pair[1]};" for name, pair in COLOURS.items())
        tips = "".join(
            f'<marker id="tip-{name}" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="7" '
            f'markerHeight="7" orient="auto-start-reverse">'
            f'<path d="M0,0.6 L9.4,5 L0,9.4 z" fill="{colour(name)}"/></marker>'
            for name in COLOURS
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE.format(light=light, dark=dark)}</style>",
                f"<defs>{tips}</defs>",
                f'<rect width="{self.width}" height="{self.height}" rx="12" '
                f'fill="{colour("ground")}" stroke="{colour("line")}"/>',
                *self.parts,
                "</svg>\n",
            ]
        )

    def write(self, path: Path) -> None:
        path.write_text(self.svg(), encoding="utf-8")
