"""Claims: a run folder is worked on by one process at a time, also across machines.

A claim is a file that only one process can create, with the name of its holder. Its modification
time is the holder's heartbeat. A claim is stale when its process is gone (seen from the same
machine) or, seen from another machine, when the heartbeat has stopped. `training` keeps a kernel
lock of its own; this one also holds on shared storage and tells who is at work.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from graph_machine.errors import DataError, GraphMachineError
from graph_machine.files import read_object
from graph_machine.locks import file_lock

CLAIM_FILE = "claim.json"
HEARTBEAT = 10.0  # seconds
STALE_AFTER = 120.0  # seconds without a heartbeat


class ClaimedError(GraphMachineError, RuntimeError):
    """Another process works on this run."""


@dataclass(frozen=True)
class Claim:
    """Who works on a run. `host` names the machine and, in containers, its process space."""

    pid: int
    host: str
    born: str  # start of the process, so that a pid that is used again is not taken for it
    started: float
    sweep: str = ""

    @property
    def machine(self) -> str:
        return self.host.partition(" ")[0]


def this_host() -> str:
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return f"{socket.gethostname()} {space}".strip()


def birth_of(pid: int) -> str | None:
    """A word that differs between two processes of the same pid; None: there is no such process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # it lives, and belongs to somebody else
    with suppress(OSError, IndexError):
        # The command's name is in brackets and may hold spaces; field 22 is the start time.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    return ""


def read_claim(folder: Path) -> Claim | None:
    """The claim in a folder, stale or not. A damaged one is nobody's: claims appear whole."""
    try:
        found = read_object(folder / CLAIM_FILE, DataError)
        claim = Claim(**found)
    except (FileNotFoundError, DataError, TypeError):
        return None
    kinds = {field.name: field.type for field in fields(Claim)}
    whole = all(isinstance(found[key], kinds[key]) for key in found)  # type: ignore[arg-type]
    # Numbers that the system can take for a process and for a time.
    possible = whole and 0 < claim.pid < 2**31 and 0 <= claim.started < 1e11
    return claim if possible else None


def is_stale(claim: Claim, folder: Path, *, stale_after: float = STALE_AFTER) -> bool:
    if claim.host == this_host():
        return birth_of(claim.pid) != claim.born
    try:
        return time.time() - (folder / CLAIM_FILE).stat().st_mtime > stale_after
    except FileNotFoundError:
        return True


def holder(folder: Path, *, stale_after: float = STALE_AFTER) -> Claim | None:
    """Who works on this run now, if anybody."""
    claim = read_claim(folder)
    if claim is None or is_stale(claim, folder, stale_after=stale_after):
        return None
    return claim


def _create(path: Path, claim: Claim) -> bool:
    """Give a file that is written the claim's name, which fails where there is one."""
    own = path.with_name(f".{path.name}.{claim.pid}.tmp")
    own.write_text(json.dumps(asdict(claim)), encoding="utf-8")
    try:
        os.link(own, path)
    except FileExistsError:
        return False
    except OSError:  # storage without hard links
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(own.read_text(encoding="utf-8"))
        except FileExistsError:
            return False
    finally:
        own.unlink()
    return True


def take(folder: Path, sweep: str = "", *, stale_after: float = STALE_AFTER) -> Claim:
    """Claim a run, or raise ClaimedError with the holder's name; a stale claim is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / CLAIM_FILE
    mine = Claim(
        os.getpid(), this_host(), birth_of(os.getpid()) or "", round(time.time(), 3), sweep
    )
    # The kernel lock lets one process at a time judge and replace a stale claim.
    with file_lock(folder / ".claim.lock"):
        other = holder(folder, stale_after=stale_after)
        if other is None:
            path.unlink(missing_ok=True)
        if other is not None or not _create(path, mine):
            other = other or read_claim(folder) or mine
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(other.started))
            raise ClaimedError(
                f"Process {other.pid} on {other.machine} has been working on this run since "
                f"{since}: {folder}"
            )
    return mine


@contextmanager
def claimed(
    folder: Path,
    sweep: str = "",
    *,
    stale_after: float = STALE_AFTER,
    heartbeat: float = HEARTBEAT,
) -> Iterator[Claim]:
    """Hold the claim of a run, with its heartbeat, during the block."""
    claim = take(folder, sweep, stale_after=stale_after)
    path, done = folder / CLAIM_FILE, threading.Event()

    def beat() -> None:
        while not done.wait(heartbeat):
            with suppress(OSError):
                os.utime(path)

    thread = threading.Thread(target=beat, name="claim-heartbeat", daemon=True)
    thread.start()
    try:
        yield claim
    finally:
        done.set()
        thread.join()
        if read_claim(folder) == claim:
            path.unlink(missing_ok=True)
