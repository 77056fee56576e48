"""Writing files so that an interruption leaves either the old file or the new one, never half."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from graph_machine.errors import GraphMachineError


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path` that takes its name when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; a result is meant to be read by others, as umask allows.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, sort_keys=False) + "\n")


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
