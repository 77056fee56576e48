"""One case: how it ended, and the bounds on time and memory that it may not leave."""

import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graph_machine.errors import GraphMachineError

SECONDS = 30.0  # of processor time, which does not depend on what else the machine does
BYTES = 1 << 30  # of address space, beyond what the process has at the start of the case


class TooSlow(BaseException):
    """A case went on beyond its time. No handler of ours may swallow it."""


class Adopted(AssertionError):
    """Something damaged was taken for sound, or something sound was lost."""


@dataclass(frozen=True)
class Outcome:
    """`accepted` and `refused` (one clear line) are fine; `escaped` is a defect."""

    kind: Literal["accepted", "refused", "escaped"]
    seconds: float
    error: str = ""


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@contextmanager
def bounded() -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise TooSlow(f"more than {SECONDS:g} s of processor time")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def run_case(case: Callable[[], None], *, refusable: bool = True) -> Outcome:
    """Run one case; whatever is raised outside of the project's own errors has escaped.

    Of a case that is not `refusable`, these must not come out either: the rest has to go on.
    """
    start = time.process_time()
    kind: Literal["accepted", "refused", "escaped"] = "accepted"
    error = ""
    try:
        with bounded():
            case()
    except GraphMachineError as refusal:
        kind = "refused" if refusable and _is_one_line(refusal) else "escaped"
        error = "" if kind == "refused" else traceback.format_exc(limit=-6)
    except (Exception, TooSlow, SystemExit):
        kind, error = "escaped", traceback.format_exc(limit=-6)
    return Outcome(kind, time.process_time() - start, error)


def _is_one_line(refusal: GraphMachineError) -> bool:
    """A line of a length that a person reads, in characters that a terminal can show."""
    text = str(refusal)
    return 0 < len(text) < 2_000 and "\n" not in text and text.isprintable()
