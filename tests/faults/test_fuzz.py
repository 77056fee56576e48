"""The short form of `make faults`: a few dozen damaged files of every kind, the same every time."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from faults import bounds, fuzz, mutate
from faults.kinds import KINDS
from graph_machine.errors import DataError

CASES = 25


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("unchecked")
def test_damaged_files_are_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    kind = KINDS[name](tmp_path)
    tally = fuzz.Tally()
    fuzz.fuzz(kind, name, range(max(3, int(CASES * min(1, kind.weight)))), tally)
    told = "\n".join(f"case {number}: {error}" for number, error in tally.escapes.items())
    assert not tally.escapes, told


def test_what_counts_as_an_escape() -> None:
    def refuse(text: str) -> None:
        raise DataError(text)

    def hoard() -> None:
        bytearray(2 * bounds.BYTES)

    assert bounds.run_case(lambda: None).kind == "accepted"
    assert bounds.run_case(lambda: refuse("one line")).kind == "refused"
    assert bounds.run_case(lambda: refuse("one line"), refusable=False).kind == "escaped"
    assert bounds.run_case(lambda: refuse("")).kind == "escaped"
    assert bounds.run_case(lambda: refuse("a\x1b[31m\nb")).kind == "refused"  # spelled out
    assert "ZeroDivisionError" in bounds.run_case(lambda: print(1 // 0)).error
    assert "MemoryError" in bounds.run_case(hoard).error


def test_cases_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SECONDS", 0.2)

    def hang() -> None:
        while True:
            pass

    assert "more than 0.2 s of processor time" in bounds.run_case(hang).error


@pytest.mark.parametrize(
    "mutation",
    [mutate.mutate_bytes, mutate.mutate_json, mutate.mutate_lines],
    ids=["bytes", "json", "lines"],
)
def test_the_number_of_a_case_is_its_seed(mutation: Callable[[bytes, Random], bytes]) -> None:
    data = b'{"a": [1, 2, {"b": "text"}], "c": null}\n'
    found = [mutation(data, Random(f"x {number}")) for number in range(20)]
    assert found == [mutation(data, Random(f"x {number}")) for number in range(20)]
    assert len(set(found)) > 10
