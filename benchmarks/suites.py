"""Suites of cases: running them and saving the results."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.cases import Case
from benchmarks.measure import Probe, Row, one_line, probe, time_case
from benchmarks.render import Stamp, read_results, write_results
from graph_machine.errors import ConfigError, TrainingError, did_you_mean
from graph_machine.machine import hardware, tune_cpu, versions

# Beside whole layers, what is swept over n; batches keep a step of the reference within seconds.
SWEPT = ("layer-preaggregated", "referral", "attention")
LONG_ROUNDS = 3  # at most, of what takes minutes


@dataclass(frozen=True)
class Suite:
    """Cases, then probes of memory, then what takes minutes."""

    cases: tuple[Case, ...]
    probes: tuple[tuple[Case, str, bool], ...] = ()
    rounds: int = 7
    long: tuple[Case, ...] = ()


def _probes() -> tuple[tuple[Case, str, bool], ...]:
    layer = Case("layer")
    both = [(layer, name, tuned) for tuned in (True, False) for name in ("reference", "fused")]
    return (*both, (layer, "transformer", True), (Case("stack-of-32"), "fused", True))


SUITES: dict[str, Suite] = {
    "quick": Suite(
        (
            Case("layer", 36, batch=16),
            Case("layer-preaggregated", 36, batch=16),
            Case("core-layer", 81, batch=32),
            Case("referral", 36, batch=16),
            Case("attention", 36, batch=16),
            Case("sharpen", 36, batch=16),
        ),
        rounds=5,
    ),
    "standard": Suite(
        (
            *(Case("layer", n, untuned=True) for n in (81, 36, 16)),
            *(Case(op) for op in ("referral", "layer-preaggregated", "attention")),
            Case("core-layer", batch=32),
            *(Case(op) for op in ("layer-conditional", "layer-without-entropies", "sharpen")),
            *(Case("layer", 36, k=k) for k in (4, 16)),
            *(Case("layer", 36, batch=batch) for batch in (1, 16)),
            *(Case(op, n) for op in SWEPT for n in (16, 36)),
            *(Case(op, 256, batch=4) for op in ("layer", *SWEPT)),
        ),
        _probes(),
        rounds=5,
        long=(
            Case("layer", 16, compiled=True),
            *(Case(op, 1024, batch=1) for op in ("attention", "layer-preaggregated", "layer")),
        ),
    ),
}


@dataclass
class Results:
    """What is measured so far, written after every case."""

    path: Path
    stamp: Stamp
    rows: list[Row]
    probes: list[Probe]
    failures: list[str] = field(default_factory=list)  # of this run

    def add_rows(self, rows: list[Row]) -> None:
        """In place of earlier ones of the same case."""
        cases = {row.case for row in rows}
        self.rows = [row for row in self.rows if row.case not in cases] + rows
        self._write(rows)

    def add_probe(self, found: Probe) -> None:
        def key(row: Probe) -> tuple[str, str, bool]:
            return row.case, row.contestant, row.tuned

        self.probes = [row for row in self.probes if key(row) != key(found)] + [found]
        self._write([found])

    def _write(self, new: Sequence[Row | Probe]) -> None:
        self.failures += [
            f"{row.case}, {row.contestant} ({row.failed})" for row in new if row.failed
        ]
        write_results(self.path, self.stamp, self.rows, self.probes)


def run_suite(
    name: str,
    out: Path,
    *,
    rounds: int | None = None,
    threads: int | None = None,
    only: str | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Run a suite into `out`/fast-SUITE_HARDWARE_DATE.{csv,md,png}; returns the Markdown page.

    What is measured so far is written after every case; with `only`, the other rows of that file
    stay. A contestant that fails is a row that says so; when all is done, an error names them.
    """
    if name not in SUITES:
        raise ConfigError(
            f"bench: unknown suite '{name}'.{did_you_mean(name, SUITES)} "
            f"Known: {', '.join(SUITES)}, scale, rounds, gpu."
        )
    suite = SUITES[name]
    pattern = re.compile(only or "")
    cases = [case for case in suite.cases if pattern.search(case.name)]
    probes = [item for item in suite.probes if pattern.search(item[0].name)]
    long = [case for case in suite.long if pattern.search(case.name)]
    if not cases and not probes and not long:
        raise ConfigError(f"bench: no case of the suite '{name}' matches '{only}'.")
    if threads is not None:
        torch.set_num_threads(threads)
    tune_cpu()
    stamp = Stamp(name, time.strftime("%Y-%m-%d"), versions(), hardware())
    path = out / f"fast-{name}_{stamp.slug}_{stamp.date}.md"
    results = Results(path, stamp, *(read_results(path, stamp) if only else ([], [])))
    rounds = rounds or suite.rounds
    for case in cases:
        _time(case, rounds, results, say)
    for item in probes:
        _probe(*item, results, say)
    for case in long:
        _time(case, min(rounds, LONG_ROUNDS), results, say)
    if results.failures:
        raise TrainingError(
            f"bench: failed: {'; '.join(results.failures)}. The other results are in {path}."
        )
    return path


def _time(case: Case, rounds: int, results: Results, say: Callable[[str], None]) -> None:
    try:
        rows = time_case(case, rounds)
    except Exception as error:  # the suite continues: its other cases may take an hour
        rows = [Row.failure(case, "all", one_line(error))]
    results.add_rows(rows)
    line = [_line(row) for row in sorted(rows, key=lambda row: row.contestant != "fused")]
    say(f"{case.name:45s} {', '.join(line)}")


def _line(row: Row) -> str:
    if row.failed:
        return f"{row.contestant} failed: {row.failed}"
    if row.to_fused_cpu is not None:
        return f"{row.contestant} / fused {row.to_fused_cpu:.2f}"
    return f"{row.contestant} {row.wall_ms:8.1f} ms, CPU {row.cpu_ms:8.1f} ms"


def _probe(
    case: Case, contestant: str, tuned: bool, results: Results, say: Callable[[str], None]
) -> None:
    try:
        found = probe(case, contestant, tuned)
    except Exception as error:
        found = Probe(case.name, contestant, tuned, failed=one_line(error))
    results.add_probe(found)
    line = f"peak {found.peak_mb:8.0f} MB, {found.page_faults} page faults"
    say(
        f"{case.name:45s} {contestant:12s} {'tuned' if tuned else 'as is':6s} "
        f"{f'failed: {found.failed}' if found.failed else line}"
    )
