"""What a page shows: one or two models or recordings over the same board, and their puzzles."""

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_machine.errors import ConfigError, DataError
from graph_machine.explorer.boards import Board
from graph_machine.explorer.forward import Forward, RoundAnswers
from graph_machine.explorer.pack import Precision, pack
from graph_machine.explorer.puzzles import Example, Puzzles
from graph_machine.explorer.shown import LiveModel, Shown, ShownRecord, open_shown
from graph_machine.records.rounds import decided
from graph_machine.tasks.sudoku.store import open_data

# Forward passes kept in memory: one of the paper's GM takes about 90 MB.
KEPT_BYTES = 768 * 1024**2
MAX_TEXT = 4096  # characters of a puzzle as text


@dataclass(frozen=True)
class PuzzleRun:
    """A puzzle, its tokens (n,), and the forward passes of all subjects.

    >>> open_session(["gm-4x4"]).run("..3...4..4...2..").puzzle
    '..3...4..4...2..'
    """

    puzzle: str
    tokens: np.ndarray
    forwards: tuple[Forward, ...]
    milliseconds: int  # of the forward passes; 0: not told

    @property
    def num_bytes(self) -> int:
        """Memory that the forward passes take."""
        return sum(forward.num_bytes for forward in self.forwards)


class Session:
    """What a page shows: one or two models or recordings over the same board, and their puzzles.

    Forward passes are cached, so that a click costs none.

    >>> session = open_session(["gm-4x4"])
    >>> run = session.run("..3...4..4...2..")
    >>> run.forwards[0].nodes
    16
    """

    def __init__(self, subjects: Sequence[Shown], puzzles: Puzzles) -> None:
        if not 1 <= len(subjects) <= 2:
            raise ConfigError(f"The explorer shows one or two models, got {len(subjects)}.")
        first, second = subjects[0], subjects[-1]
        if first.board.cells != second.board.cells or first.board.symbols != second.board.symbols:
            raise ConfigError(
                f"Two models side by side need the same board: {first.name} has {first.board}, "
                f"{second.name} has {second.board}."
            )
        self.subjects = tuple(subjects)
        self.board: Board = first.board
        self.puzzles = puzzles
        self.can_run = all(subject.can_run for subject in subjects)
        self._runs: OrderedDict[str, PuzzleRun] = OrderedDict()
        self._lock = threading.Lock()
        self._cache_lock = threading.Lock()  # apart: a click must not wait for a forward pass
        if not puzzles.examples:
            raise DataError("There is no puzzle that all models here can show.")

    def run(self, text: str) -> PuzzleRun:
        """The forward passes of a puzzle, from memory if it is there."""
        if len(text) > MAX_TEXT:
            raise DataError(f"A puzzle of {len(text)} characters: expected {self.board.cells}.")
        tokens = self.board.parse(text)
        puzzle = self.board.format(tokens)
        found = self._cached(puzzle)
        if found is not None:
            return found
        with self._lock:  # one forward pass at a time: the model's taps are shared
            found = self._cached(puzzle)  # somebody may have asked for the same
            if found is not None:
                return found
            start = time.perf_counter()
            forwards = tuple(subject.forward(tokens) for subject in self.subjects)
            took = round(1000 * (time.perf_counter() - start))
            # The first pass also loads parts of torch: its time would mislead.
            run = PuzzleRun(puzzle, tokens, forwards, took if self.can_run and self._runs else 0)
            self._keep(run)
            return run

    def _cached(self, puzzle: str) -> PuzzleRun | None:
        with self._cache_lock:
            if puzzle in self._runs:
                self._runs.move_to_end(puzzle)
            return self._runs.get(puzzle)

    def _keep(self, run: PuzzleRun) -> None:
        """Remember a run; those that were not looked at for longest make room."""
        with self._cache_lock:
            self._runs[run.puzzle] = run
            total = sum(kept.num_bytes for kept in self._runs.values())
            while len(self._runs) > 1 and total > KEPT_BYTES:
                total -= self._runs.popitem(last=False)[1].num_bytes

    def describe(self, *, live: bool = True) -> dict[str, Any]:
        """The page's first question: who is shown, on what board, with what to choose from."""
        run = self.run(self.puzzles.examples[0].puzzle)
        forwards = run.forwards
        cells = set(forwards[0].sources).intersection(*(f.sources for f in forwards))
        return {
            "title": " and ".join(subject.name for subject in self.subjects),
            "models": [
                {
                    "name": subject.name,
                    "facts": subject.facts,
                    "layers": forward.layers,
                    "layerNames": [
                        None if forward.rounds is None else forward.rounds.name(layer)
                        for layer in range(forward.layers)
                    ],
                    "slots": forward.count("slots"),
                    "heads": forward.count("heads"),
                    "sublayers": [sublayer.to_json() for sublayer in forward.sublayers],
                }
                for subject, forward in zip(self.subjects, forwards, strict=True)
            ],
            "layout": self.board.layout(),
            "symbols": self.board.symbols,
            "tokenNames": list(self.board.symbols),
            "answerNames": list(self.board.answers),
            "examples": [example.to_json() for example in self.puzzles.examples],
            "cells": sorted(cells) if len(cells) < self.board.cells else None,
            "canRun": live and self.can_run,
            "canDraw": live and self.can_run and self.puzzles.can_draw,
        }

    def draw(self) -> dict[str, Any]:
        """A puzzle at random."""
        return self.puzzles.draw().to_json()

    def run_pack(self, text: str, precision: Precision = "f2") -> bytes:
        """Predictions, verdicts and the addresses of all cells."""
        run = self.run(text)
        solution, notes = self.puzzles.solution(run.tokens, run.forwards[0].solution)
        arrays: dict[str, np.ndarray] = {}
        models = []
        for number, forward in enumerate(run.forwards):
            models.append(self._verdict(run.tokens, forward, solution))
            for name, values in (("confidences", forward.confidences),
                                 ("probabilities", forward.probabilities)):  # fmt: skip
                if values is not None:
                    arrays[f"{number}/{name}"] = values
            arrays |= {f"{number}/{name}": v for name, v in forward.collected().items()}
        header = {
            "puzzle": run.puzzle,
            "tokens": run.tokens.tolist(),
            "solution": None if solution is None else self.board.format(solution),
            "notes": notes,
            "models": models,
            "took": run.milliseconds,
        }
        return pack(header, arrays, precision)

    def cell_pack(self, text: str, model: int, cell: int, precision: Precision = "f2") -> bytes:
        """Every quantity of every layer for one source cell of one model."""
        if not 0 <= model < len(self.subjects):
            raise DataError(f"Model {model}: there are models 0 to {len(self.subjects) - 1}.")
        if not 0 <= cell < self.board.cells:
            raise DataError(f"Cell {cell}: the board has cells 0 to {self.board.cells - 1}.")
        run = self.run(text)
        return pack({"model": model, "cell": cell}, run.forwards[model].of_cell(cell), precision)

    def _verdict(
        self, tokens: np.ndarray, forward: Forward, solution: np.ndarray | None
    ) -> dict[str, Any]:
        """Answers, wrong cells, and one line about them."""
        if forward.answers is None:
            return {"answers": None, "wrong": None, "verdict": "No predictions in this recording."}
        blank = tokens == 0
        count = int(blank.sum())
        sure = ""
        if forward.confidences is not None and count:
            sure = f" · {100 * float(forward.confidences[blank].mean()):.0f}% sure"
        wrong = self.board.wrong_cells(tokens, forward.answers, solution)
        if wrong is None:
            verdict = f"{count} blanks{sure}"
        elif solution is None:
            verdict = f"{len(wrong)} cells break the rules{sure}"
        else:
            verdict = f"{count - len(wrong)} of {count} blanks right{sure}"
        found = {"answers": forward.answers.tolist(), "wrong": wrong, "verdict": verdict}
        if forward.rounds is not None:
            found["rounds"] = self._rounds(tokens, forward.rounds, solution)
        return found

    def _rounds(
        self, tokens: np.ndarray, rounds: RoundAnswers, solution: np.ndarray | None
    ) -> dict[str, Any]:
        """Answers and wrong cells after every round, and when each cell was decided."""
        answers = rounds.answers
        return {
            "first": rounds.first,
            "coreLayers": rounds.core_layers,
            "answers": answers.tolist(),
            "confidences": np.round(rounds.confidences, 4).tolist(),
            "wrong": [self.board.wrong_cells(tokens, one, solution) for one in answers],
            "decided": decided(answers).tolist(),
        }


def open_session(
    names: Sequence[str | Path],
    *,
    data: str | Path | None = None,
    puzzles: Sequence[str] = (),
) -> Session:
    """Models or recordings by name or path; `puzzles` come first among the examples.

    >>> session = open_session(["gm-4x4", "transformer-4x4"], puzzles=["..3...4..4...2.."])
    >>> len(session.subjects)
    2
    """
    subjects = [open_shown(name) for name in names]
    board = subjects[0].board
    given = [
        Example(board.format(board.parse(text)), f"puzzle {i}") for i, text in enumerate(puzzles)
    ]
    recorded = [s for s in subjects if isinstance(s, ShownRecord)]
    if recorded:
        given = [
            example
            for example in recorded[0].examples
            if all(example.puzzle in other.rows for other in recorded)
        ]
        if not given:
            raise DataError("The two recordings have no puzzle in common.")
    store = None if data is None else open_data(data)
    task = next((s.task for s in subjects if isinstance(s, LiveModel)), None)
    return Session(subjects, Puzzles(board, store=store, given=given, task=task))
