"""Tables over many tasks: the best of every condition, and a summary made of single scores."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graph_machine.errors import ConfigError, count_of
from graph_machine.lab.conditions.tables import TABLES
from graph_machine.lab.reports import curves
from graph_machine.lab.reports.marks import (
    Block,
    beside,
    file_beside,
    mean_text,
    minutes_of,
    scores_of,
)
from graph_machine.lab.reports.render import markdown_table
from graph_machine.lab.reports.runs import RunRecord, Runs
from graph_machine.lab.tasks.scores import Metric

SCORE = re.compile(r"\{([^{}]+)\}")
FEW = {1: "one seed", 2: "two seeds"}  # three are usual


def load_table(name: str, page: Path) -> dict[str, Any]:
    """A TOML file beside the page."""
    file = beside(name, page)
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot read {file} as TOML: {error}") from None


def best_block(block: Block, found: Runs, page: Path) -> list[str]:
    """A row per condition, a column per board: its best setting, of those with the most seeds.

    Then the rows of `published=`, a TOML file of published scores by model and board. With `file=`,
    a picture of both.
    """
    published = load_table(block.published, page) if block.published else {}
    ours = [table for table in TABLES.values() if not table.in_paper]
    labels = {row.condition: row.label for table in ours for row in table.rows}
    best: dict[str, dict[str, list[RunRecord]]] = {}  # by label and board
    for board in block.board.split(","):
        runs = replace(block, board=board).finished(found)
        if not runs:
            raise ConfigError(f"No finished runs for the board {board} in {page}.")
        for name in block.conditions:
            settings: dict[tuple[str, ...], list[RunRecord]] = {}
            for run in runs:
                if run.condition == name:
                    settings.setdefault(run.signature.overrides, []).append(run)
            rank = lambda own: (len(own), np.mean(scores_of(own)))  # noqa: E731
            mine = max(settings.values(), key=rank, default=[])
            best.setdefault(labels.get(name, name), {})[board] = mine
    boards = block.board.split(",")
    means = {
        label: {board: float(np.mean(scores_of(runs))) for board, runs in rows.items() if runs}
        for label, rows in best.items()
    }
    table = []
    for label, rows in best.items():
        cells = [best_text(rows[board]) for board in boards]
        for place, board in enumerate(boards):
            if means[label].get(board) == max(row.get(board, -np.inf) for row in means.values()):
                cells[place] = f"**{cells[place]}**"
        table.append([label, *cells, minutes_text(list(rows.values()))])
    for label, column in published.items():
        known = (f"{column[board]:.1f}" if board in column else "" for board in boards)
        table.append([label, *known, ""])
    head = [board.replace("_", " ") for board in boards]
    lines = markdown_table(["", *head, "CPU minutes a run"], table)
    if block.file:
        scores = {
            label: {board: scores_of(runs) for board, runs in rows.items()}
            for label, rows in best.items()
        }
        curves.save_best(scores, published, file_beside(block, page))
        lines += ["", f"![Scores of every condition, and published ones]({block.file})"]
    return lines


def best_text(runs: Sequence[RunRecord]) -> str:
    """Mean and, with several seeds, standard deviation."""
    if not runs:
        return ""
    scores, digits = scores_of(runs), runs[0].measures[0].digits
    spread = f" ± {np.std(scores, ddof=1):.{digits}f}" if len(runs) > 1 else ""
    return mean_text(scores, digits) + spread


def minutes_text(cells: Sequence[Sequence[RunRecord]]) -> str:
    """The least and the most CPU time of a run among the cells of a row, each a mean of seeds."""
    means = sorted({float(text) for text in map(minutes_of, cells) if text})
    return " to ".join(dict.fromkeys(f"{mean:.1f}" for mean in (*means[:1], *means[-1:])))


def summary_block(block: Block, found: Runs, page: Path) -> list[str]:
    """The rows of a TOML file: cells of text, in which `{...}` stands for scores of our runs.

    They are named by board, condition, the settings that were changed, and perhaps a group of
    examples: `{bfs-16 algorithms-gps model.num_layers=8 nodes:128}` is their mean, and
    `{spread bfs-16 algorithms-gps}` the best and the worst seed.
    """
    table = load_table(block.file, page)
    head, rows = table.get("head", []), table.get("rows", [])
    if not head or any(len(row) != len(head) for row in rows):
        raise ConfigError(f"{block.file} needs a head, and rows with as many cells: {page}")

    def filled(match: re.Match[str]) -> str:
        words = match[1].split() or [""]
        show = spread_text if words[0] == "spread" else score_text
        board, condition, *words = [word for word in words if word != "spread"] + [""] * 2
        settings = tuple(sorted(word for word in words if "=" in word))
        groups = [word for word in words if word and "=" not in word]
        one = replace(block, board=board, conditions=(condition,), overrides=(settings,))
        for runs in one.rows(found).values():
            scores, measure = scores_of(runs), runs[0].measures[0]
            for by, _, group in (word.partition(":") for word in groups):
                (by_group,) = curves.group_scores({"": runs}, by).values()
                scores, measure = by_group.get(group, []), runs[0].measures[-1]
            if scores:
                return show(runs, scores, measure)
        raise ConfigError(f"No finished runs for {match[0]} of {block.file} in {page}.")

    cells = [[SCORE.sub(filled, cell) for cell in row] for row in rows]  # Markdown: links stay
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *cells)]


def score_text(runs: Sequence[RunRecord], scores: Sequence[float], measure: Metric) -> str:
    """Mean, deviation and CPU minutes, and how many seeds if they are fewer than three."""
    text = measure.text(float(np.mean(scores)))
    if len(scores) > 1:
        text += f" ± {np.std(scores, ddof=1):.{measure.digits}f}"
    took = minutes_of(runs)
    about = ", ".join(filter(None, (f"{took} min" if took else "", FEW.get(len(runs), ""))))
    return f"{text} ({about})" if about else text


def spread_text(runs: Sequence[RunRecord], scores: Sequence[float], measure: Metric) -> str:
    """The best seed, the worst, and how much of the best the worst has."""
    best, worst = sorted((min(scores), max(scores)), reverse=measure.higher_is_better)
    ratio = min(best, worst) / max(best, worst, 1e-9)
    shown = " to ".join(f"{score:.{measure.digits}f}" for score in (best, worst))
    return f"{shown} ({ratio:.2f}; {FEW.get(len(runs)) or count_of(len(runs), 'seeds')})"
