"""The README's Python examples run as they stand, and its commands exist."""

import re
import shlex
from pathlib import Path

import pytest

from graph_machine.lab import cli
from graph_machine.lab.conditions.registry import CONDITIONS

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
# (language, contents) of every fenced block
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
SNIPPETS = [text for language, text in BLOCKS if language == "python"]
COMMANDS = [
    line.partition("#")[0].strip()
    for language, text in BLOCKS
    if not language
    for line in text.splitlines()
    if line.startswith("graph-machine ")
]


@pytest.mark.parametrize("code", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippets_run(code: str) -> None:
    before = set(CONDITIONS)
    try:
        exec(compile(code, "README.md", "exec"), {})
    finally:
        for name in set(CONDITIONS) - before:
            del CONDITIONS._items[name]
    assert code


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_exist(line: str) -> None:
    words = shlex.split(line)
    assert words[1] in cli.COMMANDS
    if words[1] == "train":
        assert words[2] in CONDITIONS
