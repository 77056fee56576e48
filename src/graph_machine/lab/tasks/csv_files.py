"""Data files: rows of .csv, .gz or .zip with bounds on their size; generated arrays in a cache."""

import errno
import gzip
import hashlib
import io
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from graph_machine.errors import DataError
from graph_machine.files import atomic_path, cache_folder, file_lock

# The longest row (a maze of side 64 with its path) takes less than 9,000 bytes.
LINE_BYTES = 1 << 16
# Rows of puzzles shrink to about a third. A file that expands to more than this many times its
# size is a bomb, not a puzzle file; small ones (one row repeated) are accepted.
LARGEST_RATIO = 100
FREE_BYTES = 1 << 26
# What Python's zipfile unpacks piece by piece. It unpacks the others (bzip2, LZMA) whole.
ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
OTHER_METHODS = {9: "deflate64", zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}
# Errors by which the libraries report damaged bytes; errors of the disk are not among them.
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


@contextmanager
def _unpacked(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a .csv, or of one inside of a .gz or .zip; recognised by their first bytes."""
    with ExitStack() as closing:
        raw = closing.enter_context(open(path, "rb"))
        magic = raw.peek(4)[:4]
        if magic[:2] == b"\x1f\x8b":
            yield io.BufferedReader(closing.enter_context(gzip.GzipFile(fileobj=raw)))
        elif magic == b"PK\x03\x04":
            archive = closing.enter_context(zipfile.ZipFile(raw))
            inside: Any = closing.enter_context(archive.open(_member(archive, path)))
            yield io.BufferedReader(inside)
        else:
            yield raw


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


def _text_lines(path: Path) -> Iterator[str]:
    """The lines of a file; damage, bombs and endless lines are one clear line."""
    if not path.exists():
        raise DataError(f"There is no such data file: {path}")
    if path.is_dir():
        raise DataError(f"Expected a data file, got a folder that is not a store: {path}")
    most, done = max(FREE_BYTES, LARGEST_RATIO * path.stat().st_size), 0
    try:
        with _unpacked(path) as file:
            number = 0
            while line := file.readline(LINE_BYTES + 1):
                number, done = number + 1, done + len(line)
                if len(line) > LINE_BYTES:
                    size = f"{LINE_BYTES:,} bytes"
                    raise DataError(f"Line {number} is longer than {size}, which no row is: {path}")
                if done > most:
                    raise DataError(
                        f"The compressed file expands to more than {LARGEST_RATIO} times its size, "
                        f"which no file of puzzles does: {path}"
                    )
                yield line.decode("utf-8-sig" if number == 1 else "utf-8", "replace")
    except DataError:
        raise
    except (*DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # the disk's own; a seek to where no file reaches is the archive's
        raise DataError(
            f"The compressed file is cut or damaged ({error}); fetch it again: {path}"
        ) from error


def read_rows(path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    """The fields of every row that is not blank, with the number of its line; the header too."""
    for number, line in enumerate(_text_lines(Path(path)), start=1):
        if text := line.rstrip("\r\n").replace('"', ""):  # a cell is never quoted for a reason
            yield number, text.split(",")


def read_boards(
    path: str | os.PathLike[str],
    columns: tuple[str, ...],
    what: str,
    parse: Callable[[list[str]], tuple[Any, ...]],
) -> tuple[list[int], list[np.ndarray]]:
    """Every row of a file of `what` through `parse`: the numbers of their lines, and what it gives
    as columns, the cells first. Errors name the line."""
    rows = read_rows(path)
    _, header = next(rows, (0, []))
    if tuple(header[: len(columns)]) != columns:
        first = ",".join(columns)
        raise DataError(f"Not a file of {what} (its first line should begin with {first}): {path}")
    lines: list[int] = []
    found: list[tuple[Any, ...]] = []
    for number, fields in rows:
        try:
            if len(fields) < len(columns):
                raise DataError(f"expected {len(columns)} columns, got {len(fields)}.")
            found.append(parse(fields))
        except (DataError, ValueError) as error:
            raise DataError(f"Line {number} of {path}: {error}") from None
        lines.append(number)
    if len({len(row[0]) for row in found}) != 1:
        raise DataError(f"Expected {what}, and all of the same size: {path}")
    return lines, [np.stack(column) for column in zip(*found, strict=True)]


def write_rows(path: str | os.PathLike[str], header: str, rows: Iterable[str]) -> int:
    """Write rows as they come, numbered from 1 (gzipped if the name ends in .gz); how many.

    The file gets its name when the last row is written.
    """
    number = 0
    with atomic_path(path) as temporary, ExitStack() as closing:
        file: io.BufferedIOBase = closing.enter_context(open(temporary, "wb"))
        if Path(path).suffix == ".gz":
            # No name and no time inside: the same rows give the same bytes.
            file = closing.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        file.write(f"{header}\n".encode())
        for number, row in enumerate(rows, start=1):
            file.write(f"{number},{row}\n".encode())
    return number


Arrays = dict[str, np.ndarray]


def identity_of(arrays: Mapping[str, np.ndarray]) -> str:
    """A hash of names, types, shapes and contents."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
        digest.update(values.data)
    return digest.hexdigest()[:32]


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
        with suppress(*DAMAGE, OSError, KeyError, SyntaxError, TypeError):
            with open(path, "rb") as raw, np.load(raw) as file:
                found = {name: file[name] for name in names}
            if fits(found):
                return found
        if path.exists():
            print(f"Damaged data in the cache is generated again: {path}", file=sys.stderr)
        with Console(stderr=True).status(f"generating {name} (once)"):
            made = make()
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **made)  # pyrefly: ignore[bad-argument-type]
        return made
