"""Reports of a run while it trains: a bar or plain lines for people, records for programs."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Literal

from graph_machine.errors import ConfigError, MissingExtraError, count_of
from graph_machine.lab.tasks.scores import Metric
from graph_machine.lab.training.checkpoints import disk_errors

Record = dict[str, Any]
Progress = Literal["auto", "bar", "plain", "none"] | Callable[[Record], None]


class Sink(AbstractContextManager["Sink"]):
    """Takes metric records. `start` gets the run's length and the step at which it resumes.

    >>> class Losses(Sink):
    ...     def __init__(self):
    ...         self.losses = []
    ...     def write(self, record):
    ...         if record["kind"] == "train":
    ...             self.losses.append(record["loss"])
    >>> Losses().losses  # hand it over as train(..., sinks=[Losses()])
    []
    """

    def start(self, steps: int, step: int, title: str) -> None:
        """Before the first record."""

    def write(self, record: Record) -> None:
        """One line of metrics, of kind `train` or `eval`."""

    def tick(self, step: int) -> None:
        """After every step."""

    def note(self, text: str) -> None:
        """A line for people, such as how long the run will take."""

    def sync(self) -> None:
        """Flush the records to disk."""

    def close(self) -> None:
        """After the last record, also when a run fails."""

    def __exit__(self, *details: object) -> None:
        self.close()


class JsonLines(Sink):
    """`metrics.jsonl`, appended to; a line is written whole or, on a full disk, not counted on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed in close()

    def write(self, record: Record) -> None:
        with disk_errors(self.path, f"the metrics of step {record['step']} were not written"):
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        # After a failed write the buffer may still hold the line, and closing tries again.
        with suppress(OSError):
            self._file.close()


def duration(seconds: float | int) -> str:
    """`1:02:03` or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Plain(Sink):
    """One line per interval, for logs and pipes."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.steps, self.metrics = 0, metrics

    def start(self, steps: int, step: int, title: str) -> None:
        self.steps = steps
        self.note(title + (f", from step {step}" if step else ""))

    def write(self, record: Record) -> None:
        steps = self.steps
        found = "  ".join(f"{m.title} {m.show(record[m.name]):>6}" for m in self.metrics)
        line = f"{record['kind']:<5} {record['step']:>{len(str(steps))}}/{steps}  "
        line += f"loss {record['loss']:.4f}  {found}"
        if record["kind"] == "train":
            left = (steps - record["step"]) / max(record["steps_per_second"], 1e-9)
            line += f"  lr {record['lr']:.2e}  {record['steps_per_second']:.2f} steps/s"
            line += f"  left {duration(left)}"
        self.note(line)

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Bar(Sink):
    """A live bar on a terminal: loss, metric, learning rate, steps per second, time left."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        from rich import progress
        from rich.console import Console

        self.progress = progress.Progress(
            "{task.description}",
            progress.BarColumn(bar_width=None),
            progress.MofNCompleteColumn(),
            "{task.fields[figures]}",
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            expand=True,
        )
        self.figures, self.metric = {"train": "", "eval": ""}, metrics[0]
        self._task: Any = None

    def start(self, steps: int, step: int, title: str) -> None:
        self.progress.start()
        self._task = self.progress.add_task(title, total=steps, completed=step, figures="")

    def write(self, record: Record) -> None:
        shown = self.metric.show(record[self.metric.name])
        if record["kind"] == "eval":
            self.figures["eval"] = f"[bold]eval {shown}[/bold]"
        else:
            self.figures["train"] = (
                f"loss {record['loss']:.3f} {self.metric.title} {shown} lr {record['lr']:.1e} "
                f"{record['steps_per_second']:.1f}/s"
            )
        self.progress.update(self._task, figures=" ".join(self.figures.values()))

    def tick(self, step: int) -> None:
        self.progress.update(self._task, completed=step)

    def note(self, text: str) -> None:
        self.progress.console.print(text)

    def close(self) -> None:
        self.progress.stop()


class TensorBoard(Sink):
    """Scalars for TensorBoard (extra `log`), in RUN/tensorboard."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("tensorboard", "log", "Logging to TensorBoard") from None
        self.folder = folder
        self._make = SummaryWriter
        self.writer: Any = None

    def start(self, steps: int, step: int, title: str) -> None:
        # Records after the step that a run resumes from are hidden by `purge_step`.
        self.writer = self._make(str(self.folder), purge_step=step or None)

    def write(self, record: Record) -> None:
        for name, value in record.items():
            if name not in ("step", "kind"):
                self.writer.add_scalar(f"{record['kind']}/{name}", value, record["step"])

    def sync(self) -> None:
        if self.writer is not None:
            self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class WeightsAndBiases(Sink):
    """Metrics for Weights & Biases (extra `log`); WANDB_MODE=offline needs no account."""

    def __init__(self, folder: Path, name: str, config: dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtraError("wandb", "log", "Logging to Weights & Biases") from None
        self.wandb = wandb
        self.folder, self.name, self.config = folder, name, config
        self.run: Any = None

    def start(self, steps: int, step: int, title: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run = self.wandb.init(
            project="graph-machine", name=self.name, dir=str(self.folder), config=self.config
        )

    def write(self, record: Record) -> None:
        values = {f"{record['kind']}/{n}": v for n, v in record.items() if n != "kind"}
        self.run.log(values, step=record["step"])

    def close(self) -> None:
        if self.run is not None:
            self.run.finish()


def progress_sink(progress: Progress, metrics: Sequence[Metric]) -> Sink | None:
    """What shows progress to people; `auto` is a bar on a terminal and plain lines elsewhere."""
    if callable(progress):
        sink = Sink()
        sink.write = progress  # pyrefly: ignore[bad-assignment]
        return sink
    auto = Bar if sys.stderr.isatty() else Plain
    known = {"auto": auto, "bar": Bar, "plain": Plain, "none": lambda metrics: None}
    if progress not in known:
        raise ConfigError(
            f"progress should be one of {', '.join(known)}, or a function; got {progress!r}."
        )
    return known[progress](metrics)


def projection(steps: int, seconds_per_step: float, left: int) -> str:
    """How long a run will take, by the speed of its first steps."""
    seconds = left * seconds_per_step
    end = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + seconds))
    return (
        f"{count_of(steps, 'steps')} at {seconds_per_step:.3g} s per step: "
        f"{duration(seconds)} left without evaluation, until about {end}"
    )
