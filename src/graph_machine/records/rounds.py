"""Measures of answers that are known after every round."""

import numpy as np
from jaxtyping import Bool, Int


def decided(answers: Int[np.ndarray, "round n"]) -> Int[np.ndarray, "n"]:
    """The round (from 1) after which the answer at a node no longer changes."""
    changes = answers[1:] != answers[:-1]
    last = np.zeros(answers.shape[1], dtype=np.int64)
    for number, changed in enumerate(changes, start=1):
        last[changed] = number
    return last + 1


def undone(
    answers: Int[np.ndarray, "round n"], solution: Int[np.ndarray, "n"]
) -> Bool[np.ndarray, "n"]:
    """Nodes whose answer was right after some round and wrong after the next."""
    right = answers == solution
    return (right[:-1] & ~right[1:]).any(axis=0)
