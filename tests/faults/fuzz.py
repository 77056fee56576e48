"""Mutation fuzzing, in process and from seeds. `make faults` runs it for as long as one likes.

python tests/faults/fuzz.py --cases 1000            so many cases of every kind
python tests/faults/fuzz.py --hours 2               rounds of a hundred until the time is over
python tests/faults/fuzz.py --kind csv --case 17    one case again, with its error
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from faults.bounds import Outcome, run_case
from faults.kinds import KINDS, Kind


@dataclass
class Tally:
    """The cases of one kind, counted by how they ended."""

    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    escapes: dict[int, str] = field(default_factory=dict)

    def add(self, number: int, outcome: Outcome) -> None:
        self.counts[outcome.kind] += 1
        self.slowest = max(self.slowest, outcome.seconds)
        if outcome.kind == "escaped":
            self.escapes[number] = outcome.error


def fuzz(kind: Kind, name: str, numbers: range, tally: Tally) -> None:
    """Cases by number; the number is the seed, so that each can be run again alone."""
    for number in numbers:
        rng = Random(f"{name} {number}")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tally.add(number, run_case(partial(kind.case, rng), refusable=kind.refusable))


def rounds(cases: int, hours: float) -> Iterator[tuple[int, int]]:
    """Spans of case numbers: the given number once, or hundreds until the time is over."""
    if not hours:
        yield 0, cases
        return
    start, end = 0, time.monotonic() + 3600 * hours
    while time.monotonic() < end:
        yield start, start + 100
        start += 100


def table(tallies: dict[str, Tally]) -> str:
    lines = ["| kind | cases | refused in one line | read | escapes | slowest case, CPU s |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    total: Counter[str] = Counter()
    for name, tally in tallies.items():
        counts = tally.counts
        total += counts
        lines.append(
            f"| {name} | {counts.total():,} | {counts['refused']:,} | {counts['accepted']:,} | "
            f"{counts['escaped']:,} | {tally.slowest:.1f} |"
        )
    slowest = max(tally.slowest for tally in tallies.values())
    lines.append(
        f"| **all** | {total.total():,} | {total['refused']:,} | {total['accepted']:,} | "
        f"{total['escaped']:,} | {slowest:.1f} |"
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--case", type=int)
    args = parser.parse_args()
    names = args.kind or list(KINDS)
    tallies = {name: Tally() for name in names}
    with tempfile.TemporaryDirectory() as folder:
        kinds = {name: KINDS[name](Path(folder) / name.replace(".", "-")) for name in names}
        spans = [(args.case, args.case + 1)] if args.case is not None else None
        for first, last in spans or rounds(args.cases, args.hours):
            for name, kind in kinds.items():
                part = 1.0 if spans else kind.weight
                numbers = range(int(first * part), max(int(last * part), int(first * part) + 1))
                fuzz(kind, name, numbers, tallies[name])
                print(f"{name}: {tallies[name].counts.total()}", file=sys.stderr, flush=True)
    print(table(tallies))
    for name, tally in tallies.items():
        for number, error in tally.escapes.items():
            print(f"\n--kind {name} --case {number}\n{error}")
    return 1 if any(tally.escapes for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
