"""A sweep on this machine: a pool of processes, one run in each, pinned to its share of cores.

A new process per run, because a crash (or the kernel's out-of-memory killer) then costs one run:
`concurrent.futures` would give up the whole pool. A run folder is locked by the process that trains
in it (`RunFolder.locked`), so two sweeps on the same folder divide the runs between them.

`python -m graph_machine.lab.sweeps.runner` is one worker. The job comes as one line of JSON on
standard input, which stays open: when it closes, the sweep is gone, and the run saves itself and
stops. Exit codes: 0 finished, 2 failed with a one-line error, 75 another process has the run,
128 + signal when stopped.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from graph_machine.errors import CheckpointError, ConfigError, DataError, GraphMachineError
from graph_machine.lab.sweeps.grid import Job
from graph_machine.lab.sweeps.progress import Entry, View
from graph_machine.lab.training.run import RunBusyError, RunFolder

GRACE = 60.0  # seconds that a run has to save itself when the sweep is stopped
BUSY = 75  # EX_TEMPFAIL: another process has the run
# Stopped by Ctrl-C or SIGTERM: after saving, or too early for there to be anything to save.
STOPPED = {sign for number in (signal.SIGINT, signal.SIGTERM) for sign in (128 + number, -number)}
# Which variable limits the accelerators that a process sees.
VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}


@dataclass(frozen=True)
class Share:
    """A worker's part of this machine.

    >>> Share(cores=(0, 1), environment={}).cores
    (0, 1)
    """

    cores: tuple[int, ...]
    environment: Mapping[str, str]


def shares(
    workers: int,
    cores: Sequence[int],
    *,
    accelerator: str | None = None,
    devices: int = 0,
    environment: Mapping[str, str] = os.environ,
) -> list[Share]:
    """Split cores evenly (a core is shared only when there are more workers than cores).

    A run uses one accelerator, so each worker sees one. Limits that the user has set in the
    environment, of devices or of threads (`OMP_NUM_THREADS`), are respected.

    >>> [share.cores for share in shares(2, cores=[0, 1, 2, 3])]
    [(0, 1), (2, 3)]
    """
    if workers < 1:
        raise ConfigError(f"--workers should be at least 1, got {workers}.")
    result = []
    for worker in range(workers):
        if workers > len(cores):
            mine: Sequence[int] = [cores[worker % len(cores)]]
        else:
            mine = cores[worker * len(cores) // workers : (worker + 1) * len(cores) // workers]
        limit = environment.get("OMP_NUM_THREADS", "")
        threads = min(len(mine), int(limit)) if limit.isdecimal() and int(limit) else len(mine)
        variables = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        if accelerator in VISIBLE and devices:
            name = VISIBLE[accelerator]
            given = [part for part in environment.get(name, "").split(",") if part]
            visible = given or [str(index) for index in range(devices)]
            variables[name] = visible[worker % len(visible)]
        result.append(Share(tuple(mine), variables))
    return result


def this_machine(workers: int) -> list[Share]:
    """The cores and accelerators of this machine, split among `workers`.

    >>> len(this_machine(workers=2))
    2
    """
    import torch

    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))
    else:
        cores = list(range(os.cpu_count() or 1))
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if kind is None:
        return shares(workers, cores)
    return shares(workers, cores, accelerator=kind.type, devices=torch.accelerator.device_count())


def prepare(jobs: Sequence[Job]) -> list[Entry]:
    """Entries of a sweep. Finished runs are skipped; a folder of another run is an error.

    A folder whose files are damaged costs only that run: it has failed before it begins.

    >>> from graph_machine.lab.sweeps.grid import make_grid
    >>> [entry.status for entry in prepare(make_grid(["gm"], [0, 1], budget="smoke"))]
    ['waiting', 'waiting']
    """
    entries = []
    for job in jobs:
        entry = Entry(job)
        try:
            if job.state() == "finished":
                entry.status = "skipped"
                entry.refresh()
        except DataError as error:
            entry.status, entry.message = "failed", str(error)
        entries.append(entry)
    return entries


def close_finished(entries: Sequence[Entry]) -> None:
    """Close runs that were killed after their result: their status and half-written files."""
    for entry in entries:
        folder = RunFolder(entry.job.out)
        # A process that works on it now will close it itself.
        with suppress(CheckpointError, OSError):
            if entry.status == "skipped" and folder.info().status != "finished":
                with folder.locked():
                    folder.close()


def look(entries: Sequence[Entry]) -> None:
    """Without running anything: mark the runs that were begun but not finished."""
    for entry in entries:
        if entry.status == "waiting" and not skip_if_taken(entry) and entry.job.state() != "new":
            entry.status = "interrupted"
            entry.refresh()


def skip_if_taken(entry: Entry) -> bool:
    """Another process may have finished this run meanwhile, or be training it now."""
    folder = RunFolder(entry.job.out)
    if folder.finished:
        entry.status, entry.message = "skipped", ""
        entry.refresh()
    elif (holder := folder.holder()) is not None:
        entry.status, entry.message = "elsewhere", holder
    return entry.status in ("skipped", "elsewhere")


def conclude(entry: Entry, code: int, message: str) -> None:
    """The status of a run from its worker's exit code."""
    if code == 0:
        entry.status, entry.message = "finished", ""
    elif code == BUSY:
        entry.status = "elsewhere"
    elif code in STOPPED:
        entry.status = "interrupted"
    else:
        entry.status, entry.message = "failed", message


class Runner(ABC):
    """The waiting entries of a sweep, carried out; subclasses say where."""

    def __init__(self, entries: Sequence[Entry], view: View) -> None:
        self.entries, self.view = entries, view

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Around all runs: Ctrl-C lets them save themselves, and the last look is complete."""
        try:
            yield
        except BaseException:
            self.stop()
            raise
        finally:
            for entry in self.entries:
                if entry.status == "elsewhere":  # it may be finished by now
                    skip_if_taken(entry)
            self.view.update(self.entries)

    @abstractmethod
    def stop(self) -> None:
        """Ask every run to save and stop, and wait for it."""


class LocalRunner(Runner):
    """Runs the waiting entries on this machine, one process per share, until none is left.

    `LocalRunner(prepare(jobs), this_machine(workers=2), View()).run()` carries out a whole sweep.

    >>> from graph_machine.lab.sweeps.progress import View
    >>> LocalRunner(prepare([]), this_machine(workers=2), View()).run()  # nothing to do
    """

    def __init__(self, entries: Sequence[Entry], slots: Sequence[Share], view: View) -> None:
        super().__init__(entries, view)
        self.free = list(slots)
        self.running: dict[subprocess.Popen[bytes], tuple[Entry, Share]] = {}

    def run(self, interval: float = 0.2) -> None:
        """Until every entry has an end. Ctrl-C lets the runs save themselves first."""
        with self.ending():
            waiting = True
            while waiting or self.running:
                waiting = [entry for entry in self.entries if entry.status == "waiting"]
                while self.free and waiting:
                    self.start(waiting.pop(0))
                self.collect()
                self.view.update(self.entries)
                time.sleep(interval)

    def start(self, entry: Entry) -> None:
        """Start a run in its own process, on the next free share."""
        if skip_if_taken(entry):
            return
        share = self.free.pop(0)
        entry.job.out.mkdir(parents=True, exist_ok=True)
        order = {"job": entry.job.to_dict(), "cores": share.cores}
        with open(entry.job.out / "worker.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "graph_machine.lab.sweeps.runner"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=os.environ | dict(share.environment),
                # Ctrl-C reaches the sweep alone, which then asks each run to save and stop.
                start_new_session=True,
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it died at once; `collect` finds out why
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        self.running[process] = (entry, share)
        entry.status = "running"

    def collect(self) -> None:
        """Take the processes that have ended out of the list."""
        for process in list(self.running):
            entry, share = self.running[process]
            code = process.poll()
            entry.refresh()
            if code is None:
                continue
            if process.stdin is not None:
                process.stdin.close()
            del self.running[process]
            self.free.append(share)
            why = f"killed by signal {-code}" if code < 0 else entry.failure()
            conclude(entry, code, f"{why} (log: {entry.job.out / 'worker.log'})")

    def stop(self) -> None:
        """Ask every run to save and stop; a second Ctrl-C, or no answer, kills them."""
        try:
            for process in self.running:
                process.terminate()
            end = time.monotonic() + GRACE
            while self.running and time.monotonic() < end:
                self.collect()
                time.sleep(0.1)
        finally:
            for process in self.running:
                process.kill()
                process.wait()
            self.collect()


def attempt(
    data: dict[str, Any], *, device: str | None = None, patience: float = 0.0
) -> tuple[int, str]:
    """Run or resume a job; the exit code, and one line if it did not finish.

    A folder that another process has is waited for during `patience` seconds. Errors travel as
    text: not every exception can be sent from one process to another.
    """
    from graph_machine.lab.training import train

    end = time.monotonic() + patience
    while True:
        try:
            job = Job.from_dict(data)
            what = {"seed": job.seed, "condition": job.condition, "budget": job.budget}
            how: dict[str, Any] = {"resume": True, "device": device, "progress": "none"}
            train(job.config, out=job.out, data=job.data, **what, **how)
        except RunBusyError as error:
            if time.monotonic() >= end:
                return BUSY, str(error)
            time.sleep(1.0)
        except GraphMachineError as error:
            return 2, str(error)
        except KeyboardInterrupt as stopped:  # training's Interrupted is one, and names its signal
            return 128 + getattr(stopped, "signal_number", signal.SIGINT), str(stopped)
        else:
            return 0, ""


def stop_when_closed() -> None:
    """Request a stop when the sweep that started this process goes away."""
    while sys.stdin.readline():
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """One worker."""
    order = json.loads(sys.stdin.readline())
    if order["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, order["cores"])
    threading.Thread(target=stop_when_closed, name="sweep-watch", daemon=True).start()
    code, message = attempt(order["job"])
    if message:
        print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # The watching thread blocks in a read of standard input, and the interpreter would wait for it.
    os._exit(code)
