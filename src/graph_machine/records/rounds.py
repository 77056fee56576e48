"""Answers that are known after every round: measures of them, and how many rounds there are."""

import numpy as np
from jaxtyping import Bool, Int

from graph_machine.errors import ConfigError


def decided(answers: Int[np.ndarray, "round n"]) -> Int[np.ndarray, "n"]:
    """The round (from 1) after which the answer at a node no longer changes."""
    changes = answers[1:] != answers[:-1]
    last = np.zeros(answers.shape[1], dtype=np.int64)
    for number, changed in enumerate(changes, start=1):
        last[changed] = number
    return last + 1


def lost(
    answers: Int[np.ndarray, "round n"], solution: Int[np.ndarray, "n"]
) -> Bool[np.ndarray, "round n"]:
    """Answers that a round turned from right to wrong; none in the first."""
    right = answers == solution
    return np.concatenate([np.zeros_like(right[:1]), right[:-1] & ~right[1:]])


def undone(
    answers: Int[np.ndarray, "round n"], solution: Int[np.ndarray, "n"]
) -> Bool[np.ndarray, "n"]:
    """Nodes whose answer was right after some round and wrong after the next."""
    return np.any(lost(answers, solution), axis=0)


def refuse_rounds(rounds: int | None, name: object) -> None:
    """A recording keeps the rounds that it was made with; another number is a mistake."""
    if rounds is not None:
        raise ConfigError(f"rounds: choose them when recording (record --rounds), not for {name}.")
