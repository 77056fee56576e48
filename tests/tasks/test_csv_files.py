"""Data files of boards: a cap on lines, and damaged data in the cache."""

import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from graph_machine.errors import DataError
from graph_machine.lab.config import JigsawConfig, MazeConfig, TaskConfig
from graph_machine.lab.tasks.base import make_task
from graph_machine.lab.tasks.csv_files import LINE_BYTES, read_rows
from graph_machine.lab.tasks.maze.mazes import read_mazes


@pytest.mark.parametrize("read", [lambda path: list(read_rows(path)), read_mazes])
def test_a_long_line_is_refused_without_reading_it(read, tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    with open(path, "wb") as file:
        file.write(b"id,maze,path,steps\n")
        file.truncate(200 * LINE_BYTES)
    tracemalloc.start()
    with pytest.raises(DataError, match="Line 2 "):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 20 * LINE_BYTES
    tracemalloc.stop()


def _flipped(content: bytes) -> bytes:
    return content[:200] + bytes([content[200] ^ 1]) + content[201:]


def _changed(content: bytes, change) -> bytes:
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: change(file[name]) for name in file.files}
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


DAMAGE = {
    "flipped": _flipped,
    "cut": lambda content: content[:500],
    "no archive": lambda content: b"nothing",
    "floats": lambda content: _changed(content, lambda values: values.astype(np.float64)),
    "fewer rows": lambda content: _changed(content, lambda values: values[:10]),
    "fewer cells": lambda content: _changed(content, lambda v: v[:, :4] if v.ndim == 2 else v),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("config", [JigsawConfig(side=4, puzzles=20), MazeConfig(side=5, mazes=20)])
def test_damaged_data_is_generated_again(
    config: TaskConfig,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path))
    identity = make_task(config).identity
    (path,) = tmp_path.glob("*.npz")
    path.write_bytes(DAMAGE[kind](path.read_bytes()))
    assert make_task(config).identity == identity
    assert capsys.readouterr().err.count("\n") == 1
    assert make_task(config).identity == identity
    assert not capsys.readouterr().err
