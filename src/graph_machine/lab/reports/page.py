"""Tables and curves inside a handwritten page: marked parts are renewed, the prose stays.

A mark is a comment with a kind and `key=value` words, and ends with `<!-- end -->`:

    <!-- conditions board=4x4 seeds=0-4 -->      every condition at one setting, against GM
    <!-- tables board=6x6 seeds=0-2 -->          the paper's tables, with its numbers beside ours
    <!-- settings board=4x4 keys=train.peak_lr conditions=gm,transformer seeds=100 -->
    <!-- curves board=4x4 file=images/curves.png -->
    <!-- groups board=end-40 keys=hops file=images/hops.png -->   accuracy by group, and its picture

`overrides=train.steps=250,...` takes the runs with exactly these settings changed; without it,
those with none changed. Several sets of settings are separated by `|`, and each has its own row:
`overrides=|train.steps=3500`. Everything comes from run records, as in `report`.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.files import write_text
from graph_machine.lab.conditions.registry import CONDITIONS
from graph_machine.lab.conditions.tables import TABLES
from graph_machine.lab.config import parse_numbers
from graph_machine.lab.reports import curves
from graph_machine.lab.reports.render import escaped, markdown_table
from graph_machine.lab.reports.runs import RunRecord, Runs
from graph_machine.lab.reports.summary import compare, make_group
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.tasks.scores import Metric

if TYPE_CHECKING:
    from pandas import DataFrame

MARK = re.compile(
    r"<!-- (?P<words>[a-z]+(?: [a-z]+=\S+)+) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL
)
ENOUGH_TO_RANK = 8  # conditions; the order of fewer says little


@dataclass(frozen=True)
class Block:
    """One mark of a page, parsed."""

    kind: str
    board: str
    seeds: Collection[int] | None = None  # None: all
    conditions: tuple[str, ...] = ()  # (): all
    overrides: tuple[tuple[str, ...], ...] = ((),)  # sets of settings; (): none was changed
    keys: tuple[str, ...] = ()
    file: str = ""
    drop: tuple[str, ...] = ()
    base: str = "gm"  # the condition that the others are compared with

    def finished(self, found: Runs) -> "DataFrame":
        """The runs that may be shown here, their settings aside: in the order of the registry,
        conditions of other names last, then by seed."""
        runs, order = found.frame, {name: place for place, name in enumerate(CONDITIONS)}
        here = (runs["status"] == "finished") & (runs["board"] == self.board)
        here &= ~runs["condition"].isin(self.drop)
        if self.seeds is not None:
            here &= runs["seed"].isin(self.seeds)
        if self.conditions:
            here &= runs["condition"].isin(self.conditions)
        mine = runs[here]
        place = mine["condition"].map(order).fillna(len(order))
        return mine.assign(place=place).sort_values(["place", "condition", "seed"], kind="stable")

    def chosen(self, found: Runs) -> "DataFrame":
        """Those of them with exactly one of the block's sets of settings changed.

        `row` is the label of a run's row: its condition and, with several sets of settings, what
        is particular to its set.
        """
        mine = self.finished(found)
        mine = mine.loc[[changed in self.overrides for changed in mine["overrides"]]]
        shared = set.intersection(*map(set, self.overrides))  # what the block is about
        changes = [[o for o in changed if o not in shared] for changed in mine["overrides"]]
        if len(self.overrides) == 1:
            changes = [[]] * len(mine)
        rows = [", ".join([name, *own]) for name, own in zip(mine["condition"], changes)]
        order = [self.overrides.index(changed) for changed in mine["overrides"]]
        by = ["place", "condition", "set", "seed"]
        return mine.assign(row=rows, set=order).sort_values(by, kind="stable")


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
    "drop": _words_in,
    "base": str,
}


def parse_mark(words: str) -> Block:
    kind, *pairs = words.split()
    if kind not in KINDS:
        raise ConfigError(
            f"Unknown mark '{kind}'.{did_you_mean(kind, KINDS)} Marks: {', '.join(KINDS)}."
        )
    given = dict(pair.split("=", 1) for pair in pairs)
    for name in given:
        if name not in WORDS:
            raise ConfigError(
                f"Unknown word '{name}' in the mark '{words}'.{did_you_mean(name, WORDS)}"
            )
    if "board" not in given:
        raise ConfigError(f"A mark needs board=..., such as board=4x4: '{words}'.")
    return Block(kind, **{name: WORDS[name](text) for name, text in given.items()})


PAPER_MEANS = {
    row.condition: row.paper.mean
    for table in TABLES.values()
    for row in table.rows
    if row.paper is not None
}


def mean_text(scores: Sequence[float], digits: int, seeds: bool = False) -> str:
    """The mean and, with `seeds`, the values behind it."""
    mean = f"{np.mean(scores):.{digits}f}" if scores else ""
    if not seeds or len(scores) < 2:
        return mean
    return f"{mean} ({', '.join(f'{score:.{digits}f}' for score in scores)})"


def difference(mine: "DataFrame", base: "DataFrame", column: str, digits: int) -> str:
    """Paired by seed, with its 95% interval from three seeds on (of two it says nothing)."""
    found = compare("", "", *(dict(zip(r["seed"], r[column].tolist())) for r in (mine, base)))
    if found is None:
        return ""
    if found.low is None or found.high is None or len(found.seeds) < 3:
        return f"{found.mean:+.{digits}f}"
    return f"{found.mean:+.{digits}f} ({found.low:+.{digits}f} to {found.high:+.{digits}f})"


def shown_metrics(run: RunRecord) -> list[tuple[str, Metric]]:
    """The metric that decides and the one after it, with their columns in the frame of runs."""
    return [*zip(("score", "second"), run.measures)]


def settings_line(runs: Sequence[RunRecord]) -> str:
    """The budget that all rows of a table share, in one line."""
    train, model, data = runs[0].config.train, runs[0].config.model, runs[0].info.data
    tested = sorted({run.result.test_examples or 0 for run in runs if run.result})
    board, count = runs[0].signature.board, " to ".join(f"{n:,}" for n in tested)
    if runs[0].measures[0].name != "board_accuracy":
        word = task_of(runs[0].config.task).examples_word
        return escaped(
            f"{board}, {train.steps:,} steps of {train.batch_size} {word}, width {model.d_node}, "
            f"tested on {count} {word} a run."
        )
    return escaped(
        f"{board} boards, {train.steps:,} steps of {train.batch_size}, "
        f"{model.num_layers} layers (twice as many in 2x), {data.size or 0:,} puzzles "
        f"({data.source}), tested on {count} boards a run."
    )


def agreement(rows: "dict[str, DataFrame]", paper: dict[str, float]) -> list[str]:
    """One line on the order of conditions here and in the paper, if there are enough of them.

    The interval is Bonett and Wright's, by Fisher's transformation.
    """
    from scipy import stats

    shared = [name for name in rows if name in paper]
    if len(shared) < ENOUGH_TO_RANK:
        return []
    parts = []
    for column, word in (("score", "boards"), ("second", "cells")):
        ours = [float(np.mean(rows[name][column].tolist())) for name in shared]
        if len({*ours}) == 1:
            continue
        found = float(stats.spearmanr(ours, [paper[name] for name in shared]).statistic)
        width = 1.96 * np.sqrt((1 + found**2 / 2) / (len(shared) - 3))
        low, high = np.tanh(np.arctanh(found) + np.array([-width, width]))
        parts.append(f"{found:.2f} by {word} (95%: {low:.2f} to {high:.2f})")
    which = f"the {len(shared)} conditions that it has"
    return ["", f"Rank correlation with the paper over {which}: {' and '.join(parts)}."]


def rows_by_label(mine: "DataFrame") -> "dict[str, DataFrame]":
    return {str(name): runs for name, runs in mine.groupby("row", sort=False)}


def conditions_block(block: Block, found: Runs, page: Path) -> list[str]:
    """Every condition with its seeds, its cost, and its paired difference from GM."""
    rows = rows_by_label(mine := block.chosen(found))
    if not rows:
        raise ConfigError(f"No finished runs for the mark of {block.board} boards in {page}.")
    # Of several sets of settings, the first that the base has been run with.
    base_row = next((name for name, r in rows.items() if {*r["condition"]} == {block.base}), "")
    paper, base = PAPER_MEANS, rows.get(base_row, mine[:0])
    shown = shown_metrics(found.of(mine)[0])
    # Older records have no CPU time, and a machine may have had other work to do.
    counted = bool(mine["cpu_seconds"].notna().all())
    clock, minutes = ("cpu_seconds", "CPU minutes") if counted else ("seconds", "minutes")
    head = ["condition", "parameters", "TFLOP a run", minutes]
    for column, measure in shown:
        head.append(f"{measure.heading} (by seed)" if column == "score" else measure.heading)
        head.append(f"against {block.base} (95%)")
    table = []
    for name, runs in rows.items():
        parameters, flops = np.mean(runs["parameters"].tolist()), runs["flops"].tolist()[0]
        row = [name, "" if np.isnan(parameters) else f"{int(parameters):,}"]
        row.append("" if np.isnan(flops) else f"{flops / 1e12:.2f}")
        row.append(f"{np.mean(runs[clock].tolist()) / 60:.1f}")
        for column, measure in shown:
            row.append(mean_text(runs[column].tolist(), measure.digits, column == "score"))
            same = name == base_row
            row.append("" if same else difference(runs, base, column, measure.digits))
        table.append([*row, f"{paper[name]:.1f}" if name in paper else ""])
    if paper.keys() & rows.keys():
        head.append("paper, at its budget")
    else:
        table = [row[:-1] for row in table]
    about = settings_line(found.of(base) or found.of(next(iter(rows.values()))))
    return [about, "", *markdown_table(head, table), *agreement(rows, paper)]


def tables_block(block: Block, found: Runs, page: Path) -> list[str]:
    """The paper's accuracy tables with our runs of one setting, and how well the order agrees."""
    rows = rows_by_label(mine := block.chosen(found))
    if not rows:
        raise ConfigError(f"No finished runs for the tables of {block.board} boards in {page}.")
    lines = [settings_line(found.of(rows.get(block.base, mine)))]
    for table in (each for each in TABLES.values() if each.in_paper):
        cells = []
        for row in table.rows:
            runs = rows.get(row.condition, mine[:0])
            ours = [mean_text(runs[c].tolist(), 1, seeds=c == "score") for c in ("score", "second")]
            theirs = (row.paper.mean, row.paper.cells) if row.paper else (None, None)
            cells.append([row.label, row.condition, *ours])
            cells[-1] += ["" if value is None else f"{value:.1f}" for value in theirs]
        head = ["", "condition", "boards % (by seed)", "cells %", "paper: boards %", "cells %"]
        lines += ["", f"**{table.name}: {table.title}**", "", *markdown_table(head, cells)]
    return [*lines, *agreement(rows, PAPER_MEANS)]


def settings_block(block: Block, found: Runs, page: Path) -> list[str]:
    """One row per setting of `keys`, one column per condition; differences from the default."""
    mine = block.finished(found)
    split = [  # of each run: its settings of `keys`, and the others
        ([s for s in changed if s.split("=", 1)[0] in block.keys], changed)
        for changed in mine["overrides"]
    ]
    here = [
        len(own) <= 1 and tuple(s for s in changed if s not in own) in block.overrides
        for own, changed in split
    ]
    mine = mine.assign(setting=["".join(own) for own, _ in split]).loc[here]  # "": the default
    if mine.empty:
        raise ConfigError(f"No finished runs for the settings {', '.join(block.keys)} in {page}.")
    rows = {str(setting): runs for setting, runs in mine.groupby("setting")}
    default = rows.get("", mine[:0])
    names = block.conditions or tuple(dict.fromkeys(mine["condition"]))
    first = found.of(next(iter(rows.values())))
    shown = shown_metrics(first[0])
    narrow = len(names) <= 2  # room for more than the metric that decides
    table, usual, known = [], "default", first[0].config.flat()
    for key in block.keys if len(block.keys) == 1 else ():  # with one setting it names the value
        if key not in known:
            raise ConfigError(f"Unknown setting '{key}' in a mark.{did_you_mean(key, known)}")
        usual = f"default ({key}={known[key]})"
    for setting, runs in rows.items():
        row = [setting or usual]
        for name in names:
            ours, theirs = (part[part["condition"] == name] for part in (runs, default))
            for column, measure in shown if narrow else shown[:1]:
                row.append(mean_text(ours[column].tolist(), measure.digits, column == "score"))
            if narrow:
                digits = shown[0][1].digits
                row.append(difference(ours, theirs, "score", digits) if setting else "")
        table.append(row)
    head = ["setting"]
    for name in names:
        head.append(f"{name}: {shown[0][1].heading} (by seed)")
        if narrow:
            head += [*(measure.heading for _, measure in shown[1:]), "against default"]
    return [settings_line(first), "", *markdown_table(head, table)]


def curves_block(block: Block, found: Runs, page: Path) -> list[str]:
    """Learning curves of the same runs as a picture beside the page."""
    mine = found.of(block.chosen(found).sort_index())
    if not mine or not block.file:
        raise ConfigError(f"Curves need finished runs and file=..., in {page}.")
    curves.save([make_group(mine, ())], picture_file(block, page))
    return [f"![Boards solved on the eval split, {block.board}]({block.file})"]


def picture_file(block: Block, page: Path) -> Path:
    """Where the block's picture goes: somewhere beside the page."""
    target = (page.parent / block.file).resolve()
    if not target.is_relative_to(page.parent.resolve()):
        raise ConfigError(f"file={block.file} leads out of the page's folder: {page}")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def groups_block(block: Block, found: Runs, page: Path) -> list[str]:
    """Accuracy by group of examples, as a table and, with file=..., as a picture."""
    rows = {name: found.of(runs) for name, runs in rows_by_label(block.chosen(found)).items()}
    if not rows or len(block.keys) != 1:
        raise ConfigError(f"A mark 'groups' needs finished runs and one keys=..., in {page}.")
    by = block.keys[0]
    lines = markdown_table(*curves.group_table(rows, by))
    if block.file:
        curves.save_groups(rows, by, picture_file(block, page))
        lines += ["", f"![Accuracy by {by}, {block.board}]({block.file})"]
    return lines


KINDS: dict[str, Callable[[Block, Runs, Path], list[str]]] = {
    "conditions": conditions_block,
    "tables": tables_block,
    "settings": settings_block,
    "curves": curves_block,
    "groups": groups_block,
}


def render_page(text: str, found: Runs, page: Path) -> str:
    """The page with every marked part made anew."""

    def renew(match: re.Match[str]) -> str:
        block = parse_mark(match["words"])
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
