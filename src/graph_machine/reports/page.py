"""Tables and curves inside a handwritten page: marked parts are renewed, the prose stays.

A mark is a comment with a kind and `key=value` words, and ends with `<!-- end -->`:

    <!-- conditions board=4x4 seeds=0-4 -->      every condition at one setting, against GM
    <!-- settings board=4x4 keys=train.peak_lr conditions=gm,transformer seeds=100 -->
    <!-- curves board=4x4 file=images/curves.png -->
    <!-- groups board=end-40 keys=hops file=images/hops.png -->   accuracy by group, and its picture

`overrides=train.steps=250,...` takes the runs that were all given these settings; without it, those
that were given none. Several sets of settings are separated by `|`, and each has its own row:
`overrides=|train.steps=3500`. Everything comes from run records, as in `report`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from graph_machine.conditions.registry import CONDITIONS
from graph_machine.conditions.tables import TABLES
from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.files import write_text
from graph_machine.reports.by_group import group_rows, save_groups
from graph_machine.reports.compare import compare
from graph_machine.reports.runs import RunRecord, Runs
from graph_machine.reports.summary import make_group
from graph_machine.sweeps.grid import parse_seeds
from graph_machine.tasks.base import task_of

MARK = re.compile(
    r"<!-- (?P<words>[a-z]+(?: [a-z]+=\S+)+) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL
)

ENOUGH_TO_RANK = 8  # conditions; the order of fewer says little


@dataclass(frozen=True)
class Block:
    """One mark of a page, parsed."""

    kind: str
    board: str
    seeds: frozenset[int] | None = None  # None: all
    conditions: tuple[str, ...] = ()  # (): all
    overrides: tuple[tuple[str, ...], ...] = ((),)  # sets of settings; (): none was changed
    keys: tuple[str, ...] = ()
    file: str = ""
    drop: frozenset[str] = field(default_factory=frozenset)
    base: str = "gm"  # the condition that the others are compared with

    def takes(self, run: RunRecord) -> bool:
        """Whether a run may be shown here, its settings aside."""
        return (
            run.finished
            and run.signature.board == self.board
            and (self.seeds is None or run.seed in self.seeds)
            and (not self.conditions or run.condition in self.conditions)
            and run.condition not in self.drop
        )


def parse(words: str) -> Block:
    kind, *pairs = words.split()
    if kind not in KINDS:
        raise ConfigError(
            f"Unknown mark '{kind}'.{did_you_mean(kind, KINDS)} Marks: {', '.join(KINDS)}."
        )
    given = dict(pair.split("=", 1) for pair in pairs)
    known = {"board", "seeds", "conditions", "overrides", "keys", "file", "drop", "base"}
    for name in given:
        if name not in known:
            raise ConfigError(
                f"Unknown word '{name}' in the mark '{words}'.{did_you_mean(name, known)}"
            )
    if "board" not in given:
        raise ConfigError(f"A mark needs board=..., such as board=4x4: '{words}'.")

    def parts(name: str) -> tuple[str, ...]:
        return tuple(given[name].split(",")) if name in given else ()

    return Block(
        kind,
        given["board"],
        frozenset(parse_seeds(given["seeds"])) if "seeds" in given else None,
        parts("conditions"),
        tuple(
            tuple(sorted(filter(None, one.split(","))))
            for one in given.get("overrides", "").split("|")
        ),
        parts("keys"),
        given.get("file", ""),
        frozenset(parts("drop")),
        given.get("base", "gm"),
    )


def paper_means() -> dict[str, float]:
    rows = [row for table in TABLES.values() for row in table.rows]
    return {row.condition: row.paper.mean for row in rows if row.paper is not None}


def by_condition(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Runs in the order of the registry, those of other names last."""
    found: dict[str, list[RunRecord]] = {}
    order = {name: place for place, name in enumerate(CONDITIONS)}
    for run in sorted(
        runs, key=lambda r: (order.get(r.condition, len(order)), r.condition, r.seed)
    ):
        found.setdefault(run.condition, []).append(run)
    return found


def scores_of(runs: Sequence[RunRecord], second: bool = False) -> dict[int, float]:
    """The metric that decides, or the one after it, by seed."""
    found = {run.seed: run.second_score if second else run.score for run in runs}
    return {seed: float("nan") if value is None else value for seed, value in found.items()}


def heading(run: RunRecord, second: bool = False) -> str:
    """Of a column with the metric that decides, or the one after it: `boards %`."""
    return run.measures[second].heading


def places(run: RunRecord, second: bool = False) -> int:
    """Decimal places of that metric: a share is in percent."""
    return run.measures[second].digits


def second_mean(runs: Sequence[RunRecord]) -> str:
    mean = np.mean([*scores_of(runs, second=True).values()])
    return f"{mean:.{places(runs[0], second=True)}f}"


def first_mean(runs: Sequence[RunRecord]) -> str:
    """Mean and the seeds behind it."""
    digits = places(runs[0])
    scores = [f"{run.score:.{digits}f}" for run in sorted(runs, key=lambda r: r.seed)]
    if len(scores) == 1:
        return scores[0]
    return f"{np.mean([run.score for run in runs]):.{digits}f} ({', '.join(scores)})"


def difference(
    name: str, runs: Sequence[RunRecord], base: Sequence[RunRecord], second: bool = False
) -> str:
    """Paired by seed, with its 95% interval from three seeds on (of two it says nothing)."""
    found = compare(name, "", scores_of(runs, second), scores_of(base, second))
    if found is None:
        return ""
    digits = places(runs[0], second)
    if found.low is None or found.high is None or len(found.seeds) < 3:
        return f"{found.mean:+.{digits}f}"
    return f"{found.mean:+.{digits}f} ({found.low:+.{digits}f} to {found.high:+.{digits}f})"


def mean_of(runs: Sequence[RunRecord], key: str) -> float:
    return float(np.mean([(run.result or {}).get(key, float("nan")) for run in runs]))


def settings_line(runs: Sequence[RunRecord]) -> str:
    """The budget that all rows of a table share, in one line."""
    train, model, data = runs[0].config.train, runs[0].config.model, runs[0].data
    tested = sorted({(run.result or {}).get("test_examples", 0) for run in runs})
    board, count = runs[0].signature.board, " to ".join(f"{n:,}" for n in tested)
    if runs[0].deciding != "board_accuracy":
        word = task_of(runs[0].config.task).examples_word
        return (
            f"{board}, {train.steps:,} steps of {train.batch_size} {word}, width {model.d_node}, "
            f"tested on {count} {word} a run."
        )
    return (
        f"{board} boards, {train.steps:,} steps of {train.batch_size}, "
        f"{model.num_layers} layers (twice as many in 2x), {data.get('size'):,} puzzles "
        f"({data.get('source')}), tested on {count} boards a run."
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def chosen(block: Block, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Runs of the block's board and seeds that were given just one of its sets of settings."""
    return [r for r in runs if block.takes(r) and r.signature.overrides in block.overrides]


def rows_of(block: Block, runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """The block's runs by condition and, where it names several sets of settings, by set."""
    groups = by_condition(chosen(block, runs))
    if len(block.overrides) == 1:
        return groups
    # What all sets share is what the block is about: names need not say it.
    shared = set.intersection(*map(set, block.overrides))
    found: dict[str, list[RunRecord]] = {}
    for mine in groups.values():
        for run in sorted(mine, key=lambda r: block.overrides.index(r.signature.overrides)):
            own = [setting for setting in run.signature.overrides if setting not in shared]
            found.setdefault(", ".join([run.condition, *own]), []).append(run)
    return found


def rank_correlation(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Spearman's, equal values sharing their mean rank."""
    ranks = []
    for values in (np.asarray(ours), np.asarray(theirs)):
        above = values[:, None] > values
        ranks.append(above.sum(1) + 0.5 * (values[:, None] == values).sum(1))
    return float(np.corrcoef(*ranks)[0, 1])


def agreement(groups: dict[str, list[RunRecord]], paper: dict[str, float]) -> list[str]:
    """One line on the order of conditions here and in the paper, where there are enough of them."""
    shared = [name for name in groups if name in paper]
    if len(shared) < ENOUGH_TO_RANK:
        return []
    ours = [float(np.mean([run.score for run in groups[name]])) for name in shared]
    found = rank_correlation(ours, [paper[name] for name in shared])
    which = f"the {len(shared)} conditions that it has"
    return ["", f"Rank correlation with the paper over {which}: {found:.2f}."]


def conditions_block(block: Block, runs: Sequence[RunRecord], page: Path) -> list[str]:
    """Every condition with its seeds, its cost, and its paired difference from GM."""
    groups = rows_of(block, runs)
    if not groups:
        raise ConfigError(f"No finished runs for the mark of {block.board} boards in {page}.")
    # Of several sets of settings, the first that the base has been run with.
    base_row = next((name for name, mine in groups.items() if mine[0].condition == block.base), "")
    paper, base = paper_means(), groups.get(base_row, [])
    plain = next(iter(groups.values()))
    # Older records have no CPU time, and a machine may have had other work to do.
    counted = all("cpu_seconds" in (r.result or {}) for mine in groups.values() for r in mine)
    clock, minutes = ("cpu_seconds", "CPU minutes") if counted else ("seconds", "minutes")
    rows = []
    for name, mine in groups.items():
        rows.append(
            [
                name,
                f"{int(mean_of(mine, 'parameters')):,}",
                "" if mine[0].flops is None else f"{mine[0].flops / 1e12:.2f}",
                f"{mean_of(mine, clock) / 60:.1f}",
                first_mean(mine),
                "" if name == base_row else difference(name, mine, base),
                second_mean(mine),
                "" if name == base_row else difference(name, mine, base, second=True),
                f"{paper[name]:.1f}" if name in paper else "",
            ]
        )
    first, second = heading(plain[0]), heading(plain[0], second=True)
    head = ["condition", "parameters", "TFLOP a run", minutes, f"{first} (by seed)"]
    against = f"against {block.base} (95%)"
    head += [against, second, against, "paper, at its budget"]
    if not paper.keys() & groups.keys():
        head, rows = head[:-1], [row[:-1] for row in rows]
    return [settings_line(base or plain), "", *table(head, rows), *agreement(groups, paper)]


def default_label(block: Block, run: RunRecord) -> str:
    """The first row of a table of settings; of one setting it can tell the value."""
    if len(block.keys) != 1:
        return "default"
    key, known = block.keys[0], run.config.flat()
    if key not in known:
        raise ConfigError(f"Unknown setting '{key}' in a mark.{did_you_mean(key, known)}")
    return f"default ({key}={known[key]})"


def settings_block(block: Block, runs: Sequence[RunRecord], page: Path) -> list[str]:
    """One row per setting of `keys`, one column per condition; differences from the default."""
    found: dict[tuple[str, ...], list[RunRecord]] = {}
    for run in runs:
        own = tuple(o for o in run.signature.overrides if o.split("=", 1)[0] in block.keys)
        rest = tuple(o for o in run.signature.overrides if o not in own)
        if block.takes(run) and rest in block.overrides and len(own) <= 1:
            found.setdefault(own, []).append(run)
    if not found:
        raise ConfigError(f"No finished runs for the settings {', '.join(block.keys)} in {page}.")
    default = by_condition(found.get((), []))
    names = block.conditions or tuple(by_condition([r for runs in found.values() for r in runs]))
    narrow = len(names) <= 2  # room for more than boards
    rows = []
    for own in sorted(found, key=lambda o: (o != (), o)):
        groups = by_condition(found[own])
        row = [own[0] if own else default_label(block, found[own][0])]
        for name in names:
            mine = groups.get(name, [])
            row.append(first_mean(mine) if mine else "")
            if narrow:
                row.append(second_mean(mine) if mine else "")
                row.append(difference(name, mine, default.get(name, [])) if own and mine else "")
        rows.append(row)
    every = found.get(()) or next(iter(found.values()))
    head, second = ["setting"], heading(every[0], second=True)
    for name in names:
        head += [f"{name}: {heading(every[0])} (by seed)"] + ([second, "against default"] * narrow)
    return [settings_line(every), "", *table(head, rows)]


def curves_block(block: Block, runs: Sequence[RunRecord], page: Path) -> list[str]:
    """Learning curves of the same runs as a picture beside the page."""
    from graph_machine.reports import curves

    mine = chosen(block, runs)
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


def groups_block(block: Block, runs: Sequence[RunRecord], page: Path) -> list[str]:
    """Accuracy by what examples are grouped by, as a table and, with file=..., as a picture."""
    mine = rows_of(block, runs)
    if not mine or len(block.keys) != 1:
        raise ConfigError(f"A mark 'groups' needs finished runs and one keys=..., in {page}.")
    by = block.keys[0]
    lines = table(*group_rows(mine, by))
    if block.file:
        save_groups(mine, by, picture_file(block, page))
        lines += ["", f"![Accuracy by {by}, {block.board}]({block.file})"]
    return lines


KINDS: dict[str, Callable[[Block, Sequence[RunRecord], Path], list[str]]] = {
    "conditions": conditions_block,
    "settings": settings_block,
    "curves": curves_block,
    "groups": groups_block,
}


def render(text: str, found: Runs, page: Path) -> str:
    """The page with every marked part made anew."""

    def renew(match: re.Match[str]) -> str:
        block = parse(match["words"])
        body = "\n".join(KINDS[block.kind](block, found.runs, page))
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
    write_text(place, render(text, found, place), mode=mode & 0o777)
