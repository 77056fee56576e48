"""Record files: round trip, and one clear line for each way in which a file can be wrong."""

import importlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import save_file

from graph_machine.errors import ConfigError, DataError, DiskFullError
from graph_machine.lab.records.record import FORMAT, Record
from support.recordings import handmade_record, random_record

# The package exports a function of the module's name.
record_module = importlib.import_module("graph_machine.lab.records.record")


def test_round_trip(tmp_path: Path) -> None:
    made = random_record()
    found = Record.load(made.save(tmp_path / "new" / "a.rec.safetensors"))
    assert found.meta == json.loads(json.dumps(made.meta))
    assert set(found.tensors) == set(made.tensors)
    for name in made.axes:
        np.testing.assert_array_equal(found[name], made[name])
        assert found.tensors[name].dtype == made.tensors[name].dtype
        np.testing.assert_array_equal(found.of_sample(name, 2), made.of_sample(name, 2))
    assert found.axes == made.axes
    assert found.paths == made.paths
    assert "gm, " in repr(found)
    assert "samples 0-3" in repr(found)
    assert len(found.tensors) == len(made.tensors)


def test_it_says_what_it_holds() -> None:
    made = random_record()
    assert made.box == (2, 2)
    assert made.grid == (4, 4)
    assert made.num_layers == 2
    assert made.meta["model"]["kind"] == "GM"
    assert len(made.meta["model"]["identity"]) == 16
    assert made.meta["model"]["identity"] != random_record("transformer").meta["model"]["identity"]
    assert made.tokens is not None
    assert made.solutions is not None
    assert made.confidences is not None
    assert made.tokens.shape == made.solutions.shape == (4, 16)
    assert (made.confidences > 0).all()


def test_reading_by_shorthand() -> None:
    made = handmade_record()
    whole = made["layers.1.edge.0.address_outs"]
    np.testing.assert_array_equal(made.find("l1r5", "r2c2"), whole[0, 5, 5])
    np.testing.assert_array_equal(made.find("s3l1r5", 5, sample=0), whole[3, 5, 5])
    assert made.find("l1r5", "r2c2", name="e2_weights").shape == (16, 8)
    assert made.find("l1r5", "r2c2", name="e1_weights").shape == (8,)
    heads = made["layers.1.node.0.weights"]
    np.testing.assert_array_equal(made.find("l1a3", 0, sample=2), heads[2, 3, 0])


def test_reading_what_is_not_there() -> None:
    made = handmade_record()
    with pytest.raises(DataError, match=r"'layers.1.edge.0.n2_weight'"):
        made["layers.1.edge.0.n2_weight"]
    with pytest.raises(DataError, match="Sample 9"):
        made.find("s9l0r0", 0)
    with pytest.raises(ConfigError, match="slot 0 to 7"):
        made.find("l0e8r", 0)
    with pytest.raises(DataError, match=r"'layers.7.edge.0.address_outs'"):
        made.find("l7r0", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return random_record().save(tmp_path / "a.rec.safetensors")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="recording"):
        Record.load(tmp_path / "none")


@pytest.mark.parametrize("keep", [0, 5, 200, 0.5, -1])
def test_cut_short(path: Path, keep: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(DataError, match="damaged"):
        Record.load(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({}, "Not a recording"),
        ({FORMAT: "{"}, "damaged"),
        ({FORMAT: "[" * 100_000}, "damaged"),
        ({FORMAT: '{"version": 1}'}, "axes"),
        ({FORMAT: '{"version": 9, "axes": {"x": []}}'}, "version 9"),
        ({FORMAT: '{"version": 1, "axes": {"y": []}}'}, "nodes"),
    ],
)
def test_wrong_headers(tmp_path: Path, header: dict[str, str], message: str) -> None:
    path = tmp_path / "x"
    save_file({"x": np.zeros(3)}, path, metadata=header)
    with pytest.raises(DataError, match=message):
        Record.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"axes": {"y": []}}, "differ"),
        ({"nodes": "many"}, "nodes"),
        ({"samples": [0, 1]}, "size of 4 on the axis sample"),
        ({"samples": ["a"] * 4}, "samples"),
        ({"sources": [0, 99]}, "sources"),
        ({"grid": [4, 5]}, "16 cells"),
        ({"box": [2]}, "box"),
        ({"model": []}, "model"),
        ({"model": {"identity": "", "config": {"num_layers": "2"}}}, "num_layers"),
    ],
    ids=str,
)
def test_headers_that_do_not_fit(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    made, path = random_record(), tmp_path / "a.rec.safetensors"
    save_file(dict(made.tensors), path, metadata={FORMAT: json.dumps(made.meta | change)})
    with pytest.raises(DataError, match=rf"The recording is damaged \(.*{message}"):
        Record.load(path)


def test_it_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=512 * 1024**2))
    with pytest.raises(DataError, match="537 MB"):
        random_record().save(tmp_path / "new" / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_after_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(record_module, "save_file", full)
    with pytest.raises(DiskFullError, match=r"a\.rec"):
        random_record().save(tmp_path / "a.rec")
    assert list(tmp_path.iterdir()) == []
