"""Writing files: the old one or the new one, never half of one."""

import errno
import json
import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from graph_machine import files
from graph_machine.errors import DiskFullError, GraphMachineError
from graph_machine.files import atomic_folder, atomic_path, settle, write_json, write_text


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


def put(path: Path, text: str) -> None:
    with atomic_folder(path) as made:
        (made / "a").write_text(text)


def test_folders_are_replaced_whole(tmp_path: Path) -> None:
    for text in ("one", "two", "three"):
        put(tmp_path / "x", text)
        assert (tmp_path / "x" / "a").read_text() == text
        assert os.listdir(tmp_path) == ["x"]
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "plain").stat().st_mode
    with pytest.raises(RuntimeError, match="stop"), atomic_folder(tmp_path / "x") as made:  # noqa: PT012
        (made / "a").write_text("half")
        raise RuntimeError("stop")
    assert (tmp_path / "x" / "a").read_text() == "three"
    assert sorted(os.listdir(tmp_path)) == ["plain", "x"]


def test_what_killed_processes_leave(tmp_path: Path) -> None:
    put(tmp_path / "x", "old")
    (tmp_path / "x").rename(tmp_path / ".x.old")
    (tmp_path / ".x.abc.tmp").mkdir()
    settle(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]
    assert (tmp_path / "x" / "a").read_text() == "old"
    with atomic_folder(tmp_path / "x") as mine:  # what a living process makes stays
        settle(tmp_path / "x")
        assert mine.exists()


def test_what_killed_writers_leave(tmp_path: Path) -> None:
    (tmp_path / ".a.txt.dead.tmp").write_text("half")
    (tmp_path / ".b.txt.dead.tmp").write_text("half")
    with atomic_path(tmp_path / "a.txt") as mine:
        mine.write_text("mine")
        write_text(tmp_path / "a.txt", "another's")  # drops leftovers, but not what is being made
        assert mine.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == [".b.txt.dead.tmp", "a.txt"]
    assert (tmp_path / "a.txt").read_text() == "mine"


def test_a_new_file_is_not_taken_for_a_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may look between the making of a temporary file and its lock."""
    real, looks = files.lock, 0

    def late(handle: int, *, wait: bool = True) -> bool:
        nonlocal looks
        looks += wait
        if wait and looks == 1:
            files.drop_leftovers(tmp_path / "a.txt")
        return real(handle, wait=wait)

    monkeypatch.setattr(files, "lock", late)
    write_text(tmp_path / "a.txt", "x")
    assert looks == 2
    assert (tmp_path / "a.txt").read_text() == "x"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SafetensorError("Error while serializing: I/O error: no space left (os error 28)"),
    ],
    ids=["full", "quota", "safetensors"],
)
def test_a_full_disk_is_one_clear_line(tmp_path: Path, error: Exception) -> None:
    write_text(tmp_path / "a.txt", "old")
    message = "The disk is full: a.txt was not written; its old version is intact"
    with pytest.raises(GraphMachineError, match=message) as caught, atomic_path(tmp_path / "a.txt"):
        raise error
    assert isinstance(caught.value, DiskFullError)
    assert caught.value.errno in files.FULL
    assert "Errno" not in str(caught.value)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_other_errors_of_libraries_are_the_system_s(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), atomic_path(tmp_path / "a.txt"):
        raise SafetensorError("I/O error: Permission denied (os error 13)")
    with pytest.raises(SafetensorError, match="header"), atomic_path(tmp_path / "a.txt"):
        raise SafetensorError("header too large")


def test_errors_name_the_user_s_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    with pytest.raises(OSError) as told:
        write_text("/proc/report.md", "text")
    assert told.value.filename == "/proc/report.md"
    for refused in (atomic_path, atomic_folder):
        with pytest.raises(PermissionError) as denied, refused(tmp_path / "mine") as temporary:
            raise PermissionError(errno.EACCES, "Permission denied", str(temporary / "part"))
        assert denied.value.filename == str(tmp_path / "mine")
        with pytest.raises(PermissionError) as other, refused(tmp_path / "mine"):
            raise PermissionError(errno.EACCES, "Permission denied", "elsewhere")
        assert other.value.filename == "elsewhere"
