"""A sweep on this machine: every run in its own process, pinned to its share of the machine.

A process per run, because a crash (or the kernel's out-of-memory killer) then costs one run and
not the sweep, and because threads of two runs in one process fight for the same cores.
"""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from graph_machine.errors import CheckpointError, ConfigError, DataError
from graph_machine.sweeps.claims import CLAIM_FILE, ClaimedError, claimed, holder
from graph_machine.sweeps.grid import Job
from graph_machine.sweeps.progress import Entry, View
from graph_machine.sweeps.worker import CLAIMED, STOPPED
from graph_machine.training.run import RunFolder

GRACE = 60.0  # seconds that a run has to save itself when the sweep is stopped

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

    >>> from graph_machine.sweeps.grid import make_grid
    >>> [entry.standing for entry in prepare(make_grid(["gm"], [0, 1], budget="smoke"))]
    ['waiting', 'waiting']
    """
    entries = []
    for job in jobs:
        entry = Entry(job)
        try:
            if job.state() == "finished":
                entry.standing = "skipped"
                entry.refresh()
        except DataError as error:
            entry.standing, entry.message = "failed", str(error)
        entries.append(entry)
    return entries


def settle(entries: Sequence[Entry]) -> None:
    """Close runs that were killed after their result: their status, leftovers and claim."""
    for entry in entries:
        folder = RunFolder(entry.job.out)
        # Whoever is at work on it now will close it himself.
        with suppress(ClaimedError, CheckpointError, OSError):
            if entry.standing == "skipped" and not (
                folder.read()["status"] == "finished" and not (folder.path / CLAIM_FILE).exists()
            ):
                with claimed(folder.path), folder.locked():
                    folder.settle()


def look(entries: Sequence[Entry]) -> None:
    """Without running anything: mark the runs that were begun but not finished."""
    for entry in entries:
        if entry.standing == "waiting" and not skip_if_taken(entry) and entry.job.state() != "new":
            entry.standing = "interrupted"
            entry.refresh()


def sweep_name() -> str:
    return uuid.uuid4().hex[:12]


class LocalRunner:
    """Runs the waiting entries on this machine, one process per share, until none is left.

    `LocalRunner(prepare(jobs), this_machine(workers=2), View()).run()` carries out a whole sweep.

    >>> from graph_machine.sweeps.progress import View
    >>> LocalRunner(prepare([]), this_machine(workers=2), View()).run()  # nothing to do
    """

    def __init__(self, entries: Sequence[Entry], slots: Sequence[Share], view: View) -> None:
        self.entries, self.view = entries, view
        self.free = list(slots)
        self.sweep = sweep_name()
        self.running: dict[subprocess.Popen[bytes], tuple[Entry, Share]] = {}

    def run(self, interval: float = 0.2) -> None:
        """Until every entry has an end. Ctrl-C lets the runs save themselves first."""
        try:
            while self.waiting() or self.running:
                while self.free and self.waiting():
                    self.start(self.waiting()[0])
                self.collect()
                self.view.update(self.entries)
                time.sleep(interval)
        except BaseException:
            self.stop()
            raise
        finally:
            finish_elsewhere(self.entries)
            self.view.update(self.entries)

    def waiting(self) -> list[Entry]:
        """The entries that have not been started."""
        return [entry for entry in self.entries if entry.standing == "waiting"]

    def start(self, entry: Entry) -> None:
        """Start a run in its own process, on the next free share."""
        if skip_if_taken(entry):
            return
        share = self.free.pop(0)
        entry.job.out.mkdir(parents=True, exist_ok=True)
        order = {"job": entry.job.to_dict(), "cores": share.cores, "sweep": self.sweep}
        with open(entry.job.out / "worker.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "graph_machine.sweeps.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=os.environ | dict(share.environment),
                # Ctrl-C reaches the sweep alone, which then asks each run to save and stop.
                start_new_session=True,
            )
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once; `collect` tells why
        self.running[process] = (entry, share)
        entry.standing = "running"

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


def conclude(entry: Entry, code: int, message: str) -> None:
    """How a run stands after its worker's exit code."""
    if code == 0:
        entry.standing, entry.message = "finished", ""
    elif code == CLAIMED:
        entry.standing = "elsewhere"
    elif code in STOPPED:
        entry.standing = "interrupted"
    else:
        entry.standing, entry.message = "failed", message


def skip_if_taken(entry: Entry) -> bool:
    """Another sweep may have finished this run meanwhile, or be at it now."""
    if (entry.job.out / "result.json").exists():
        entry.standing = "skipped"
        entry.refresh()
        return True
    other = holder(entry.job.out)
    if other is None:
        return False
    entry.standing = "elsewhere"
    entry.message = f"process {other.pid} on {other.machine}"
    return True


def finish_elsewhere(entries: Sequence[Entry]) -> None:
    """What another process was at may be finished by now."""
    for entry in entries:
        if entry.standing == "elsewhere" and (entry.job.out / "result.json").exists():
            entry.standing, entry.message = "skipped", ""
            entry.refresh()
