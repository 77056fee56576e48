"""Measuring: contestants take turns, and an op that differs gets no speed-up."""

import contextlib
import functools
import gc
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from statistics import median, quantiles

import torch

from benchmarks import ROOT
from benchmarks.cases import Case, Step, build
from benchmarks.scale import resident_mb
from graph_machine.errors import ConfigError, TrainingError
from graph_machine.machine import tune_cpu

# Entries may differ by this share of the largest entry: float32 sums in another order.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Row:
    """One contestant of one case. Times are milliseconds per training step."""

    case: str
    op: str
    n: int
    k: int
    batch: int
    contestant: str
    wall_ms: float = math.nan  # median
    wall_low_ms: float = math.nan  # lower quartile
    wall_high_ms: float = math.nan  # upper quartile
    cpu_ms: float = math.nan  # median CPU time of all threads
    to_fused: float | None = None  # median over rounds of this wall time / the fused one
    to_fused_cpu: float | None = None  # the same of CPU times
    page_faults: int = 0
    first_ms: float = math.nan  # wall time of the first step, with compilation
    rounds: int = 0
    failed: str = ""  # why there are no times

    @classmethod
    def failure(cls, case: Case, contestant: str, why: str) -> "Row":
        return cls(case.name, case.op, case.n, case.k, case.batch, contestant, failed=why)


def one_line(error: Exception) -> str:
    """Kind and first line of an error; those of compilers are pages long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:1]])[:200]


def differences(case: Case) -> list[str]:
    """Outputs and gradients in which the fused path differs from the reference, worst first."""
    subject = build(replace(case, batch=min(case.batch, 4), compiled=False))
    reference, fused = subject.run("reference"), subject.run("fused")
    found = []
    for name, expected in reference.items():
        error = (fused[name] - expected).abs().max().item()
        scale = expected.abs().max().item()
        if not error <= TOLERANCE * max(scale, 1e-6):
            found.append((error / max(scale, 1e-6), name))
    return [f"{name} by {error:.1e}" for error, name in sorted(found, reverse=True)]


Timing = tuple[float, float, int]  # wall and CPU milliseconds, page faults


def _threads() -> int:
    return torch.get_num_threads()


def _timed(step: Step) -> Timing:
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return wall * 1e3, cpu * 1e3, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults


class Apart:
    """The reference of a case in a process with the system's own settings, a step at a time."""

    def __init__(self, case: Case) -> None:
        request = {"case": asdict(replace(case, compiled=False)), "threads": _threads()}
        command = [sys.executable, "-m", "benchmarks.measure", json.dumps(request)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def __call__(self) -> Timing:
        """Ask for one step and wait for its times."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("step\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise TrainingError(f"bench: the process of its own ended ({self.process.wait()}).")
        wall, cpu, faults = json.loads(line)
        return wall, cpu, faults

    def close(self) -> None:
        self.process.communicate()  # closes its input, at which it ends


def time_case(case: Case, rounds: int = 7, limit_seconds: float = 12.0) -> list[Row]:
    """All contestants of a case, in turns. Refuses, by an error, if the fused path is wrong.

    Where steps are long there are fewer rounds, at least two. A contestant that raises leaves the
    contest, and its row says why.
    """
    wrong = differences(case)
    if wrong:
        raise ConfigError(
            f"bench: {case.name}: fused differs from the reference, so no speed-up is reported: "
            f"{'; '.join(wrong[:3])}."
        )
    steps: dict[str, Callable[[], Timing]] = {
        name: functools.partial(_timed, step) for name, step in build(case).steps.items()
    }
    apart = Apart(case) if case.untuned else None
    if apart is not None:
        steps["reference-untuned"] = apart
    try:
        times, failed = _contest(steps, rounds, limit_seconds)
    finally:
        if apart is not None:
            apart.close()
    return [
        Row.failure(case, name, failed[name]) if name in failed else _row(case, name, times)
        for name in steps
    ]


def _contest(
    steps: dict[str, Callable[[], Timing]], rounds: int, limit_seconds: float
) -> tuple[dict[str, list[Timing]], dict[str, str]]:
    """Times by contestant, the first step in front; and why the others failed."""
    times: dict[str, list[Timing]] = {name: [] for name in steps}
    failed: dict[str, str] = {}

    def turn(keep: bool = True) -> None:
        for name in [name for name in steps if name not in failed]:
            try:
                found = steps[name]()
            except Exception as error:  # whatever it is, the others can go on
                failed[name] = one_line(error)
                times.pop(name)
                continue
            if keep:
                times[name].append(found)

    start = time.perf_counter()
    turn()
    if time.perf_counter() - start < limit_seconds / 4:
        turn(keep=False)
    start = time.perf_counter()  # compilation takes nothing from the rounds
    gc.collect()
    gc.disable()
    try:
        for done in range(rounds):
            if done >= 2 and time.perf_counter() - start > limit_seconds:
                break
            turn()
    finally:
        gc.enable()
    return times, failed


def _row(case: Case, name: str, all_times: dict[str, list[Timing]]) -> Row:
    first = all_times[name][0][0]
    times = {name: found[1:] for name, found in all_times.items()}
    walls = [wall for wall, _, _ in times[name]]
    low, _, high = quantiles(walls, n=4) if len(walls) > 1 else (walls[0],) * 3
    ratios = ratios_cpu = None
    if name != "fused" and "fused" in times:
        pairs = list(zip(times[name], times["fused"]))
        ratios = median(own[0] / fused[0] for own, fused in pairs)
        ratios_cpu = median(own[1] / fused[1] for own, fused in pairs)
    return Row(
        case=case.name,
        op=case.op,
        n=case.n,
        k=case.k,
        batch=case.batch,
        contestant=name,
        wall_ms=median(walls),
        wall_low_ms=low,
        wall_high_ms=high,
        cpu_ms=median(cpu for _, cpu, _ in times[name]),
        to_fused=ratios,
        to_fused_cpu=ratios_cpu,
        page_faults=int(median(faults for _, _, faults in times[name])),
        first_ms=first,
        rounds=len(walls),
    )


@dataclass(frozen=True)
class Probe:
    """One contestant in its own process: what cannot be measured separately in a shared one."""

    case: str
    contestant: str
    tuned: bool  # whether the process has our CPU settings (graph_machine.machine)
    peak_mb: float = math.nan  # above what the process held before the first step
    wall_ms: float = math.nan
    cpu_ms: float = math.nan
    page_faults: int = 0
    failed: str = ""


def peak_mb() -> float:
    """The largest resident set so far."""
    if sys.platform == "linux":
        return resident_mb("VmHWM")  # getrusage would give the peak of the parent, if it is larger
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2  # bytes, as macOS counts


def probe_here(case: Case, contestant: str, tuned: bool) -> Probe:
    """Measure in this process, which should be a fresh one."""
    if tuned:
        tune_cpu()
    steps = 1 if case.op.startswith("stack") else 3
    step = build(case).steps.get(contestant)
    if step is None:
        raise ConfigError(f"bench: {case.op} has no contestant '{contestant}'.")
    before = peak_mb()
    step()
    found = [_timed(step) for _ in range(steps)]
    peak = peak_mb() - before
    return Probe(
        case.name,
        contestant,
        tuned,
        peak,
        median(wall for wall, _, _ in found),
        median(cpu for _, cpu, _ in found),
        int(median(faults for _, _, faults in found)),
    )


def probe(case: Case, contestant: str, tuned: bool) -> Probe:
    """The same in a new process, with as many threads as this one."""
    request = {
        "case": asdict(case),
        "contestant": contestant,
        "tuned": tuned,
        "threads": _threads(),
    }
    command = [sys.executable, "-m", "benchmarks.measure", json.dumps(request)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TrainingError(f"bench: {case.name} {contestant} failed ({done.returncode}): {last}")
    return Probe(**json.loads(done.stdout))


def main(request: str) -> None:
    """A probe; or, without a contestant, one step of the reference per line of standard input."""
    facts = json.loads(request)
    torch.set_num_threads(facts["threads"])
    case = Case(**facts["case"])
    if "contestant" in facts:
        print(json.dumps(asdict(probe_here(case, facts["contestant"], facts["tuned"]))))
        return
    step = build(case).steps["reference"]
    for _ in sys.stdin:
        print(json.dumps(_timed(step)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
