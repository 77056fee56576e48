"""Rows of .csv files of boards, as jigsaws and mazes have them."""

import csv
import io
import os
from pathlib import Path

from graph_machine.errors import DataError
from graph_machine.files import read_text


def read_rows(path: str | os.PathLike[str]) -> list[tuple[int, list[str]]]:
    """The fields of every row that is not blank, with the number of its line; the header too."""
    if not Path(path).is_file():
        raise DataError(f"There is no such data file: {path}")
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    try:
        return [(reader.line_num, fields) for fields in reader if fields]
    except csv.Error as error:  # a field that is far too long
        raise DataError(f"Line {reader.line_num} of {path}: {error}.") from None
