"""`graph-machine solve`: puzzles solved by a trained model. 0: all valid, 1: not, 2: an error."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console

from graph_machine.errors import DataError
from graph_machine.models import GraphMachine
from graph_machine.tasks.sudoku.answers import Answer, make_answer
from graph_machine.tasks.sudoku.board import BoxShape, parse_board
from graph_machine.tasks.sudoku.reader import HEADER
from graph_machine.training.devices import choose_device
from graph_machine.zoo.assess import load_subject


@dataclass(frozen=True)
class Args:
    """Solve puzzles with a model; the answer is checked, and the exit status tells: 0 if every
    answer is a valid solution, 1 if one is not, 2 for an error."""

    model: Annotated[str, tyro.conf.Positional]
    """run folder, checkpoint folder, or the name of a model"""
    puzzle: Annotated[str | None, tyro.conf.Positional] = None
    """the board row by row, '.' or 0 for a blank; - reads lines from standard input"""
    file: Path | None = None
    """one puzzle per line, or rows of a puzzle file"""
    check: bool = False
    """compare with the exact solver"""
    confidence: bool = False
    """show each digit's probability in percent"""
    limit: int | None = None
    """only the first N puzzles"""
    device: str | None = None
    json: bool = False
    """print JSON, for programs"""


def read_puzzles(args: Args) -> Iterator[str]:
    """The puzzles that were given, as text."""
    if (args.puzzle is None) == (args.file is None):
        raise DataError("Give one of: a puzzle, - for standard input, or --file FILE.")
    if args.puzzle is not None and args.puzzle != "-":
        yield args.puzzle
        return
    if args.file is not None:
        try:
            text = args.file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise DataError(f"Not a text file: {args.file}") from None
    else:
        text = sys.stdin.read()
    for line in text.splitlines():
        line = line.strip()
        if line and line != HEADER:
            # A row of a puzzle file has the puzzle in its second column.
            yield line.split(",")[1] if line.count(",") >= 2 else line


def box_of(model: GraphMachine, task: object) -> BoxShape:
    """The box shape that the model was trained on."""
    box = getattr(task, "box", None)
    if box is not None:
        return BoxShape.parse(box)
    if model.spec.grid is None or model.spec.num_nodes is None:
        raise DataError("This model does not solve boards: its spec has no grid.")
    return BoxShape.of_cells(model.spec.num_nodes)


def solve(model: GraphMachine, boards: np.ndarray, box: BoxShape, *, check: bool) -> list[Answer]:
    found = model.predict(boards)
    return [
        make_answer(board, digits + 1, confidence, box, check=check)
        for board, digits, confidence in zip(boards, found.answers, found.confidences, strict=True)
    ]


def main(argv: list[str]) -> int:
    args = tyro.cli(Args, args=argv, prog="graph-machine solve")
    subject = load_subject(args.model)
    subject.model.to(choose_device(args.device))
    box = box_of(subject.model, subject.task)
    texts = list(read_puzzles(args))[: args.limit]
    if not texts:
        raise DataError("There is no puzzle to solve.")
    boards = np.stack([parse_board(text, box) for text in texts])
    answers = solve(subject.model, boards, box, check=args.check)
    valid = sum(answer.valid for answer in answers)
    if args.json:
        data = [answer.to_dict() for answer in answers]
        single = args.puzzle is not None and args.puzzle != "-"
        print(json.dumps(data[0] if single else data, indent=2))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for answer in answers:
            console.print(answer.draw(confidence=args.confidence))
            console.print(answer.verdict())
        if len(answers) > 1:
            console.print(f"{valid} of {len(answers)} answers are valid solutions.")
    return 0 if valid == len(answers) else 1
