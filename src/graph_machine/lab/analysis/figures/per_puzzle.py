"""Figures about content: puzzle and predictions, adaptive edges, factors, attention, rounds."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from graph_machine.errors import ConfigError, DataError
from graph_machine.files import atomic_path
from graph_machine.lab.analysis.figures.board import (
    SCALE_NOTE,
    Geometry,
    Panel,
    cells_note,
    draw,
    new_figure,
    panels,
    with_cells,
)
from graph_machine.lab.analysis.figures.edges_to_show import (
    Source,
    adaptive_edges,
    edge_adaptivity,
    heads_of,
    shared_heads,
)
from graph_machine.lab.records.drawing import (
    answer_characters,
    asked_cells,
    decided,
    known_asked,
    no_characters,
    token_characters,
    undone,
)
from graph_machine.lab.records.naming import Shorthand
from graph_machine.lab.records.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INFERRED_NOTE = "Black: what is given, blue: answers."


def puzzle(records: Sequence[Record], *, sample: int = 0) -> "Figure":
    """Puzzle, solution, and the predictions of each recorded model (wrong ones framed in red)."""
    first = records[0]
    geometry = Geometry.of(first, sample)
    marks, why = token_characters(first, sample), no_characters(first)
    if marks is None:
        raise DataError(f"There is no puzzle to show: the recording of {first.name} {why}.")
    asked = asked_cells(first, sample)
    row = [Panel(f"sample {sample}: puzzle", marks=marks)]
    solution = None
    if first.solutions is not None:
        solution = first.solutions[first.row(sample)]
        row.append(Panel("solution", marks=marks, inferred=_inferred(first, solution, asked)))
    for record in records:
        if record.answers is None:
            continue
        answers = record.answers[record.row(sample)]
        wrong = None if solution is None else asked & (answers != solution)
        note = f"{int(asked.sum())} answers"
        if wrong is not None:
            note = f"{int(asked.sum() - wrong.sum())} of {note} right"
        shown = _inferred(record, answers, asked)
        row.append(Panel(record.name, marks=marks, inferred=shown, wrong=wrong, note=note))
    caption = f"{INFERRED_NOTE} Red frames: wrong."
    return panels([row], geometry, caption=caption, size=1.7)


def _inferred(
    record: Record, answers: Int[np.ndarray, "n"], asked: Bool[np.ndarray, "n"]
) -> list[str]:
    """Answers to the cells that are asked, and nothing elsewhere."""
    words = answer_characters(record, answers)
    return [word if wanted else "" for word, wanted in zip(words, asked, strict=True)]


def adaptive(
    record: Record,
    *,
    samples: Sequence[int] | None = None,
    source: int | None = None,
    edges: Sequence[str] | None = None,
    part: str = "excerpt",
) -> "Figure":
    """Edges of one source cell that depend on the puzzle: a row each, samples side by side.

    `part` is `excerpt` (three edges of all layers), `early` (first third) or `late` (last third).
    `edges` names them by hand: new ones by their head (`l0r2`), or as they come in (`l1e2`).
    """
    source = Source.of(record, source).cell
    samples = record.samples[: 4 if part == "excerpt" else 8] if samples is None else samples
    if edges is None:
        third = max(1, record.num_layers // 3)
        layers = {
            "excerpt": range(record.num_layers),
            "early": range(third + 1),
            "late": range(record.num_layers - third, record.num_layers),
        }[part]
        heads = adaptive_edges(record, source, layers, 3 if part == "excerpt" else 8)
    else:
        heads = [Shorthand.parse(text) for text in edges]
        if any(head.kind == "attention" for head in heads):
            raise ConfigError("adaptive: name edges, such as l1e2 (as it comes in) or l0r2 (new).")
    rows = [
        [
            with_cells(Panel(f"s{at.sample}{head}", at.look(head), source), record, at.sample)
            for at in (Source(record, source, sample) for sample in samples)
        ]
        for head in heads
    ]
    return panels(
        rows,
        Geometry.of(record),
        labels=[f"{h}\nvaries {edge_adaptivity(record, h, source):.2f}" for h in heads],
        title=f"{record.name}: input-adaptive edges ({part}), source {record.label(source)}",
        caption=f"Rows: {_edge_words(heads, edges)}, with the share that varies over all "
        f"{len(record.samples)} recorded ones. {cells_note(record)}{SCALE_NOTE}",
    )


def _edge_words(heads: Sequence[Shorthand], named: Sequence[str] | None) -> str:
    """What the rows of `adaptive` are: found or named, as they are made or as they come in."""
    kinds = {"edge": "edges as they come in (address-in)", "referral": "new edges (address-out)"}
    words = " and ".join(text for kind, text in kinds.items() if kind in {h.kind for h in heads})
    return f"{words} {'that vary most over puzzles' if named is None else 'over puzzles'}"


def labour(
    record: Record,
    *,
    sample: int = 0,
    source: int | None = None,
    heads: Sequence[str] | None = None,
    part: str = "excerpt",
) -> "Figure":
    """Division of labour: edge factor, node factor and the weights that they make together."""
    at = Source.of(record, source, sample)
    count = 2 if part == "excerpt" else 8
    if heads is None:
        kinds = ("attention", "referral")
        chosen = [head for kind in kinds for head in shared_heads(at, kind, count)]
    else:
        chosen = [Shorthand.parse(text) for text in heads]
    rows = []
    for head in chosen:
        prefix = "n2_" if head.kind == "referral" else ""
        words = {"edge_factors": "edge factor", "node_factors": "node factor", "weights": "weights"}
        boards = [
            Panel(f"{head} {word}", at.look(head, prefix + name), at.cell)
            for name, word in words.items()
        ]
        rows.append([_answered(board, record, sample) for board in boards])
    half = (len(rows) + 1) // 2
    # Two heads side by side keep the page short.
    wide = [[*rows[i], *(rows[i + half] if i + half < len(rows) else [])] for i in range(half)]
    return panels(
        wide,
        Geometry.of(record, sample),
        title=f"{record.name}: edge and node factors, source {at.label}, sample {sample}",
        caption="Factors after a softmax. a: attention heads, r: referral heads. "
        f"{INFERRED_NOTE + ' ' if cells_note(record) else ''}{SCALE_NOTE}",
        size=1.15,
    )


def _answered(panel: Panel, record: Record, sample: int) -> Panel:
    """The panel with what is given, and with the model's answers where it is asked."""
    filled, asked = with_cells(panel, record, sample), known_asked(record, sample)
    if record.answers is None or asked is None or filled.marks is None:
        return filled
    return replace(filled, inferred=_inferred(record, record.answers[record.row(sample)], asked))


def _attention_rows(
    at: Source, layers: Sequence[int], heads: Sequence[int] | None
) -> list[list[Panel | None]]:
    found = [every for _, every in heads_of(at.record, "weights", layers)]
    if not found:
        raise DataError(f"The recording of {at.record.name} has none of the layers {list(layers)}.")
    if heads is not None:
        found = [[replace(every[0], index=index) for index in heads] for every in found]
    return [
        [with_cells(Panel(str(h), at.look(h), at.cell), at.record, at.sample) for h in every]
        for every in found
    ]


def spaced(start: int, stop: int, count: int) -> list[int]:
    """At most `count` numbers from `start` to `stop` - 1, evenly spaced, both ends among them."""
    return sorted({int(n) for n in np.linspace(start, max(stop - 1, start), count).round()})


def attention(
    record: Record,
    *,
    sample: int = 0,
    source: int | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    part: str = "excerpt",
) -> "Figure":
    """Attention weights of early to middle layers, one row per layer and one column per head."""
    at = Source.of(record, source, sample)
    if layers is None:
        half = max(1, (2 * record.num_layers + 2) // 3)
        layers = spaced(0, half, 3 if part == "excerpt" else 8)
    return panels(
        _attention_rows(at, layers, heads),
        Geometry.of(record, sample),
        title=f"{record.name}: attention weights, source {at.label}, sample {sample}",
        caption=f"Rows: layers, columns: heads. {cells_note(record)}{SCALE_NOTE}",
    )


def late(
    records: Sequence[Record],
    *,
    sample: int = 0,
    source: int | None = None,
    layers: int = 3,
    heads: Sequence[int] | None = None,
) -> "Figure":
    """Attention weights of the last layers of several models, one above the other."""
    rows, labels = [], []
    for record in records:
        at = Source.of(record, source, sample)
        last = range(max(0, record.num_layers - layers), record.num_layers)
        part = _attention_rows(at, last, heads)
        rows += part
        labels += [f"{record.name}\n{at.label}"] * len(part)
    return panels(
        rows,
        Geometry.of(records[0]),
        labels=labels,
        title=f"Attention weights of the last layers, sample {sample}",
        caption=f"Rows: layers, columns: heads. {cells_note(records[0])}{SCALE_NOTE}",
    )


SHOWN = 6  # boards side by side
FRAME_MS = 450
LAST_MS = 3_000


@dataclass(frozen=True)
class Filling:
    """Answers and confidences of one sample after every round."""

    answers: Int[np.ndarray, "round n"]
    confidences: Float[np.ndarray, "round n"]
    blanks: Bool[np.ndarray, "n"]  # the cells that are asked
    solution: Int[np.ndarray, "n"] | None
    marks: Sequence[str] | None = None  # what is given, a character per cell
    words: Sequence[Sequence[str]] = ()  # the answers, as characters

    @classmethod
    def of(cls, record: Record, sample: int) -> "Filling":
        answers, sure = record.inputs("round_answers"), record.inputs("round_confidences")
        if answers is None or sure is None or record.tokens is None:
            raise DataError(
                f"The recording of {record.name} has no answers by round: its model has no "
                "recurrent core, or it was recorded before there were any."
            )
        row = record.row(sample)
        solution = None if record.solutions is None else record.solutions[row]
        return cls(
            answers[row],
            sure[row],
            asked_cells(record, sample),
            solution,
            token_characters(record, sample),
            [answer_characters(record, each) for each in answers[row]],
        )

    def decided(self) -> Int[np.ndarray, "n"]:
        """The round (from 1) after which an answer no longer changes."""
        return decided(self.answers)

    def undone(self) -> Bool[np.ndarray, "n"]:
        """Cells that were right and were changed again; none where the solution is unknown."""
        if self.solution is None:
            return np.zeros(self.blanks.shape, dtype=bool)
        return undone(self.answers, self.solution) & self.blanks

    def wrong(self, number: int) -> Bool[np.ndarray, "n"] | None:
        """Answers that are wrong after round `number` (from 0)."""
        if self.solution is None:
            return None
        return self.blanks & (self.answers[number] != self.solution)

    def panel(self, number: int) -> Panel:
        """The board after round `number`: answers are blue, darker cells are surer."""
        wrong, count = self.wrong(number), int(self.blanks.sum())
        words = zip(self.words[number], self.blanks, strict=True)
        return Panel(
            f"round {number + 1}",
            values=np.where(self.blanks, self.confidences[number], 0.0),
            marks=self.marks,
            inferred=[word if asked else "" for word, asked in words],
            wrong=wrong,
            note="" if wrong is None else f"{count - int(wrong.sum())} of {count} right",
            top=3.0,  # pale, so that characters stay readable
        )


def rounds(record: Record, *, sample: int = 0) -> "Figure":
    """Boards after some rounds, and for every answer the round in which it was decided."""
    filling = Filling.of(record, sample)
    count = len(filling.answers)
    chosen = np.unique(np.geomspace(1, count, SHOWN).round().astype(int)) - 1
    number_of = np.where(filling.blanks, filling.decided(), 0)
    undone = filling.undone()
    last = Panel(
        "decided in round",
        values=number_of.astype(np.float64),
        marks=[""] * len(number_of),
        inferred=[str(number) if number else "" for number in number_of],
        wrong=undone,
        note=f"{int(undone.sum())} undone once or more (framed)",
        top=3.0 * count,
    )
    return panels(
        [[*(filling.panel(int(number)) for number in chosen), last]],
        Geometry.of(record, sample),
        caption="Black: what is given, blue: the model's answers; darker cells are surer. "
        "Red frames: wrong. Last board: the round after which an answer no longer changes.",
        size=1.9,
    )


def filling_gif(record: Record, path: str | os.PathLike[str], *, sample: int = 0) -> Path:
    """A board filling in, as a moving picture with one frame per round."""
    from PIL import Image

    filling, geometry = Filling.of(record, sample), Geometry.of(record, sample)
    frames = []
    for number in range(len(filling.answers)):
        figure = new_figure(3.2, 3.5)
        axes = figure.add_axes((0.03, 0.06, 0.94, 0.86))
        draw(axes, filling.panel(number), geometry)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
        frames.append(Image.open(buffer).convert("P", palette=Image.Palette.ADAPTIVE, colors=64))
    times = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    path = Path(path)
    with atomic_path(path) as temporary:
        frames[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=frames[1:],
            duration=times,
            loop=0,
            optimize=True,
        )
    return path
