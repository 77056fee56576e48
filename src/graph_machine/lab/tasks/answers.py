"""Answers as people see them, solutions of examples, and other forms of examples.

An example that is equivalent under a change (other names of digits, moved cells) can be retried in
another form. A model answers differently then, and an answer that obeys the task's rules is right
either way.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from graph_machine.lab.tasks.batch import Batch

# A model's answers at every place, and the probability of each.
Answers = Shaped[np.ndarray, "q *o"]
Sure = Float[np.ndarray, "q"]

NOT_COMPARED = "Without the extra 'data' answers are not compared with the solution."


class Answer(ABC):
    """One example with its answer, to be shown. A task makes its own kind in `Task.show`.

    >>> TextAnswer("4132").verdict()
    'not checked.'
    """

    @property
    @abstractmethod
    def text(self) -> str:
        """The answer in one line."""

    @property
    def valid(self) -> bool | None:
        """Whether the answer is right by the task's own rules; None where there are none."""
        return None

    @property
    def obeys(self) -> bool:
        """Whether the answer obeys every rule that can be checked without solving the example:
        an answer that does not is retried (`models/tries.py`)."""
        return bool(self.valid)

    def draw(self, *, confidence: bool = False) -> Any:
        """For a terminal: text, or what `rich` prints."""
        return self.text

    def verdict(self) -> str:
        """One line on it."""
        return {None: "not checked", True: "right", False: "wrong"}[self.valid] + "."

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"answer": self.text, "valid": self.valid}


class Solution(NamedTuple):
    """The solution that a task finds for one example, with notes.

    >>> Solution(notes=("This puzzle has no solution.",)).answers is None
    True
    """

    answers: Shaped[np.ndarray, "q"] | None = None  # output indices
    notes: tuple[str, ...] = ()  # for people: `This puzzle has no solution.`


@dataclass(frozen=True)
class ExactAnswer(Answer):
    """Answers by place, in words; `exact` are the right ones, if requested."""

    answers: Shaped[np.ndarray, "q"]
    exact: Shaped[np.ndarray, "q"] | None = None

    @property
    def text(self) -> str:
        return " ".join(str(int(answer)) for answer in self.answers)

    @property
    def valid(self) -> bool | None:
        return None if self.exact is None else bool((self.answers == self.exact).all())


@dataclass(frozen=True)
class TextAnswer(Answer):
    """An answer that is a line of text and cannot be checked.

    >>> TextAnswer("4132").to_dict()
    {'answer': '4132', 'valid': None}
    """

    line: str

    @property
    def text(self) -> str:
        """The line."""
        return self.line


@dataclass(frozen=True, kw_only=True)
class PointerAnswer(ExactAnswer):
    """`0>1 1>1 2>1`."""

    confidences: Float[np.ndarray, "n"]

    @property
    def text(self) -> str:
        return " ".join(f"{node}>{int(reached)}" for node, reached in enumerate(self.answers))

    def draw(self, *, confidence: bool = False) -> Any:
        if not confidence:
            return self.text
        words = self.text.split()
        return " ".join(f"{w} ({sure:.0%})" for w, sure in zip(words, self.confidences))


class Disguise(NamedTuple):
    """Examples in another form, and how outputs for them are read.

    >>> import torch
    >>> tokens = torch.tensor([[0, 2]])  # b n: mirrored below, with the digits 1 and 2 exchanged
    >>> mirrored = Batch(torch.tensor([[1, 0]]), tokens, tokens == 0)
    >>> change = Disguise(mirrored, places=torch.tensor([[1, 0]]), labels=torch.tensor([[1, 0]]))
    >>> change.undo(torch.tensor([[[0.0, 0.1], [0.2, 0.3]]]))  # b q o
    tensor([[[0.3000, 0.2000],
             [0.1000, 0.0000]]])
    """

    batch: Batch
    places: Int[Tensor, "b q"]  # for each place, the old place that moved there
    labels: Int[Tensor, "b o"] | None = None  # for each old output, what it is called now

    def undo(self, outputs: Float[Tensor, "b q o"]) -> Float[Tensor, "b q o"]:
        """Outputs for the examples as they were, from outputs for the disguised ones."""
        if self.labels is not None:
            labels = self.labels.to(outputs.device).unsqueeze(1).expand_as(outputs)
            outputs = outputs.gather(-1, labels)
        back = self.places.to(outputs.device).argsort(dim=1).unsqueeze(-1)
        return outputs.gather(1, back.expand_as(outputs))
