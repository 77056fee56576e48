"""Writing files: the old one or the new one, never half of one."""

import json
import os
from pathlib import Path

import pytest

from graph_machine.files import atomic_path, write_json, write_text


def test_text_and_json_round_trip(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "folder" / "a.txt", "ε\n")
    assert (tmp_path / "new" / "folder" / "a.txt").read_bytes() == "ε\n".encode()
    value = {"z": [1, 2.5, None], "a": "β"}
    write_json(tmp_path / "a.json", value)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == value
    assert text.index('"z"') < text.index('"a"')
    assert text.endswith("}\n")


def test_an_error_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError, match="stop"), atomic_path(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        assert path.read_text() == "old"
        raise RuntimeError("stop")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_value_that_is_not_json_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, 1)
    with pytest.raises(TypeError):
        write_json(path, {"x": object()})
    assert json.loads(path.read_text()) == 1
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_result_is_as_readable_as_other_files(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    write_text(tmp_path / "ours", "x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_replacing_keeps_one_file(tmp_path: Path) -> None:
    for i in range(3):
        write_text(tmp_path / "a.txt", str(i))
    assert (tmp_path / "a.txt").read_text() == "2"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_in_the_way_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(OSError):
        write_text(tmp_path / "a.txt", "x")
    assert os.listdir(tmp_path) == ["a.txt"]
