"""The store: content, identity, reuse, and what happens when something goes wrong."""

import builtins
import errno
import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from graph_machine import files
from graph_machine.errors import DataError
from graph_machine.lab.tasks.sudoku import store as store_module
from graph_machine.lab.tasks.sudoku.board import BoxShape
from graph_machine.lab.tasks.sudoku.reader import HEADER
from graph_machine.lab.tasks.sudoku.store import META, SudokuStore, open_data, prepare


@pytest.fixture
def file(tmp_path, sample_file):
    return shutil.copy(sample_file, tmp_path / "sample.csv")


def stored(file):
    """Prepare a file; the folder of its store."""
    prepare(file)
    return file.with_name(file.name + ".store")


def beside(file):
    return sorted(path.name for path in file.parent.iterdir())


def test_content_and_identity(file, sample):
    store = prepare(file)
    assert store.path == file.with_name("sample.csv.store")
    assert len(store) == 500
    assert isinstance(store.puzzles, np.memmap)
    assert not store.puzzles.flags.writeable
    assert all((values == sample.arrays[name]).all() for name, values in store.arrays.items())
    assert (store.box, store.meta["source"]["name"]) == (BoxShape(3, 3), "sample.csv")
    packed = file.with_name("other.csv.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    same = [store.identity, prepare(packed).identity, sample.identity]
    assert same == ["3bf45cf23d9b87d43272b892a68e0c06"] * 3  # everywhere
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert prepare(file).identity != store.identity


def test_reused_when_unchanged_and_made_again_when_needed(file, monkeypatch):
    path = stored(file)
    stamp = (path / META).stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_store", None)
        assert prepare(file).identity == open_data(file).identity == open_data(path).identity
    assert (path / META).stat().st_mtime_ns == stamp
    meta = json.loads((path / META).read_text())
    (path / META).write_text(json.dumps(meta | {"source": 5}))
    assert prepare(file).meta["source"]["name"] == "sample.csv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines, "bad row\n"]))
    assert prepare(file, on_bad="skip").meta["bad_rows"] == {"columns": 1}
    with pytest.raises(DataError, match="Line 502"):
        prepare(file)  # a store without the bad rows is not what was asked for
    file.write_text("".join(lines))
    assert not prepare(file).meta["checked_unique"]
    assert prepare(file, check_unique=True).meta["checked_unique"]
    assert prepare(file).meta["checked_unique"]  # stricter than asked for: reused
    assert beside(file) == ["sample.csv", "sample.csv.store"]


@pytest.mark.parametrize(("rows", "message"), [([], "no rows"), (["1,2,3"], "1 x columns")])
def test_nothing_to_store(file, rows, message):
    file.write_text("\n".join([HEADER, *rows]) + "\n")
    with pytest.raises(DataError, match=message):
        prepare(file, box=BoxShape(3, 3), on_bad="skip")
    assert beside(file) == ["sample.csv"]


def test_missing(tmp_path, file):
    with pytest.raises(DataError, match="data file"):
        open_data(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="store"):
        SudokuStore.open(tmp_path / "nothing.store")
    out = tmp_path / "precious"
    out.mkdir()
    (out / "thesis.txt").write_text("text")
    for use in (open_data, lambda path: prepare(file, path)):
        with pytest.raises(DataError, match=r"meta\.json"):
            use(out)
    assert (out / "thesis.txt").exists()


class FullDisk:
    """A file that fails after some bytes, as on a disk that runs full."""

    def __init__(self, file, number):
        self.file, self.number, self.room = file, number, 10_000

    def write(self, data):
        self.room -= data.nbytes
        if self.room < 0:
            raise OSError(self.number, "made up")
        return self.file.write(data)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "The disk is full"),
        (errno.EDQUOT, "The disk is full"),
        (errno.EROFS, "made up.*data prepare FILE --out STORE"),
        (errno.EIO, "made up"),
    ],
)
def test_disks_that_refuse(file, monkeypatch, tmp_path_factory, number, message):
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path_factory.mktemp("cache")))
    real = builtins.open

    def open_small(path, mode="r", *rest, **options):
        opened = real(path, mode, *rest, **options)
        return FullDisk(opened, number) if str(path).endswith(".bin") and "w" in mode else opened

    monkeypatch.setattr(builtins, "open", open_small)
    with pytest.raises((DataError, OSError), match=message):
        prepare(file)
    assert beside(file) == ["sample.csv"]


def test_a_folder_that_cannot_be_written(file, monkeypatch, tmp_path_factory):
    """The store goes to the cache folder, and is found there the next time."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(cache))
    real = files.tempfile.mkdtemp

    def refuse(*, dir, **options):
        if dir == file.parent:
            raise PermissionError(errno.EACCES, "Permission denied", str(dir))
        return real(dir=dir, **options)

    monkeypatch.setattr(files.tempfile, "mkdtemp", refuse)
    store = open_data(file)
    assert store.path is not None
    assert (store.path.parent, len(store)) == (cache, 500)
    with pytest.raises(DataError, match="Permission denied"):
        prepare(file, file.parent / "here")
    monkeypatch.setattr(store_module, "write_store", lambda *_, **__: pytest.fail("written again"))
    assert open_data(file).path == store.path


def test_interruption_leaves_nothing(file, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_json", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare(file)
    assert beside(file) == ["sample.csv"]
    left = file.parent / ".sample.csv.store.abcdefgh.tmp"  # of a killed process
    left.mkdir()
    (left / "puzzles.bin").write_text("half")
    prepare(file)
    assert beside(file) == ["sample.csv", "sample.csv.store"]


@pytest.mark.parametrize(
    "damage",
    [
        {"schema": 0},
        {"box": "9x9x9"},
        {"box": 3},
        {"box": "²x2"},
        {"count": "many"},
        {"count": -1},
        {"count": 10**30},
        {"sha256": [1]},
        {"sha256": {}},
        {"identity": 5},
        '{"box": "3x3"}',
        "[1]",
        "[" * 100_000,
        '{"schema": ' + "9" * 5000 + "}",
    ],
    ids=lambda damage: str(damage)[:30],
)
def test_damaged_metadata(file, damage):
    path = stored(file)
    meta = json.loads((path / META).read_text())
    text = damage if isinstance(damage, str) else json.dumps(meta | damage)
    (path / META).write_text(text)
    with pytest.raises(DataError, match=r"meta\.json|schema version 0"):
        SudokuStore.open(path, verify=True)
    assert len(prepare(file)) == 500  # preparing again repairs it


@pytest.mark.parametrize("name", ["puzzles", "solutions", "clues", "ratings"])
def test_damaged_bytes(file, name):
    path = stored(file)
    binary = path / f"{name}.bin"
    data = binary.read_bytes()
    binary.write_bytes(data[:-10])
    with pytest.raises(DataError, match=f"{name}.bin has .* bytes"):
        SudokuStore.open(path)
    binary.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    SudokuStore.open(path)  # the sizes are right
    with pytest.raises(DataError, match=f"the bytes of {name}.bin"):
        SudokuStore.open(path, verify=True)
    binary.unlink()
    with pytest.raises(DataError, match=f"{name}.bin has 0 bytes"):
        SudokuStore.open(path)


@pytest.mark.parametrize("before", ["nothing", "another store"])
def test_two_at_once(file, monkeypatch, before):
    """With slow renames both come to the end at the same time: the second uses the first's."""
    if before == "another store":
        text = file.read_text()
        file.write_text("".join(text.splitlines(keepends=True)[:-1]))
        prepare(file)
        file.write_text(text)
    real, slow = os.replace, []

    def replace(source, target):
        slow.append(source)
        time.sleep(0.1)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with ThreadPoolExecutor(3) as threads:
        made = list(threads.map(lambda _: prepare(file), range(3)))
    assert [len(store) for store in made] == [500] * 3
    assert slow
    assert beside(file) == ["sample.csv", "sample.csv.store"]


def test_works_without_numba(file):
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "from graph_machine.lab.tasks.sudoku.store import open_data\n"
        "from graph_machine.lab.config import SudokuConfig\n"
        "from graph_machine.lab.tasks.sudoku.task import SudokuTask\n"
        "task = SudokuTask(SudokuConfig(augment='all')).use(open_data(sys.argv[1]))\n"
        "print(*task.batch(3, 8, 0).tokens.shape)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "8 81"
