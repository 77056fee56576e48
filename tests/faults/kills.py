"""Kills with SIGKILL at one file operation after the other. `make faults` does every one of them.

python tests/faults/kills.py                            every operation of every scenario
python tests/faults/kills.py --every 23                 each 23rd: the short form of `make test`
python tests/faults/kills.py --scenario prepare --at 9  one kill again

Each kill begins with the same files. After it, what was there is whole (the old or the new); the
same command, started again, ends in the same bytes as if nothing had been, and leaves no rubbish.
"""

import argparse
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = {
    "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.link",
    "os.symlink",
}  # fmt: skip


class Killer:
    """Counts the operations that change files below `folder` and kills the process at one of them.

    An audit hook, so it sees what libraries do, too. The kill comes before the operation; `torn`
    cuts the file that was written last to half of its length first, as a kill during the write
    would have.
    """

    def __init__(self, folder: Path, at: int | None, *, torn: bool = False) -> None:
        self.folder, self.at, self.torn = str(folder.resolve()), at, torn
        self.count, self.armed, self.last = 0, False, ""

    def arm(self) -> None:
        real = os.fsync
        sys.addaudithook(self)
        # The one operation of interest that the interpreter does not announce.
        os.fsync = lambda handle: (self.step(), real(handle))[1]  # type: ignore[assignment]
        self.armed = True

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        if event == "open":
            if isinstance(args[0], (str, bytes)) and args[2] & WRITING and self.ours(args[0]):
                self.step()
                self.last = os.fsdecode(args[0])
        elif event in CHANGES:
            inside_of_open_folder = isinstance(args[-1], int) and args[-1] >= 0
            if inside_of_open_folder or (isinstance(args[0], (str, bytes)) and self.ours(args[0])):
                self.step()

    def ours(self, path: str | bytes) -> bool:
        return os.path.abspath(os.fsdecode(path)).startswith(self.folder)

    def step(self) -> None:
        if not self.armed:
            return
        self.count += 1
        if self.count == self.at:
            self.armed = False
            if self.torn and self.last.endswith(".tmp") and os.path.isfile(self.last):
                os.truncate(self.last, os.path.getsize(self.last) // 2)
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Ended:
    """How an attempt ended: its exit code (-9: killed), and the operations that were counted."""

    code: int
    operations: int


def attempt(go: Callable[[Killer], int], killer: Killer) -> Ended:
    """Run `go` in a forked child, and wait for it and for every process that it has started."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks of a process with idle threads
        child = os.fork()
    if child == 0:
        os.close(reader)
        code = 70
        try:
            code = go(killer)
        finally:
            os.write(writer, b"%d\n" % killer.count)
            os._exit(code)
    os.close(writer)
    with open(reader) as counts:  # ends when the last process that can write has ended
        operations = max([int(line) for line in counts], default=0)
    return Ended(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), operations)


@dataclass
class Count:
    operations: int = 0
    kills: int = 0
    failures: list[str] = field(default_factory=list)


def campaign(scenario: Any, every: int = 1, only: int | None = None) -> Count:
    """Kill a scenario at each `every`-th operation, whole and torn writes in turn (or both)."""
    count = Count()
    whole = scenario.fresh()
    counted = attempt(scenario.go, Killer(whole, None))
    if counted.code != 0:
        raise AssertionError(f"{scenario.name}: ended with {counted.code} without a kill")
    count.operations = counted.operations
    scenario.expect(whole)
    for at in range(1, counted.operations + 1) if only is None else [only]:
        if only is None and (at + every // 2) % every:  # short scenarios have a kill, too
            continue
        for torn in (False, True) if every == 1 else [at // every % 2 == 0]:
            why = one_kill(scenario, at, torn, count)
            if why:
                count.failures.append(f"--scenario '{scenario.name}' --at {at} ({torn=}): {why}")
                print(count.failures[-1], file=sys.stderr, flush=True)
    return count


def one_kill(scenario: Any, at: int, torn: bool, count: Count) -> str:
    """What is wrong after a kill, or nothing."""
    folder = scenario.fresh()
    ended = attempt(scenario.go, Killer(folder, at, torn=torn))
    if ended.code not in (-signal.SIGKILL, *scenario.codes):
        return f"ended with {ended.code}"
    count.kills += ended.code != 0
    if lost := scenario.lost():
        return lost
    if scenario.twice:
        count.kills += attempt(scenario.go, Killer(folder, at // 2 + 1)).code != 0
    again = attempt(scenario.go, Killer(folder, None))
    if again.code != 0:
        return f"started again, ended with {again.code}"
    return scenario.difference()


def table(counts: dict[str, Count]) -> str:
    lines = ["| killed | file operations | kills | not as before |", "| --- | ---: | ---: | ---: |"]
    for name, count in counts.items():
        lines.append(f"| {name} | {count.operations} | {count.kills:,} | {len(count.failures):,} |")
    kills = sum(count.kills for count in counts.values())
    failures = sum(len(count.failures) for count in counts.values())
    lines.append(f"| **all** | | {kills:,} | {failures:,} |")
    return "\n".join(lines)


def main() -> int:
    from faults.scenarios import SCENARIOS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--at", type=int)
    args = parser.parse_args()
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.scenario or SCENARIOS:
            made = SCENARIOS[name](Path(folder) / name.replace(" ", "-"), name)
            counts[name] = campaign(made, args.every, args.at)
            print(f"{name}: {counts[name].kills} kills", file=sys.stderr, flush=True)
    print(table(counts))
    failures = [line for count in counts.values() for line in count.failures]
    return 1 if failures or not all(count.kills for count in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
