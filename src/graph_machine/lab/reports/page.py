"""Tables and curves inside a handwritten page: marked parts are renewed, the prose stays.

A mark is a comment with a kind and `key=value` words, and ends with `<!-- end -->`:

    <!-- conditions board=4x4 seeds=0-4 -->      every condition at one setting, against GM
    <!-- tables board=6x6 seeds=0-2 -->          the paper's tables, with its numbers beside ours
    <!-- settings board=4x4 keys=train.peak_lr conditions=gm,transformer seeds=100 -->
    <!-- curves board=4x4 file=images/curves.png -->
    <!-- groups board=end-40 keys=hops file=images/hops.png -->   accuracy by group, and its picture
    <!-- best board=bfs,minimum conditions=clrs-gps published=published.toml -->   best settings
    <!-- summary file=summary.toml seeds=0-9 -->   rows of text with scores in them

`overrides=train.steps=250,...` takes the runs with exactly these settings changed; without it,
those with none changed. Several sets of settings are separated by `|`, and each has its own row:
`overrides=|train.steps=3500`. So has each of several boards, `board=bfs,dijkstra`. `groups` shows
the last metric of a task, or the one of `metric=`. Everything comes from run records, as in
`report`.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.files import write_text
from graph_machine.lab.conditions.tables import TABLES
from graph_machine.lab.reports import curves
from graph_machine.lab.reports.marks import (
    MARK,
    Block,
    Rows,
    file_beside,
    mean_text,
    minutes_of,
    parse_mark,
    scores_of,
)
from graph_machine.lab.reports.overview import best_block, summary_block
from graph_machine.lab.reports.render import escaped, markdown_table
from graph_machine.lab.reports.runs import RunRecord, Runs
from graph_machine.lab.reports.summary import compare, make_group
from graph_machine.lab.tasks.base import task_of

ENOUGH_TO_RANK = 8  # conditions; the order of fewer says little

PAPER_MEANS = {
    row.condition: row.paper.mean
    for table in TABLES.values()
    for row in table.rows
    if row.paper is not None
}


def mean_parameters(runs: Sequence[RunRecord]) -> int:
    return int(np.mean([run.result.parameters for run in runs if run.result]))


def difference(
    mine: Sequence[RunRecord], base: Sequence[RunRecord], number: int, digits: int
) -> str:
    """Paired by seed, with its 95% interval from three seeds on (of two it says nothing)."""
    first, second = (
        {run.seed: score for run, score in zip(runs, scores_of(runs, number))}
        for runs in (mine, base)
    )
    found = compare("", "", first, second)
    if found is None:
        return ""
    if found.low is None or found.high is None or len(found.seeds) < 3:
        return f"{found.mean:+.{digits}f}"
    return f"{found.mean:+.{digits}f} ({found.low:+.{digits}f} to {found.high:+.{digits}f})"


def settings_line(runs: Sequence[RunRecord]) -> str:
    """The budget that all rows of a table share, in one line."""
    train, model, data = runs[0].config.train, runs[0].config.model, runs[0].info.data
    tested = sorted({run.result.test_examples or 0 for run in runs if run.result})
    taken = sorted({run.config.train.steps for run in runs})
    steps = " to ".join(f"{n:,}" for n in dict.fromkeys((taken[0], taken[-1])))
    board, count = runs[0].signature.board, " to ".join(f"{n:,}" for n in tested)
    if runs[0].measures[0].name != "board_accuracy":
        word = task_of(runs[0].config.task).examples_word
        return escaped(
            f"{board}, {steps} steps of {train.batch_size} {word}, width {model.d_node}, "
            f"tested on {count} {word} a run."
        )
    return escaped(
        f"{board} boards, {steps} steps of {train.batch_size}, "
        f"{model.num_layers} layers (twice as many in 2x), {data.size or 0:,} puzzles "
        f"({data.source}), tested on {count} boards a run."
    )


def agreement(rows: Rows, paper: dict[str, float]) -> list[str]:
    """One line on the order of conditions here and in the paper, if there are enough of them.

    The interval is Bonett and Wright's, by Fisher's transformation.
    """
    from scipy import stats

    shared = [name for name in rows if name in paper]
    if len(shared) < ENOUGH_TO_RANK:
        return []
    parts = []
    for number, word in enumerate(("boards", "cells")):
        ours = [float(np.mean(scores_of(rows[name], number))) for name in shared]
        if len({*ours}) == 1:
            continue
        found = float(stats.spearmanr(ours, [paper[name] for name in shared]).statistic)
        width = 1.96 * np.sqrt((1 + found**2 / 2) / (len(shared) - 3))
        low, high = np.tanh(np.arctanh(found) + np.array([-width, width]))
        parts.append(f"{found:.2f} by {word} (95%: {low:.2f} to {high:.2f})")
    which = f"the {len(shared)} conditions that it has"
    return ["", f"Rank correlation with the paper over {which}: {' and '.join(parts)}."]


def conditions_block(block: Block, found: Runs, page: Path) -> list[str]:
    """Every condition with its seeds, its cost, and its paired difference from GM."""
    rows = block.rows(found)
    if not rows:
        raise ConfigError(f"No finished runs for the mark of {block.board} boards in {page}.")
    # Of several sets of settings, the first that the base has been run with.
    base_row = next((name for name, runs in rows.items() if runs[0].condition == block.base), "")
    paper, base = PAPER_MEANS, rows.get(base_row, [])
    every = [run for runs in rows.values() for run in runs]
    shown = [*enumerate(every[0].measures[:2])]
    # Older records have no CPU time, and a machine may have had other work to do.
    counted = all(run.result and run.result.cpu_seconds is not None for run in every)
    clock, minutes = ("cpu_seconds", "CPU minutes") if counted else ("seconds", "minutes")
    head = ["condition", "parameters", "TFLOP a run", minutes]
    for number, measure in shown:
        head.append(measure.heading if number else f"{measure.heading} (by seed)")
        head.append(f"against {block.base} (95%)")
    table = []
    for name, runs in rows.items():
        flops = runs[0].flops
        row = [name, f"{mean_parameters(runs):,}", "" if flops is None else f"{flops / 1e12:.2f}"]
        row.append(minutes_of(runs, clock))
        for number, measure in shown:
            row.append(mean_text(scores_of(runs, number), measure.digits, seeds=not number))
            same = name == base_row
            row.append("" if same else difference(runs, base, number, measure.digits))
        table.append([*row, f"{paper[name]:.1f}" if name in paper else ""])
    if paper.keys() & rows.keys():
        head.append("paper, at its budget")
    else:
        table = [row[:-1] for row in table]
    about = settings_line(base or next(iter(rows.values())))
    return [about, "", *markdown_table(head, table), *agreement(rows, paper)]


def tables_block(block: Block, found: Runs, page: Path) -> list[str]:
    """The paper's accuracy tables with our runs of one setting, and how well the order agrees."""
    rows = block.rows(found)
    if not rows:
        raise ConfigError(f"No finished runs for the tables of {block.board} boards in {page}.")
    every = [run for runs in rows.values() for run in runs]
    lines = [settings_line(rows.get(block.base, every))]
    for table in (each for each in TABLES.values() if each.in_paper):
        cells = []
        for row in table.rows:
            runs = rows.get(row.condition, [])
            ours = [mean_text(scores_of(runs, n), 1, seeds=not n) for n in (0, 1)]
            theirs = (row.paper.mean, row.paper.cells) if row.paper else (None, None)
            cells.append([row.label, row.condition, *ours])
            cells[-1] += ["" if value is None else f"{value:.1f}" for value in theirs]
        head = ["", "condition", "boards % (by seed)", "cells %", "paper: boards %", "cells %"]
        lines += ["", f"**{table.name}: {table.title}**", "", *markdown_table(head, cells)]
    return [*lines, *agreement(rows, PAPER_MEANS)]


def value_of(keys: Sequence[str], run: RunRecord) -> str:
    """The first of the keys with its value in a run, as a setting is written."""
    return f"{keys[0]}={run.config.flat().get(keys[0])}" if keys else ""


def settings_block(block: Block, found: Runs, page: Path) -> list[str]:
    """One row per setting of `keys`, one column per condition; differences from the default."""
    rows: Rows = {}  # by setting of `keys`; "": the default
    names = dict.fromkeys(block.conditions)
    for run in block.finished(found):
        changed = run.signature.overrides
        own = [s for s in changed if s.split("=", 1)[0] in block.keys]
        if len(own) <= 1 and tuple(s for s in changed if s not in own) in block.overrides:
            rows.setdefault("".join(own), []).append(run)
            names |= {} if block.conditions else {run.condition: None}
    if not rows:
        raise ConfigError(f"No finished runs for the settings {', '.join(block.keys)} in {page}.")
    if len({value_of(block.keys, run) for run in rows.get("", [])}) > 1:  # each has its own default
        for run in rows.pop(""):
            rows.setdefault(value_of(block.keys, run), []).append(run)
    rows = {setting: rows[setting] for setting in sorted(rows)}
    first, default = next(iter(rows.values())), rows.get("", [])
    narrow = len(names) <= 2  # room for more than the metric that decides
    shown = [*enumerate(first[0].measures[: 1 + narrow])]
    table, usual, known = [], "default", first[0].config.flat()
    for key in block.keys if len(block.keys) == 1 else ():  # with one setting it names the value
        if key not in known:
            raise ConfigError(f"Unknown setting '{key}' in a mark.{did_you_mean(key, known)}")
        usual = f"default ({key}={known[key]})"
    for setting, runs in rows.items():
        row = [setting or usual]
        for name in names:
            ours, theirs = ([r for r in part if r.condition == name] for part in (runs, default))
            for number, measure in shown:
                row.append(mean_text(scores_of(ours, number), measure.digits, seeds=not number))
            if narrow:
                row.append(difference(ours, theirs, 0, shown[0][1].digits) if setting else "")
        table.append(row)
    head = ["setting"]
    for name in names:
        head.append(f"{name}: {shown[0][1].heading} (by seed)")
        if narrow:
            head += [*(measure.heading for _, measure in shown[1:]), "against default"]
    every = [run for runs in rows.values() for run in runs]
    return [settings_line(every), "", *markdown_table(head, table)]


def curves_block(block: Block, found: Runs, page: Path) -> list[str]:
    """Learning curves of the same runs as a picture beside the page."""
    rows = block.rows(found).values()
    mine = [run for run in found.runs if any(run is one for runs in rows for one in runs)]
    if not mine or not block.file:
        raise ConfigError(f"Curves need finished runs and file=..., in {page}.")
    curves.save([make_group(mine, ())], file_beside(block, page))
    return [f"![Boards solved on the eval split, {block.board}]({block.file})"]


def groups_block(block: Block, found: Runs, page: Path) -> list[str]:
    """Accuracy by group of examples, as a table and, with file=..., as a picture."""
    rows = block.rows(found)
    if not rows or len(block.keys) != 1:
        raise ConfigError(f"A mark 'groups' needs finished runs and one keys=..., in {page}.")
    by = block.keys[0]
    (_, *groups), table = curves.group_table(rows, by, block.metric)
    for row, runs in zip(table, rows.values(), strict=True):
        row[1:1] = [f"{mean_parameters(runs):,}", minutes_of(runs)]
    lines = markdown_table([by, "parameters", "CPU minutes", *groups], table)
    if block.file:
        curves.save_groups(rows, by, file_beside(block, page), block.metric)
        lines += ["", f"![Accuracy by {by}, {block.board}]({block.file})"]
    return lines


KINDS: dict[str, Callable[[Block, Runs, Path], list[str]]] = {
    "conditions": conditions_block,
    "tables": tables_block,
    "settings": settings_block,
    "curves": curves_block,
    "groups": groups_block,
    "best": best_block,
    "summary": summary_block,
}


def render_page(text: str, found: Runs, page: Path) -> str:
    """The page with every marked part renewed."""

    def renew(match: re.Match[str]) -> str:
        block = parse_mark(match["words"])
        if block.kind not in KINDS:
            raise ConfigError(
                f"Unknown mark '{block.kind}'.{did_you_mean(block.kind, KINDS)} "
                f"Marks: {', '.join(KINDS)}."
            )
        body = "\n".join(KINDS[block.kind](block, found, page))
        return f"<!-- {match['words']} -->\n{body}\n<!-- end -->"

    if not MARK.search(text):
        raise ConfigError(
            f"There is no mark such as <!-- conditions board=4x4 --> in this page: {page}"
        )
    return MARK.sub(renew, text)


def renew_page(page: Path, found: Runs) -> None:
    """Renew the marked tables and curves of a page; the prose between them stays.

    The file keeps its mode, and a link to it stays a link.
    """
    place = page.resolve()
    mode = place.stat().st_mode
    try:
        text = place.read_text(encoding="utf-8")
    except ValueError:
        raise ConfigError(f"The page is not UTF-8 text: {page}") from None
    write_text(place, render_page(text, found, place), mode=mode & 0o777)
