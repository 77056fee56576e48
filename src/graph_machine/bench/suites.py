"""Suites of cases, run and written down."""

import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from graph_machine.bench.cases import Case
from graph_machine.bench.measure import Probe, Row, measure, probe
from graph_machine.bench.render import Stamp, write_results
from graph_machine.cpu import tune_cpu
from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.training.run import hardware, versions

# Beside whole layers, what is swept over n; batches keep a step of the reference within seconds.
SWEPT = ("layer-preaggregated", "referral", "attention")


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
            *(Case(op) for op in ("layer-conditional", "layer-without-entropies", "sharpen")),
            *(Case("layer", 36, k=k) for k in (4, 16)),
            *(Case("layer", 36, batch=batch) for batch in (1, 16)),
            *(Case(op, n) for op in SWEPT for n in (16, 36)),
            *(Case(op, 256, batch=4) for op in ("layer", *SWEPT)),
        ),
        _probes(),
        rounds=5,
        long=(
            Case("layer", 36, batch=32, compiled=True),
            *(Case(op, 1024, batch=1) for op in ("layer", "layer-preaggregated", "attention")),
        ),
    ),
}


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

    What is measured so far is written after every case.
    """
    if name not in SUITES:
        raise ConfigError(
            f"bench: unknown suite '{name}'.{did_you_mean(name, SUITES)} "
            f"Known: {', '.join(SUITES)}, scale."
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
    path = out / f"fast-{name}_{_slug(stamp)}_{stamp.date}.md"
    rows: list[Row] = []
    found: list[Probe] = []

    def timed(case: Case) -> None:
        new = measure(case, rounds or suite.rounds)
        rows.extend(new)
        fused = next(row for row in new if row.contestant == "fused")
        ratios = ", ".join(
            f"{row.contestant} / fused {row.to_fused_cpu:.2f}"
            for row in new
            if row.to_fused_cpu is not None
        )
        say(f"{case.name:45s} fused {fused.wall_ms:8.1f} ms, CPU {fused.cpu_ms:8.1f} ms; {ratios}")
        write_results(path, stamp, rows, found)

    for case in cases:
        timed(case)
    for case, contestant, tuned in probes:
        found.append(probe(case, contestant, tuned))
        say(
            f"{case.name:45s} {contestant:12s} {'tuned' if tuned else 'as is':6s} "
            f"peak {found[-1].peak_mb:8.0f} MB, {found[-1].page_faults} page faults"
        )
        write_results(path, stamp, rows, found)
    for case in long:
        timed(case)
    return path


def _slug(stamp: Stamp) -> str:
    cpu = stamp.hardware.get("cpu") or platform.machine()
    return re.sub(r"[^a-z0-9]+", "-", f"{cpu} {stamp.hardware['threads']} threads".lower()).strip(
        "-"
    )
