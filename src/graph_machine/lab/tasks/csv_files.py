"""Data files: lines of .csv, .gz or .zip with bounds on their size; generated arrays in a cache."""

import csv
import errno
import gzip
import hashlib
import io
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graph_machine.errors import DataError
from graph_machine.files import atomic_path, cache_folder, file_lock

# Small enough that a block of nothing but line ends does not take a gigabyte of positions.
BLOCK_BYTES = 1 << 22
# The longest row (a maze of side 64 with its path) takes less than 9,000 bytes.
LINE_BYTES = 1 << 16
# Rows of puzzles shrink to about a third. A file that expands to more than this many times its
# size is a bomb, not a puzzle file; small ones (one row repeated) are accepted.
LARGEST_RATIO = 100
FREE_BYTES = 1 << 26
# What Python's zipfile unpacks piece by piece. It unpacks the others (bzip2, LZMA) whole.
ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
OTHER_METHODS = {9: "deflate64", zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}
# How the libraries say that bytes are not what they should be; a disk's errors are not among them.
DAMAGE = (
    EOFError,
    gzip.BadGzipFile,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)


@dataclass
class Unpacked:
    """Reads from a file inside of another; damage and bombs are one clear line."""

    file: io.BufferedIOBase
    path: Path
    size: int
    done: int = 0

    def read(self, size: int) -> bytes:
        with _damage_reported(self.path):
            data = self.file.read(size)
        return self._counted(data)

    def readline(self, size: int) -> bytes:
        with _damage_reported(self.path):
            data = self.file.readline(size)
        return self._counted(data)

    def _counted(self, data: bytes) -> bytes:
        self.done += len(data)
        if self.done > FREE_BYTES and self.done > LARGEST_RATIO * self.size:
            raise DataError(
                f"The compressed file expands to more than {LARGEST_RATIO} times its size, which "
                f"no file of puzzles does: {self.path}"
            )
        return data


@contextmanager
def open_bytes(path: str | os.PathLike[str]) -> Iterator[Unpacked]:
    """The uncompressed bytes of a .csv, .gz or .zip, recognised by their first bytes."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"There is no such data file: {path}")
    if path.is_dir():
        raise DataError(f"Expected a data file, got a folder that is not a store: {path}")
    with ExitStack() as closing:
        raw = closing.enter_context(open(path, "rb"))
        magic = raw.read(4)
        raw.seek(0)
        file: io.BufferedIOBase = raw
        if magic[:2] == b"\x1f\x8b":
            unpacked = closing.enter_context(gzip.GzipFile(fileobj=raw))
            file = io.BufferedReader(unpacked, BLOCK_BYTES)
        elif magic == b"PK\x03\x04":
            with _damage_reported(path):
                archive = closing.enter_context(zipfile.ZipFile(raw))
                inside = closing.enter_context(archive.open(_member(archive, path)))
                assert isinstance(inside, io.BufferedIOBase)
                file = inside
        yield Unpacked(file, path, path.stat().st_size)


@contextmanager
def _damage_reported(path: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except (*DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # the disk's own; a seek to where no file reaches is the archive's
        raise DataError(
            f"The compressed file is cut or damaged ({error}); fetch it again: {path}"
        ) from error


def _member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    """The one .csv of an archive, if it can be read."""
    found = [info for info in archive.infolist() if info.filename.lower().endswith(".csv")]
    if len(found) != 1:
        names = ", ".join(info.filename for info in found[:5]) or "none"
        raise DataError(f"Expected exactly one .csv inside of the archive, found {names}: {path}")
    if found[0].flag_bits & 1:
        raise DataError(f"The archive is encrypted; unpack it first: {path}")
    if found[0].compress_type not in ZIP_METHODS:
        kind = OTHER_METHODS.get(found[0].compress_type, found[0].compress_type)
        raise DataError(
            f"The archive is compressed by '{kind}', and only deflate is read; unpack it first: "
            f"{path}"
        )
    return found[0]


def read_rows(path: str | os.PathLike[str]) -> list[tuple[int, list[str]]]:
    """The fields of every row that is not blank, with the number of its line; the header too."""
    reader = csv.reader(_lines(path))
    try:
        return [(reader.line_num, fields) for fields in reader if fields]
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"Line {reader.line_num + 1} of {path}: {error}.") from None


def _lines(path: str | os.PathLike[str]) -> Iterator[str]:
    with open_bytes(path) as file:
        number = 0
        while line := file.readline(LINE_BYTES + 1):
            number += 1
            if len(line) > LINE_BYTES:
                raise long_line(number, path)
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")


def long_line(number: int, path: str | os.PathLike[str]) -> DataError:
    """The error of a line beyond the cap."""
    return DataError(f"Line {number} is longer than {LINE_BYTES:,} bytes, which no row is: {path}")


Arrays = dict[str, np.ndarray]


def identity_of(arrays: Mapping[str, np.ndarray]) -> str:
    """A hash of names, types, shapes and contents."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
        digest.update(values.data)
    return digest.hexdigest()[:32]


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """One .npz file that appears whole."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # pyrefly: ignore[bad-argument-type]


def read_arrays(path: Path, names: tuple[str, ...]) -> Arrays | None:
    """The arrays of a file that `write_arrays` wrote; None where it is missing or damaged."""
    try:
        with open(path, "rb") as raw, np.load(raw) as file:
            return {name: file[name] for name in names}
    except (*DAMAGE, OSError, KeyError, SyntaxError, TypeError):
        return None


def cached_arrays(
    name: str,
    names: tuple[str, ...],
    make: Callable[[], Arrays],
    fits: Callable[[Arrays], bool] = lambda _: True,
) -> Arrays:
    """`make()`, kept in the cache folder; runs that start at the same time make it once.

    A file that is damaged, or that `fits` refuses, is made again.
    """
    path = cache_folder() / f"{name}.npz"
    with file_lock(path.with_name(path.name + ".lock")):
        found = read_arrays(path, names)
        if found is not None and fits(found):
            return found
        if path.exists():
            print(f"Damaged data in the cache is generated again: {path}", file=sys.stderr)
        made = make()
        write_arrays(path, made)
        return made
