"""Files that appear complete or not at all, locks between processes, JSON that may be damaged."""

import errno
import fcntl
import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from graph_machine.errors import ConfigError, DataError, DiskFullError, GraphMachineError

ZOO = Path(__file__).parent / "lab" / "zoo" / "models"  # the shipped models
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def cache_folder() -> Path:
    """$GRAPH_MACHINE_CACHE, else graph-machine in $XDG_CACHE_HOME, else in ~/.cache."""
    own = os.environ.get("GRAPH_MACHINE_CACHE")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "graph-machine"


def shipped() -> list[str]:
    """Names of the shipped models."""
    found = (path.parent.name for path in ZOO.glob("*/config.json"))
    return sorted(name for name in found if not name.startswith("."))


def is_ours(path: Path) -> bool:
    """Whether a file or folder belongs to this user, and no one else may write to it."""
    found = path.stat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def refuse_to_replace(path: str | os.PathLike[str], force: bool) -> None:
    """Raise ConfigError if `path` exists, unless the user passed `--force`."""
    if os.path.lexists(path) and not force:
        raise ConfigError(f"This file already exists; --force replaces it: {path}")


@contextmanager
def atomic_path(path: str | os.PathLike[str], *, mode: int | None = None) -> Iterator[Path]:
    """A temporary path next to `path` that replaces it if the block ends without an error.

    `mode` is that of the new file; without it, files are as readable as umask allows.
    """
    path = Path(path)
    with full_disk_as_one_line(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        drop_leftovers(path)
        handle, temporary = _locked_temporary(path)
        try:
            yield temporary
            # mkstemp makes private files, but others should be able to read a result.
            temporary.chmod(0o666 & ~_umask() if mode is None else mode)
            _sync(temporary)
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
            os.close(handle)


def _locked_temporary(path: Path) -> tuple[int, Path]:
    """A new file next to `path`, locked until the handle is closed or this process is killed."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        lock(handle)
        # Between the two lines above, another process may have taken it for a leftover.
        if os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)


def drop_leftovers(path: str | os.PathLike[str]) -> None:
    """Delete half-written files of killed writers of `path`, but not those of running ones."""
    path = Path(path)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if left.is_file() and not left.is_symlink():
            with suppress(OSError), locked(left, wait=False) as free:
                left.unlink() if free else None


@contextmanager
def atomic_folder(
    path: str | os.PathLike[str], *, keep: Callable[[], bool] = lambda: False
) -> Iterator[Path]:
    """A temporary folder next to `path` that replaces it if the block ends without an error.

    An existing folder is deleted, unless `keep` (called at the end, while no other process is
    replacing it) says that it is as good as the new one.
    """
    path = Path(path)
    with full_disk_as_one_line(path), ExitStack() as holding:
        path.parent.mkdir(parents=True, exist_ok=True)
        settle(path)
        with locked(path.parent):
            made = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
            holding.enter_context(locked(made))
        try:
            yield made
            made.chmod(0o777 & ~_umask())
            for file in made.iterdir():
                _sync(file)
            with locked(path.parent):
                if not keep():
                    old = _aside(path)
                    if path.exists():
                        # Killed between the renames, it leaves the old one aside; see `settle`.
                        shutil.rmtree(old, ignore_errors=True)
                        os.replace(path, old)
                    os.replace(made, path)
                    shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def settle(path: str | os.PathLike[str]) -> None:
    """Put back a folder that a killed process had moved aside; drop what killed ones left behind.

    What a running process is making is left untouched.
    """
    path = Path(path)
    if not path.parent.is_dir():
        return
    with locked(path.parent):
        old = _aside(path)
        if old.exists():
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.replace(old, path)
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            with suppress(OSError), locked(left, wait=False) as free:
                if free and left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


@contextmanager
def full_disk_as_one_line(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise DiskFullError if the disk is full, also if a library words its error differently."""
    try:
        yield
    except GraphMachineError:
        raise
    except Exception as error:
        # safetensors: `I/O error: No space left on device (os error 28)`
        stated = re.search(r"\(os error (\d+)\)", str(error))
        number = error.errno if isinstance(error, OSError) else stated and int(stated[1])
        if number in FULL:
            raise DiskFullError(
                f"The disk is full: {Path(path).name} was not written; its old version is intact. "
                f"Free space and try again: {path}",
                number,
            ) from None
        if number and (stated or _is_temporary(getattr(error, "filename", None), Path(path))):
            raise OSError(number, os.strerror(number), str(path)) from None
        raise


def _is_temporary(name: object, path: Path) -> bool:
    """Whether an error is about the temporary file or folder of `path`."""
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


@cache
def _template(path: Path) -> Any:
    from jinja2 import Environment, StrictUndefined

    how = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    return Environment(undefined=StrictUndefined, **how).from_string(path.read_text("utf-8"))


def fill(template: Path, **values: Any) -> str:
    """Fill a Jinja template; a missing value is an error."""
    return _template(template).render(**values)


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 text file, without its byte order mark."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"Not a text file (UTF-8): {path}") from None


def parse_object(
    text: str | bytes, name: str, where: object, error: type[GraphMachineError]
) -> dict[str, Any]:
    """A JSON object; anything else raises a one-line error with the name and place."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise error(f"{name} is damaged (not valid JSON): {where}") from None
    if not isinstance(data, dict):
        raise error(f"{name} should be an object: {where}")
    return data


def read_object(path: Path, error: type[GraphMachineError]) -> dict[str, Any]:
    """The object in a JSON file; a missing file raises FileNotFoundError."""
    return parse_object(path.read_bytes(), path.name, path, error)


@contextmanager
def file_lock(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock of the file `path` during the block.

    A killed process leaves the file but not the lock, so there are no stale locks. The file stays:
    deleting it would let two processes hold locks on two files of the same name.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with locked(path):
        yield


@contextmanager
def locked(path: str | os.PathLike[str], *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of an existing file or folder; without `wait`, yield whether it was free."""
    handle = os.open(path, os.O_RDONLY)
    try:
        yield lock(handle, wait=wait)
    finally:
        os.close(handle)


def lock(handle: int, *, wait: bool = True) -> bool:
    """Lock an open file until it is closed; without `wait`, False if another process holds it.

    Some network file systems have no locks; there, nothing counts as free.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
