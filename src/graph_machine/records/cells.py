"""What stands in the cells of a recorded board, and which cells are asked: for pictures.

A task's own tokens are characters of its alphabet: digits in Sudoku, `#.SG` in mazes.
"""

import numpy as np
from jaxtyping import Bool, Integer

from graph_machine.errors import DataError
from graph_machine.records.record import Record
from graph_machine.tasks.looks import standing_out

WALL = "#"  # in the alphabet of mazes; pictures fill the cell
PATH_SIGNS = {"-": "", "o": "●"}  # answers in mazes, as pictures show them
BLANK = "."  # the character of an empty cell in every alphabet; pictures leave it out


def is_sequence(record: Record) -> bool:
    """Whether the nodes stand in one line: there are no rows and columns."""
    return not record.graph_is_given and (record.grid is None or min(record.grid) == 1)


def no_characters(record: Record) -> str | None:
    """Why tokens and answers cannot be written into cells; None where they can."""
    spec = _spec(record)
    if is_sequence(record):
        return "is of sequences, and the figure shows boards"
    if not spec.get("alphabet") or record.tokens is None:
        return "has no characters for its tokens"
    if not spec.get("answers") or spec.get("output", "node") != "node":
        return "has no characters for its answers"
    return None


def token_characters(record: Record, sample: int) -> list[str] | None:
    """The token of every cell, nothing at an empty one; None where cells hold no characters."""
    tokens = record.tokens
    if no_characters(record) is not None or tokens is None:
        return None
    return _written(tokens[record.row(sample)], _spec(record)["alphabet"])


def answer_characters(record: Record, answers: Integer[np.ndarray, "n"]) -> list[str]:
    """Answers (output indices) as characters; as numbers where they have none."""
    words = _written(answers, _spec(record).get("answers"))
    is_maze = WALL in (_spec(record).get("alphabet") or "")
    return [PATH_SIGNS.get(word, word) for word in words] if is_maze else words


def asked_cells(record: Record, sample: int) -> Bool[np.ndarray, "n"]:
    """The cells of a sample whose answers count; an error where the recording does not say."""
    known = known_asked(record, sample)
    if known is None:
        raise DataError(
            f"The recording of {record.name} does not say which cells are asked; record it again."
        )
    return known


def known_asked(record: Record, sample: int) -> Bool[np.ndarray, "n"] | None:
    """As `asked_cells`, or None. Where it was not stored, it follows from what is given."""
    row, spec, tokens = record.row(sample), _spec(record), record.tokens
    if record.where is not None:
        return record.where[row].astype(bool)
    alphabet, answers = spec.get("alphabet"), spec.get("answers")
    keeps = spec.get("keeps_givens", True) and spec.get("output", "node") == "node"
    if not (keeps and alphabet and answers) or tokens is None:
        return None
    # A token with the character of an answer is that answer, as in `InputSpec.given_answers`.
    return np.array([alphabet[token] not in answers for token in tokens[row]])


def marked_nodes(record: Record, sample: int) -> list[int]:
    """The start of a search: the node that holds the rarer of two tokens."""
    spec = _spec(record)
    if record.tokens is None or spec.get("num_tokens") != 2:
        return []
    return standing_out(record.tokens[record.row(sample)])


def _spec(record: Record) -> dict:
    return record.meta["model"].get("spec") or {}


def _written(indices: Integer[np.ndarray, "n"], characters: str | None) -> list[str]:
    if characters is None:
        return [str(index) for index in indices]
    return [characters[index].replace(BLANK, "") for index in indices]
