"""`graph-machine solve`: puzzles solved by a trained model. 0: all valid, 1: not, 2: an error."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from graph_machine.errors import DataError
from graph_machine.models import GraphMachine, open_model
from graph_machine.tasks.base import Answer, Task
from graph_machine.tasks.batch import Batch
from graph_machine.training.devices import choose_device


@dataclass(frozen=True)
class Args:
    """Solve puzzles with a model; the answer is checked, and the exit status is 0 if every
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
    rounds: int | None = None
    """rounds of a recurrent core; default: as trained"""
    until_stable: int | None = None
    """stop when an answer has not changed for this many rounds, and report the rounds used"""
    limit: int | None = None
    """only the first N puzzles"""
    device: str | None = None
    json: bool = False
    """print JSON, for programs"""


def read_puzzles(args: Args, task: Task) -> Iterator[str]:
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
    yield from task.examples_in(text)


def solve(
    model: GraphMachine, task: Task, examples: Sequence[Batch], *, check: bool, **rounds: Any
) -> tuple[list[Answer], list[int] | None]:
    """One answer per example, and the rounds it took; givens stay as they are."""
    whole = Batch.join(examples)
    found = model.predict(whole.tokens, whole.graph, whole.node_mask, whole.features, **rounds)
    rows = zip(examples, found.answers, found.confidences, strict=True)
    shown = [
        task.show(one, answers[: one.where.shape[1]], sure[: one.where.shape[1]], check=check)
        for one, answers, sure in rows
    ]
    return shown, None if found.rounds is None else found.rounds.tolist()


def main(argv: list[str]) -> int:
    args = tyro.cli(Args, args=argv, prog="graph-machine solve")
    subject = open_model(args.model)
    subject.model.to(choose_device(args.device))
    task = subject.known_task
    texts = list(read_puzzles(args, task))[: args.limit]
    if not texts:
        raise DataError("There is no puzzle to solve.")
    examples = [task.parse(text) for text in texts]
    how = {"rounds": args.rounds, "until_stable": args.until_stable}
    answers, rounds = solve(subject.model, task, examples, check=args.check, **how)
    valid = sum(answer.valid is not False for answer in answers)
    if args.json:
        data = [answer.to_dict() for answer in answers]
        if rounds is not None:
            data = [one | {"rounds": taken} for one, taken in zip(data, rounds, strict=True)]
        single = args.puzzle is not None and args.puzzle != "-"
        print(json.dumps(data[0] if single else data, indent=2))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for number, answer in enumerate(answers):
            console.print(answer.draw(confidence=args.confidence))
            after = "" if rounds is None else f" After {rounds[number]} rounds."
            console.print(f"{answer.verdict()}{after}")
        if len(answers) > 1:
            console.print(f"{valid} of {len(answers)} answers are valid solutions.")
    return 0 if valid == len(answers) else 1
