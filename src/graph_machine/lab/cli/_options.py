"""Options of every command: how they are read, and the one place where their values are checked."""

import contextlib
import io
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, dataclass_transform, get_type_hints

import tyro

from graph_machine.errors import ConfigError

if TYPE_CHECKING:
    from graph_machine.models import GraphMachine
    from graph_machine.models.rounds import Rounds

T = TypeVar("T")

# `--steps INT`, not `--steps {None}|INT`; a positional word is shown by its name.
STYLE = (tyro.conf.DisallowNone, tyro.conf.PositionalMetavarFromFieldName)


@dataclass(frozen=True)
class Bounds:
    """The least and the largest value of a number."""

    low: int | None = None
    high: int | None = None
    above: bool = False  # the number has to be larger than `low`

    def check(self, name: str, value: Any) -> None:
        if not math.isfinite(value):
            raise ConfigError(f"{name} should be a number, got {value}.")
        low, high = self.low, self.high
        short = low is not None and (value <= low if self.above else value < low)
        if short or (high is not None and value > high):
            raise ConfigError(f"{name} should be {self}, got {value}.")

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return f"from {self.low:,} to {self.high:,}"
        if self.low is None:
            return "a number" if self.high is None else f"at most {self.high:,}"
        return f"{'more than' if self.above else 'at least'} {self.low:,}"


@dataclass(frozen=True)
class Endings:
    """How the name of a file has to end."""

    endings: tuple[str, ...]

    def check(self, name: str, value: Any) -> None:
        if not str(value).lower().endswith(self.endings):
            raise ConfigError(
                f"{name} should end in {' or '.join(self.endings)}, got '{Path(value).name}'."
            )


# Kinds of numbers that several commands take. Seeds are those that every random generator takes.
Count = Annotated[int, Bounds(1)]
CountOrZero = Annotated[int, Bounds(0)]
Seed = Annotated[int, Bounds(0, 2**32 - 1)]
Seconds = Annotated[float, Bounds(0, above=True)]
Picture = Annotated[Path, Endings((".png", ".svg"))]


@dataclass_transform(frozen_default=True)
def options(cls: type[T]) -> type[T]:
    """A frozen dataclass with readable help.

    It omits `(default: None)`, because an option's text explains that case, and prints
    `--table TABLE ...` instead of `--table [STR [STR ...]]`.
    """
    for name, hint in cls.__annotations__.items():
        about: dict[str, str] = {}
        if getattr(cls, name, ...) in (None, (), ""):
            about["help_behavior_hint"] = ""
        if hint == tuple[str, ...]:
            about["metavar"] = f"{name.upper().replace('_', '-')} ..."
        if about:
            cls.__annotations__[name] = Annotated[hint, tyro.conf.arg(**about)]
    return dataclass(frozen=True)(cls)


def read(kind: type[T], argv: Sequence[str], prog: str) -> T:
    """The options of one command; invalid ones raise a one-line error."""
    words, prog = joined(argv, lists_of(kind)), f"graph-machine {prog}"
    return parse(lambda: tyro.cli(kind, args=words, prog=prog, config=STYLE), prog)


def read_subcommand(kinds: dict[str, Callable[..., Any]], argv: Sequence[str], prog: str) -> Any:
    """The options of the subcommand that comes first in `argv`."""
    prog, cli = f"graph-machine {prog}", tyro.extras.subcommand_cli_from_dict
    return parse(lambda: cli(kinds, args=list(argv), prog=prog, config=STYLE), prog)


def parse(call: Callable[[], T], prog: str) -> T:
    """What tyro parses, checked; tyro prints errors as a box and exits, we raise one line."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            args = call()
    except SystemExit as left:
        if not left.code:  # --help
            raise
        raise ConfigError(f"{as_line(printed.getvalue())} See '{prog} --help'.") from None
    check(args)
    return args


def as_line(box: str) -> str:
    """The first part of an error box of tyro, and the option that it suggests.

    >>> as_line("╭─ Unrecognized ─╮\\n│ Unrecognized options: --x │\\n╰──╯")
    'Unrecognized options: --x.'
    """
    rows = [row.strip("│╭╮╰╯ ") for row in box.splitlines()][1:]
    text = " ".join(takewhile(lambda row: row.strip("─"), rows))
    value = re.match(
        r"Error parsing (\S+): no type matching (.+?) could .*? from \['(.*?)'\]", text
    )
    if value:
        text = f"{value[1]} takes {value[2]}, got '{value[3]}'"
    nearest = re.search(r"Perhaps you meant:\s+(--[\w-]+)", "\n".join(rows))
    hint = f" Did you mean {nearest[1]}?" if nearest else ""
    return f"{text.rstrip('.')}.{hint}"


def lists_of(kind: type) -> set[str]:
    """The options that take several words."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        option_name(name, hint)
        for name, hint in hints.items()
        if getattr(hint, "__origin__", hint) == tuple[str, ...]
        and tyro.conf.UseAppendAction not in getattr(hint, "__metadata__", ())
    }


def joined(argv: Sequence[str], lists: Collection[str]) -> list[str]:
    """Options that take several words, each only once: argparse would keep the last of them.

    >>> joined(["--set", "a=1", "--seed", "2", "--set", "b=3"], {"--set"})
    ['--set', 'a=1', 'b=3', '--seed', '2']
    """
    words: list[str] = []
    more: dict[str, list[str]] = {}
    into = words
    for word in argv:
        name, equals, value = word.partition("=")
        if name in lists:
            again = name in more
            into = more.setdefault(name, [])
            if not again:
                words.append(name)
            into += [value] if equals else []
        else:
            into = words if word.startswith("-") else into
            into.append(word)
    return [part for word in words for part in [word, *more.get(word, [])]]


def check(args: Any) -> None:
    """Compare every option with what its annotation allows."""
    hints = get_type_hints(type(args), include_extras=True)
    for item in fields(args):
        value = getattr(args, item.name)
        if value is not None:
            for rule in rules(hints[item.name]):
                rule.check(option_name(item.name, hints[item.name]), value)


def rules(hint: Any) -> list[Bounds | Endings]:
    """The rules in an annotation, also in those of a union such as `Count | None`."""
    found = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Bounds | Endings)]
    inner = (hint.__origin__,) if hasattr(hint, "__metadata__") else getattr(hint, "__args__", ())
    return found + [one for part in inner for one in rules(part)]


def option_name(name: str, hint: Any) -> str:
    """How an option is typed: `batch_size` is `--batch-size`."""
    given = [getattr(one, "name", None) for one in getattr(hint, "__metadata__", ())]
    return "--" + next((one for one in given if one), name).replace("_", "-")


def parse_rounds(text: str | None) -> list[int]:
    """`16`, or `4,8,16`; empty without the option."""
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_is_count, parts)):
        raise ConfigError(f"--rounds takes numbers from 1, such as 16 or 4,8,16, got '{text}'.")
    return [int(part) for part in parts]


def parse_one(text: str | None) -> int | None:
    """`16`; None without the option."""
    if text is None:
        return None
    if not _is_count(text.strip()):
        raise ConfigError(f"--rounds takes one number from 1, such as 16, got '{text}'.")
    return int(text)


def check_settles(rounds: "Rounds", model: "GraphMachine") -> None:
    """Refuse a number of unchanged rounds that no answer can reach."""
    most = rounds.check(model)
    # The first round has nothing to compare with: R rounds can be unchanged R - 1 times.
    if rounds.until_stable is not None and rounds.until_stable >= most:
        raise ConfigError(
            f"--until-stable should be below the number of rounds ({most}), got "
            f"{rounds.until_stable}: no answer could settle."
        )


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0
