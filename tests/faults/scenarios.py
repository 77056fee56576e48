"""What is killed: one class per command, with the files that it begins with and what must come."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# The first optimiser of a process imports it, which takes longer than a forked command.
import torch._dynamo  # noqa: F401

from faults.kills import Killer, attempt
from graph_machine.lab.cli import run as command
from graph_machine.lab.sweeps import runner
from graph_machine.lab.training import train
from support.run_folders import make_run
from support.runs import puzzle_lines, recurrent, tiny, write_puzzles
from support.sweeps import TINY

# What two runs of the same command never share: times, and who ran it.
OF_THE_MOMENT = (
    "seconds", "started", "steps_per_second", "examples_per_second",
    "cpu_seconds", "hardware", "window", "checksum",
)  # fmt: skip
LOCKS = (".lock", "worker.log")


def contents(path: Path) -> dict[str, str]:
    """Every file below a path with the digest of what two sound runs share of it."""
    found = {}
    for file in sorted(path.rglob("*")) if path.is_dir() else [path] * path.exists():
        if file.name in LOCKS:
            continue
        data = file.read_bytes() if file.is_file() else b"folder"
        if file.name in ("run.json", "result.json", "metrics.jsonl", "state.json"):
            data = repr([timeless(json.loads(line)) for line in documents(file)]).encode()
        found[str(file.relative_to(path))] = hashlib.sha256(data).hexdigest() + oct(
            file.stat().st_mode
        )
    return found


def documents(file: Path) -> list[str]:
    text = file.read_text()
    return text.splitlines() if file.suffix == ".jsonl" else [text]


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in OF_THE_MOMENT}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def quiet(*words: str | Path) -> int:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return command([str(word) for word in words])


class Scenario(ABC):
    """Files in `base`, a command that changes a copy of them, and what has to be there then."""

    target = ""  # what is the old one or the new one at any moment; "": nothing is promised
    codes: tuple[int, ...] = (0,)  # of a first start whose kill hit another process, or nobody
    twice = False  # kill it again when it is started again
    warm = True  # run it once in this process, so that forked ones find everything imported

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.base, self.work = folder / "base", folder / "work"
        self.base.mkdir(parents=True)
        # In a process of its own: torch's threads, once begun, do not live on in forked ones.
        made = attempt(lambda killer: self.make() or 0, Killer(folder, None))
        if made.code != 0:
            raise AssertionError(f"{name} could not be set up")
        if self.warm:
            self.fresh()
            self.run()

    @abstractmethod
    def make(self) -> None:
        """Write what the command begins with into `base`."""

    @abstractmethod
    def run(self) -> int:
        """The command, on `work`."""

    def go(self, killer: Killer) -> int:
        killer.arm()
        return self.run()

    def fresh(self) -> Path:
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.base, self.work, symlinks=True)
        return self.work

    def expect(self, whole: Path) -> None:
        """Remember how an uninterrupted run ends."""
        self.whole = contents(whole)
        self.either = [contents(part / self.target) for part in (self.base, whole)]

    def lost(self) -> str:
        if self.target and contents(self.work / self.target) not in self.either:
            return f"{self.target} is neither the old nor the new one after the kill"
        return ""

    def difference(self) -> str:
        found = contents(self.work)
        odd = {n for n in found.keys() | self.whole.keys() if found.get(n) != self.whole.get(n)}
        return f"other contents: {', '.join(sorted(odd))}" if odd else ""


class Train(Scenario):
    """`train`, continued by --resume; killed a second time on the way."""

    warm = False  # it computes gradients, see __init__
    twice = True
    config = tiny(steps=3, save_every=1, eval_every=3)

    def make(self) -> None:
        write_puzzles(self.base / "puzzles.store", 60)

    def run(self, init_from: str | None = None) -> int:
        facts: dict[str, Any] = {"condition": "gm", "budget": "smoke", "progress": "none"}
        data, out = str(self.work / "puzzles.store"), self.work / "run"
        train(self.config, out=out, data=data, resume=True, init_from=init_from, **facts)
        return 0


class WarmStart(Train):
    """A recurrent run with averaged weights and frozen parts that begins with another model."""

    config = recurrent(steps=3, save_every=2, eval_every=100, freeze="nodes,stack")

    def make(self) -> None:
        super().make()
        data = str(self.base / "puzzles.store")
        train(recurrent(steps=1), out=self.base / "source", data=data, progress="none")

    def run(self, init_from: str | None = None) -> int:
        # Only a run that has not begun is given its source: from then on its folder has to know.
        begun = (self.work / "run" / "run.json").exists()
        return super().run(None if begun else str(self.work / "source"))


class Add(Scenario):
    """`models add`."""

    target = "zoo/gm-tiny"
    words: tuple[str, ...] = ()

    def make(self) -> None:
        data = write_puzzles(self.base / "puzzles.store", 60)
        facts: dict[str, Any] = {"condition": "gm", "budget": "smoke", "progress": "none"}
        train(tiny(steps=1), out=self.base / "run", data=str(data), **facts)

    def run(self) -> int:
        if (self.work / self.target / "README.md").exists() and not self.words:
            return 0  # it was killed after the model had got its name
        words = ("models", "add", self.work / "run", "--name", "gm-tiny", "--limit", "4")
        return quiet(*words, *self.words, "--into", self.work / "zoo")


class Replace(Add):
    """`models add --replace` over an older model."""

    target = ""  # between two renames the old one stands aside; the next start puts it back
    words = ("--replace", "--note", "the newer one")

    def make(self) -> None:
        super().make()
        quiet("models", "add", self.base / "run", "--name", "gm-tiny", "--into", self.base / "zoo")


class Prepare(Scenario):
    """`data prepare` over the store of an older file."""

    target = "puzzles.csv.store"

    def make(self) -> None:
        path = self.base / "puzzles.csv"
        for count in (30, 40):
            path.write_text(puzzle_lines(count))
            if count == 30:
                quiet("data", "prepare", path)

    def run(self) -> int:
        return quiet("data", "prepare", self.work / "puzzles.csv")


class Page(Scenario):
    """`report --into`, with a table and a picture."""

    target = "page.md"

    def make(self) -> None:
        for seed in range(2):
            make_run(self.base / "runs", "gm", seed, 0.8)
        (self.base / "page.md").write_text(
            "<!-- conditions board=4x4 -->\nold\n<!-- end -->\n\n"
            "<!-- curves board=4x4 file=curves.png -->\n<!-- end -->\n"
        )
        (self.base / "page.md").chmod(0o640)

    def run(self) -> int:
        return quiet("report", self.work / "runs", "--into", self.work / "page.md")


class Forked:
    """Stands in for subprocess.Popen: a fork takes a hundredth of the time of a new interpreter."""

    killer: Killer
    in_worker = False

    def __init__(self, words: list[str], *, stdout: Any, **options: Any) -> None:
        reader, writer = os.pipe()
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.close(writer)
            os.dup2(reader, 0)
            os.dup2(stdout.fileno(), 1)
            os.dup2(stdout.fileno(), 2)
            sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
            self.killer.count, self.killer.armed = 0, self.in_worker
            # `attempt` writes the count and ends this process.
            sys.exit(runner.main())
        os.close(reader)
        self.stdin = open(writer, "wb")  # noqa: SIM115

    def poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code


class Sweep(Scenario):
    """`sweep` of two runs; the sweep itself is killed, its worker sees that and saves itself."""

    in_worker = False
    warm = False

    def make(self) -> None:
        write_puzzles(self.base / "puzzles.store", 60)

    def go(self, killer: Killer) -> int:
        Forked.killer, Forked.in_worker = killer, self.in_worker
        forks = SimpleNamespace(Popen=Forked, PIPE=subprocess.PIPE)
        setattr(runner, "subprocess", forks)  # noqa: B010
        killer.arm()
        killer.armed = not self.in_worker
        return self.run()

    def run(self) -> int:
        words = ("sweep", "--conditions", "transformer", "--seeds", "0-1", "--budget", "smoke")
        places = ("--data", self.work / "puzzles.store", "--out", self.work / "runs")
        try:
            return quiet(*words, *places, "--steps", "2", "--set", *TINY)
        except SystemExit as end:  # of a forked worker
            return end.code if isinstance(end.code, int) else 1


class SweepWorker(Sweep):
    """The same; its workers are killed: it goes on, and its exit code says so."""

    in_worker = True
    codes = (0, 1)


SCENARIOS: dict[str, type[Scenario]] = {
    "train": Train,
    "train --init-from": WarmStart,
    "models add": Add,
    "models add --replace": Replace,
    "data prepare": Prepare,
    "report --into": Page,
    "sweep": Sweep,
    "sweep's workers": SweepWorker,
}
