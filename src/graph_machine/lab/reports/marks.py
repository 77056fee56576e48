"""A mark in a page, read: which runs its table shows, and what the cells of tables share."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.lab.conditions.registry import CONDITIONS
from graph_machine.lab.config import parse_numbers
from graph_machine.lab.reports.runs import RunRecord, Runs

MARK = re.compile(
    r"<!-- (?P<words>[a-z]+(?: [a-z]+=\S+)+) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL
)
Rows = dict[str, list[RunRecord]]  # by label


def place(run: RunRecord) -> tuple[int, str]:
    """In the order of the registry, conditions of other names last."""
    return [*CONDITIONS, run.condition].index(run.condition), run.condition


@dataclass(frozen=True)
class Block:
    """One mark of a page, parsed."""

    kind: str
    board: str = ""
    seeds: Collection[int] | None = None  # None: all
    conditions: tuple[str, ...] = ()  # (): all
    overrides: tuple[tuple[str, ...], ...] = ((),)  # sets of settings; (): none was changed
    keys: tuple[str, ...] = ()
    file: str = ""
    published: str = ""
    drop: tuple[str, ...] = ()
    metric: str = ""  # "": the last one of the task
    base: str = "gm"  # the condition that the others are compared with

    def finished(self, found: Runs) -> list[RunRecord]:
        """The runs that may be shown here, their settings aside: by condition, then by seed."""
        mine = [
            run
            for run in found.runs
            if run.finished and run.signature.board in self.board.split(",")
            if run.condition not in self.drop
            if not self.conditions or run.condition in self.conditions
            if self.seeds is None or run.seed in self.seeds
        ]
        return sorted(mine, key=lambda run: (*place(run), run.seed))

    def rows(self, found: Runs) -> Rows:
        """Those of them with exactly one of the block's sets of settings changed, by the label of
        their row: with several boards its board, then the condition and, with several sets, the
        settings of its set alone."""
        sets, rows, several = self.overrides, Rows(), "," in self.board
        shared = set.intersection(*map(set, sets))  # what the block is about
        mine = [run for run in self.finished(found) if run.signature.overrides in sets]
        mine.sort(key=lambda run: (*place(run), sets.index(run.signature.overrides)))
        for run in mine:
            own = [o for o in run.signature.overrides if o not in shared]
            if several:  # a board says what its task is
                own = [o for o in own if not o.startswith("task.")]
            label = [run.signature.board] * several + [run.condition, *own]
            rows.setdefault(", ".join(label), []).append(run)
        return rows


def _words_in(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


# The words of a mark, and how their values are read.
WORDS: dict[str, Callable[[str], Any]] = {
    "board": str,
    "seeds": parse_numbers,
    "conditions": _words_in,
    "overrides": lambda text: tuple(tuple(sorted(_words_in(one))) for one in text.split("|")),
    "keys": _words_in,
    "file": str,
    "published": str,
    "drop": _words_in,
    "metric": str,
    "base": str,
}


def parse_mark(words: str) -> Block:
    kind, *pairs = words.split()
    given = dict(pair.split("=", 1) for pair in pairs)
    for name in given:
        if name not in WORDS:
            raise ConfigError(
                f"Unknown word '{name}' in the mark '{words}'.{did_you_mean(name, WORDS)}"
            )
    if "board" not in given and kind != "summary":
        raise ConfigError(f"A mark needs board=..., such as board=4x4: '{words}'.")
    return Block(kind, **{name: WORDS[name](text) for name, text in given.items()})


def mean_text(scores: Sequence[float], digits: int, seeds: bool = False) -> str:
    """The mean and, with `seeds`, the values behind it."""
    mean = f"{np.mean(scores):.{digits}f}" if scores else ""
    if not seeds or len(scores) < 2:
        return mean
    return f"{mean} ({', '.join(f'{score:.{digits}f}' for score in scores)})"


def scores_of(runs: Sequence[RunRecord], number: int = 0) -> list[float]:
    """The metric that decides or the one after it (1), of every run."""
    found = [run.second_score if number else run.score for run in runs]
    return [float("nan") if score is None else score for score in found]


def minutes_of(runs: Sequence[RunRecord], clock: str = "cpu_seconds") -> str:
    """What a run took on average; nothing if it was not recorded, as in older runs."""
    took = [getattr(run.result, clock) for run in runs if run.result]
    return f"{np.mean(took) / 60:.1f}" if took and all(took) else ""


def file_beside(block: Block, page: Path) -> Path:
    """The file that the block draws, in the folder of the page or below it."""
    target = beside(block.file, page)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def beside(name: str, page: Path) -> Path:
    target = (page.parent / name).resolve()
    if not target.is_relative_to(page.parent.resolve()):
        raise ConfigError(f"{name} leads out of the page's folder: {page}")
    return target
