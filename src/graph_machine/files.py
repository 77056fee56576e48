"""Atomic writing: an interruption leaves either the old file (or folder) or the new one."""

import ctypes
import errno
import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from graph_machine.errors import ConfigError, DataError, DiskFullError, GraphMachineError
from graph_machine.locks import folder_lock, is_locked, lock, unlocked

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_AT_CWD, _EXCHANGE = -100, 2  # of Linux' renameat2


def cache_folder() -> Path:
    """$GRAPH_MACHINE_CACHE, else graph-machine in $XDG_CACHE_HOME, else in ~/.cache."""
    own = os.environ.get("GRAPH_MACHINE_CACHE")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "graph-machine"


def refuse_to_replace(path: str | os.PathLike[str], force: bool) -> None:
    """An error where there is something at `path` already, unless the user said `--force`."""
    if os.path.lexists(path) and not force:
        raise ConfigError(f"There is a file of this name already; --force replaces it: {path}")


@contextmanager
def atomic_path(path: str | os.PathLike[str], *, mode: int | None = None) -> Iterator[Path]:
    """A temporary path beside `path` that takes its name when the block ends without an error.

    `mode` is that of the new file; without it, files are as readable as umask allows.
    """
    path = Path(path)
    with disk_full_told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        drop_leftovers(path)
        handle, temporary = _locked_temporary(path)
        try:
            yield temporary
            # mkstemp makes private files; a result is meant to be read by others.
            temporary.chmod(0o666 & ~_umask() if mode is None else mode)
            _sync(temporary)
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
            os.close(handle)


def _locked_temporary(path: Path) -> tuple[int, Path]:
    """A new file beside `path` whose lock is ours until the handle is closed, or we are killed."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        lock(handle)
        # Between the two lines above, another process may have taken it for a leftover.
        if os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)


def drop_leftovers(path: str | os.PathLike[str]) -> None:
    """Delete half-written files that killed writers of `path` left; not those of living ones."""
    path = Path(path)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if left.is_file() and not left.is_symlink():
            with suppress(OSError), unlocked(left):
                left.unlink()


@contextmanager
def atomic_folder(
    path: str | os.PathLike[str], *, keep: Callable[[], bool] = lambda: False
) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its place when the block ends without an error.

    A folder that is there already is thrown away, unless `keep` (asked at the end, while no other
    process is replacing it) says that it is as good as the new one.
    """
    path = Path(path)
    with disk_full_told(path), ExitStack() as holding:
        path.parent.mkdir(parents=True, exist_ok=True)
        settle(path)
        with folder_lock(path.parent):
            made = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
            holding.enter_context(folder_lock(made))
        try:
            yield made
            made.chmod(0o777 & ~_umask())
            for file in made.iterdir():
                _sync(file)
            with folder_lock(path.parent):
                if not keep():
                    _put(made, path)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def settle(path: str | os.PathLike[str]) -> None:
    """Put back a folder that a killed process had moved aside; drop what killed ones left behind.

    What a running process is making is left untouched.
    """
    path = Path(path)
    if not path.parent.is_dir():
        return
    with folder_lock(path.parent):
        old = _aside(path)
        if old.exists():
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.replace(old, path)
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            if left.is_dir() and not is_locked(left):
                shutil.rmtree(left, ignore_errors=True)


def _put(made: Path, path: Path) -> None:
    """Give `made` the name `path`; what had it is under the name of `made` or gone."""
    if not path.exists():
        os.replace(made, path)
    elif not exchange(made, path):
        # Two renames: a process killed between them leaves the old one aside, and `settle`
        # puts it back.
        old = _aside(path)
        shutil.rmtree(old, ignore_errors=True)
        os.replace(path, old)
        os.replace(made, path)
        shutil.rmtree(old, ignore_errors=True)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names atomically; False where the system or file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    names = (_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other))
    if rename(*names, _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(other))


@contextmanager
def disk_full_told(path: str | os.PathLike[str]) -> Iterator[None]:
    """A full disk as one clear line, also where a library tells it in its own words."""
    try:
        yield
    except GraphMachineError:
        raise
    except Exception as error:
        # safetensors: `I/O error: No space left on device (os error 28)`
        told = re.search(r"\(os error (\d+)\)", str(error))
        number = error.errno if isinstance(error, OSError) else told and int(told[1])
        if number in FULL:
            raise DiskFullError(
                f"The disk is full: {Path(path).name} was not written, what was there before is "
                f"intact. Free space and try again: {path}",
                number,
            ) from None
        if number and (told or _is_temporary(getattr(error, "filename", None), Path(path))):
            raise OSError(number, os.strerror(number), str(path)) from None
        raise


def _is_temporary(name: object, path: Path) -> bool:
    """Whether an error speaks of the temporary file or folder that stands for `path`."""
    if not isinstance(name, str | os.PathLike):
        return False
    folder = path.parent.absolute()
    whole = Path(os.fsdecode(name)).absolute()
    own = [part.name for part in (whole, *whole.parents) if part.parent == folder]
    return any(part.startswith(f".{path.name}.") and part.endswith(".tmp") for part in own)


def _sync(path: Path) -> None:
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: str | os.PathLike[str], text: str, *, mode: int | None = None) -> None:
    with atomic_path(path, mode=mode) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, sort_keys=False) + "\n")


def read_text(path: str | os.PathLike[str]) -> str:
    """A text file, without the mark that some editors put in front; other bytes are one line."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"Not a text file (UTF-8): {path}") from None


def parse_object(
    text: str | bytes, name: str, where: object, error: type[GraphMachineError]
) -> dict[str, Any]:
    """A JSON object; anything else is one clear line that says what is damaged, and where."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise error(f"{name} is damaged (not valid JSON): {where}") from None
    if not isinstance(data, dict):
        raise error(f"{name} should be an object: {where}")
    return data


def read_object(path: Path, error: type[GraphMachineError]) -> dict[str, Any]:
    """The object in a JSON file; a file that is missing raises FileNotFoundError."""
    return parse_object(path.read_bytes(), path.name, path, error)
