"""How people see a task: text, pictures, other forms, baselines. All of it is optional."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Integer, Shaped
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.errors import DataError
from graph_machine.lab.tasks.answers import Answer, Answers, Disguise, Solution, Sure, TextAnswer
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.scores import Scores


class Mark(NamedTuple):
    """A token or an answer that is drawn, because a character would say little in a small cell.

    >>> Mark("filled", "wall").word
    'wall'
    """

    drawn: Literal["filled", "dot", "empty"]  # a solid cell, a dot on a tint, nothing
    word: str  # for the key beside the picture


def standing_out(tokens: Integer[np.ndarray, "n"]) -> list[int]:
    """The few nodes that hold another token than all the rest.

    >>> standing_out(np.array([0, 0, 1, 0, 0]))
    [2]
    """
    kinds, counts = np.unique(tokens, return_counts=True)
    few = np.flatnonzero(tokens != kinds[counts.argmax()])
    return few.tolist() if 4 * len(few) < len(tokens) else []


Split = Literal["train", "eval", "test"]
Baseline = Callable[[Batch], Tensor]  # answers (b, q) of a batch


class TaskView(ABC):
    """How people see a task; every default follows from the spec."""

    name: ClassVar[str] = "unknown"  # the same as its config's

    # By the character of a token or an answer; what is not named is written.
    marks: ClassVar[Mapping[str, Mark]] = {}
    contents_word: ClassVar[str] = "answers"  # what stands in nodes: `digits`, in Sudoku
    blank: ClassVar[str] = "."  # the character of a token that says nothing
    text_hint: ClassVar[str] = ""  # how an example is typed, in a few words

    @property
    @abstractmethod
    def spec(self) -> InputSpec:
        """What a model needs to know about the task."""

    def token_words(self, example: Batch) -> list[str]:
        """What every node of the first example holds, in a word; nothing where all hold the same.

        >>> from graph_machine.lab.config import RecallConfig
        >>> from graph_machine.lab.tasks.base import task_of
        >>> recall = task_of(RecallConfig())
        >>> recall.token_words(recall.parse("3=7 0=2 | 0"))
        ['3', '=7', '0', '=2', '0']
        """
        spec = self.spec
        if example.tokens is None or (spec.num_tokens or 0) < 2:
            return [""] * example.num_nodes
        tokens, alphabet = example.tokens[0].tolist(), spec.alphabet
        return [str(token) if alphabet is None else alphabet[token] for token in tokens]

    def answer_words(self, answers: Sequence[int] | Shaped[np.ndarray, "q"]) -> list[str]:
        """Answers that are classes, in a word each."""
        names = self.spec.answers
        return [str(int(a)) if names is None else names[int(a)] for a in answers]

    def questions(self, example: Batch) -> list[str] | None:
        """The question at every node, shown with its answer; None: the same everywhere."""
        return None

    # Of graphs that are no board

    def marked_nodes(self, example: Batch) -> list[int]:
        """Nodes with special content, such as the start of a search: by default, the few that hold
        the rarer of two tokens."""
        if example.tokens is None or self.spec.num_tokens != 2:
            return []
        return standing_out(example.tokens[0].cpu().numpy())

    def node_values(self, example: Batch) -> list[str] | None:
        """A number that every node carries, to stand below it; by default its only feature."""
        if example.features is None or self.spec.node_features != 1:
            return None
        return [f"{float(value):.2g}" for value in example.features[0, :, 0]]

    def link_values(self, example: Batch) -> dict[tuple[int, int], str] | None:
        """A number that every input edge (from, to) carries; by default its only feature."""
        graph = example.graph
        if graph is None or graph.features is None or self.spec.edge_features != 1:
            return None
        one = graph[0] if graph.targets.ndim == 3 else graph
        features = one.features
        assert features is not None
        return {
            (int(source), int(one.targets[source, slot])): f"{float(features[source, slot, 0]):.2g}"
            for source, slot in (one.targets >= 0).nonzero()
        }

    # Baseline scores

    def baselines(self) -> dict[str, Baseline]:
        """Ways to answer without a model, by name."""
        return {}

    def reference_scores(self, split: Split, limit: int | None = None) -> dict[str, Scores]:
        """Scores of ways that are no answers to a batch, such as a compressor's, by name."""
        return {}

    # Text and pictures

    def parse(self, text: str) -> Batch:
        """One example as a user types it; `where` marks the questions. Here: a token per character.

        A task whose examples are more than a line of characters has its own form.
        """
        spec = self.spec
        if spec.alphabet is None:
            raise DataError(self._no_text())
        compact = "".join(text.split())
        bad = [character for character in compact if character not in spec.alphabet]
        if bad:
            raise DataError(f"The character '{bad[0]}' is not allowed; allowed: {spec.alphabet}")
        if spec.num_nodes not in (None, len(compact)):
            raise DataError(f"Expected {spec.num_nodes} characters, got {len(compact)}.")
        tokens = torch.tensor([[spec.alphabet.index(character) for character in compact]])
        given = spec.given_answers()
        where = torch.ones_like(tokens, dtype=torch.bool)
        if given is not None:
            where = torch.tensor(given)[tokens] < 0
        return Batch(tokens, torch.zeros_like(tokens), where)

    def examples_in(self, text: str) -> Iterator[tuple[int, str]]:
        """The examples of a text file, each as `parse` reads it, with the number of its (first)
        line: by default one per line."""
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield number, line.strip()

    def text(self, example: Batch) -> str:
        """The first example of a batch as `parse` reads it."""
        if self.spec.alphabet is None or example.tokens is None:
            raise DataError(self._no_text())
        return "".join(self.spec.alphabet[int(token)] for token in example.tokens[0])

    def _no_text(self) -> str:
        return (
            f"The task {self.name} has no text form: its spec has no alphabet, and its class no "
            f"parse and text of its own."
        )

    def show(self, example: Batch, answers: Answers, sure: Sure, *, check: bool = False) -> Answer:
        """A model's answer to one example; `check` runs an exact solver, if there is one."""
        characters = self.spec.answers
        if self.spec.output_kind == "numbers":
            words = [" ".join(f"{number:.4g}" for number in np.atleast_1d(a)) for a in answers]
        else:
            words = [str(a) if characters is None else characters[int(a)] for a in answers]
        return TextAnswer(("" if characters else " ").join(words))

    @property
    def blocks(self) -> tuple[int, int] | None:
        """(rows, columns) of the blocks that the grid falls into, if any: lines in pictures, and
        regions that statistics look for besides rows and columns."""
        return None

    def example_regions(self, batch: Batch) -> dict[str, Shaped[np.ndarray, "b n"]]:
        """Kinds of regions that differ from example to example."""
        return {}

    def places(self, example: Batch) -> Float[np.ndarray, "n 2"] | None:
        """Where the nodes of the first example are drawn, in the unit square (y goes down), for
        graphs without a grid; None: a layout is computed."""
        return None

    # Single examples, in the explorer

    def parse_any(self, text: str) -> Batch:
        """As `parse`, but contradictory examples are read too: they can be looked at."""
        return self.parse(text)

    def sample(self, count: int, seed: int) -> Batch | None:
        """Examples made while a person waits; None where the task cannot, or it takes long."""
        return None

    def solve(self, example: Batch) -> Solution:
        """The right answers to the first example, where they are known, and remarks on it."""
        return Solution()

    def disguise(self, batch: Batch, number: int) -> Disguise | None:
        """The same examples in another form for try `number` (2, 3, ...); None where the task has
        no other form left. It should have rules too: `Answer.obeys` decides what is kept."""
        return None

    def broken(self, example: Batch, answers: Shaped[np.ndarray, "q"]) -> list[int] | None:
        """Nodes whose answers break the task's rules; None: it has no rules."""
        return None
