"""What is damaged, and who has to read it afterwards. One class per kind of file."""

import gzip
import io
import os
import shutil
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import torch

from faults.bounds import Adopted
from faults.mutate import (
    mutate_bytes,
    mutate_json,
    mutate_lines,
    mutate_safetensors,
    mutate_text,
)
from graph_machine.lab.cli import run as command
from graph_machine.lab.conditions.budgets import config_for
from graph_machine.lab.conditions.registry import CONDITIONS
from graph_machine.lab.config import ExperimentConfig, JigsawConfig, MazeConfig, TaskConfig
from graph_machine.lab.records import Record
from graph_machine.lab.sweeps.grid import Job
from graph_machine.lab.sweeps.progress import Entry
from graph_machine.lab.tasks.base import make_task
from graph_machine.lab.tasks.sudoku.reader import RowReader
from graph_machine.lab.tasks.sudoku.store import META, SudokuStore, prepare
from graph_machine.lab.training import RunFolder, train
from graph_machine.models import GraphEncoder, GraphMachine
from support.recordings import random_record, small_model
from support.run_folders import make_run
from support.runs import puzzle_lines, same_bits, tiny, write_puzzles

Mutate = Callable[[bytes, Random], bytes]


ODD_TEXTS = (
    "nan", "inf", "-1", "0", "1e400", "9" * 5000, "9" * 300, "²x2", "2x", "0x2", "1_0", "٣", "",
    "true", "none", "1e18", "-0.0",
)  # fmt: skip


KINDS: dict[str, "type[Kind]"] = {}


class Kind(ABC):
    """Makes what is sound once, in `base`, and damages a copy of it for every case."""

    refusable = True  # whether one clear line is an answer, or the rest has to continue
    weight = 1.0  # share of cases; what is slow has fewer

    def __init_subclass__(cls, kind: str) -> None:
        KINDS[kind] = cls

    def __init__(self, folder: Path) -> None:
        self.base, self.scratch = folder / "base", folder / "scratch"
        self.base.mkdir(parents=True)
        self.make()

    @abstractmethod
    def make(self) -> None:
        """Write what is sound into `base`."""

    @abstractmethod
    def case(self, rng: Random) -> None:
        """Damage a copy of it and read that."""

    def fresh(self) -> Path:
        """A new copy of `base`."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        shutil.copytree(self.base, self.scratch)
        return self.scratch


def damage(path: Path, mutate: Mutate, rng: Random) -> Path:
    path.write_bytes(mutate(path.read_bytes(), rng))
    return path


def quietly(*argv: str | Path) -> None:
    """A command line, as a user types it."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        command([str(word) for word in argv])
    # What is printed has to be printable on a terminal of UTF-8.
    (out.getvalue() + err.getvalue()).encode()


class Csv(Kind, kind="csv"):
    """Rows of puzzles, as text."""

    def make(self) -> None:
        self.text = puzzle_lines(40).encode()

    def write(self, rng: Random) -> bytes:
        return mutate_bytes(self.text, rng)

    def case(self, rng: Random) -> None:
        path = self.base / "puzzles"
        path.write_bytes(self.write(rng))
        for _ in RowReader(path, on_bad=rng.choice(("error", "skip"))):
            pass


class Gzip(Csv, kind="gz"):
    """The same packed: damage inside or outside of the packing, or a bomb."""

    def write(self, rng: Random) -> bytes:
        how = rng.random()
        if how < 0.05:
            filling = rng.choice((b"\n", b",", b"1", b"\x00", self.text[-60:]))
            times = rng.choice((20, 80)) * 2**20 // len(filling)
            return gzip.compress(self.text + filling * times, 1)
        if how < 0.3:
            return gzip.compress(mutate_bytes(self.text, rng), 1)
        return mutate_bytes(gzip.compress(self.text, 1, mtime=0), rng)


class Zip(Csv, kind="zip"):
    """The same in archives of every method."""

    def write(self, rng: Random) -> bytes:
        packed = io.BytesIO()
        method = rng.choice((zipfile.ZIP_DEFLATED,) * 5 + (zipfile.ZIP_STORED, zipfile.ZIP_LZMA))
        inner = rng.random() < 0.2
        with zipfile.ZipFile(packed, "w", method) as archive:
            for name in rng.choice((["a.csv"],) * 5 + ([], ["a.csv", "b.csv"], ["ε/../a.csv"])):
                archive.writestr(name, mutate_bytes(self.text, rng) if inner else self.text)
        return packed.getvalue() if inner else mutate_bytes(packed.getvalue(), rng)


class Weights(Kind, kind="weights"):
    """model.safetensors of a checkpoint."""

    name, mutate = "model.safetensors", staticmethod(mutate_safetensors)

    def make(self) -> None:
        small_model(1, d_node=8, num_edges=5).save_pretrained(self.base)

    def case(self, rng: Random) -> None:
        folder = self.fresh()
        damage(folder / self.name, self.mutate, rng)
        GraphMachine.from_pretrained(folder)


class Config(Weights, kind="config"):
    """config.json of a checkpoint."""

    name, mutate = "config.json", staticmethod(mutate_json)


class Recording(Kind, kind="record"):
    """A record, read by everything that a figure asks of it."""

    def make(self) -> None:
        random_record().save(self.base / "a.rec.safetensors")

    def case(self, rng: Random) -> None:
        path = damage(self.fresh() / "a.rec.safetensors", mutate_safetensors, rng)
        found = Record.load(path)
        _ = (repr(found), found.box, found.num_layers, found.has_edges, found.tokens, found.answers)
        for name in list(found.axes)[:5]:
            _ = found[name]
            found.of_sample(name, found.samples[0])
        found.find("l0r1", found.sources[0], sample=found.samples[0])


class Runs(Kind, kind="run.json"):
    """A folder of runs, of which one is damaged: reports and sweeps continue with the others."""

    refusable = False
    name, mutate = "run.json", staticmethod(mutate_json)

    def make(self) -> None:
        for seed in range(2):
            make_run(self.base, "gm", seed, 0.8)
            make_run(self.base, "transformer", seed, 0.6)

    def case(self, rng: Random) -> None:
        root = self.fresh()
        folder = root / "cpu" / "gm" / "seed-1"
        damage(folder / self.name, self.mutate, rng)
        quietly("report", root, "--format", rng.choice(("md", "json", "csv")))
        if rng.random() < 0.2:
            quietly("report", root, "--pack", root / "all.study.jsonl")
            quietly("report", root / "all.study.jsonl")
        entry = Entry(Job("gm", 1, "cpu", config_for("gm", "cpu"), folder))
        entry.refresh()
        entry.failure()


class Results(Runs, kind="result.json"):
    """result.json of a run."""

    name = "result.json"


class Metrics(Runs, kind="metrics"):
    """metrics.jsonl of a run."""

    name, mutate = "metrics.jsonl", staticmethod(mutate_lines)

    def case(self, rng: Random) -> None:
        super().case(rng)
        place = RunFolder(self.scratch / "cpu" / "gm" / "seed-1")
        place.truncate_metrics(rng.randrange(3000))


class Study(Kind, kind="study"):
    """A study file."""

    def make(self) -> None:
        runs = self.base / "runs"
        for seed in range(3):
            make_run(runs, "gm", seed, 0.8)
        quietly("report", runs, "--pack", self.base / "a.study.jsonl")
        shutil.rmtree(runs)

    def case(self, rng: Random) -> None:
        path = damage(self.fresh() / "a.study.jsonl", mutate_lines, rng)
        quietly("report", path, "--format", rng.choice(("md", "html", "json", "csv")))


class Resume(Kind, kind="resume"):
    """A run folder that is resumed: to the same bits as without damage, or not at all."""

    weight = 0.2

    def make(self) -> None:
        self.data = str(write_puzzles(self.base.parent / "puzzles.store", 60))
        self.whole = self.base.parent / "whole"
        options = {"data": self.data, "condition": "gm", "budget": "smoke"}
        self.go = lambda out, **more: train(tiny(), out=out, **options, **more)
        self.go(self.whole, progress="none")
        shutil.rmtree(self.base)

        def stop(record: dict[str, object]) -> None:
            if record["step"] == 6:
                raise KeyboardInterrupt

        try:
            self.go(self.base, progress=stop)
        except KeyboardInterrupt:
            return
        raise AssertionError("the run was not interrupted")

    def case(self, rng: Random) -> None:
        folder = self.fresh()
        for _ in range(rng.choice((1, 1, 1, 2))):
            path = rng.choice(sorted(p for p in folder.rglob("*") if p.is_file()))
            if rng.random() < 0.1:
                path.unlink()
            elif path.suffix == ".json":
                damage(path, mutate_json, rng)
            elif path.suffix == ".jsonl":
                damage(path, mutate_lines, rng)
            else:
                damage(path, mutate_safetensors if path.stat().st_size else mutate_bytes, rng)
        with redirect_stderr(io.StringIO()):
            self.go(folder, resume=True, progress="none")
        if not same_bits(folder, self.whole):
            raise Adopted("a damaged run was continued, to other weights")


class StoreMeta(Kind, kind="store"):
    """meta.json of a store, and the sizes of its files."""

    def make(self) -> None:
        csv = Csv(self.base / "csv")
        self.file = self.base.parent / "puzzles.csv"
        self.file.write_bytes(csv.text)
        shutil.rmtree(self.base)
        self.identity = prepare(self.file, self.base).identity

    def case(self, rng: Random) -> None:
        folder = self.fresh()
        name = rng.choice((META,) * 4 + ("puzzles.bin", "ratings.bin"))
        damage(folder / name, mutate_json if name == META else mutate_bytes, rng)
        if rng.random() < 0.3:
            made = prepare(self.file, folder)  # made again, or what is there is as it should be
            if name == META and made.identity != self.identity:
                raise Adopted("another store was taken for the one that was asked for")
            return
        found = SudokuStore.open(folder, verify=True)
        if found.identity != self.identity:
            raise Adopted("a damaged store was opened")


class Settings(Kind, kind="settings"):
    """What users type behind --set."""

    weight = 3.0

    def make(self) -> None:
        self.start = config_for("gm", "cpu")
        self.values = self.start.flat()

    def case(self, rng: Random) -> None:
        config = self.start
        for _ in range(rng.choice((1, 1, 2, 4))):
            key = rng.choice(sorted(self.values))
            text = rng.choice((*ODD_TEXTS, str(self.values[key])))
            if rng.random() < 0.2:
                key = mutate_text(key, rng)
            if rng.random() < 0.5:
                text = mutate_text(str(self.values.get(key, text)), rng)
            config = config.set(key, text)
        if ExperimentConfig.from_json(config.to_json()) != config:
            raise Adopted("a config is another one after it has been written and read")


class Pages(Kind, kind="pages"):
    """A page of Markdown with marks."""

    page = """# Results

<!-- conditions board=4x4 seeds=0-1 -->
old
<!-- end -->

<!-- settings board=4x4 keys=train.peak_lr conditions=gm,transformer seeds=0-1 drop=x -->
<!-- end -->
"""

    def make(self) -> None:
        for seed in range(2):
            make_run(self.base / "runs", "gm", seed, 0.8)
            make_run(self.base / "runs", "transformer", seed, 0.6)
        (self.base / "page.md").write_text(self.page)

    def case(self, rng: Random) -> None:
        root = self.fresh()
        damage(root / "page.md", lambda data, r: mutate_text(data.decode(), r).encode(), rng)
        if rng.random() < 0.1:
            damage(root / "page.md", mutate_bytes, rng)
        before = (root / "page.md").read_bytes()
        try:
            quietly("report", root / "runs", "--into", root / "page.md")
        except BaseException:
            if (root / "page.md").read_bytes() != before:
                raise Adopted("a page was changed by a report that failed") from None
            raise
        if {path.name for path in root.iterdir()} != {"page.md", "runs"}:
            raise Adopted("something was written beside the page")


class Card(Kind, kind="cards"):
    """card.json of a model."""

    def make(self) -> None:
        from graph_machine.files import ZOO, shipped

        shutil.rmtree(self.base)
        shutil.copytree(ZOO / shipped()[0], self.base)

    def case(self, rng: Random) -> None:
        folder = self.fresh()
        damage(folder / "card.json", mutate_json, rng)
        quietly("models", "render", folder)


class Generated(Kind, kind="generated"):
    """Generated boards in the cache: damaged ones are made again, with one line."""

    refusable = False

    def make(self) -> None:
        configs = JigsawConfig(side=4, puzzles=20), MazeConfig(side=5, mazes=20)
        self.identities = {config: self.identity(config, self.base) for config in configs}

    def identity(self, config: TaskConfig, cache: Path) -> str:
        with mock.patch.dict(os.environ, GRAPH_MACHINE_CACHE=str(cache)):
            return make_task(config, None, 0).identity

    def case(self, rng: Random) -> None:
        cache = self.fresh()
        config, identity = rng.choice(list(self.identities.items()))
        path = next(cache.glob(f"{config.name}-*.npz"))
        if rng.random() < 0.5:
            damage(path, mutate_bytes, rng)
        else:
            with np.load(path) as file:
                arrays = dict(file)
            name = rng.choice(list(arrays))
            arrays[name] = rng.choice(ODD_ARRAYS)(arrays[name])
            np.savez(path, **arrays)
        with redirect_stderr(io.StringIO()) as printed:
            found = self.identity(config, cache)
        if found != identity or len(printed.getvalue().splitlines()) > 1:
            raise Adopted("damaged boards were taken for generated ones, or not in one line")


ODD_ARRAYS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda a: a.astype(np.complex64), lambda a: a.astype("U4"), lambda a: a.astype(object),
    lambda a: a[:-1], lambda a: a[None], lambda a: a[..., None], lambda a: a[:0],
    lambda a: np.zeros((), a.dtype),
    lambda a: a.astype(np.int64) if a.dtype.kind == "f" else a.astype(np.float32),
)  # fmt: skip


class Imports(Kind, kind="imports"):
    """A file behind --import: whatever it does, the answer is one line."""

    weight = 0.5
    text = """from graph_machine.lab.conditions import condition

@condition("own-narrow", "narrow")
def own_narrow(base):
    return base.with_model(num_layers=1)

VALUES = [1, 2, 3]
assert sum(VALUES) == 6, "wrong"
"""
    bodies = (
        "raise BaseException('x')", "raise GeneratorExit", "raise SystemExit(3)", "exit()", "1/0",
        "raise MemoryError", "def f(): return f()\nf()", "import nothing_like_this", "\x00",
        "raise ExceptionGroup('a', [ValueError('b\\nc')])", "from graph_machine import nothing",
        "raise UnicodeDecodeError('utf-8', b'', 0, 1, 'x')", "raise StopIteration",
        "raise type('E', (BaseException,), {})", "raise ValueError('\\x1b[31m\\ud800')",
        "class E(Exception):\n  def __str__(self): raise ValueError\nraise E",
    )  # fmt: skip

    def make(self) -> None:
        self.count = 0

    def case(self, rng: Random) -> None:
        self.count += 1  # a file is imported once, so each has another name
        path = self.base / f"own_{self.count}.py"
        text = self.text.replace("own-narrow", f"own-{self.count}")
        if rng.random() < 0.4:
            lines = text.splitlines()
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(self.bodies))
            path.write_text("\n".join(lines), encoding="utf-8")
        else:
            path.write_bytes(mutate_bytes(text.encode(), rng))
        before = dict(CONDITIONS)
        try:
            with mock.patch.dict(os.environ, GRAPH_MACHINE_CACHE=str(self.base / "cache")):
                quietly("conditions", "--import", path)
        finally:
            for name in CONDITIONS.keys() - before.keys():
                del CONDITIONS._items[name]


class EncoderCalls(Kind, kind="encoder"):
    """Calls of `GraphEncoder` with one or two wrong arguments."""

    weight = 2.0

    def make(self) -> None:
        torch.manual_seed(0)
        kinds: tuple[dict[str, Any], ...] = (
            {"d_in": 3},
            {"d_in": 3, "d_edge_in": 2},
            {"num_tokens": 5, "num_edge_types": 2},
        )
        self.encoders = [
            (GraphEncoder(d_node=8, num_layers=2, num_edges=4, **kind).eval(), kind)
            for kind in kinds
        ]

    def case(self, rng: Random) -> None:
        encoder, kind = rng.choice(self.encoders)
        given: dict[str, Any] = {
            "x": torch.arange(6) % 5 if "num_tokens" in kind else torch.ones(6, 3),
            "edge_index": torch.tensor([[0, 1, 2, 4], [1, 2, 0, 5]]),
            "edge_attr": torch.ones(4, 2) if "d_edge_in" in kind else None,
            "batch": torch.tensor([0, 0, 0, 1, 1, 1]),
        }
        if "num_edge_types" in kind:
            given["edge_type"] = torch.tensor([0, 1, 1, 0])
        for _ in range(rng.choice((1, 1, 2))):
            name = rng.choice((*given, "graph", "node_mask", "pos", "generator", "rounds", "odd"))
            given[name] = self.odd(given.get(name), rng)
        call = encoder if rng.random() < 0.5 else encoder.encode
        with torch.no_grad(), redirect_stderr(io.StringIO()):
            call(**given)

    def odd(self, value: Any, rng: Random) -> Any:
        """Another value for an argument, often a tensor that is nearly right."""
        if isinstance(value, torch.Tensor) and value.ndim and not value.is_nested:
            with warnings.catch_warnings(action="ignore"):  # of torch, on what will go
                return rng.choice(ODD_TENSORS)(value)
        return rng.choice(ODD_VALUES)


ODD_VALUES: tuple[Any, ...] = (
    None, 0, -1, 1.5, "a", [], {}, object(), np.ones(3), [[1, 2], [3]], float("nan"),
    torch.tensor(1), torch.ones(6), torch.Generator(),
)  # fmt: skip

ODD_TENSORS: tuple[Callable[[torch.Tensor], Any], ...] = (
    lambda t: t.to(torch.complex64), lambda t: t.double(), lambda t: t.half(), lambda t: t.bool(),
    lambda t: t.to(torch.uint8), lambda t: t.float() * float("nan"),
    lambda t: t.float() * float("inf"), lambda t: t - 100, lambda t: t + 2**40, lambda t: t[:-1],
    lambda t: t[:0], lambda t: t[None], lambda t: t[..., None], lambda t: t.flatten(),
    lambda t: t.flip(0), lambda t: t.mT if t.ndim > 1 else t.flip(-1), lambda t: t.to_sparse(),
    lambda t: t.to("meta"), lambda t: torch.nested.nested_tensor([t.float(), t.float()]),
    lambda t: torch.nested.nested_tensor([t.float(), t.float()], layout=torch.jagged),
    lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.qint8), lambda t: t.numpy(),
    lambda t: t.tolist(), lambda t: t.expand(2, *t.shape),
)  # fmt: skip
