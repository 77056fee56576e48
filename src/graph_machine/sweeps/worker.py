"""One run of a sweep in its own process: `python -m graph_machine.sweeps.worker`.

The job comes as one line of JSON on standard input, which stays open: when it closes, the sweep is
gone, and the run saves itself and stops. Exit codes: 0 finished, 2 failed with one clear line,
75 claimed by another process, 128 + signal when stopped.
"""

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from graph_machine.errors import GraphMachineError
from graph_machine.sweeps.claims import (
    HEARTBEAT,
    STALE_AFTER,
    ClaimedError,
    claimed,
    read_claim,
)

CLAIMED = 75  # EX_TEMPFAIL: somebody else does it
# Stopped by Ctrl-C or SIGTERM: after saving, or too early for there to be anything to save.
STOPPED = {sign for number in (signal.SIGINT, signal.SIGTERM) for sign in (128 + number, -number)}


def run_job(data: dict[str, Any], *, sweep: str = "", device: str | None = None) -> float:
    """Run or resume one job under its claim and return the score that decides.

    A claim of the same sweep is an earlier attempt on a machine that was lost: it is waited for
    until its heartbeat has stopped. A claim of anybody else raises ClaimedError at once.
    """
    from graph_machine.sweeps.grid import Job

    job = Job.from_dict(data)
    deadline = time.monotonic() + STALE_AFTER + 2 * HEARTBEAT
    while True:
        try:
            with claimed(job.out, sweep):
                return _train(job, device)
        except ClaimedError:
            other = read_claim(job.out)
            ours = other is not None and sweep != "" and other.sweep == sweep
            if not ours or time.monotonic() > deadline:
                raise
            time.sleep(min(1.0, HEARTBEAT))


def _train(job: Any, device: str | None) -> float:
    from graph_machine.training import train

    result = train(
        job.config,
        seed=job.seed,
        out=job.out,
        data=job.data,
        resume=True,
        condition=job.condition,
        budget=job.budget,
        device=device,
        progress="none",
    )
    return result.score


def attempt(data: dict[str, Any], *, sweep: str, device: str | None = None) -> tuple[int, str]:
    """Run a job; the exit code, and one line where it did not finish.

    Errors of ours travel as text: not every exception survives the way between two processes.
    """
    try:
        run_job(data, sweep=sweep, device=device)
    except ClaimedError as error:
        return CLAIMED, str(error)
    except GraphMachineError as error:
        return 2, str(error)
    except KeyboardInterrupt as stopped:  # training's Interrupted is one, and names its signal
        return 128 + getattr(stopped, "signal_number", signal.SIGINT), str(stopped)
    return 0, ""


def stop_when_closed() -> None:
    """Ask for a stop when the sweep that started this process goes away."""

    def watch() -> None:
        while sys.stdin.readline():
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="sweep-watch", daemon=True).start()


def main() -> int:
    order = json.loads(sys.stdin.readline())
    if order["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, order["cores"])
    stop_when_closed()
    code, message = attempt(order["job"], sweep=order["sweep"])
    if message:
        print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # The watching thread sits in a read of standard input, which the interpreter's own end awaits.
    os._exit(code)
