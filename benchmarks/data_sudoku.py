"""Speed of the Sudoku data tools: solver, generator, rating, preparing a file, batches.

    python benchmarks/data_sudoku.py [--file PUZZLES.csv] [--rows 3000000] [--out RESULTS.csv]

Every figure is checked before it is printed: solutions against the file's, generated puzzles for
uniqueness. Rates are per second of CPU time of one thread, so that other programs on the machine do
not count. Compiling is timed on its own, in a fresh process with an empty cache, and once more from
the cache.
"""

import csv
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np
import tyro

from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.tasks.sudoku.board import BoxShape
from graph_machine.lab.tasks.sudoku.generate import generate
from graph_machine.lab.tasks.sudoku.solve import (
    ATTEMPTS,
    DATASET_ATTEMPTS,
    RATING_BANDS,
    rate,
    solve,
    solve_singles,
)
from graph_machine.lab.tasks.sudoku.store import SudokuStore, prepare
from graph_machine.lab.tasks.sudoku.task import SudokuTask

ASSET = Path(__file__).parents[1] / "tests" / "assets" / "sudoku-sample.csv"
COMPILE = """
import time
start = time.process_time()
from graph_machine.lab.tasks.sudoku.board import BoxShape
from graph_machine.lab.tasks.sudoku.generate import generate
from graph_machine.lab.tasks.sudoku.solve import solve, solve_singles
import torch
began = time.process_time()
for text in ("3x3", "2x2"):
    box = BoxShape.parse(text)
    store = generate(box, 1)
    solve(store.puzzles, box), solve_singles(store.puzzles, box)
print(time.process_time() - began)
"""
# ru_maxrss would include the memory of this process at the moment of the fork; VmHWM does not.
PREPARE = """
import sys, time
from graph_machine.lab.tasks.sudoku.store import prepare
start = time.perf_counter()
store = prepare(sys.argv[1])
seconds = time.perf_counter() - start
status = open("/proc/self/status").read()
print(len(store), seconds, int(status.split("VmHWM:")[1].split()[0]) / 1024)
"""


@dataclass
class Options:
    file: Path = ASSET
    """Puzzles to solve and rate (the excerpt of the real data that the tests use)."""
    rows: int = 3_000_000
    """Size of the file to prepare, made by repeating `file`; 0 leaves it out."""
    out: Path | None = None
    """Write the figures to a CSV file."""


class Report:
    def __init__(self) -> None:
        self.lines: list[tuple[str, float, str]] = []

    def add(self, name: str, value: float, unit: str) -> None:
        self.lines.append((name, value, unit))
        print(f"{name:<48} {value:>12,.{0 if value >= 100 else 2}f} {unit}", flush=True)

    def save(self, path: Path) -> None:
        versions = f"python {platform.python_version()}, numpy {np.__version__}"
        versions += f", numba {numba.__version__}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["name", "value", "unit", "machine", "versions"])
            for name, value, unit in self.lines:
                writer.writerow([name, f"{value:.4g}", unit, machine(), versions])


def machine() -> str:
    """The processor's name, as far as the system says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores"


def per_cpu_second(count: int, work) -> float:
    """Best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return count / best


def bench_compile(report: Report) -> None:
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}
        for name in ("compile all kernels, empty cache", "load all kernels, from the cache"):
            done = subprocess.run(
                [sys.executable, "-c", COMPILE],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            report.add(name, float(done.stdout), "CPU s")


def bench_solver(report: Report, store: SudokuStore) -> None:
    puzzles, box = np.array(store.puzzles), store.box
    solved = solve(puzzles, box)
    assert (solved.solutions == store.solutions).all()
    assert (solved.counts == 1).all()
    repeat = max(1, 20_000 // len(puzzles))
    many = np.concatenate([puzzles] * repeat)
    rates = np.concatenate([store.ratings] * repeat)
    report.add("exact solver, all", per_cpu_second(len(many), lambda: solve(many, box)), "/s")
    for band in RATING_BANDS:
        part = many[(rates >= band.low) & (rates < band.high)]
        speed = per_cpu_second(len(part), lambda part=part: solve(part, box))
        report.add(f"exact solver, rating {band.label}", speed, "/s")
    speed = per_cpu_second(len(many), lambda: solve_singles(many, box))
    report.add("singles only", speed, "/s")
    for attempts in (DATASET_ATTEMPTS, ATTEMPTS):
        ours = rate(puzzles, box, store.solutions, attempts=attempts)
        guessed = store.ratings > 0
        assert ((ours > 0) == guessed).all()
        pearson = np.corrcoef(ours[guessed], store.ratings[guessed])[0, 1]
        report.add(f"rating, {attempts} attempts: Pearson with the file", pearson, "")
        speed = per_cpu_second(
            len(puzzles), lambda n=attempts: rate(puzzles, box, store.solutions, attempts=n)
        )
        report.add(f"rating, {attempts} attempts", speed, "/s")


def bench_generator(report: Report) -> None:
    for text, count in [("2x2", 500), ("2x3", 1000), ("3x3", 5000), ("3x4", 40), ("4x4", 12)]:
        box = BoxShape.parse(text)
        store = generate(box, count, rated=False)
        assert (solve(store.puzzles, box).counts == 1).all()
        for rated in (False, True):
            speed = per_cpu_second(count, lambda b=box, c=count, r=rated: generate(b, c, rated=r))
            report.add(f"generator {text}{', with ratings' if rated else ''}", speed, "/s")


def bench_prepare(report: Report, file: Path, rows: int) -> None:
    header, *lines = file.read_bytes().splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        big = Path(folder) / "big.csv"
        with open(big, "wb") as out:
            out.write(header)
            for start in range(0, rows, len(lines)):
                out.write(b"".join(lines[: rows - start]))
        done = subprocess.run(
            [sys.executable, "-c", PREPARE, str(big)], capture_output=True, text=True, check=True
        )
        count, seconds, megabytes = map(float, done.stdout.split())
        assert count == rows
        report.add(f"prepare {rows:,} rows, wall time", seconds, "s")
        report.add(f"prepare {rows:,} rows, peak memory", megabytes, "MB")
        bench_batches(report, prepare(big))


def bench_batches(report: Report, store: SudokuStore) -> None:
    """How long a training step waits for its batch of 64, tensors included."""
    for augment in ("none", "all"):
        task = SudokuTask(SudokuConfig(augment=augment)).use(store)
        task.batch(0, 64, seed=0)
        start = time.perf_counter()
        for step in range(1, 201):
            task.batch(step, 64, seed=0)
        name = "" if augment == "none" else ", augmented"
        report.add(f"batch of 64{name}", 1e6 * (time.perf_counter() - start) / 200, "µs")


def main(options: Options) -> None:
    print(machine())
    report = Report()
    bench_compile(report)
    with tempfile.TemporaryDirectory() as folder:
        bench_solver(report, prepare(options.file, Path(folder) / "store"))
    bench_generator(report)
    if options.rows:
        bench_prepare(report, options.file, options.rows)
    if options.out is not None:
        report.save(options.out)


if __name__ == "__main__":
    main(tyro.cli(Options))
