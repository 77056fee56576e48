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

# Sizes of the sweep over n: batches that keep a step of the reference within seconds.
SWEEP = ((16, 64), (36, 64), (81, 64), (256, 4), (1024, 1))


@dataclass(frozen=True)
class Suite:
    cases: tuple[Case, ...]
    probes: tuple[tuple[Case, str, bool], ...] = ()
    rounds: int = 7


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
            *(Case("layer", n, batch=batch, untuned=n < 256) for n, batch in SWEEP),
            *(Case("layer", 36, k=k) for k in (4, 16)),
            *(Case("layer", 36, batch=batch) for batch in (1, 16)),
            Case("layer-without-entropies"),
            Case("layer-conditional"),
            *(Case("layer-preaggregated", n, batch=b) for n, b in SWEEP),
            *(Case("referral", n, batch=b) for n, b in SWEEP[:4]),
            *(Case("attention", n, batch=b) for n, b in SWEEP),
            Case("sharpen"),
            Case("layer", 36, batch=32, compiled=True),
        ),
        _probes(),
        rounds=5,
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
    if not cases and not probes:
        raise ConfigError(f"bench: no case of the suite '{name}' matches '{only}'.")
    if threads is not None:
        torch.set_num_threads(threads)
    tune_cpu()
    stamp = Stamp(name, time.strftime("%Y-%m-%d"), versions(), hardware())
    path = out / f"fast-{name}_{_slug(stamp)}_{stamp.date}.md"
    rows: list[Row] = []
    found: list[Probe] = []
    # Memory comes first: it is soon done, and takes processes of its own.
    for case, contestant, tuned in probes:
        found.append(probe(case, contestant, tuned))
        say(
            f"{case.name:45s} {contestant:12s} {'tuned' if tuned else 'as is':6s} "
            f"peak {found[-1].peak_mb:8.0f} MB, {found[-1].page_faults} page faults"
        )
        write_results(path, stamp, rows, found)
    for case in cases:
        rows += measure(case, rounds or suite.rounds)
        fused = next(row for row in reversed(rows) if row.contestant == "fused")
        others = [r for r in rows if r.case == case.name and r.to_fused_cpu is not None]
        ratios = ", ".join(f"{r.contestant} / fused {r.to_fused_cpu:.2f}" for r in others)
        say(f"{case.name:45s} fused {fused.wall_ms:8.1f} ms, CPU {fused.cpu_ms:8.1f} ms; {ratios}")
        write_results(path, stamp, rows, found)
    return path


def _slug(stamp: Stamp) -> str:
    cpu = stamp.hardware.get("cpu") or platform.machine()
    return re.sub(r"[^a-z0-9]+", "-", f"{cpu} {stamp.hardware['threads']} threads".lower()).strip(
        "-"
    )
