"""The progress of a sweep: read from the run folders, shown as one screen or as plain lines."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from graph_machine.errors import DataError, GraphMachineError
from graph_machine.files import parse_object, read_object
from graph_machine.lab.run_files import read_run
from graph_machine.lab.sweeps.grid import Job
from graph_machine.lab.training.log import duration

Status = Literal["waiting", "running", "finished", "skipped", "failed", "interrupted", "elsewhere"]

STYLES: dict[str, str] = {
    "running": "cyan",
    "failed": "bold red",
    "interrupted": "yellow",
    "elsewhere": "magenta",
    "waiting": "dim",
    "finished": "green",
    "skipped": "green",
}
TAIL = 8192  # bytes of a metrics file that are looked at
EXPLAINED = {"skipped": "finished before", "elsewhere": "another process has it"}


@dataclass
class Entry:
    """One run of a sweep and its status.

    >>> from graph_machine.lab.sweeps.grid import make_grid
    >>> Entry(make_grid(["gm"], [0], budget="smoke")[0]).status
    'waiting'
    """

    job: Job
    status: Status = "waiting"
    message: str = ""
    step: int = 0
    loss: float | None = None
    score: float | None = None  # of the last evaluation; at the end, of the test split
    rate: float | None = None  # steps per second

    @property
    def steps(self) -> int:
        """Training steps of the whole run."""
        return self.job.config.train.steps

    def refresh(self) -> None:
        """Read the newest metrics and, when it is there, the result."""
        for record in last_records(self.job.out / "metrics.jsonl"):
            self.step = max(self.step, int(finite_number(record, "step") or 0))
            if record.get("kind") == "eval":
                self.score = finite_number(record, self.job.metric.name)
            else:
                self.loss = finite_number(record, "loss")
                self.rate = finite_number(record, "steps_per_second")
        with suppress(FileNotFoundError, DataError):
            result = read_object(self.job.out / "result.json", DataError)
            self.score, self.step = finite_number(result, self.job.metric.name), self.steps

    def failure(self) -> str:
        """Why a run failed: its own record, or the last words of its process."""
        try:
            error = read_run(self.job.out).get("error")
        except (OSError, GraphMachineError):
            error = None
        if error:
            return str(error)
        log = self.job.out / "worker.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return lines[-1] if lines else "its process ended without a message"


def last_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records in the last few kilobytes of a metrics file; half a line is left out."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        start = file.seek(max(0, path.stat().st_size - TAIL))
        lines = file.read().split(b"\n")
    for line in lines[start > 0 : -1]:
        with suppress(DataError):
            yield parse_object(line, "A line", path, DataError)


def finite_number(record: dict[str, Any], key: str) -> float | None:
    """A finite number of a record; None if it cannot be shown."""
    value = record.get(key)
    # A whole number may be too large to be any other: 1e300 is far beyond what is measured.
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e300 else None


def summary(entries: Sequence[Entry]) -> str:
    """One line: how many runs there are, by status.

    >>> from graph_machine.lab.sweeps.grid import make_grid
    >>> summary([Entry(job) for job in make_grid(["gm"], [0, 1], budget="smoke")])
    '2 runs: 2 waiting'
    """
    counts = Counter[str](entry.status for entry in entries)
    parts = [f"{counts[s]} {EXPLAINED.get(s, s)}" for s in STYLES if counts[s]]
    return f"{len(entries)} run{'s' if len(entries) != 1 else ''}: {', '.join(parts)}"


class View(AbstractContextManager["View"]):
    """Progress as plain lines: one for every change, and every `interval` seconds those that run.

    >>> from graph_machine.lab.sweeps.grid import make_grid
    >>> entry = Entry(make_grid(["gm"], [0], budget="smoke")[0], status="running")
    >>> View().update([entry])
    gm seed 0: running
    """

    def __init__(self, interval: float = 30.0) -> None:
        self.interval = interval
        self._seen: dict[str, str] = {}
        self._last = time.monotonic()

    def __exit__(self, *details: object) -> None:
        return

    def update(self, entries: Sequence[Entry]) -> None:
        """Show the changes since the last call."""
        for entry in entries:
            before = self._seen.get(entry.job.name, "waiting")
            if entry.status != before:
                self._seen[entry.job.name] = entry.status
                self._print(entry)
        if time.monotonic() - self._last >= self.interval:
            self._last = time.monotonic()
            for entry in entries:
                if entry.status == "running":
                    self._print(entry)

    def _print(self, entry: Entry) -> None:
        words = [f"{entry.job.name}: {EXPLAINED.get(entry.status, entry.status)}"]
        if entry.status in ("running", "interrupted") and entry.step:
            words.append(f"step {entry.step:,} of {entry.steps:,}")
            if entry.loss is not None:
                words.append(f"loss {entry.loss:.3f}")
        if entry.score is not None:
            words.append(f"{entry.job.metric.title} {entry.job.metric.show(entry.score)}")
        print(", ".join([*words, *filter(None, [entry.message])]), flush=True)


class LiveView(View):
    """Progress as one screen; runs that do not fit are counted in the last line."""

    def __init__(self) -> None:
        super().__init__()
        self.console = Console()
        self.live = Live(console=self.console, refresh_per_second=4, transient=False)

    def __enter__(self) -> "View":
        self.live.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.live.stop()

    def update(self, entries: Sequence[Entry]) -> None:
        self.live.update(self.render(entries, self.console.height - 6))

    @staticmethod
    def render(entries: Sequence[Entry], rows: int) -> Table:
        table = Table(title=summary(entries), title_justify="left", box=None, pad_edge=False)
        for name in ("run", "", "progress"):
            table.add_column(name)
        titles = {entry.job.metric.title for entry in entries}
        for name in ("step", "loss", titles.pop() if len(titles) == 1 else "result", "left"):
            table.add_column(name, justify="right")
        order = list(STYLES)
        shown = sorted(entries, key=lambda e: order.index(e.status))[: max(3, rows)]
        for entry in shown:
            style = STYLES[entry.status]
            left = ""
            if entry.status == "running" and entry.rate:
                left = duration((entry.steps - entry.step) / entry.rate)
            table.add_row(
                entry.job.name,
                Text(EXPLAINED.get(entry.status, entry.status), style=style),
                ProgressBar(entry.steps, entry.step, width=20, complete_style=style),
                f"{entry.step:,}",
                "" if entry.loss is None else f"{entry.loss:.3f}",
                "" if entry.score is None else entry.job.metric.show(entry.score),
                left,
            )
        if len(shown) < len(entries):
            table.add_row(f"and {len(entries) - len(shown)} more", *[""] * 6)
        return table


def make_view() -> View:
    """`LiveView` in a terminal, `View` elsewhere.

    >>> type(make_view()).__name__  # not in a terminal
    'View'
    """
    return LiveView() if sys.stdout.isatty() else View()
