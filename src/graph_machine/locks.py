"""A lock between processes: a file that the kernel locks, and unlocks when its holder dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def file_lock(path: str | os.PathLike[str], *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of `path` during the block. Without `wait`, yields False where it is held.

    A killed process leaves the file but not the lock, so there are no stale locks. The file stays:
    deleting it would let two processes hold locks on two files of the same name.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)


@contextmanager
def folder_lock(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock of an existing folder during the block, without leaving a file in it.

    For the moment of a rename, between processes that write beside each other. A file system that
    does not lock folders (some network ones) is used without a lock.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock(handle)
        yield
    finally:
        os.close(handle)


def lock(handle: int) -> None:
    """Lock an open file until it is closed; without effect where the file system has no locks."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)


@contextmanager
def unlocked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock of a file or folder that nobody holds; BlockingIOError where somebody does."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def is_locked(folder: str | os.PathLike[str]) -> bool:
    """Whether a living process holds this folder's lock; also where that cannot be found out."""
    try:
        with unlocked(folder):
            return False
    except FileNotFoundError:
        return False
    except OSError:
        return True
