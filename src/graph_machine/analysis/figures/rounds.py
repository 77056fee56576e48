"""A puzzle filling in round by round: what a recurrent core answers, decides and undoes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from graph_machine.analysis.figures.board import Geometry, Panel, draw, panels
from graph_machine.analysis.figures.style import new_figure
from graph_machine.errors import DataError
from graph_machine.files import atomic_path
from graph_machine.records.cells import answer_characters, asked_cells, token_characters
from graph_machine.records.record import Record
from graph_machine.records.rounds import decided, undone

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
