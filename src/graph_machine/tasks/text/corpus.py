"""Bytes to learn from: any file, or the sources of Python's standard library."""

import hashlib
import sysconfig
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from graph_machine.errors import DataError

# Left out of the standard library: tests repeat themselves, and site-packages are not part of it.
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "__pycache__"}


def read_corpus(data: str | None, most: int) -> UInt8[np.ndarray, "n"]:
    """The first `most` bytes of a file, or of the library's files in an order by hash."""
    if data is not None:
        path = Path(data)
        try:
            with path.open("rb") as file:
                return np.frombuffer(file.read(most), dtype=np.uint8)
        except OSError as error:
            raise DataError(f"Cannot read the text ({error.strerror}): {path}") from None
    root = Path(sysconfig.get_path("stdlib"))
    files = [p for p in root.rglob("*.py") if not LEFT_OUT & {*p.relative_to(root).parts}]

    def place(path: Path) -> str:
        return hashlib.sha256(path.relative_to(root).as_posix().encode()).hexdigest()

    parts, size = [], 0
    for path in sorted(files, key=place):
        parts.append(path.read_bytes())
        size += len(parts[-1])
        if size >= most:
            break
    if not parts:
        raise DataError(f"There are no sources of the standard library here; give --data: {root}")
    return np.frombuffer(b"".join(parts)[:most], dtype=np.uint8)
