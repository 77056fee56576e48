"""Figures about content: puzzle and predictions, adaptive edges, factors, attention, rounds."""

import os
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int

from graph_machine.errors import ConfigError, DataError
from graph_machine.files import atomic_path
from graph_machine.lab.analysis.figures import edges_to_show as shown
from graph_machine.lab.analysis.figures.board import (
    SCALE_NOTE,
    Geometry,
    Panel,
    cells_note,
    draw_panel,
    new_figure,
    panels,
    with_cells,
)
from graph_machine.lab.analysis.figures.edges_to_show import Choice
from graph_machine.lab.records import drawing
from graph_machine.lab.records.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INFERRED_NOTE = "Black: what is given, blue: answers."
MOST_BOARDS = 6  # side by side
LAST_LAYERS = 3
FRAME_MS, LAST_MS = 450, 3_000
Cells = Bool[np.ndarray, "n"]


def _answered(
    panel: Panel, record: Record, answers: Int[np.ndarray, "n"], asked: Cells, right: Cells | None
) -> Panel:
    """The panel with answers at the cells that are asked, wrong ones framed and counted."""
    words = zip(drawing.answer_characters(record, answers), asked, strict=True)
    wrong, count = None if right is None else asked & ~right, int(asked.sum())
    note = panel.note if wrong is None else f"{count - int(wrong.sum())} of {panel.note} right"
    inferred = [word if wanted else "" for word, wanted in words]
    return replace(panel, inferred=inferred, wrong=wrong, note=note)


def puzzle(records: Sequence[Record], choice: Choice) -> "Figure":
    """Puzzle, solution, and the predictions of each recorded model (wrong ones framed in red)."""
    first, sample = records[0], choice.sample
    geometry, marks = Geometry.of(first, sample), drawing.token_characters(first, sample)
    if marks is None:
        why = drawing.no_characters(first)
        raise DataError(f"There is no puzzle to show: the recording of {first.name} {why}.")
    asked, solution = drawing.asked_cells(first, sample), first.input_row("solutions", sample)
    row = [Panel(f"sample {sample}: puzzle", marks=marks)]
    if solution is not None:
        row.append(_answered(Panel("solution", marks=marks), first, solution, asked, None))
    for record in records:
        if record.answers is not None:
            answers = record.answers[record.row(sample)]
            right = None if solution is None else answers == solution
            panel = Panel(record.name, marks=marks, note=f"{int(asked.sum())} answers")
            row.append(_answered(panel, record, answers, asked, right))
    return panels([row], geometry, caption=f"{INFERRED_NOTE} Red frames: wrong.", size=1.7)


def adaptive(record: Record, choice: Choice, part: str = "excerpt") -> "Figure":
    """Edges of one source cell that depend on the puzzle: a row each, samples side by side.

    `part` is `excerpt` (three edges of all layers), `early` (first third) or `late` (last third).
    Heads that are chosen name new edges (`l0r2`), or edges as they come in (`l1e2`).
    """
    source, heads, samples = shown.Source.of(record, choice).cell, choice.plain, choice.samples
    samples = record.samples[: 4 if part == "excerpt" else 8] if samples is None else samples
    if not choice.plain:
        last, third = record.num_layers, max(1, record.num_layers // 3)
        layers = {"excerpt": range(last), "early": range(third + 1)}
        of = layers.get(part, range(last - third, last))
        heads = shown.adaptive_edges(record, source, of, 3 if part == "excerpt" else 8)
    elif any(head.kind == "attention" for head in heads):
        raise ConfigError("adaptive: name edges, such as l1e2 (as it comes in) or l0r2 (new).")
    every = [shown.Source(record, source, sample) for sample in samples]
    rows = [
        [with_cells(Panel(f"s{at.sample}{head}", at.look(head), source), at) for at in every]
        for head in heads
    ]
    kinds = {"edge": "edges as they come in (address-in)", "referral": "new edges (address-out)"}
    words = " and ".join(text for kind, text in kinds.items() if kind in {h.kind for h in heads})
    words += " over puzzles" if choice.plain else " that vary most over puzzles"
    varies = [shown.edge_adaptivity(record, head, source) for head in heads]
    return panels(
        rows,
        Geometry.of(record),
        labels=[f"{head}\nvaries {share:.2f}" for head, share in zip(heads, varies)],
        title=f"{record.name}: input-adaptive edges ({part}), source {record.label(source)}",
        caption=f"Rows: {words}, with the share that varies over all {len(record.samples)} "
        f"recorded ones. {cells_note(record)}{SCALE_NOTE}",
    )


def labour(record: Record, choice: Choice, part: str = "excerpt") -> "Figure":
    """Division of labour: edge factor, node factor and the weights that they make together."""
    at, sample, heads = shown.Source.of(record, choice), choice.sample, choice.plain
    if not heads:
        count, kinds = 2 if part == "excerpt" else 8, ("attention", "referral")
        heads = [head for kind in kinds for head in shown.shared_heads(at, kind, count)]
    answers, asked = record.input_row("answers", sample), drawing.known_asked(record, sample)
    words = {"edge_factors": "edge factor", "node_factors": "node factor", "weights": "weights"}
    rows = []
    for head in heads:
        prefix, row = "n2_" if head.kind == "referral" else "", []
        for name, word in words.items():
            panel = with_cells(Panel(f"{head} {word}", at.look(head, prefix + name), at.cell), at)
            if answers is not None and asked is not None and panel.marks is not None:
                panel = _answered(panel, record, answers, asked, None)
            row.append(panel)
        rows.append(row)
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


def _attention_rows(at: shown.Source, layers: Sequence[int]) -> list[list[Panel | None]]:
    found = [every for _, every in shown.heads_of(at.record, "weights", layers)]
    if not found:
        raise DataError(f"The recording of {at.record.name} has none of the layers {list(layers)}.")
    return [[with_cells(Panel(str(h), at.look(h), at.cell), at) for h in every] for every in found]


def attention(record: Record, choice: Choice, part: str = "excerpt") -> "Figure":
    """Attention weights of early to middle layers, one row per layer and one column per head."""
    at, sample, layers = shown.Source.of(record, choice), choice.sample, choice.layers
    if layers is None:  # evenly spaced, both ends among them
        last, count = max(1, (2 * record.num_layers + 2) // 3) - 1, 3 if part == "excerpt" else 8
        layers = sorted({int(layer) for layer in np.linspace(0, last, count).round()})
    return panels(
        _attention_rows(at, layers),
        Geometry.of(record, sample),
        title=f"{record.name}: attention weights, source {at.label}, sample {sample}",
        caption=f"Rows: layers, columns: heads. {cells_note(record)}{SCALE_NOTE}",
    )


def late(records: Sequence[Record], choice: Choice) -> "Figure":
    """Attention weights of the last layers of several models, one above the other."""
    rows, labels = [], []
    for record in records:
        at = shown.Source.of(record, choice)
        part = _attention_rows(at, range(record.num_layers)[-LAST_LAYERS:])
        rows += part
        labels += [f"{record.name}\n{at.label}"] * len(part)
    return panels(
        rows,
        Geometry.of(records[0]),
        labels=labels,
        title=f"Attention weights of the last layers, sample {choice.sample}",
        caption=f"Rows: layers, columns: heads. {cells_note(records[0])}{SCALE_NOTE}",
    )


def boards_by_round(record: Record, sample: int) -> list[Panel]:
    """The board after every round (answers are blue, darker cells are surer), then the round after
    which each answer no longer changes."""
    answers, sure = (
        record.input_row(f"round_{name}", sample) for name in ("answers", "confidences")
    )
    if answers is None or sure is None or record.tokens is None:
        raise DataError(
            f"The recording of {record.name} has no answers by round: its model has no "
            "recurrent core, or it was recorded before there were any."
        )
    asked, solution = drawing.asked_cells(record, sample), record.input_row("solutions", sample)
    marks, found = drawing.token_characters(record, sample), []
    for number, (mine, chances) in enumerate(zip(answers, sure), start=1):
        right = None if solution is None else mine == solution
        # Pale, so that characters stay readable.
        panel = Panel(f"round {number}", np.where(asked, chances, 0.0), marks=marks, top=3.0)
        panel = replace(panel, note="" if right is None else f"{int(asked.sum())}")
        found.append(_answered(panel, record, mine, asked, right))
    decided = np.where(asked, drawing.decided(answers), 0)
    undone = np.zeros_like(asked)
    if solution is not None:
        undone = drawing.lost(answers, solution).any(axis=0) & asked
    last = Panel(
        "decided in round",
        values=decided.astype(np.float64),
        marks=[""] * len(decided),
        inferred=[str(number) if number else "" for number in decided],
        wrong=undone,
        note=f"{int(undone.sum())} undone once or more (framed)",
        top=3.0 * len(answers),
    )
    return [*found, last]


def rounds(record: Record, *, sample: int = 0) -> "Figure":
    """Boards after some rounds, and for every answer the round in which it was decided."""
    *boards, last = boards_by_round(record, sample)
    chosen = np.unique(np.geomspace(1, len(boards), MOST_BOARDS).round().astype(int)) - 1
    return panels(
        [[*(boards[number] for number in chosen), last]],
        Geometry.of(record, sample),
        caption="Black: what is given, blue: the model's answers; darker cells are surer. "
        "Red frames: wrong. Last board: the round after which an answer no longer changes.",
        size=1.9,
    )


def filling_gif(record: Record, path: str | os.PathLike[str], *, sample: int = 0) -> Path:
    """A board filling in, as a moving picture with one frame per round."""
    from PIL import Image

    frames, path = [], Path(path)
    for panel in boards_by_round(record, sample)[:-1]:
        figure, buffer = new_figure(3.2, 3.5), BytesIO()
        draw_panel(figure.add_axes((0.03, 0.06, 0.94, 0.86)), panel, Geometry.of(record, sample))
        figure.savefig(buffer, format="png", dpi=110)
        frames.append(Image.open(buffer).convert("P", palette=Image.Palette.ADAPTIVE, colors=64))
    times = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    how = {"save_all": True, "duration": times, "loop": 0, "optimize": True}
    with atomic_path(path) as temporary:
        frames[0].save(temporary, format="GIF", append_images=frames[1:], **how)
    return path
