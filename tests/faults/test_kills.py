"""The short form of the kills in `make faults`: some of the file operations of every command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.kills import Count, table

TESTS = Path(__file__).parent.parent


@pytest.mark.slow
def test_killed_commands_end_in_the_same_bytes() -> None:
    """In a process of its own: it forks, which pytest's threads would not survive."""
    done = subprocess.run(
        [sys.executable, str(TESTS / "faults" / "kills.py"), "--every", "23"],
        env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    killed = {line.split(" | ")[0]: line for line in done.stdout.splitlines()}
    for name in ("train", "models add", "data prepare", "report --into", "sweep"):
        assert f"| {name}" in killed


def test_what_the_table_says() -> None:
    lines = table({"a": Count(10, 5), "b": Count(3, 1, ["lost"])}).splitlines()
    assert lines[2:] == ["| a | 10 | 5 | 0 |", "| b | 3 | 1 | 1 |", "| **all** | | 6 | 1 |"]
