"""Results as CSV (all numbers), Markdown (a table to read) and a plot, stamped."""

import csv
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.measure import Probe, Row
from graph_machine.errors import ConfigError, MissingExtraError
from graph_machine.files import atomic_path, write_text


@dataclass(frozen=True)
class Stamp:
    """What was measured on, and with what."""

    suite: str
    date: str
    versions: dict[str, str]
    hardware: dict[str, Any]

    @property
    def slug(self) -> str:
        """Processor and threads, for names of files."""
        cpu = self.hardware.get("cpu") or platform.machine()
        words = f"{cpu} {self.hardware['threads']} threads".lower()
        return re.sub(r"[^a-z0-9]+", "-", words).strip("-")

    @property
    def line(self) -> str:
        facts = [f"{name} {version}" for name, version in self.versions.items()]
        facts += [f"{name} {value}" for name, value in self.hardware.items()]
        return f"{self.date}; {', '.join(facts)}"


def write_results(path: Path, stamp: Stamp, rows: Sequence[Row], probes: Sequence[Probe]) -> None:
    """`path` is the Markdown page; the others lie beside it."""
    write_text(path, bench_markdown(stamp, rows, probes))
    _write_csv(path.with_suffix(".csv"), stamp, rows)
    if probes:
        _write_csv(_memory(path), stamp, probes)
    timed = [row for row in rows if not row.failed]
    if timed:
        plot(path.with_suffix(".png"), stamp, timed)


def read_results(path: Path, stamp: Stamp) -> tuple[list[Row], list[Probe]]:
    """What `write_results` wrote, or nothing; an error if it was measured with something else."""
    return (
        [Row(**_values(Row, line)) for line in _read_csv(path.with_suffix(".csv"), stamp)],
        [Probe(**_values(Probe, line)) for line in _read_csv(_memory(path), stamp)],
    )


def _memory(path: Path) -> Path:
    return path.with_name(f"{path.stem}_memory.csv")


def _read_csv(path: Path, stamp: Stamp) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with open(path, newline="") as file:
        if file.readline().strip() != f"# {stamp.line}":
            raise ConfigError(
                f"bench: {path} was measured with other versions or hardware, so nothing is added "
                "to it: give another --out."
            )
        return list(csv.DictReader(file))


def _values(kind: type[Row] | type[Probe], line: dict[str, str]) -> dict[str, Any]:
    """Texts of a CSV as the fields' types; an empty number is None."""
    types = {field.name: field.type for field in fields(kind)}

    def read(name: str, text: str) -> Any:
        if types[name] is str:
            return text
        if types[name] is bool:
            return text == "True"
        if types[name] is int:
            return int(text)
        return float(text) if text else None

    return {name: read(name, text) for name, text in line.items()}


def _write_csv(path: Path, stamp: Stamp, rows: Sequence[Row] | Sequence[Probe]) -> None:
    if not rows:
        return
    with atomic_path(path) as partial, open(partial, "w", newline="") as file:
        file.write(f"# {stamp.line}\n")
        writer = csv.DictWriter(file, fieldnames=list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def bench_markdown(stamp: Stamp, rows: Sequence[Row], probes: Sequence[Probe]) -> str:
    lines = [
        f"# Benchmark suite '{stamp.suite}'",
        "",
        f"Made by `graph-machine bench --suite {stamp.suite}`. {stamp.line}.",
        "",
        "One training step (forward and backward), float32. Contestants take turns in one process; "
        "times are medians, with the quartiles in brackets. `/ fused` is the median over rounds of "
        "this contestant's time over the fused path's in the same round, by wall clock and by CPU "
        "time of all threads. `first ms` is the wall time of the first step, with compilation if "
        "there is any. Before a case is timed, outputs and all gradients of the fused path "
        "are compared with the reference; a case that differs is refused. All contestants have our "
        "CPU settings (`graph_machine.machine`: freed memory is kept, denormals flushed) but for "
        "`reference-untuned`, which runs in a process with the system's own.",
        "",
        "| case | contestant | wall ms | CPU ms | / fused | / fused, CPU | first ms | page faults "
        "| rounds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if row.failed:
            lines.append(f"| {row.case} | {row.contestant} | {_why(row)} | | | | | | |")
            continue
        wall = f"{row.wall_ms:.1f} ({row.wall_low_ms:.1f} to {row.wall_high_ms:.1f})"
        ratio = "" if row.to_fused is None else f"{row.to_fused:.2f}"
        ratio_cpu = "" if row.to_fused_cpu is None else f"{row.to_fused_cpu:.2f}"
        lines.append(
            f"| {row.case} | {row.contestant} | {wall} | {row.cpu_ms:.1f} | {ratio} | {ratio_cpu} "
            f"| {row.first_ms:.0f} | {row.page_faults} | {row.rounds} |"
        )
    if probes:
        lines += _probe_table(probes)
    return "\n".join(lines) + "\n"


def _why(row: Row | Probe) -> str:
    return f"failed: {row.failed}".replace("|", "\\|")


def _probe_table(probes: Sequence[Probe]) -> list[str]:
    lines = [
        "",
        "Each in a process of its own. `ours`: freed memory stays in the process and denormal "
        "numbers are flushed (`tune_cpu`, as training sets it); `system's`: neither. Peak is what "
        "the steps added to the process, `/ fused` that over the fused path's.",
        "",
        "| case | contestant | settings | peak MB | / fused | wall ms | CPU ms | page faults |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    fused = {(row.case, row.tuned): row.peak_mb for row in probes if row.contestant == "fused"}
    for row in probes:
        settings = "ours" if row.tuned else "system's"
        if row.failed:
            lines.append(f"| {row.case} | {row.contestant} | {settings} | {_why(row)} | | | | |")
            continue
        least = fused.get((row.case, row.tuned), 0.0)
        ratio = f"{row.peak_mb / least:.1f}" if least > 0 and row.contestant != "fused" else ""
        lines.append(
            f"| {row.case} | {row.contestant} | {settings} | {row.peak_mb:.0f} | {ratio} "
            f"| {row.wall_ms:.1f} | {row.cpu_ms:.1f} | {row.page_faults} |"
        )
    return lines


def plot(path: Path, stamp: Stamp, rows: Sequence[Row]) -> None:
    """CPU time per graph against n, one panel per op, for the cases with k = 8.

    Compiled contestants have one size and times of another case beside them: the table has them.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "analysis", "The plot of the benchmark") from error
    ops = list(dict.fromkeys(row.op for row in rows if row.k == 8))
    swept = [op for op in ops if len({row.n for row in rows if row.op == op}) > 1] or ops
    figure = Figure(figsize=(4.2 * max(1, len(swept)), 4.2), layout="constrained")
    axes = figure.subplots(1, max(1, len(swept)), squeeze=False)[0]
    order = list(dict.fromkeys(row.contestant for row in rows if "compiled" not in row.contestant))
    for axis, op in zip(axes, swept):
        for name in order:
            largest: dict[int, Row] = {}
            for row in rows:
                if row.op == op and row.k == 8 and row.contestant == name:
                    before = largest.get(row.n)
                    largest[row.n] = row if before is None or row.batch > before.batch else before
            points = sorted((n, row.cpu_ms / row.batch) for n, row in largest.items())
            if points:
                axis.loglog(*zip(*points), marker="o", label=name, color=f"C{order.index(name)}")
        sizes = sorted({row.n for row in rows if row.op == op and row.k == 8})
        axis.set_xticks(sizes, [str(n) for n in sizes])
        axis.set_xticks([], minor=True)
        axis.set_title(op, fontsize=10)
        axis.set_xlabel("nodes n")
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(fontsize=8)
    axes[0].set_ylabel("CPU ms per graph and training step")
    figure.suptitle(f"Suite '{stamp.suite}', k = 8, {stamp.date}", fontsize=10)
    with atomic_path(path) as partial:
        figure.savefig(partial, format="png", dpi=120)
