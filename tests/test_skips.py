"""Every test that may be skipped says why, and what would end that: `why; with what`."""

import ast
from pathlib import Path

HERE = Path(__file__).parent
SKIPS = {"skip", "skipif", "importorskip", "xfail"}


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def reason_of(call: ast.Call) -> str:
    """The reason of a skip: its keyword, or the words that `pytest.skip` is called with."""
    given = [word.value for word in call.keywords if word.arg == "reason"]
    given += call.args[:1] if name_of(call) == "skip" else []
    words = [part.value for part in given if isinstance(part, ast.Constant)]
    return str(words[0]) if words else ""


def test_every_skip_says_why_and_what_would_end_it() -> None:
    found = {
        f"{file.relative_to(HERE)}:{node.lineno}": reason_of(node)
        for file in HERE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and name_of(node) in SKIPS
    }
    assert len(found) > 5
    silent = [place for place, reason in found.items() if len(reason.split("; ")) < 2]
    assert not silent
