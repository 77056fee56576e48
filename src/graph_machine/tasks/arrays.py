"""Generated data as a few arrays in one file, made once per machine, with an identity."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from graph_machine.errors import DataError
from graph_machine.files import atomic_path, cache_folder
from graph_machine.locks import file_lock

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


def read_arrays(path: Path, names: tuple[str, ...]) -> Arrays:
    """The arrays of a file that `write_arrays` wrote."""
    try:
        with np.load(path) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(
            f"This file is damaged or holds other data (expected {', '.join(names)}); delete it "
            f"to have it made again: {path}"
        ) from error


def cached_arrays(name: str, names: tuple[str, ...], make: Callable[[], Arrays]) -> Arrays:
    """`make()`, kept in the cache folder; runs that start at the same time make it once."""
    path = cache_folder() / f"{name}.npz"
    with file_lock(path.with_name(path.name + ".lock")):
        if not path.exists():
            write_arrays(path, make())
    return read_arrays(path, names)
