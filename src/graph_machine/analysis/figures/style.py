"""How figures look and how they are written: vector PDF and PNG, without global state."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from graph_machine.errors import MissingExtraError
from graph_machine.files import atomic_path

if TYPE_CHECKING:
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
        with atomic_path(file) as temporary:
            figure.savefig(temporary, format=kind, dpi=DPI, metadata=metadata)
        written.append(file)
    return written
