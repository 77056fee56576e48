"""How a task's examples look in pictures: what is asked of a task by whoever draws one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Integer, Shaped

from graph_machine.config import InputSpec
from graph_machine.tasks.batch import Batch


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


class Looks(ABC):
    """The part of `Task` that pictures ask for; every default follows from the spec."""

    # By the character of a token or an answer; what is not named is written.
    marks: ClassVar[Mapping[str, Mark]] = {}
    contents_word: ClassVar[str] = "answers"  # what stands in nodes: `digits`, in Sudoku
    blank: ClassVar[str] = "."  # the character of a token that says nothing
    text_hint: ClassVar[str] = ""  # how an example is typed, in a few words

    @property
    @abstractmethod
    def spec(self) -> InputSpec:
        """What a model must know of the task."""

    def token_words(self, example: Batch) -> list[str]:
        """What every node of the first example holds, in a word; nothing where all hold the same.

        >>> from graph_machine.config import RecallConfig
        >>> from graph_machine.tasks.base import task_of
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
        """What is asked at every node, to stand beside its answer; None: the same everywhere."""
        del example
        return None

    # Of graphs that are no board

    def marked_nodes(self, example: Batch) -> list[int]:
        """Nodes that stand out by what they hold, such as the start of a search: by default, those
        few that hold the rarer of two tokens."""
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
