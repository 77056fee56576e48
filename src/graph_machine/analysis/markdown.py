"""Tables in Markdown, and how a number over seeds is written."""

import math
from collections.abc import Sequence

import numpy as np

ABSENT = "–"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first are aligned right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))


def over_seeds_text(values: Sequence[float]) -> str:
    """The mean, with the lowest and the highest where there are several."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return ABSENT
    mean = f"{np.mean(known):.2f}"
    return mean if len(known) == 1 else f"{mean} ({min(known):.2f}–{max(known):.2f})"
