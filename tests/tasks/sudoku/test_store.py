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
from graph_machine.lab.tasks.sudoku.store import META, SudokuStore, open_data, prepare


@pytest.fixture
def file(tmp_path, sample_file):
    return shutil.copy(sample_file, tmp_path / "sample.csv")


def stored(file):
    """Prepare a file; the folder of its store."""
    prepare(file)
    return file.with_name(file.name + ".store")


def test_content(file, sample):
    store = prepare(file)
    assert store.path == file.with_name("sample.csv.store")
    assert len(store) == 500
    assert isinstance(store.puzzles, np.memmap)
    assert not store.puzzles.flags.writeable
    for name in ("puzzles", "solutions", "clues", "ratings"):
        assert (getattr(store, name) == getattr(sample, name)).all()
    assert store.box == BoxShape(3, 3)
    assert store.meta["source"]["name"] == "sample.csv"


def test_identity_names_the_content(file, sample):
    plain = prepare(file)
    packed = file.with_name("other.csv.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert prepare(packed).identity == plain.identity == sample.identity
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    assert prepare(file).identity != plain.identity


def test_identity_is_the_same_everywhere(sample):
    assert sample.identity == "3bf45cf23d9b87d43272b892a68e0c06"


def test_reused_when_unchanged(file, monkeypatch):
    path = stored(file)
    first = SudokuStore.open(path)
    stamp = (path / META).stat().st_mtime_ns
    monkeypatch.setattr(store_module, "write_store", None)
    assert prepare(file).identity == first.identity
    assert open_data(file).identity == open_data(path).identity == first.identity
    assert (path / META).stat().st_mtime_ns == stamp


def test_made_again_when_needed(file):
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines, "bad row\n"]))
    assert prepare(file, on_bad="skip").meta["bad_rows"] == {"columns": 1}
    with pytest.raises(DataError, match="Line 502"):
        prepare(file)  # a store without the bad rows is not what was asked for
    file.write_text("".join(lines))
    assert not prepare(file).meta["checked_unique"]
    assert prepare(file, check_unique=True).meta["checked_unique"]
    assert prepare(file).meta["checked_unique"]  # stricter than asked for: reused
    assert sorted(path.name for path in file.parent.iterdir()) == ["sample.csv", "sample.csv.store"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [([], "No usable row: sample.csv"), (["1,2,3"], "No usable row .left out: 1 x columns.")],
)
def test_nothing_to_store(file, rows, message):
    header = file.read_text().splitlines()[0]
    file.write_text("\n".join([header, *rows]) + "\n")
    with pytest.raises(DataError, match=message):
        prepare(file, box=BoxShape(3, 3), on_bad="skip")
    assert [path.name for path in file.parent.iterdir()] == ["sample.csv"]


def test_missing(tmp_path):
    with pytest.raises(DataError, match="There is no such data file"):
        open_data(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="There is no such store"):
        SudokuStore.open(tmp_path / "nothing.store")
    with pytest.raises(DataError, match=r"Not a Sudoku store \(meta.json is missing\)"):
        open_data(tmp_path)


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
        (errno.EROFS, "Cannot write here .made up.; choose another place with 'graph-machine data"),
        (errno.EIO, "made up"),
    ],
)
def test_disk_full(file, monkeypatch, tmp_path_factory, number, message):
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path_factory.mktemp("cache")))
    real = builtins.open

    def open_small(path, mode="r", *rest, **options):
        opened = real(path, mode, *rest, **options)
        return FullDisk(opened, number) if str(path).endswith(".bin") and "w" in mode else opened

    monkeypatch.setattr(builtins, "open", open_small)
    with pytest.raises((DataError, OSError), match=message):
        prepare(file)
    assert [path.name for path in file.parent.iterdir()] == ["sample.csv"]


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
    assert store.path.parent == cache
    assert len(store) == 500
    monkeypatch.setattr(store_module, "write_store", lambda *_, **__: pytest.fail("written again"))
    assert open_data(file).path == store.path
    monkeypatch.undo()
    monkeypatch.setattr(files.tempfile, "mkdtemp", refuse)
    with pytest.raises(DataError, match=r"Cannot write here .Permission denied"):
        prepare(file, file.parent / "here")


def test_interruption_leaves_nothing(file, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(store_module, "write_json", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare(file)
    assert [path.name for path in file.parent.iterdir()] == ["sample.csv"]


def test_never_replaces_what_is_no_store(file):
    out = file.parent / "precious"
    out.mkdir()
    (out / "thesis.txt").write_text("text")
    with pytest.raises(DataError, match="Not a Sudoku store"):
        prepare(file, out)
    assert (out / "thesis.txt").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda meta: meta | {"schema": 0}, "schema version 0, this program reads 1"),
        (lambda meta: {"box": "3x3"}, "meta.json cannot be read"),
        (lambda meta: [1], "meta.json should be an object"),
    ],
)
def test_damaged_metadata(file, damage, message):
    path = stored(file)
    meta = json.loads((path / META).read_text())
    (path / META).write_text(json.dumps(damage(meta)))
    with pytest.raises(DataError, match=message):
        SudokuStore.open(path)
    assert len(prepare(file)) == 500  # preparing again repairs it


@pytest.mark.parametrize("name", ["puzzles", "solutions", "clues", "ratings"])
def test_cut_bytes(file, name):
    path = stored(file)
    data = (path / f"{name}.bin").read_bytes()
    (path / f"{name}.bin").write_bytes(data[:-10])
    with pytest.raises(DataError, match=f"damaged: {name}.bin has .* bytes, expected"):
        SudokuStore.open(path)
    (path / f"{name}.bin").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    SudokuStore.open(path)  # the sizes are right
    with pytest.raises(DataError, match=f"damaged: the bytes of {name}.bin are not those"):
        SudokuStore.open(path, verify=True)
    (path / f"{name}.bin").unlink()
    with pytest.raises(DataError, match=f"{name}.bin has 0 bytes"):
        SudokuStore.open(path)


@pytest.mark.parametrize("before", ["nothing", "another store"])
def test_two_at_once(file, monkeypatch, before):
    """With slow renames both come to the end at the same time: the second uses the first's."""
    if before == "another store":
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:-1]))
        prepare(file)
        file.write_text("".join(lines))
    real, slow = os.replace, 0

    def replace(source, target):
        nonlocal slow
        slow += 1
        time.sleep(0.1)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with ThreadPoolExecutor(3) as threads:
        made = list(threads.map(lambda _: prepare(file), range(3)))
    assert [len(store) for store in made] == [500] * 3
    assert slow
    assert sorted(path.name for path in file.parent.iterdir()) == ["sample.csv", "sample.csv.store"]


def test_leftovers_of_killed_processes_are_cleared(file):
    left = file.parent / ".sample.csv.store.abcdefgh.tmp"
    left.mkdir()
    (left / "puzzles.bin").write_text("half")
    prepare(file)
    assert sorted(path.name for path in file.parent.iterdir()) == ["sample.csv", "sample.csv.store"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"box": "9x9x9"}, "expected ROWSxCOLS"),
        ({"box": 3}, "meta.json cannot be read"),
        ({"box": "²x2"}, "expected ROWSxCOLS"),
        ({"count": "many"}, "meta.json cannot be read"),
        ({"count": -1}, "meta.json cannot be read"),
        ({"count": 10**30}, "meta.json is not what was written"),
        ({"sha256": [1]}, "meta.json cannot be read"),
        ({"sha256": {}}, "meta.json cannot be read"),
        ({"identity": 5}, "meta.json cannot be read"),
    ],
    ids=str,
)
def test_metadata_of_wrong_kinds(file, change, message):
    path = stored(file)
    meta = json.loads((path / META).read_text())
    (path / META).write_text(json.dumps(meta | change))
    with pytest.raises(DataError, match=message):
        SudokuStore.open(path, verify=True)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema": ' + "9" * 5000 + "}"])
def test_metadata_that_is_no_json(file, text):
    path = stored(file)
    (path / META).write_text(text)
    with pytest.raises(DataError, match=r"meta\.json"):
        SudokuStore.open(path)


def test_a_source_of_another_kind_is_another_source(file):
    path = stored(file)
    meta = json.loads((path / META).read_text())
    (path / META).write_text(json.dumps(meta | {"source": 5}))
    assert prepare(file).meta["source"]["name"] == "sample.csv"


def test_works_without_numba(file):
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "from graph_machine.lab.tasks.sudoku.store import open_data\n"
        "from graph_machine.lab.tasks.rows import split_rows\n"
        "from graph_machine.lab.tasks.sudoku.batches import BatchStream\n"
        "from graph_machine.lab.tasks.sudoku.augment import Augment\n"
        "store = open_data(sys.argv[1])\n"
        "rows = split_rows(len(store), 0).train\n"
        "batch = BatchStream(store, rows, 8, 0, augment=Augment(store.box)).batch(3)\n"
        "print(batch.puzzles.shape)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "(8, 81)"
