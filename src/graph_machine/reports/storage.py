"""Run records on disk: a folder for each run, as training writes it, or many in one study file.

A study, NAME.study.jsonl, is a header line and then one line per run: its run.json, its result.json
and its evaluations by column. Training lines, which no table or curve reads, stay behind.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from graph_machine.errors import DataError
from graph_machine.files import parse_object, read_object, write_text
from graph_machine.run_files import RUN_FILE, read_unchecked

STUDY = ".study.jsonl"
HEADER = {"format": "graph-machine-study", "version": 1}


@dataclass(frozen=True)
class Stored:
    """What is stored of one run, unchecked; `name` is its place below `root`."""

    root: Path
    name: str
    run: dict[str, Any]
    result: dict[str, Any] | None
    evaluations: list[Any]

    @property
    def path(self) -> Path:
        return self.root / self.name


def stored_runs(roots: Sequence[str | Path]) -> Iterator[Stored | DataError]:
    """Every run in and below `roots` (folders or study files), each place once.

    What cannot be read comes as the error that says so.
    """
    seen: set[Path] = set()
    for root in map(Path, roots):
        for place in _places(root):
            if place.resolve() in seen:
                continue
            seen.add(place.resolve())
            try:
                yield from _read_study(place) if place.is_file() else [read_folder(place, root)]
            except DataError as error:
                yield error


def _places(root: Path) -> Iterator[Path]:
    """Run folders and study files, in the order of their names."""
    if root.is_file():
        yield root
        return
    if not root.is_dir():
        raise DataError(f"There is no folder of runs here: {root}")
    for folder, below, files in os.walk(root):
        below.sort()
        if RUN_FILE in files:
            yield Path(folder)
            below.clear()
        else:
            yield from (Path(folder) / name for name in sorted(files) if name.endswith(STUDY))


def read_folder(folder: Path, root: Path) -> Stored:
    """The files of one run folder."""
    root = (folder.parent if root == folder else root).resolve()
    result = folder / "result.json"
    return Stored(
        root,
        folder.resolve().relative_to(root).as_posix(),
        read_unchecked(folder, DataError),
        read_object(result, DataError) if result.exists() else None,
        _evaluations(folder / "metrics.jsonl"),
    )


def _evaluations(path: Path) -> list[Any]:
    """Lines of kind `eval`; one that was cut short is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if '"eval"' in line:
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
    return [line for line in found if not isinstance(line, dict) or line.get("kind") == "eval"]


def _read_study(path: Path) -> Iterator[Stored | DataError]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if parse_object(lines[0] if lines else "", "The header", path, DataError) != HEADER:
        raise DataError(f"Not a study of format {HEADER['format']}, version 1: {path}")
    for number, line in enumerate(lines[1:], start=2):
        try:
            kept = parse_object(line, f"Line {number}", path, DataError)
            columns = kept["evaluations"]
            yield Stored(
                path.resolve(),
                str(kept["name"]),
                kept["run"],
                kept["result"],
                [
                    {"kind": "eval"} | {k: v for k, v in zip(columns, row) if v is not None}
                    for row in zip_longest(*columns.values())
                ],
            )
        except DataError as error:
            yield error
        except (KeyError, TypeError, AttributeError):
            yield DataError(f"Line {number} does not hold a run: {path}")


def write_study(path: Path, runs: Sequence[Stored]) -> None:
    """Pack runs into a study file (NAME.study.jsonl), one line each.

    >>> write_study(Path("mine.study.jsonl"), [])
    """
    if not path.name.endswith(STUDY):
        raise DataError(f"A study's name ends in {STUDY}, got '{path.name}'.")
    lines: list[dict[str, Any]] = [HEADER]
    for run in runs:
        keys = list(dict.fromkeys(key for line in run.evaluations for key in line))
        columns = {
            key: [line.get(key) for line in run.evaluations] for key in keys if key != "kind"
        }
        lines.append(
            {"name": run.name, "run": run.run, "result": run.result, "evaluations": columns}
        )
    write_text(path, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
