"""The paper's figures (section 3.4 and appendix D), drawn only from record files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_machine.errors import DataError
from graph_machine.lab.analysis.figures import node_link, per_puzzle, regions
from graph_machine.lab.analysis.figures.edges_to_show import Choice
from graph_machine.lab.records.drawing import is_sequence, no_characters
from graph_machine.lab.records.record import Record
from graph_machine.registry import Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PaperFigure:
    """A figure, which recordings it is about, and where the paper has it.

    `about`: `gm` (one figure for each recording with edges), `transformer` (for each without),
    `rounds` (for each of a recurrent model), `graph` (for each with edges on a graph that is
    not a board), `maze` (for each with edges in mazes) or `all` (one figure of all recordings
    together).
    `needs`: what else a recording of boards must have: `characters` in its cells, or `lines` (rows
    and columns, which a sequence lacks).

    >>> FIGURES["rounds"].about
    'rounds'
    """

    draw: Callable[..., "Figure"]
    about: str
    shows: str
    needs: str = ""


FIGURES: Registry[PaperFigure] = Registry("figure", "graph-machine figures --list")
_ATTENTION = "attention of early to middle layers"
_rounds = lambda record, choice: per_puzzle.rounds(record, sample=choice.sample)  # noqa: E731
for _name, _draw, _about, _shows, *_needs in (
    ("puzzle", per_puzzle.puzzle, "all", "puzzle, solution and predictions", "characters"),
    ("construct", regions.construct, "gm", "edges that represent constraint regions", "lines"),
    ("middle", regions.middle, "gm", "how the middle cells are targeted (D)", "lines"),
    ("expansion", regions.expansion, "gm", "the 1-2-4 construction across cells (D)", "lines"),
    ("compose", regions.compose, "gm", "composed regions through self-referral", "lines"),
    ("adaptive", per_puzzle.adaptive, "gm", "input-adaptive edges, excerpt"),
    ("adaptive-early", per_puzzle.adaptive, "gm", "input-adaptive edges, early layers (D)"),
    ("adaptive-late", per_puzzle.adaptive, "gm", "input-adaptive edges, late layers (D)"),
    ("labour", per_puzzle.labour, "gm", "edge and node factors, excerpt"),
    ("labour-full", per_puzzle.labour, "gm", "edge and node factors (D)"),
    ("attention", per_puzzle.attention, "transformer", f"{_ATTENTION}, excerpt"),
    ("attention-full", per_puzzle.attention, "transformer", f"{_ATTENTION} (D)"),
    ("rounds", _rounds, "rounds", "a puzzle filling in round by round", "characters"),
    ("graph", node_link.edges_on_graph, "graph", "new edges on a graph that is not a board"),
    ("maze", node_link.edges_in_maze, "maze", "new edges in a maze"),
    ("late", per_puzzle.late, "all", "attention of the last layers, side by side (D)"),
):
    _of = _name.partition("-")[2]  # of a figure that has an excerpt and other parts
    _drawn = partial(_draw, part=_of) if _of else _draw
    FIGURES.add(_name, PaperFigure(_drawn, _about, _shows, *_needs))


def applicable(name: str, records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    """(file name, records) for each figure of that name that these recordings can give.

    >>> import torch
    >>> from graph_machine import GraphMachine
    >>> from graph_machine.lab.records import record
    >>> made = record(GraphMachine.from_pretrained("gm-4x4"), torch.zeros(1, 16, dtype=torch.long))
    >>> [name for name, _ in applicable("adaptive", [made])]
    ['adaptive']
    """
    figure = FIGURES[name]
    chosen = [record for record in records if lacks(figure, record) is None]
    if figure.about == "all":
        if len(chosen) < len(records):
            return []
        if len({record.grid for record in records}) > 1:
            raise DataError(f"Figure '{name}' compares recordings, but their boards differ.")
        check_same_puzzles(name, records)
        return [(name, list(records))]
    if len(chosen) == 1:
        return [(name, chosen)]
    return [(f"{name}-{record.name.replace(' ', '-')}", [record]) for record in chosen]


def missing(name: str, records: Sequence[Record]) -> str | None:
    """Why a figure of this kind of models is in none of the recordings; None where it is in one,
    and if it is about another kind of model, such as rounds of a model without rounds."""
    figure = FIGURES[name]
    ours = [record for record in records if other_kind(figure, record) is None]
    if figure.about != "all" and any(lacks(figure, record) is None for record in ours):
        return None
    return reasons(figure, ours) or None


def reasons(figure: PaperFigure, records: Sequence[Record]) -> str:
    """What each recording lacks for a figure."""
    found = [(record.name, lacks(figure, record)) for record in records]
    return "; ".join(f"the recording of {name} {what}" for name, what in found if what)


def lacks(figure: PaperFigure, record: Record) -> str | None:
    """Why a recording has no such figure; None where it has one."""
    if (kind := other_kind(figure, record)) is not None:
        return kind
    if record.graph_is_given:  # figures of boards say that themselves
        return None
    if figure.needs == "lines" and is_sequence(record):
        return "is of sequences, which have no rows and columns"
    return no_characters(record) if figure.needs == "characters" else None


def other_kind(figure: PaperFigure, record: Record) -> str | None:
    """Why a figure is not about models or tasks such as the recorded one; None where it is."""
    about = figure.about
    if about == "rounds" and record.inputs("round_answers") is None:
        has_core = (record.meta["model"].get("config") or {}).get("core_layers")
        return "has no answers by round" if has_core else "has no rounds"
    if about in ("gm", "graph", "maze") and not record.has_edges:
        return "has no edges"
    if about == "transformer" and record.has_edges:
        return "has edges, and the figure is of models without"
    if about == "graph" and not record.graph_is_given:
        return "has no graphs of its own" if record.grid is None else "is of boards"
    if about == "maze" and record.task_name != "maze":
        return "is not of mazes"
    return None


def check_given(names: Sequence[str], records: Sequence[Record]) -> None:
    """Raise if no recording has a figure that was requested by name."""
    for name in names:
        if not applicable(name, records):
            why = reasons(FIGURES[name], records)
            raise DataError(f"Figure '{name}' cannot be drawn: {why}.")


def check_same_puzzles(name: str, records: Sequence[Record]) -> None:
    """A sample number has to mean the same puzzle in all recordings that are compared."""
    first = records[0]
    for other in records[1:]:
        common = [sample for sample in first.samples if sample in other.samples]
        if first.tokens is None or other.tokens is None:
            continue
        rows = [(first.tokens[first.row(n)], other.tokens[other.row(n)]) for n in common]
        if not all(np.array_equal(*pair) for pair in rows) or not common:
            raise DataError(
                f"Figure '{name}' compares recordings, but {first.name} and {other.name} were "
                "recorded on different puzzles. Record both with the same --data and --samples, "
                "or draw the figures of each one alone with --only."
            )


def draw_figure(name: str, records: Sequence[Record], **choices: Any) -> "Figure":
    """A figure by name (needs matplotlib). `choices` make a `Choice`; None is the figure's own.

    >>> import torch
    >>> from graph_machine import GraphMachine
    >>> from graph_machine.lab.records import record
    >>> made = record(GraphMachine.from_pretrained("gm-4x4"), torch.zeros(1, 16, dtype=torch.long))
    >>> draw_figure("puzzle", [made]).savefig("puzzle.png")
    """
    choice = Choice(**{key: value for key, value in choices.items() if value is not None})
    about_all = FIGURES[name].about == "all"
    return FIGURES[name].draw(list(records) if about_all else records[0], choice)


__all__ = ["FIGURES", "PaperFigure", "applicable", "check_given", "draw_figure", "missing"]
