"""The short form of the kills in `make faults`: some of the file operations of every command."""

import pytest

from faults.kills import Count, table
from support.shell import script


@pytest.mark.slow
def test_killed_commands_end_in_the_same_bytes() -> None:
    """In a process of its own: it forks, which pytest's threads would not survive."""
    text = script("import sys; from faults.kills import main; sys.exit(main())", "--every", 23)
    killed = {line.split(" | ")[0] for line in text.splitlines()}
    for name in (
        "train",
        "train --init-from",
        "models add",
        "data prepare",
        "report --into",
        "sweep",
    ):
        assert f"| {name}" in killed


def test_what_the_table_says() -> None:
    lines = table({"a": Count(10, 5), "b": Count(3, 1, ["lost"])}).splitlines()
    assert lines[2:] == ["| a | 10 | 5 | 0 |", "| b | 3 | 1 | 1 |", "| **all** | | 6 | 1 |"]
