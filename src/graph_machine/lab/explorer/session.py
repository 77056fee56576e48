"""What the page asks for: the models or recordings that are shown, and their runs of examples."""

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.explorer.examples import (
    Example,
    Examples,
    answer_names,
    asked,
    layout_of,
    read_example,
    size_of,
    start_of,
)
from graph_machine.lab.explorer.forward import Forward, Precision, RoundAnswers, pack, start_layer
from graph_machine.lab.explorer.shown import ROOM, LiveModel, Shown, ShownRecord, open_shown
from graph_machine.lab.records.drawing import decided, lost
from graph_machine.lab.tasks.base import Task

# Forward passes kept in memory: one of the paper's GM takes about 90 MB, and none more than `ROOM`.
KEPT_BYTES = 768 * 1024**2


@dataclass(frozen=True)
class ExampleRun:
    """An example with the forward passes of all subjects.

    >>> open_session(["gm-4x4"]).run("..3...4..4...2..").key
    '..3...4..4...2..'
    """

    example: Example
    forwards: tuple[Forward, ...]
    milliseconds: int  # of the forward passes; 0: not known

    @property
    def key(self) -> str:
        """What it is asked for with."""
        return self.example.key

    @property
    def num_bytes(self) -> int:
        """Memory that the forward passes take."""
        return sum(forward.num_bytes for forward in self.forwards)

    @property
    def page_bytes(self) -> int:
        """What a page with all of their nodes holds."""
        return sum(forward.page_bytes for forward in self.forwards)


class Session:
    """What a page shows: one or two models or recordings over the same examples.

    Forward passes are cached, so that a click costs none.

    >>> session = open_session(["gm-4x4"])
    >>> run = session.run("..3...4..4...2..")
    >>> run.forwards[0].nodes
    16
    """

    def __init__(self, subjects: Sequence[Shown], examples: Examples) -> None:
        if not 1 <= len(subjects) <= 2:
            raise ConfigError(f"The explorer shows one or two models, got {len(subjects)}.")
        first, second = subjects[0], subjects[-1]
        ours, theirs = (
            (s.num_nodes, s.grid, s.num_tokens, s.alphabet, s.graph)
            for s in (first.task.spec, second.task.spec)
        )
        if ours != theirs:
            raise ConfigError(
                f"Two models side by side need the same kind of examples: {first.name} reads "
                f"{first.task.label}, {second.name} {second.task.label}."
            )
        self.subjects = tuple(subjects)
        self.task = first.task
        self.examples = examples
        self.can_run = all(subject.can_run for subject in subjects)
        self._runs: OrderedDict[str, ExampleRun] = OrderedDict()
        self._lock = threading.Lock()
        self._cache_lock = threading.Lock()  # apart: a click must not wait for a forward pass
        if not examples.listed:
            raise DataError("There is no example that all models here can show.")

    def run(self, text: str, node: int | None = None) -> ExampleRun:
        """The forward passes of an example, from memory if it is there.

        Of a large example they hold the nodes of one block only: that of `node`, by default of the
        source to begin with.
        """
        example = self.examples.find(text)
        found = self._cached(example.key, node)
        if found is not None:
            return found
        with self._lock:  # one forward pass at a time: the model's taps are shared
            found = self._cached(example.key, node)  # another request may have made it
            if found is not None:
                return found
            began = time.perf_counter()
            task = self._task(example)
            room = ROOM // len(self.subjects)
            at = start_of(task, example.batch) if node is None else node
            forwards = tuple(
                subject.forward(example.key, example.batch, task.spec, node=at, room=room)
                for subject in self.subjects
            )
            took = round(1000 * (time.perf_counter() - began))
            # The first pass also loads parts of torch: its time would mislead.
            run = ExampleRun(example, forwards, took if self.can_run and self._runs else 0)
            self._keep(run)
            return run

    def _cached(self, key: str, node: int | None) -> ExampleRun | None:
        with self._cache_lock:
            found = self._runs.get(key)
            if found is None:
                return None
            if node is not None and any(
                f.is_block and node not in f.places for f in found.forwards
            ):
                return None
            self._runs.move_to_end(key)
            return found

    def _keep(self, run: ExampleRun) -> None:
        """Remember a run; those that were not looked at for longest make room."""
        with self._cache_lock:
            self._runs[run.key] = run
            self._runs.move_to_end(run.key)
            total = sum(kept.num_bytes for kept in self._runs.values())
            while len(self._runs) > 1 and total > KEPT_BYTES:
                total -= self._runs.popitem(last=False)[1].num_bytes

    def describe(self, *, live: bool = True) -> dict[str, Any]:
        """The page's first question: who is shown, on what board, with what to choose from."""
        run = self.run(self.examples.listed[0].key)
        forwards = run.forwards
        held = set(range(forwards[0].nodes)).intersection(
            *(f.sources for f in forwards if not f.is_block)
        )
        start = start_of(self._task(run.example), run.example.batch)
        start = start if start in held else min(held, default=0)
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
            "word": self.task.examples_word,
            "contentsWord": self.task.contents_word,
            "hint": self.task.text_hint,
            "marks": {text: mark._asdict() for text, mark in self.task.marks.items()},
            "blank": self.task.blank,
            "isCausal": self.task.spec.causal,
            "layout": layout_of(self._task(run.example), run.example.batch),
            "start": start,
            "startLayer": start_layer(forwards[0], start),
            "symbols": self._symbols(run.example),
            "answerNames": None if self.task.spec.output != "node" else self.task.spec.answers,
            "examples": [example.to_json() for example in self.examples.listed],
            "nodes": sorted(held) if len(held) < forwards[0].nodes else None,
            "canRun": live and self.can_run,
            "canDraw": live and self.can_run and self.examples.can_draw,
        }

    def draw(self) -> dict[str, Any]:
        """An example at random."""
        return self.examples.draw().to_json()

    def _task(self, example: Example) -> Task:
        """The task of an example's size."""
        return example.task or self.task

    def _symbols(self, example: Example) -> str | None:
        """Characters that can be typed into nodes, where a text is one character per node."""
        alphabet = self.task.spec.alphabet
        return alphabet if len(example.key) == size_of(example.batch) else None

    def run_pack(self, text: str, precision: Precision = "f2") -> bytes:
        """Predictions, verdicts and the addresses of all nodes."""
        run = self.run(text)
        batch, task = run.example.batch, self._task(run.example)
        solution, notes = self.examples.solution(run.example)
        arrays: dict[str, np.ndarray] = {}
        layout, nodes = layout_of(task, batch), size_of(batch)
        questions = task.questions(batch)
        models = []
        for number, forward in enumerate(run.forwards):
            models.append(self._verdict(run.example, forward, solution))
            chances = forward.probabilities if self.task.spec.output == "node" else None
            for name, values in (("confidences", forward.confidences), ("probabilities", chances)):
                if values is not None:
                    arrays[f"{number}/{name}"] = values
            found = forward.collected(every=layout["kind"] == "nodes")
            arrays |= {f"{number}/{name}": values for name, values in found.items()}
            if forward.is_block:
                notes = [*notes, self._block_note(number, forward)]
        header = {
            "example": run.example.key,
            "layout": layout,
            "tokens": task.token_words(batch)[:nodes],
            "questions": None if questions is None else questions[:nodes],
            "asked": asked(task, batch),
            "solution": None if solution is None else answer_names(task, batch, solution),
            "notes": notes,
            "models": models,
            "took": run.milliseconds,
        }
        return pack(header, arrays, precision)

    def _block_note(self, model: int, forward: Forward) -> str:
        """What of a large example is in memory."""
        missing = "" if forward.addresses else ", and the addresses of other nodes are not known"
        return (
            f"This example is large: of {self.subjects[model].name}, {len(forward.sources)} of "
            f"{forward.nodes} nodes are in memory; others run the model again{missing}."
        )

    def node_pack(self, text: str, model: int, node: int, precision: Precision = "f2") -> bytes:
        """Every quantity of every layer for one source node of one model."""
        if not 0 <= model < len(self.subjects):
            raise DataError(f"Model {model}: there are models 0 to {len(self.subjects) - 1}.")
        nodes = size_of(self.examples.find(text).batch)
        if not 0 <= node < nodes:
            raise DataError(f"Node {node}: the example has nodes 0 to {nodes - 1}.")
        found = self.run(text, node).forwards[model].of_node(node)
        return pack({"model": model, "node": node}, found, precision)

    def nodes_pack(
        self,
        text: str,
        model: int,
        nodes: Sequence[int],
        left_out: Collection[str] = (),
        precision: Precision = "f2",
    ) -> bytes:
        """As `node_pack` for several nodes, on an axis of their own, which comes first."""
        found = [self.run(text, node).forwards[model].of_node(node) for node in nodes]
        names = [name for name in found[0] if name.rpartition(".")[2] not in left_out]
        arrays = {name: np.stack([one[name] for one in found]) for name in names}
        return pack({"model": model, "nodes": list(nodes)}, arrays, precision)

    def _wrong(
        self, example: Example, answers: np.ndarray, solution: np.ndarray | None
    ) -> list[int] | None:
        """Nodes with a wrong answer, or, without a solution, those that break the task's rules."""
        if solution is None:
            return self._task(example).broken(example.batch, answers)
        counts = np.array(asked(self._task(example), example.batch))
        return np.flatnonzero(counts & (answers != solution)[: len(counts)]).tolist()

    def _verdict(
        self, example: Example, forward: Forward, solution: np.ndarray | None
    ) -> dict[str, Any]:
        """Answers, wrong nodes, and one line about them."""
        if forward.answers is None:
            return {"answers": None, "wrong": None, "verdict": "No predictions in this recording."}
        answers = answer_names(self._task(example), example.batch, forward.answers)
        if answers is None:
            shown = self._task(example).show(example.batch, forward.answers, _sure(forward))
            return {"answers": None, "wrong": None, "verdict": f"Answer: {shown.text}"}
        counts = np.array(asked(self._task(example), example.batch))
        count, sure = int(counts.sum()), ""
        if forward.confidences is not None and count:
            sure = f" · {100 * float(_sure(forward)[: len(counts)][counts].mean()):.0f}% sure"
        wrong = self._wrong(example, forward.answers, solution)
        if wrong is None:
            verdict = f"{count} answers{sure}"
        elif solution is None:
            verdict = f"{len(wrong)} of {count} answers break the rules{sure}"
        else:
            verdict = f"{count - len(wrong)} of {count} answers right{sure}"
        found: dict[str, Any] = {"answers": answers, "wrong": wrong, "verdict": verdict}
        if forward.rounds is not None:
            found["rounds"] = self._rounds(example, forward.rounds, solution)
        return found

    def _rounds(
        self, example: Example, rounds: RoundAnswers, solution: np.ndarray | None
    ) -> dict[str, Any]:
        """Answers and wrong nodes after every round; when each was decided, and when undone.

        Rounds count from 1. What was undone is known only where the solution is.
        """
        answers = rounds.answers
        given_up = None
        if solution is not None:
            counts = np.array(asked(self._task(example), example.batch))
            gone = lost(answers, solution)[:, : len(counts)] & counts  # round n
            given_up = [(np.flatnonzero(column) + 1).tolist() for column in gone.T]
        return {
            "first": rounds.first,
            "coreLayers": rounds.core_layers,
            "answers": [answer_names(self._task(example), example.batch, one) for one in answers],
            "confidences": np.round(rounds.confidences, 4).tolist(),
            "wrong": [self._wrong(example, one, solution) for one in answers],
            "decided": decided(answers).tolist(),
            "undone": given_up,
        }


def _sure(forward: Forward) -> np.ndarray:
    assert forward.confidences is not None
    return forward.confidences


def open_session(
    names: Sequence[str | Path],
    *,
    data: str | Path | None = None,
    examples: Sequence[str] = (),
    rounds: int | None = None,
) -> Session:
    """Models or recordings by name or path; `examples` are texts to choose from.

    A recurrent core runs `rounds` times, by default as trained.

    >>> session = open_session(["gm-4x4", "transformer-4x4"], examples=["..3...4..4...2.."])
    >>> len(session.subjects)
    2
    """
    subjects = [open_shown(name, rounds) for name in names]
    task = next((s.task for s in subjects if isinstance(s, LiveModel)), subjects[0].task)
    given = [
        read_example(task, text, f"example {number}", strict=True)
        for number, text in enumerate(examples)
    ]
    recorded = [s for s in subjects if isinstance(s, ShownRecord)]
    if recorded:
        shared = [other.rows for other in recorded]
        given = [e for e in recorded[0].examples if all(e.key in rows for rows in shared)]
        if not given:
            raise DataError("The two recordings have no example in common.")
    where = None if data is None else str(data)
    return Session(subjects, Examples(task, data=where, given=given))
