"""Errors a user can cause. The command line prints their text as one line, without a traceback."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

LONGEST = 1_000  # characters of an error's line


class GraphMachineError(Exception):
    """Base of all errors that users or outside conditions cause.

    The text may quote a damaged or hostile file, so it is printed as one line without control
    characters.
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


def one_line(text: str) -> str:
    """The text with unprintable characters escaped; a long text loses its middle."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 3 :]}"
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


class ConfigError(GraphMachineError, ValueError):
    """A setting is unknown, out of range, or contradicts another one."""


class NameTakenError(ConfigError):
    """A name is already registered, by `owner`: the user's own code, or None for this package."""

    def __init__(self, message: str, owner: str | None) -> None:
        super().__init__(message)
        self.owner = owner


class ShapeError(GraphMachineError, ValueError):
    """A tensor does not have the shape (or the values) that an op or layer needs."""


class GraphError(GraphMachineError, ValueError):
    """An input graph is invalid or does not fit into the requested edge slots."""


class DataError(GraphMachineError, ValueError):
    """A data file or store is missing, malformed or damaged."""


class CheckpointError(GraphMachineError, ValueError):
    """A checkpoint or run folder is missing, damaged or does not fit."""


class TrainingError(GraphMachineError, RuntimeError):
    """A run cannot continue: the loss is not finite, a worker failed, the disk is full."""


class DiskFullError(GraphMachineError, OSError):
    """A file was not written because the disk is full; `errno` is that of the system's error."""

    def __init__(self, message: str, number: int | None) -> None:
        super().__init__(message)
        self.errno = number


class MissingExtraError(GraphMachineError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, what: str) -> None:
        super().__init__(
            f"{what} needs the package '{package}': install it with "
            f"pip install 'graph-machine[{extra}]'"
        )


def count_of(count: int, words: str) -> str:
    """A count with its noun, in the singular for 1.

    >>> count_of(1, "layers"), count_of(2000, "steps"), count_of(1, "1-byte windows")
    ('1 layer', '2,000 steps', '1 1-byte window')
    """
    return f"{count:,} {words.removesuffix('s') if count == 1 else words}"


def check_choice(where: str, what: str, value: str, options: Sequence[str]) -> None:
    """Raise ConfigError if the word is not among the options."""
    if value not in options:
        raise ConfigError(
            f"{where}: unknown {what} '{value}'.{did_you_mean(value, options)} "
            f"Known: {', '.join(options)}."
        )


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the nearest option, or an empty string."""
    close = get_close_matches(str(name)[:100], list(options), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""
