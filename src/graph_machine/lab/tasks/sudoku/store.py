"""The store: a folder of memory-mapped flat files and a metadata file.

A store is built under a temporary name and renamed when it is complete, so that an interruption
leaves nothing half-made. Its `identity` is a hash of only the content: the same puzzles read
from .csv, .gz or .zip have the same identity.
"""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from graph_machine.errors import DataError
from graph_machine.files import atomic_folder, cache_folder, read_object, settle, write_json
from graph_machine.lab.tasks.sudoku.board import BoxShape
from graph_machine.lab.tasks.sudoku.reader import OnBad, PuzzleRows, RowReader

SCHEMA = 1
META = "meta.json"
ARRAYS = {"puzzles": "<u1", "solutions": "<u1", "clues": "<u2", "ratings": "<f4"}


@dataclass(frozen=True)
class SudokuStore(PuzzleRows):
    """Puzzles, solutions, clue counts and ratings (NaN if unknown), on disk or in memory.

    `puzzles` and `solutions` are (count, n) arrays of cells: 0 is a blank, 1 to `side` a digit.

    >>> from graph_machine.lab.tasks.sudoku.generate import generate
    >>> store = generate(BoxShape(2, 2), count=3, seed=0)
    >>> store.puzzles.shape, store.ratings
    ((3, 16), array([0., 0., 0.], dtype=float32))
    """

    box: BoxShape
    identity: str
    path: Path | None = None
    meta: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def shape(self) -> BoxShape:
        """The boxes of its boards, as solvers take them."""
        return self.box

    def take(self, rows: Int64[np.ndarray, "b"] | slice) -> PuzzleRows:  # pyrefly: ignore[bad-override]
        """Some rows, copied."""
        return PuzzleRows(*(np.asarray(values[rows]) for values in self.arrays.values()))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = False) -> "SudokuStore":
        """Map a store folder; `verify` reads every byte and compares the content's hashes."""
        path = Path(path)
        if not path.exists():
            raise DataError(f"There is no such store: {path}")
        if not (path / META).is_file():
            raise DataError(f"Not a Sudoku store ({META} is missing): {path}")
        meta = read_object(path / META, DataError)
        if meta.get("schema", SCHEMA) != SCHEMA:
            raise DataError(
                f"The store has schema version {meta['schema']}, this program reads {SCHEMA}. "
                f"Delete it and prepare it again: {path}"
            )
        try:
            box, count = BoxShape.parse(meta["box"]), meta["count"]
            if meta["identity"] != _identity(box, count, meta["sha256"]):
                raise KeyError(META)
        except (KeyError, TypeError, AttributeError, DataError):
            raise _damaged(path, f"{META} is not what was written") from None
        arrays: dict[str, Any] = {}
        for name, dtype in ARRAYS.items():
            cells = box.cells if name in ("puzzles", "solutions") else 1
            file = path / f"{name}.bin"
            expected = count * cells * np.dtype(dtype).itemsize
            found = file.stat().st_size if file.exists() else 0
            if found != expected:
                raise _damaged(path, f"{file.name} has {found:,} bytes, expected {expected:,}")
            if verify and _sha256(file) != meta["sha256"][name]:
                raise _damaged(path, f"the bytes of {file.name} are not those that were written")
            shape = (count, cells) if cells > 1 else (count,)
            arrays[name] = np.memmap(file, dtype=dtype, mode="r", shape=shape)
        return cls(**arrays, box=box, identity=meta["identity"], path=path, meta=meta)

    @classmethod
    def from_arrays(
        cls,
        puzzles: UInt8[np.ndarray, "count n"],
        solutions: UInt8[np.ndarray, "count n"],
        ratings: Float32[np.ndarray, "count"] | None = None,
        box: BoxShape | None = None,
    ) -> "SudokuStore":
        """A store in memory, without a folder; its identity is that of the same rows on disk."""
        box = box or BoxShape.of_cells(puzzles.shape[1])
        if ratings is None:
            ratings = np.full(len(puzzles), np.nan, dtype=np.float32)
        clues = np.count_nonzero(puzzles, axis=1).astype(np.uint16)
        hashes = {
            name: hashlib.sha256(values.astype(ARRAYS[name], order="C").data).hexdigest()
            for name, values in zip(ARRAYS, (puzzles, solutions, clues, ratings), strict=True)
        }
        identity = _identity(box, len(puzzles), hashes)
        return cls(puzzles, solutions, clues, ratings, box, identity)


def prepare(
    file: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    box: BoxShape | None = None,
    check_unique: bool = False,
    on_bad: OnBad = "error",
    progress: Callable[[int], None] = lambda rows: None,
) -> SudokuStore:
    r"""Check every row of a puzzle file and pack it into a store.

    By default that is FILE.store next to it or, if that cannot be written, one in the cache
    folder. A store made from the same bytes with checks at least as strict is reused. Without `box`
    the shape is inferred from the solutions. `progress` is called with the number of rows done.

    >>> row = "1,..3...4..4...2..,4132234114233214,4,0.0"
    >>> text = f"id,puzzle,solution,clues,difficulty\n{row}\n"
    >>> size = Path("puzzles.csv").write_text(text)
    >>> len(prepare("puzzles.csv"))
    1
    """
    file = Path(file)
    if not file.is_file():
        raise DataError(f"There is no such data file: {file}")
    source = {"name": file.name, "bytes": file.stat().st_size, "sha256": _sha256(file)}
    cached = cache_folder() / f"{file.name}-{source['sha256'][:16]}.store"
    places = [file.with_name(file.name + ".store"), cached] if out is None else [Path(out)]

    def existing(place: Path) -> SudokuStore | None:
        """The store here, if it holds what would be written here again."""
        try:
            store = SudokuStore.open(place)
        except DataError:
            if place.exists() and not (place / META).exists():
                raise
            return None
        made_from = store.meta.get("source")
        same = isinstance(made_from, dict) and made_from.get("sha256") == source["sha256"]
        strict = store.meta.get("checked_unique", False) or not check_unique
        complete = not store.meta.get("bad_rows") or on_bad == "skip"
        return store if same and strict and complete and box in (None, store.box) else None

    def write(place: Path) -> SudokuStore:
        reader = RowReader(file, box=box, check_unique=check_unique, on_bad=on_bad)

        def about() -> tuple[BoxShape | None, dict[str, Any]]:
            scale = reader.layout and reader.layout.scale
            rated = {"rating_scale": scale} if scale else {}
            checked = {"source": source, "checked_unique": check_unique}
            return reader.box, checked | rated | {"bad_rows": dict(reader.bad)}

        done = lambda: existing(place) is not None  # noqa: E731
        write_store(place, reader, about, progress=progress, winner=done)
        return SudokuStore.open(place)

    for place in places:
        settle(place)  # also where nothing is to be written: a killed process may have left some
        if (found := existing(place)) is not None:
            return found
    try:
        return write(places[0])
    except NoPlaceError:
        if len(places) == 1:
            raise
        return write(cached)


def open_data(path: str | os.PathLike[str]) -> SudokuStore:
    r"""A store folder as it is, or a puzzle file through `prepare`.

    >>> row = "1,..3...4..4...2..,4132234114233214,4,0.0"
    >>> text = f"id,puzzle,solution,clues,difficulty\n{row}\n"
    >>> size = Path("puzzles.csv").write_text(text)
    >>> open_data("puzzles.csv").box
    BoxShape(rows=2, cols=2)
    """
    return SudokuStore.open(path) if Path(path).is_dir() else prepare(path)


class NoPlaceError(DataError):
    """A store may not be written where it should be."""


def write_store(
    out: str | os.PathLike[str],
    chunks: Iterable[PuzzleRows],
    about: Callable[[], tuple[BoxShape | None, dict[str, Any]]],
    *,
    progress: Callable[[int], None] = lambda rows: None,
    winner: Callable[[], bool] = lambda: False,
) -> None:
    """Write rows as they come; `about` gives box and details after the last one.

    `winner` says at the end whether another process has written the same in the meantime.
    """
    out = Path(out)

    def keep() -> bool:
        if out.exists() and not (out / META).exists():
            raise DataError(f"Will not replace a folder that is not a store: {out}")
        return winner()

    hashes, count = {name: hashlib.sha256() for name in ARRAYS}, 0
    try:
        with atomic_folder(out, keep=keep) as folder:
            with ExitStack() as closing:
                names = {name: folder / f"{name}.bin" for name in ARRAYS}
                files = {n: closing.enter_context(open(path, "wb")) for n, path in names.items()}
                for rows in chunks:
                    for name, dtype in ARRAYS.items():
                        data = np.ascontiguousarray(getattr(rows, name)).astype(dtype, copy=False)
                        files[name].write(data.data)
                        hashes[name].update(data.data)
                    count += len(rows.clues)
                    progress(count)
            box, details = about()
            if count == 0 or box is None:
                bad = ", ".join(f"{n} x {why}" for why, n in details.get("bad_rows", {}).items())
                name = details.get("source", {}).get("name", out)
                raise DataError(f"No usable row{f' (left out: {bad})' if bad else ''}: {name}")
            digests = {name: digest.hexdigest() for name, digest in hashes.items()}
            known = {"box": str(box), "count": count, "identity": _identity(box, count, digests)}
            write_json(folder / META, {"schema": SCHEMA, **known, "sha256": digests, **details})
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise NoPlaceError(
            f"Cannot write here ({error.strerror}); choose another place with "
            f"'graph-machine data prepare FILE --out STORE': {out}"
        ) from error


def _damaged(path: Path, what: str) -> DataError:
    return DataError(f"The store is damaged: {what}. Delete it and prepare it again: {path}")


def _identity(box: BoxShape, count: int, hashes: dict[str, str]) -> str:
    text = json.dumps([SCHEMA, str(box), count, [hashes[name] for name in ARRAYS]])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
