"""The data behind the page: the models or recordings that it shows, and their runs of examples."""

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
    ROOM,
    Examples,
    LiveModel,
    PageExample,
    Shown,
    ShownRecord,
    open_shown,
    page_layout,
    read_example,
)
from graph_machine.lab.explorer.forward import Forward, Precision, RoundAnswers, pack, start_layer
from graph_machine.lab.records.drawing import decided, lost

# Forward passes kept in memory: one of the paper's GM takes about 90 MB, and none more than `ROOM`.
KEPT_BYTES = 768 * 1024**2


@dataclass(frozen=True)
class ExampleRun:
    """An example with the forward passes of all subjects.

    >>> open_session(["gm-4x4"]).run("..3...4..4...2..").key
    '..3...4..4...2..'
    """

    example: PageExample
    forwards: tuple[Forward, ...]
    milliseconds: int  # of the forward passes; 0: not known

    @property
    def key(self) -> str:
        """The key that requests it."""
        return self.example.key

    @property
    def num_bytes(self) -> int:
        """Memory that the forward passes take."""
        return sum(forward.num_bytes for forward in self.forwards)


class Session:
    """The content of a page: one or two models or recordings over the same examples.

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
            room = ROOM // len(self.subjects)
            at = example.start if node is None else node
            forwards = tuple(s.forward(example, node=at, room=room) for s in self.subjects)
            took = round(1000 * (time.perf_counter() - began))
            # The first pass also loads parts of torch: its time would mislead.
            run = ExampleRun(example, forwards, took if self.can_run and self._runs else 0)
            self._keep(run)
            return run

    def _cached(self, key: str, node: int | None) -> ExampleRun | None:
        with self._cache_lock:
            found = self._runs.get(key)
            blocks = [] if found is None or node is None else found.forwards
            if found is None or any(f.is_block and node not in f.sources for f in blocks):
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
        run, task = self.run(self.examples.listed[0].key), self.task
        example, forwards = run.example, run.forwards
        held = set(range(forwards[0].nodes)).intersection(
            *(f.sources for f in forwards if not f.is_block)
        )
        start = example.start if example.start in held else min(held, default=0)
        return {
            "title": " and ".join(subject.name for subject in self.subjects),
            "models": [
                {
                    "name": subject.name,
                    "facts": subject.facts,
                    "layers": forward.layers,
                    "layerNames": [
                        forward.rounds and forward.rounds.names(layer)[0]
                        for layer in range(forward.layers)
                    ],
                    "slots": forward.count("slots"),
                    "heads": forward.count("heads"),
                    "stays": forward.edges.stay,
                    "sublayers": [sublayer.to_json() for sublayer in forward.sublayers],
                }
                for subject, forward in zip(self.subjects, forwards, strict=True)
            ],
            "word": task.examples_word,
            "contentsWord": task.contents_word,
            "hint": task.text_hint,
            "marks": {text: mark._asdict() for text, mark in task.marks.items()},
            "blank": task.blank,
            "isCausal": task.spec.causal,
            "layout": page_layout(example),
            "start": start,
            "startLayer": start_layer(forwards[0], start),
            # Characters that can be typed into nodes, where a text is one character per node.
            "symbols": task.spec.alphabet if len(example.key) == example.nodes else None,
            "answerNames": None if task.spec.output != "node" else task.spec.answers,
            "examples": [example.to_json() for example in self.examples.listed],
            "nodes": sorted(held) if len(held) < forwards[0].nodes else None,
            "canRun": live and self.can_run,
            "canDraw": live and self.can_run and self.examples.can_draw,
        }

    def draw(self) -> dict[str, Any]:
        """An example at random."""
        return self.examples.draw().to_json()

    def run_pack(self, text: str, precision: Precision = "f2") -> bytes:
        """Predictions, verdicts and the addresses of all nodes."""
        run = self.run(text)
        example, batch, task = run.example, run.example.batch, run.example.task
        solution, notes = example.solution()
        layout, questions = page_layout(example), task.questions(batch)
        arrays: dict[str, np.ndarray] = {}
        for number, forward in enumerate(run.forwards):
            found = forward.collected(every=layout["kind"] == "nodes")
            if forward.confidences is not None:
                found["confidences"] = forward.confidences
            if forward.probabilities is not None and task.spec.output == "node":
                found["probabilities"] = forward.probabilities
            arrays |= {f"{number}/{name}": values for name, values in found.items()}
            if forward.is_block:
                unknown = ", and the addresses of other nodes are not known"
                notes = [
                    *notes,
                    f"This example is large: of {self.subjects[number].name}, "
                    f"{len(forward.sources)} of {forward.nodes} nodes are in memory; others run "
                    f"the model again{'' if forward.addresses else unknown}.",
                ]
        header = {
            "example": example.key,
            "layout": layout,
            "tokens": task.token_words(batch)[: example.nodes],
            "questions": questions and questions[: example.nodes],
            "asked": example.asked,
            "solution": None if solution is None else example.words(solution),
            "notes": notes,
            "models": [judged(example, forward, solution) for forward in run.forwards],
            "took": run.milliseconds,
        }
        return pack(header, arrays, precision)

    def nodes_pack(
        self,
        text: str,
        model: int,
        nodes: Sequence[int],
        left_out: Collection[str] = (),
        precision: Precision = "f2",
    ) -> bytes:
        """Every quantity of every layer for some source nodes of one model; their axis is first."""
        if not 0 <= model < len(self.subjects):
            raise DataError(f"Model {model}: there are models 0 to {len(self.subjects) - 1}.")
        most = self.examples.find(text).nodes
        for node in nodes:
            if not 0 <= node < most:
                raise DataError(f"Node {node}: the example has nodes 0 to {most - 1}.")
        found = [self.run(text, node).forwards[model].of_node(node) for node in nodes]
        names = [name for name in found[0] if name.rpartition(".")[2] not in left_out]
        arrays = {name: np.stack([one[name] for one in found]) for name in names}
        return pack({"model": model, "nodes": list(nodes)}, arrays, precision)


def judged(example: PageExample, forward: Forward, solution: np.ndarray | None) -> dict[str, Any]:
    """Of one model: edges that stay, answers, wrong nodes, and one line about them."""
    found: dict[str, Any] = {"edges": forward.edges.to_json(), "answers": None, "wrong": None}
    if forward.answers is None:
        return found | {"verdict": "No predictions in this recording."}
    answers, sure = example.words(forward.answers), forward.confidences
    if answers is None:
        assert sure is not None
        shown = example.task.show(example.batch, forward.answers, sure)
        return found | {"verdict": f"Answer: {shown.text}"}
    counts = np.array(example.asked)
    count, words = int(counts.sum()), ""
    if sure is not None and count:
        words = f" · {100 * float(sure[: len(counts)][counts].mean()):.0f}% sure"
    wrong = example.wrong(forward.answers, solution)
    if wrong is None:
        said = f"{count} answers"
    elif solution is None:
        said = f"{len(wrong)} of {count} answers break the rules"
    else:
        said = f"{count - len(wrong)} of {count} answers right"
    found |= {"answers": answers, "wrong": wrong, "verdict": said + words}
    if forward.rounds is not None:
        found["rounds"] = by_round(example, forward.rounds, solution)
    return found


def by_round(
    example: PageExample, rounds: RoundAnswers, solution: np.ndarray | None
) -> dict[str, Any]:
    """Answers and wrong nodes after every round; when each was decided, and when undone.

    Rounds count from 1. Without a solution, undone answers are not known.
    """
    answers, given_up = rounds.answers, None
    if solution is not None:
        gone = lost(answers, solution)[:, : example.nodes] & example.asked  # round n
        given_up = [(np.flatnonzero(column) + 1).tolist() for column in gone.T]
    return {
        "first": rounds.first,
        "coreLayers": rounds.core_layers,
        "answers": [example.words(one) for one in answers],
        "confidences": np.round(rounds.confidences, 4).tolist(),
        "wrong": [example.wrong(one, solution) for one in answers],
        "decided": decided(answers).tolist(),
        "undone": given_up,
    }


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
