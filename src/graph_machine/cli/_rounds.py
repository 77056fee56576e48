"""Rounds of a recurrent core on the command line: one number or several, each mistake one line."""

from typing import TYPE_CHECKING

from graph_machine.errors import ConfigError

if TYPE_CHECKING:
    from graph_machine.models import GraphMachine
    from graph_machine.models.rounds import Rounds


def parse_rounds(text: str | None) -> list[int]:
    """`16`, or `4,8,16`; empty where nothing was said."""
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_is_count, parts)):
        raise ConfigError(f"--rounds takes numbers from 1, such as 16 or 4,8,16, got '{text}'.")
    return [int(part) for part in parts]


def parse_one(text: str | None) -> int | None:
    """`16`; None where nothing was said."""
    if text is None:
        return None
    if not _is_count(text.strip()):
        raise ConfigError(f"--rounds takes one number from 1, such as 16, got '{text}'.")
    return int(text)


def check_settles(rounds: "Rounds", model: "GraphMachine") -> None:
    """Refuse a number of unchanged rounds that no answer can reach."""
    most = rounds.check(model)
    # The first round has nothing to compare with, so R rounds show R - 1 times that nothing moved.
    if rounds.until_stable is not None and rounds.until_stable >= most:
        raise ConfigError(
            f"--until-stable should be below the number of rounds ({most}), got "
            f"{rounds.until_stable}: no answer could settle."
        )


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0
