"""Answers that name a node for every node."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from graph_machine.tasks.answers import ExactAnswer


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
