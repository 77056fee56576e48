"""Puzzle files: layouts, containers, and every way in which a row can be bad."""

import gzip
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from graph_machine.errors import DataError
from graph_machine.lab.tasks import csv_files
from graph_machine.lab.tasks.sudoku import reader
from graph_machine.lab.tasks.sudoku.board import BoxShape
from graph_machine.lab.tasks.sudoku.reader import HEADER, RowReader

GRID = "1234341221434321"
PUZZLE = "12.434.....3..2."
ROW = f"7,{PUZZLE},{GRID},7,1.5"
SIX = "123456456123231564564231312645645312"


def write(folder, *rows):
    path = folder / "puzzles.csv"
    path.write_bytes("".join(f"{row}\n" for row in (HEADER, *rows)).encode())
    return path


def read(path, **options):
    rows = RowReader(path, **options)
    parts = [part.arrays for part in rows]
    return rows, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_values(tmp_path):
    rows, arrays = read(write(tmp_path, ROW, ROW.replace("1.5", "")))
    assert rows.box == BoxShape(2, 2)
    assert arrays["puzzles"].tolist() == [[1, 2, 0, 4, 3, 4, 0, 0, 0, 0, 0, 3, 0, 0, 2, 0]] * 2
    assert arrays["solutions"][0].tolist() == [int(symbol) for symbol in GRID]
    assert arrays["clues"].tolist() == [7, 7]
    assert arrays["ratings"][0] == np.float32(1.5)
    assert np.isnan(arrays["ratings"][1])
    for field in ("0.0", "8.5", "3", "12.25", "1e1", " 2.5", "+4", "0.000000000012"):
        _, arrays = read(write(tmp_path, ROW.replace("1.5", field)))
        assert arrays["ratings"][0] == np.float32(field)


@pytest.mark.parametrize(
    ("text", "ratings"),
    [
        (f"puzzle,solution\n{PUZZLE},{GRID}\n{PUZZLE},{GRID}", [None, None]),
        (f"quizzes,solutions\n{PUZZLE},{GRID}", [None]),
        (f'"puzzle","solution"\n"{PUZZLE}","{GRID}"', [None]),
        (f"{PUZZLE},{GRID}", [None]),
        (f"{PUZZLE}\r\n{PUZZLE.replace('.', '0')}\n\n{PUZZLE}", [None, None, None]),
        (f"\ufeff{PUZZLE}\n{PUZZLE}", [None, None]),
        (f"puzzle\n{PUZZLE}", [None]),
        (f"source,question,answer,rating\na,{PUZZLE},{GRID},12\nb,{PUZZLE},{GRID},", [12, None]),
    ],
    ids=["two", "quizzes", "quoted", "no header", "lines", "mark", "one column", "extreme"],
)
def test_layouts(tmp_path, text, ratings):
    """What a file does not say stays unknown; solutions are found where there are none."""
    path = tmp_path / "puzzles.txt"
    path.write_bytes(text.encode())
    rows, arrays = read(path)
    values = [None if np.isnan(rating) else float(rating) for rating in arrays["ratings"]]
    assert values == ratings
    assert rows.layout is not None
    assert rows.layout.scale == ("backtracks" if 12 in ratings else None)
    assert set(map(tuple, arrays["solutions"].tolist())) == {tuple(int(digit) for digit in GRID)}
    assert arrays["clues"].tolist() == [7] * len(ratings)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.removesuffix("\n"),
        lambda text: text + "\n\n",
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.replace(PUZZLE, PUZZLE.replace(".", "0")),
    ],
    ids=["crlf", "byte order mark", "no last newline", "blank end", "blank lines", "zeros"],
)
def test_variants_of_the_text(tmp_path, change):
    path = write(tmp_path, ROW, ROW)
    _, plain = read(path)
    path.write_bytes(change(path.read_text()).encode())
    _, changed = read(path)
    assert all((changed[name] == values).all() for name, values in plain.items())


def test_containers_and_small_blocks(tmp_path, sample_file, sample, monkeypatch):
    packed, archive = tmp_path / "a.csv.gz", tmp_path / "archive.zip"
    packed.write_bytes(gzip.compress(sample_file.read_bytes()))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(sample_file, "sudoku-3m.csv")
        file.writestr("readme.txt", "not a csv")
    monkeypatch.setattr(reader, "BLOCK_ROWS", 30)
    for path in (sample_file, packed, archive):
        _, arrays = read(path)
        assert (arrays["puzzles"] == sample.puzzles).all()
        assert (arrays["ratings"] == sample.ratings).all()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (ROW + ",1", "columns"),
        (ROW.replace(",1.5", ""), "columns"),
        ("no row at all", "columns"),
        (ROW.replace(PUZZLE, PUZZLE[1:]), "puzzle length"),
        (ROW.replace(GRID, GRID + "1"), "solution length"),
        (ROW.replace(PUZZLE, "5" + PUZZLE[1:]), "puzzle symbol"),
        (ROW.replace(PUZZLE, "?" + PUZZLE[1:]), "puzzle symbol"),
        (ROW.replace(GRID, "." + GRID[1:]), "solution symbol"),
        (ROW.replace(GRID, "5" + GRID[1:]), "solution symbol"),
        (ROW.replace(GRID, "2134341221434321"), "invalid solution"),
        (ROW.replace(PUZZLE, "21.4" + PUZZLE[4:]), "givens differ"),
        # Whatever solution a puzzle without one gives is invalid, or disagrees with the givens.
        (f"1,11..............,{GRID},2,0.0", "givens differ"),
        *((ROW.replace(",7,", f",{text},"), "clues") for text in ("5", "", "seven")),
        *((ROW.replace("1.5", text), "difficulty") for text in ("hard", "-1", "inf", "1.2.3", ".")),
        (f"1,1...............,{GRID},1,0.0", "several solutions"),  # 72
    ],
)
def test_bad_rows(tmp_path, row, reason):
    path = write(tmp_path, ROW, ROW, row, ROW)
    unique = {"check_unique": reason == "several solutions"}
    words = reader.REASONS[reason].partition(" {")[0]
    with pytest.raises(DataError, match=f"Line 4: {words}") as caught:
        read(path, **unique)
    assert str(path) in str(caught.value)
    rows, arrays = read(path, on_bad="skip", **unique)
    assert rows.bad == {reason: 1}
    assert len(arrays["puzzles"]) == 3


def test_puzzles_without_solutions_are_checked(tmp_path):
    path = tmp_path / "puzzles.txt"
    path.write_text(f"{PUZZLE}\n{'.' * 16}\n11{'.' * 14}\n{PUZZLE}\n")
    with pytest.raises(DataError, match=r"Line 2: .*more than one"):
        read(path)
    rows, arrays = read(path, on_bad="skip")
    assert rows.bad == {"several solutions": 1, "no solution": 1}
    assert len(arrays["puzzles"]) == 2


def test_a_symbol_is_missing(tmp_path, sample_file):
    """In the middle of the file, and in its only row."""
    lines = sample_file.read_text().splitlines()[1:11]
    number, puzzle, rest = lines[4].split(",", 2)
    lines[4] = f"{number},{puzzle[1:]},{rest}"
    with pytest.raises(DataError, match=r"Line 6: .*81 cells \(box 3x3\)"):
        read(write(tmp_path, *lines))
    with pytest.raises(DataError, match=r"Line 2: .*80 cells"):
        read(write(tmp_path, lines[4]))


def test_the_box_follows_from_the_solutions(tmp_path):
    def row(grid):
        return f"1,{grid[:20]}{'.' * 16},{grid},20,0.0"

    turned = "".join(np.array(list(SIX)).reshape(6, 6).T.ravel())
    assert str(read(write(tmp_path, row(SIX)))[0].box) == "2x3"
    assert str(read(write(tmp_path, row(turned)))[0].box) == "3x2"
    rows, _ = read(write(tmp_path, row(SIX)), box=BoxShape(3, 2), on_bad="skip")
    assert rows.bad == {"invalid solution": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"quizzes,solutions\n1,2\n", "Line 2: .*1 cell,"),
        (b"boards,answers\n1,2\n", "'boards,answers'"),
        (ROW.encode() + b"\n", "first line"),
        (b"\x00\xff\x00" * 50, "first line"),
    ],
)
def test_bad_starts(tmp_path, content, message):
    (tmp_path / "bad.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "bad.csv")


def test_bad_containers(tmp_path, sample_file):
    with pytest.raises(DataError, match="data file"):
        read(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="folder"):
        read(tmp_path)
    packed = gzip.compress(sample_file.read_bytes())
    for name, content in [
        ("cut.csv.gz", packed[: len(packed) // 2]),
        ("broken.csv.gz", packed[:2000] + bytes(2000) + packed[4000:]),
        ("cut.zip", b"PK\x03\x04" + bytes(100)),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"cut or damaged .*{name}"):
            read(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as file:
        file.writestr("a.csv", "")
        file.writestr("b.csv", "")
    with pytest.raises(DataError, match=r"a\.csv, b\.csv"):
        read(tmp_path / "two.zip")


@pytest.mark.parametrize(
    ("method", "at", "value", "message"),
    [
        (zipfile.ZIP_LZMA, None, 0, "'lzma'"),  # these would be unpacked whole
        (zipfile.ZIP_BZIP2, None, 0, "'bzip2'"),
        (zipfile.ZIP_DEFLATED, 8, 1, "encrypted"),
        (zipfile.ZIP_DEFLATED, 10, 9, "'deflate64'"),
        (zipfile.ZIP_DEFLATED, 10, 77, "'77'"),
        (zipfile.ZIP_DEFLATED, 6, 99, "cut or damaged .*version 9.9"),
    ],
)
def test_archives_that_cannot_be_read(tmp_path, method, at, value, message):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("a.csv", f"{HEADER}\n{ROW}\n")
    content = bytearray(path.read_bytes())
    if at is not None:
        entry = content.index(b"PK\x01\x02")  # of the central directory
        struct.pack_into("<H", content, entry + at, value)
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(path)


@pytest.mark.parametrize("on_bad", ["error", "skip"])
@pytest.mark.parametrize("packing", ["gzip", "zip", "none"])
def test_a_line_without_end(tmp_path, packing, on_bad):
    """A megabyte of gzip holds a gigabyte of one line; a few blocks of it are read, not all."""
    text = f"{HEADER}\n{ROW}\n".encode() + bytes(1 << 24)
    path = tmp_path / "bomb"
    if packing == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("a.csv", text)
    else:
        path.write_bytes(gzip.compress(text, 1) if packing == "gzip" else text)
    del text
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="Line 3 is longer"):
            read(path, on_bad=on_bad)
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


def test_files_that_unfold_too_far(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "FREE_BYTES", 1 << 16)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(f"{HEADER}\n{ROW}\n".encode() + b"\n" * (1 << 22)))
    with pytest.raises(DataError, match="100 times"):
        read(path)
    path.write_bytes(gzip.compress(f"{HEADER}\n{ROW}\n".encode() + b"\n" * 5000))
    assert len(read(path)[1]["puzzles"]) == 1
