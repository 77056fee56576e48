"""Reading files: containers, line ends, and every way in which a row can be bad."""

import gzip
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from graph_machine.errors import DataError
from graph_machine.lab.tasks import csv_files as containers
from graph_machine.lab.tasks.sudoku import reader
from graph_machine.lab.tasks.sudoku.board import BoxShape
from graph_machine.lab.tasks.sudoku.reader import HEADER, REASONS, RowReader

GRID = "1234341221434321"
PUZZLE = "12.434.....3..2."
ROW = f"7,{PUZZLE},{GRID},7,1.5"
SIX = "123456456123231564564231312645645312"
TWO = f"1,1...............,{GRID},1,0.0"  # 72 solutions


def write(folder, *rows, header=HEADER, end="\n"):
    path = folder / "puzzles.csv"
    path.write_bytes((end.join([header, *rows]) + end).encode())
    return path


def read(path, **options):
    rows = RowReader(path, **options)
    parts = list(rows)
    return rows, {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("puzzles", "solutions", "clues", "ratings")
    }


def test_values(tmp_path):
    rows, arrays = read(write(tmp_path, ROW, ROW.replace("1.5", "")))
    assert rows.box == BoxShape(2, 2)
    assert arrays["puzzles"].tolist() == [[1, 2, 0, 4, 3, 4, 0, 0, 0, 0, 0, 3, 0, 0, 2, 0]] * 2
    assert arrays["solutions"][0].tolist() == [int(symbol) for symbol in GRID]
    assert arrays["clues"].tolist() == [7, 7]
    assert arrays["ratings"][0] == np.float32(1.5)
    assert np.isnan(arrays["ratings"][1])


@pytest.mark.parametrize(
    ("text", "ratings"),
    [
        (f"puzzle,solution\n{PUZZLE},{GRID}\n{PUZZLE},{GRID}", [None, None]),
        (f"quizzes,solutions\n{PUZZLE},{GRID}", [None]),
        (f"{PUZZLE},{GRID}", [None]),
        (f"{PUZZLE}\r\n{PUZZLE.replace('.', '0')}\n\n{PUZZLE}", [None, None, None]),
        (f"\ufeff{PUZZLE}\n{PUZZLE}", [None, None]),
        (f"puzzle\n{PUZZLE}", [None]),
        (f"source,question,answer,rating\na,{PUZZLE},{GRID},12\nb,{PUZZLE},{GRID},", [12, None]),
    ],
    ids=["puzzle,solution", "quizzes", "no header", "lines", "mark", "one column", "extreme"],
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


def test_puzzles_without_solutions_are_checked(tmp_path):
    path = tmp_path / "puzzles.txt"
    path.write_text(f"{PUZZLE}\n{'.' * 16}\n11{'.' * 14}\n{PUZZLE}\n")
    with pytest.raises(DataError, match=r"Line 2: the puzzle has more than one solution. To leave"):
        read(path)
    rows, arrays = read(path, on_bad="skip")
    assert rows.bad == {"several solutions": 1, "no solution": 1}
    assert len(arrays["puzzles"]) == 2


@pytest.mark.parametrize(
    "field", ["0.0", "8.5", "3", "12.25", "1e1", " 2.5", "+4", "0.000000000012"]
)
def test_ratings(tmp_path, field):
    _, arrays = read(write(tmp_path, ROW.replace("1.5", field)))
    assert arrays["ratings"][0] == np.float32(field)


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
    for name, values in plain.items():
        assert (changed[name] == values).all()


def test_containers_and_small_blocks(tmp_path, sample_file, sample, monkeypatch):
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(sample_file.read_bytes()))
    archive = tmp_path / "archive.zip"
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
        (ROW.replace(",7,", ",5,"), "clues"),
        (ROW.replace(",7,", ",,"), "clues"),
        (ROW.replace(",7,", ",seven,"), "clues"),
        (ROW.replace("1.5", "hard"), "difficulty"),
        (ROW.replace("1.5", "-1"), "difficulty"),
        (ROW.replace("1.5", "inf"), "difficulty"),
        (ROW.replace("1.5", "1.2.3"), "difficulty"),
        (ROW.replace("1.5", "."), "difficulty"),
    ],
)
def test_bad_rows(tmp_path, row, reason):
    path = write(tmp_path, ROW, ROW, row, ROW)
    text = REASONS[reason].format(box="2x2", cells=16, columns=5, layout=HEADER)
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value).startswith(f"Line 4: {text}.")
    assert str(path) in str(caught.value)
    rows, arrays = read(path, on_bad="skip")
    assert rows.bad == {reason: 1}
    assert len(arrays["puzzles"]) == 3


def test_80_cells(tmp_path, sample_file):
    """The usual board with one symbol missing, in the middle of the file and as its only row."""
    lines = sample_file.read_text().splitlines()[1:11]
    short = lines[4].replace(",", ",", 1).split(",")
    short[1] = short[1][1:]
    lines[4] = ",".join(short)
    with pytest.raises(DataError, match=r"Line 6: the puzzle does not have 81 cells \(box 3x3\)"):
        read(write(tmp_path, *lines))
    with pytest.raises(DataError, match="Line 2: the puzzle has 80 cells, which no box shape has"):
        read(write(tmp_path, lines[4]))


def test_two_solutions(tmp_path):
    path = write(tmp_path, ROW, TWO)
    with pytest.raises(DataError, match="Line 3: the puzzle has more than one solution"):
        read(path, check_unique=True)
    rows, arrays = read(path, check_unique=True, on_bad="skip")
    assert rows.bad == {"several solutions": 1}
    assert len(arrays["puzzles"]) == 1
    assert len(read(path)[1]["puzzles"]) == 2  # without the check


@pytest.mark.parametrize("check_unique", [False, True])
def test_no_solution(tmp_path, check_unique):
    """Whatever solution such a row gives must be invalid or disagree with the givens."""
    path = write(tmp_path, ROW, f"1,11..............,{GRID},2,0.0")
    with pytest.raises(DataError, match="Line 3: the solution disagrees with a given"):
        read(path, check_unique=check_unique)


@pytest.mark.parametrize(("box", "reason"), [(None, None), ("3x2", "invalid solution")])
def test_box_is_told_from_the_solutions(tmp_path, box, reason):
    path = write(tmp_path, f"1,{SIX[:20]}{'.' * 16},{SIX},20,0.0")
    rows, _ = read(path, box=BoxShape.parse(box) if box else None, on_bad="skip")
    assert str(rows.box) == (box or "2x3")
    assert rows.bad == ({reason: 1} if reason else {})


def test_turned_boxes(tmp_path):
    turned = "".join(np.array(list(SIX)).reshape(6, 6).T.ravel())
    rows, _ = read(write(tmp_path, f"1,{turned[:20]}{'.' * 16},{turned},20,0.0"))
    assert str(rows.box) == "3x2"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "The data file is empty"),
        (b"\n", "The data file is empty"),
        (b"quizzes,solutions\n1,2\n", "Line 2: the puzzle has 1 cell,"),
        (b"boards,answers\n1,2\n", f"The first line should be '{HEADER}', .* got 'boards,an"),
        (ROW.encode() + b"\n", "The first line should be"),
        (b"\x00\xff\x00" * 50, "The first line should be"),
    ],
)
def test_bad_starts(tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(path)


def test_bad_containers(tmp_path, sample_file):
    with pytest.raises(DataError, match="There is no such data file"):
        read(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="a folder that is not a store"):
        read(tmp_path)
    packed = gzip.compress(sample_file.read_bytes())
    for name, content in [
        ("cut.csv.gz", packed[: len(packed) // 2]),
        ("broken.csv.gz", packed[:2000] + bytes(2000) + packed[4000:]),
        ("cut.zip", b"PK\x03\x04" + bytes(100)),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"cut or damaged .*{name}"):
            read(path)
    archive = tmp_path / "two.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.csv", "")
        file.writestr("b.csv", "")
    with pytest.raises(DataError, match=r"exactly one \.csv inside of the archive, found a.csv, b"):
        read(archive)


def zipped(path, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("a.csv", f"{HEADER}\n{ROW}\n")
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_of_archives(tmp_path, method):
    """They would be unpacked whole, however large that is."""
    with pytest.raises(DataError, match=r"compressed by '(lzma|bzip2)', and only deflate is read"):
        read(zipped(tmp_path / "a.zip", method))


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (8, 1, "encrypted; unpack it first"),
        (10, 9, "compressed by 'deflate64'"),
        (10, 77, "compressed by '77'"),
        (6, 99, "cut or damaged .*version 9.9"),
    ],
    ids=["encrypted", "deflate64", "unknown", "too new"],
)
def test_archives_that_cannot_be_read(tmp_path, at, value, message):
    path = zipped(tmp_path / "a.zip")
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")  # of the central directory
    struct.pack_into("<H", content, entry + at, value)
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(path)


@pytest.mark.parametrize("on_bad", ["error", "skip"])
@pytest.mark.parametrize("packing", ["gzip", "zip", "none"])
def test_a_line_without_end(tmp_path, packing, on_bad):
    """A megabyte of gzip holds a gigabyte of one line; a few blocks of it are read, not all."""
    text = f"{HEADER}\n{ROW}\n".encode() + bytes(1 << 26)
    path = tmp_path / "bomb"
    if packing == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("a.csv", text)
    else:
        path.write_bytes(gzip.compress(text, 1) if packing == "gzip" else text)
    del text
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="Line 3 is longer than 65,536 bytes"):
            read(path, on_bad=on_bad)
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()


def test_a_long_line_is_refused_wherever_it_lies(tmp_path):
    path = write(tmp_path, ROW, "7" * 70_000 + ROW[1:], ROW)
    with pytest.raises(DataError, match="Line 3 is longer than 65,536 bytes"):
        read(path)


def test_files_that_unfold_too_far(tmp_path, monkeypatch):
    monkeypatch.setattr(containers, "FREE_BYTES", 1 << 16)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(f"{HEADER}\n{ROW}\n".encode() + b"\n" * (1 << 22)))
    with pytest.raises(DataError, match="more than 100 times its size"):
        read(path)
    path.write_bytes(gzip.compress(f"{HEADER}\n{ROW}\n".encode() + b"\n" * 5000))
    assert len(read(path)[1]["puzzles"]) == 1
