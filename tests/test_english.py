"""Plain English in source, pages and README: phrases that a native reader would stumble over.

Names count too, because readers see them. A room that is not clean yet is in `NOT_YET`; the list
only gets shorter.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FINE = ("longer", "better", "worse", "more", "less", "need", "such", "fewer", "slower", "faster")
# phrase -> what to write instead
BANNED = {
    r"told|tells?|telling": "given, reported, prints, logs, distinguishes",
    r"ask(s|ed|ing)? (for )?again": "retried",
    r"what cannot be\b(?! \w+ed\b)|cannot be is": "invalid",
    r"where there is one": "if there is one",
    r"of one's own": "your own",
    r"(some|no)body": "someone, no one, or the passive",
    r"how (they|it) stands?": "status",
    r"go(es|ing)? on\b(?! to\b)": "continue",
    r"so many(?! \w*\s?that\b)": "this many",
    rf"(?<!there )is no (?!{'|'.join(FINE)})[a-z]+": "is not a",
    r"the other way (a)?round": "the reverse",
    r"of the user's": "your",
    r"number of trainable numbers": "number of parameters",
    r"ha(s|ve) (its |their |no )?words": "is described, is documented",
    r"hand(s|ed|ing)? over": "passes",
    r"to be had": "available",
    r"that which": "what, the one that",
    r"for want of": "for lack of, because there is no",
    r"one and the same": "the same",
    r"(is|was) a matter of": "depends on",
    r"(is|was) what does it": "makes the difference",
    r"called otherwise": "formerly",
    r"stands? for itself": "is self-explanatory",
}
PATTERN = re.compile(
    "|".join(rf"(?<![\w-])(?:{phrase})(?![\w-])" for phrase in BANNED), flags=re.IGNORECASE
)
# Letters of an identifier are words of their own: `told_of_own_code`.
PARTS = re.compile(r"(?<=[a-z])_(?=[a-z])")
# Settings as earlier versions wrote them, so that their files can still be read.
OLD_NAMES = re.compile(r"OLD_NAMES\b.*")
NOT_YET: set[str] = set()

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[2:]
    return ".".join(parts[: 2 if parts[0] == "lab" else 1])


def found_in(text: str) -> list[str]:
    """`line: phrase` for every banned phrase."""
    text = PARTS.sub(" ", OLD_NAMES.sub("", text))
    return [f"{text.count(chr(10), 0, m.start()) + 1}: {m[0]}" for m in PATTERN.finditer(text)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages(path: Path) -> None:
    assert not found_in(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("room", sorted({room_of(path) for path in SOURCES} - NOT_YET))
def test_rooms(room: str) -> None:
    found = {
        str(path.relative_to(ROOT)): phrases
        for path in SOURCES
        if room_of(path) == room and (phrases := found_in(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_the_list_finds_what_it_should() -> None:
    bad_ones = ("it is told", "told_of_own_code", "asked for again", "is no board", "go on with")
    for bad in (*bad_ones, "handed over", "has no words", "is a matter of"):
        assert found_in(bad), bad
    for good in ("there is no file", "jigsaw-transformer-told", "is no longer", "agoraphobe"):
        assert not found_in(good), good
