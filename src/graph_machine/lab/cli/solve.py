"""`graph-machine solve`: puzzles solved by a trained model. 0: all valid, 1: not, 2: an error."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from graph_machine.errors import ConfigError, DataError, GraphMachineError, count_of
from graph_machine.files import read_text
from graph_machine.lab.cli._options import Solve
from graph_machine.lab.opening import open_model, predict_in_tries
from graph_machine.lab.tasks.answers import Answer
from graph_machine.lab.tasks.base import Task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.machine import choose_device
from graph_machine.models import GraphMachine
from graph_machine.models.predict import Rounds

AT_ONCE = 256  # puzzles in one call of the model
Effort = dict[str, int]  # rounds and tries behind an answer, if there can be several
# The marks of `draw_digits` on filled-in digits.
LEGEND = {"'": "' filled in by the model", "!": "! filled in, but wrong"}


def main(args: Solve) -> int:
    subject = open_model(args.model)
    subject.model.to(choose_device(args.device))
    model, task = subject.model, subject.known_task
    if (args.puzzle is None) == (args.file is None):
        raise DataError("Give one of: a puzzle, - for standard input, or --file FILE.")
    if args.puzzle is not None and args.puzzle != "-":
        given = {1: args.puzzle}
    else:
        given = dict(list(read_puzzles(args, task))[: args.limit])
    if not given:
        raise DataError("There is no puzzle to solve.")
    if not model.spec.learned_places:  # it takes any side: that of the first puzzle
        task = task.fitting(next(iter(given.values())))
        model = model.for_spec(task.spec)
    examples: dict[int, Batch] = {}
    entries: dict[int, dict[str, Any]] = {}
    for line, text in given.items():
        try:
            examples[line] = task.parse(text)
        except GraphMachineError as error:
            if args.puzzle not in (None, "-"):
                raise
            print(f"graph-machine: line {line}: {error}", file=sys.stderr)
            entries[line] = {"line": line, "error": str(error), "puzzle": text}
    answers, efforts = solve_examples(model, task, list(examples.values()), args)
    code = 2 if entries else 1 if any(answer.valid is False for answer in answers) else 0
    if args.json:
        for line, answer, effort in zip(examples, answers, efforts, strict=True):
            entries[line] = {"line": line, "error": None, **answer.to_dict(), **effort}
        print(json.dumps([entries[line] for line in sorted(entries)], indent=2))
    else:
        print_answers(answers, efforts, confidence=args.confidence)
    return code


def read_puzzles(args: Solve, task: Task) -> Iterator[tuple[int, str]]:
    """The puzzles of a file or of standard input as text, each with the number of its line."""
    if args.file is not None:
        text = read_text(args.file)
    else:
        try:
            text = sys.stdin.read().removeprefix("\ufeff")
        except UnicodeDecodeError:
            raise DataError("Standard input is not text (UTF-8).") from None
    return task.examples_in(text)


def check_settles(rounds: Rounds, model: GraphMachine) -> None:
    """Refuse a number of unchanged rounds that no answer can reach."""
    most = rounds.check(model)
    # The first round has nothing to compare with: R rounds can be unchanged R - 1 times.
    if rounds.until_stable is not None and rounds.until_stable >= most:
        raise ConfigError(
            f"--until-stable should be below the number of rounds ({most}), got "
            f"{rounds.until_stable}: no answer could settle."
        )


def solve_examples(
    model: GraphMachine, task: Task, examples: Sequence[Batch], args: Solve
) -> tuple[list[Answer], list[Effort]]:
    """One answer per example, and its rounds and tries; givens stay as they are."""
    how = Rounds(args.rounds, args.until_stable)
    if args.until_stable is not None:
        check_settles(how, model)
    shown: list[Answer] = []
    efforts: list[Effort] = []
    for start in range(0, len(examples), AT_ONCE):
        part = examples[start : start + AT_ONCE]
        whole = Batch.join(part)
        if args.tries > 1:
            found = predict_in_tries(model, task, whole, tries=args.tries, rounds=how)
        else:
            inputs = whole.inputs
            first = inputs.pop("tokens")
            found = model.predict(
                first, **inputs, rounds=args.rounds, until_stable=args.until_stable
            )
        counted = {"rounds": found.rounds, "tries": found.tries}
        for row, one in enumerate(part):
            size = one.where.shape[1]
            answers, sure = found.answers[row][:size], found.confidences[row][:size]
            shown.append(task.show(one, answers, sure, check=args.check))
            taken = {name: each for name, each in counted.items() if each is not None}
            efforts.append({name: int(each[row]) for name, each in taken.items()})
    return shown, efforts


def print_answers(
    answers: Sequence[Answer], efforts: Sequence[Effort], *, confidence: bool = False
) -> None:
    """Every answer with a line on it; for several, the number of valid ones, then a legend."""
    # An answer may be any text, also what looks like markup.
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    marks: set[str] = set()
    for answer, effort in zip(answers, efforts, strict=True):
        drawn = answer.draw(confidence=confidence)
        marks |= {mark for mark in LEGEND if isinstance(drawn, Text) and mark in drawn.plain}
        console.print(drawn)
        words = [f"after {count_of(effort['rounds'], 'rounds')}"] if "rounds" in effort else []
        if "tries" in effort:
            words.append("in 1 try" if effort["tries"] == 1 else f"in {effort['tries']} tries")
        taken = " ".join(words)
        console.print(answer.verdict() + (f" {taken[0].upper()}{taken[1:]}." if taken else ""))
    checked = [answer.valid for answer in answers if answer.valid is not None]
    if len(answers) > 1 and checked:
        console.print(f"{sum(checked)} of {len(checked)} answers are valid solutions.")
    if marks:
        console.print(f"({', '.join(LEGEND[mark] for mark in LEGEND if mark in marks)})")
