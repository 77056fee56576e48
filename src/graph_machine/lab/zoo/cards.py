"""Model cards: the facts of a shipped model as a page, and as lines of a list."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from graph_machine import files
from graph_machine.errors import CheckpointError, count_of, did_you_mean
from graph_machine.files import fill, read_object, shipped, write_text

FORMAT = "graph-machine-card"
VERSION = 1
CARD_FILE = "card.json"
README_FILE = "README.md"
TEMPLATE = Path(__file__).parent / "card.md.jinja"
# What a card that lacks something raises when its page is made.
WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
RANGES = 6  # numbers of clues are folded into at most this many ranges in a list

Part = dict[str, Any]  # metrics of some examples: values, intervals, how many
Stage = dict[str, Any]  # of a chain of warm starts: a run, or the name of a model


@dataclass(frozen=True)
class Training:
    """How a shipped model was trained."""

    command: str
    budget: str
    seed: int
    steps: int
    batch_size: int
    layers: int
    seconds: float | int
    flops: float | int | None
    commit: str | None
    versions: dict[str, str]
    cpu: str | None
    threads: int | None
    accelerator: str | None
    core: str = ""
    cpu_seconds: float | int | None = None
    earlier: list[Stage] = field(default_factory=list)


@dataclass(frozen=True)
class Card:
    """The contents of card.json. Older cards are all of Sudoku and do not name their metrics."""

    name: str
    task: str
    board: str
    box: str | None
    condition: str
    condition_doc: str
    parameters: int
    bytes: int
    puzzles: str
    data: dict[str, Any]
    training: Training
    full_precision: Part
    example: dict[str, Any] | None
    not_shown: list[str]
    accuracy: list[dict[str, Any]]  # one entry for each set of examples
    notes: list[str]
    metrics: dict[str, Any] = field(default_factory=dict)
    examples: str = "puzzles"

    @property
    def deciding(self) -> str:
        """The metric that decides."""
        return next(iter(self.metrics))

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "Card":
        """From the contents of card.json; a missing or unknown entry raises TypeError."""
        kept = {name: value for name, value in record.items() if name not in ("format", "version")}
        return cls(**kept | {"training": Training(**kept["training"])})

    def to_dict(self) -> dict[str, Any]:
        """The contents of card.json."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}


def read_card(name: str) -> Card:
    """The facts of a shipped model.

    >>> card = read_card("gm-4x4")
    >>> card.name, card.parameters
    ('gm-4x4', 505856)
    """
    if name not in shipped():
        known = f" There are: {', '.join(shipped())}." if shipped() else " None is shipped yet."
        raise CheckpointError(
            f"No model of this name ships with the package: '{name}'."
            f"{did_you_mean(name, shipped())}{known}"
        )
    return read_facts(files.ZOO / name)


def read_facts(folder: Path) -> Card:
    """The checked contents of a model folder's card.json.

    >>> read_facts(files.ZOO / "gm-4x4") == read_card("gm-4x4")
    True
    """
    path = folder / CARD_FILE
    try:
        record = read_object(path, CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(
            f"This model has no card (there is no {CARD_FILE}): {folder}"
        ) from None
    if record.get("format") != FORMAT or record.get("version") != VERSION:
        raise CheckpointError(f"Not a card of format {FORMAT}, version {VERSION}: {path}")
    try:
        card = Card.from_dict(record)
        # What a card has to hold is what its page and its lines in the list are made of.
        card_markdown(card).encode()
        listing([card]).encode()
    except (*WRONG, TemplateError) as error:
        what = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{CARD_FILE} lacks facts of a card ({what}): {path}") from None
    return card


def render_card(folder: Path) -> Path:
    """Write a model folder's README.md again from its card.json."""
    write_text(folder / README_FILE, card_markdown(read_facts(folder)))
    return folder / README_FILE


def interval_key(metric: str) -> str:
    """`board_interval` beside `board_accuracy`."""
    return metric.removesuffix("_accuracy") + "_interval"


def interval(part: Part, metric: str) -> str:
    low_high = part.get(interval_key(metric))
    return f"{low_high[0]:.1%} to {low_high[1]:.1%}" if low_high else ""


def value(part: Part, metric: str, metrics: dict[str, Any]) -> str:
    found = part.get(metric)
    if found is None:
        return ""
    return f"{found:.1%}" if metrics[metric]["share"] else f"{found:.4g}"


def groups_of(found: Part) -> dict[str, dict[str, Part]]:
    """`by_rating` and so on, by the name of the group."""
    return {key.removeprefix("by_"): parts for key, parts in found.items() if key.startswith("by_")}


def card_markdown(card: Card, *, front: bool = True) -> str:
    """README.md; without `front`, the page without what only the Hub reads."""
    words = (count_of, groups_of, interval, value)
    known = {function.__name__: function for function in words}
    return fill(TEMPLATE, card=card, others=[*card.metrics][1:], front=front, **known)


def folded(by: dict[str, dict[str, Any]], metric: str) -> dict[str, float]:
    """A metric by ranges of a number: neighbours together, about as many examples in each."""
    rows = sorted((int(k), v["puzzles"], v[metric]) for k, v in by.items())
    share = sum(puzzles for _, puzzles, _ in rows) / min(RANGES, max(1, len(rows)))
    groups: list[list[tuple[int, int, float]]] = []
    seen = 0
    for row in rows:
        # One number of clues per range where there are few of them.
        if not groups or len(rows) <= RANGES or seen >= len(groups) * share:
            groups.append([])
        groups[-1].append(row)
        seen += row[1]
    return {
        f"{g[0][0]}" if len(g) == 1 else f"{g[0][0]}-{g[-1][0]}": sum(n * a for _, n, a in g)
        / sum(n for _, n, _ in g)
        for g in groups
    }


def listing(cards: Sequence[Card]) -> str:
    """One paragraph per model; lines are not wrapped, so that they can be searched with grep.

    >>> "gm-4x4" in listing([read_card("gm-4x4")])
    True
    """
    rows = [("name", "task", "condition", "parameters", "size", "right")]
    for card in cards:
        first, size = card.accuracy[0], f"{card.bytes / 1e6:.1f} MB"
        right = f"{_share_text(first, card)} ({first['on']})"
        rows.append((card.name, card.board, card.condition, f"{card.parameters:,}", size, right))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row, details in zip(rows, [[], *map(_details, cards)], strict=True):
        cells = (f"{text:{side}{width}}" for text, side, width in zip(row, "<<<>><", widths))
        lines += ["  ".join(cells).rstrip(), *(f"    {text}".rstrip() for text in details)]
    return "\n".join(lines)


def _share_text(found: dict[str, Any], card: Card) -> str:
    shown = value(found, card.deciding, card.metrics)
    return f"{shown} of {found['puzzles']:,} {card.examples}"


def _details(card: Card) -> list[str]:
    lines, metric = [], card.deciding
    for number, found in enumerate(card.accuracy):
        if number:
            lines.append(f"{found['on']}: {_share_text(found, card)}")
        for title, parts in groups_of(found).items():
            numbered = all(label.isdigit() for label in parts)
            shares = folded(parts, metric) if numbered else {k: v[metric] for k, v in parts.items()}
            if shares:
                shown = {k: value({metric: v}, metric, card.metrics) for k, v in shares.items()}
                listed = ", ".join(f"{label}: {text}" for label, text in shown.items())
                lines.append(f"by {title:<6}  {listed}")
    return [*lines, f"trained by {card.training.command}", ""]
