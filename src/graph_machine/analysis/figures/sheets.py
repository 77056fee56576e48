"""Contact sheets: one edge or head of every source cell at once, each board at its cell's place."""

from typing import TYPE_CHECKING

from graph_machine.analysis.figures.board import Geometry, Panel, panels
from graph_machine.analysis.figures.edges_to_show import look
from graph_machine.errors import DataError
from graph_machine.records.naming import Shorthand
from graph_machine.records.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
