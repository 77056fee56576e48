"""What ruff does not check: dead code (by vulture), skips without a reason, lost citations."""

import ast
import re
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).parents[1]
TEXTS = [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("docs/**/*.md")]

# Called by Python, torch, the Hub's mixin, a registry or users: not by our own code.
FOR_OTHERS = ["__*__", "extra_repr", "_save_pretrained", "_from_pretrained", "from_json"]
FOR_OTHERS += ["from_entries", "statistics_frame"]
REGISTERED = ["@condition*", "@register*", "@*.register", "@*.get", "@*.post"]
REGISTERED += ["@*.middleware", "@*.register_fake"]
SKIPS = {"skip", "skipif", "importorskip", "xfail"}


def test_everything_that_is_defined_is_used() -> None:
    scan = Vulture(ignore_names=FOR_OTHERS, ignore_decorators=REGISTERED)
    scan.scavenge([str(ROOT / room) for room in ("src", "tests", "benchmarks", "examples", "docs")])
    kinds = ("class", "function", "import", "method", "property", "unreachable_code")
    dead = [
        f"{Path(item.filename).relative_to(ROOT)}:{item.first_lineno} {item.name}"
        for item in scan.get_unused_code(min_confidence=60)
        if ROOT / "src" in Path(item.filename).parents and item.typ in kinds
    ]
    assert not dead


def reason_of(call: ast.Call) -> str:
    """The reason of a skip: its keyword, or the text that `pytest.skip` is called with."""
    given = [word.value for word in call.keywords if word.arg == "reason"]
    given += call.args[:1] if isinstance(call.func, ast.Attribute) else []
    words = [part.value for part in given if isinstance(part, ast.Constant)]
    return str(words[0]) if words else ""


def test_every_skip_says_why_and_what_would_end_it() -> None:
    """As `why; with what`."""
    found = {
        f"{file.relative_to(ROOT)}:{node.lineno}": reason_of(node)
        for file in ROOT.glob("tests/**/*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in SKIPS
    }
    assert len(found) > 5
    assert not [place for place, reason in found.items() if len(reason.split("; ")) < 2]


def test_no_page_is_cited_that_is_not_in_the_repository() -> None:
    pattern = re.compile(r"\bSPEC\b[ ,]*(section|sec\.|§)? *\d")
    assert not [path for path in TEXTS if pattern.search(path.read_text(encoding="utf-8"))]
