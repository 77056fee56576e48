"""Figures about content: puzzle and predictions, adaptive edges, factors, attention."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int

from graph_machine.analysis.figures.board import (
    SCALE_NOTE,
    Geometry,
    Panel,
    cells_note,
    panels,
    with_cells,
)
from graph_machine.analysis.figures.edges_to_show import (
    adaptive_edges,
    default_cells,
    edge_adaptivity,
    look,
    places,
    shared_heads,
)
from graph_machine.errors import ConfigError, DataError
from graph_machine.records.cells import (
    answer_characters,
    asked_cells,
    known_asked,
    no_characters,
    token_characters,
)
from graph_machine.records.naming import Shorthand
from graph_machine.records.record import Record

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
    source = default_cells(record)[0] if source is None else source
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
            with_cells(Panel(f"s{s}{head}", look(record, head, source, s), source), record, s)
            for s in samples
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
    source = default_cells(record)[0] if source is None else source
    count = 2 if part == "excerpt" else 8
    if heads is None:
        layers = range(record.num_layers)
        chosen = [
            head
            for kind in ("attention", "referral")
            for head in shared_heads(record, source, sample, kind, layers, count)
        ]
    else:
        chosen = [Shorthand.parse(text) for text in heads]
    rows = []
    for head in chosen:
        referral = head.kind == "referral"
        prefix = "n2_" if referral else ""
        names = (f"{prefix}edge_factors", f"{prefix}node_factors", f"{prefix}weights")
        words = ("edge factor", "node factor", "weights")
        boards = [
            Panel(f"{head} {word}", look(record, head, source, sample, name), source)
            for name, word in zip(names, words)
        ]
        rows.append([_answered(board, record, sample) for board in boards])
    half = (len(rows) + 1) // 2
    # Two heads side by side keep the page short.
    wide = [[*rows[i], *(rows[i + half] if i + half < len(rows) else [])] for i in range(half)]
    return panels(
        wide,
        Geometry.of(record, sample),
        title=f"{record.name}: edge and node factors, source {record.label(source)}, "
        f"sample {sample}",
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
    record: Record, layers: Sequence[int], heads: Sequence[int] | None, source: int, sample: int
) -> list[list[Panel | None]]:
    rows: list[list[Panel | None]] = []
    for path in places(record, "node", "weights"):
        if path.layer not in layers:
            continue
        count = len(record.of_sample(str(path), sample))
        row: list[Panel | None] = []
        for index in range(count) if heads is None else heads:
            short = Shorthand(path.layer, "attention", index, sublayer=path.index)
            panel = Panel(str(short), look(record, short, source, sample), source)
            row.append(with_cells(panel, record, sample))
        rows.append(row)
    if not rows:
        raise DataError(f"The recording of {record.name} has none of the layers {list(layers)}.")
    return rows


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
    source = default_cells(record)[0] if source is None else source
    if layers is None:
        half = max(1, (2 * record.num_layers + 2) // 3)
        layers = spaced(0, half, 3 if part == "excerpt" else 8)
    rows = _attention_rows(record, layers, heads, source, sample)
    return panels(
        rows,
        Geometry.of(record, sample),
        title=f"{record.name}: attention weights, source {record.label(source)}, sample {sample}",
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
        chosen = default_cells(record)[0] if source is None else source
        last = range(max(0, record.num_layers - layers), record.num_layers)
        part = _attention_rows(record, last, heads, chosen, sample)
        rows += part
        labels += [f"{record.name}\n{record.label(chosen)}"] * len(part)
    return panels(
        rows,
        Geometry.of(records[0]),
        labels=labels,
        title=f"Attention weights of the last layers, sample {sample}",
        caption=f"Rows: layers, columns: heads. {cells_note(records[0])}{SCALE_NOTE}",
    )
