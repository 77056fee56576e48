"""Answers that name a node for every node."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from graph_machine.tasks.answers import Answer


@dataclass(frozen=True)
class PointerAnswer(Answer):
    """`0>1 1>1 2>1`; `exact` are the right ones, where they were asked for."""

    nodes: Int[np.ndarray, "n"]
    confidences: Float[np.ndarray, "n"]
    exact: Int[np.ndarray, "n"] | None = None

    @property
    def text(self) -> str:
        return " ".join(f"{node}>{int(reached)}" for node, reached in enumerate(self.nodes))

    @property
    def valid(self) -> bool | None:
        return None if self.exact is None else bool((self.nodes == self.exact).all())

    def draw(self, *, confidence: bool = False) -> Any:
        if not confidence:
            return self.text
        words = self.text.split()
        return " ".join(f"{w} ({sure:.0%})" for w, sure in zip(words, self.confidences))
