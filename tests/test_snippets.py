"""The Python examples of the documentation run, and print what their page says they print.

Every page is one namespace, its blocks run in order, in an empty folder. A block that prints is
followed by a block marked `text` with its output, in which `...` stands for anything.
"""

import contextlib
import doctest
import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graph_machine.lab import cli
from graph_machine.lab.conditions.registry import CONDITIONS
from graph_machine.lab.training import Result
from support.registries import registries

__all__ = ["registries"]  # a fixture

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PYTHON = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\n+^```text\n(?P<output>.*?)^```$)?",
    flags=re.DOTALL | re.MULTILINE,
)
# Pages whose examples start processes; the others run at once.
SLOW = {"sweeps"}
# The files that a page says its example leaves behind.
FILES = {
    "1-train": ["first-run/result.json", "first-run/metrics.jsonl"],
    "4-own-condition": ["runs/mine/result.json"],
    "5-own-task": ["shift-run/result.json"],
    "inside": ["gm.rec.safetensors", "mine.rec.safetensors"],
    "jigsaw": ["some-jigsaws.csv"],
    "maze": ["some-mazes.csv"],
    "sweeps": ["runs/smoke/4x4/gm/seed-0/result.json"],
    "training": ["my-run/result.json", "shift-run/result.json"],
}


def puzzle_file() -> None:
    """data.md reads the Kaggle file; here is a small one like it."""
    from graph_machine.lab.tasks.digits import format_board
    from graph_machine.lab.tasks.sudoku.board import BoxShape
    from graph_machine.lab.tasks.sudoku.generate import generate

    store = generate(BoxShape(2, 2), count=60)
    lines = ["id,puzzle,solution,clues,difficulty"]
    for row in range(len(store)):
        puzzle, solution = format_board(store.puzzles[row]), format_board(store.solutions[row])
        lines.append(f"{row},{puzzle},{solution},{store.clues[row]},0.0")
    Path("sudoku-3m.csv").write_text("\n".join(lines) + "\n")


def recording_of_gm() -> None:
    """findings.md reads a recording; here is one of a single puzzle."""
    from graph_machine import open_model
    from graph_machine.lab.records import record

    puzzle = "56..2...4......18..1....265..83.........9....9275...1.1.523.....96.8.42....7...3."
    tokens = np.array([[0 if cell == "." else int(cell) for cell in puzzle]])
    record(open_model("gm-9x9").model, tokens, names=("n2_weights",)).save("gm.rec.safetensors")


PREPARED: dict[str, Callable[[], None]] = {"data": puzzle_file, "findings": recording_of_gm}


def pages() -> list:
    """Every page with an example: README, concepts, tutorial and how-to pages."""
    found = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("[ct]*/*.md"))]
    return [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in SLOW else [])
        for page in found
        if "```python" in page.read_text(encoding="utf-8")
    ]


def test_tutorial_has_an_example_on_every_page() -> None:
    covered = {parameter.id for parameter in pages()}
    assert {page.stem for page in (DOCS / "tutorial").glob("*.md")} | {"README"} <= covered
    assert {*FILES, *PREPARED, *SLOW} <= covered


COMMANDS = re.findall(r"^graph-machine (?:[^#\n]*[^#\s])", (ROOT / "README.md").read_text(), re.M)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_of_the_readme_exist(line: str) -> None:
    words = shlex.split(line)
    assert words[1] in cli.COMMANDS
    assert words[1] != "train" or words[2] in CONDITIONS


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", pages())
def test_examples_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    PREPARED.get(page.stem, lambda: None)()
    names: dict[str, object] = {"__name__": "example"}
    checker = doctest.OutputChecker()
    for block in PYTHON.finditer(page.read_text(encoding="utf-8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], page.name, "exec"), names)
        got = "\n".join(line.rstrip() for line in printed.getvalue().splitlines())
        shown = (block["output"] or "").rstrip("\n")
        if page.stem != "findings":  # its numbers are of four puzzles, and stand in its text
            assert checker.check_output(shown, got, doctest.ELLIPSIS), f"{shown}\n---\n{got}"
    assert all((tmp_path / name).exists() for name in FILES.get(page.stem, ()))
    result = names.get("result")
    assert result is None or (isinstance(result, Result) and 0 <= result.score <= 1)
