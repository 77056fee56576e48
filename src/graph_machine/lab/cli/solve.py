"""`graph-machine solve`: puzzles solved by a trained model. 0: all valid, 1: not, 2: an error."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from graph_machine.errors import DataError, GraphMachineError, count_of
from graph_machine.files import read_text
from graph_machine.lab.cli._options import Count, check_settles, options, parse_one, read

if TYPE_CHECKING:
    from graph_machine.lab.tasks.answers import Answer
    from graph_machine.lab.tasks.base import Task
    from graph_machine.lab.tasks.batch import Batch
    from graph_machine.models import GraphMachine

AT_ONCE = 256  # puzzles in one call of the model
Effort = dict[str, int]  # rounds and tries behind an answer, if there can be several
# The marks of `draw_board` on filled-in digits.
LEGEND = {"'": "' filled in by the model", "!": "! filled in, but wrong"}


@options
class Args:
    """Solve puzzles with a model; the answer is checked, and the exit status is 0 if every
    answer is a valid solution, 1 if one is not, 2 for an error."""

    model: Annotated[str, tyro.conf.Positional]
    """run folder, checkpoint folder, or the name of a model"""
    puzzle: Annotated[str | None, tyro.conf.Positional] = None
    """the board row by row, '.' or 0 for a blank; - reads lines from standard input"""
    file: Path | None = None
    """one puzzle per line, or rows of a puzzle file; bad lines are reported, the others solved"""
    check: bool = False
    """compare with the exact solver"""
    confidence: bool = False
    """show each digit's probability in percent"""
    rounds: Annotated[str | None, tyro.conf.arg(metavar="INT")] = None
    """rounds of a recurrent core; default: as trained"""
    until_stable: Count | None = None
    """stop when an answer has not changed for this many rounds, and report the rounds used"""
    tries: Count = 1
    """retry in another form (digits relabelled, lines moved) while an answer breaks the rules, up
    to this many tries in all"""
    limit: Count | None = None
    """only the first N puzzles"""
    device: str | None = None
    """cpu, cuda, ...; default: the accelerator if there is one"""
    json: bool = False
    """print a JSON list with an entry per puzzle, for programs"""


def read_puzzles(args: Args, task: "Task") -> Iterator[tuple[int, str]]:
    """The given puzzles as text, each with the number of its line."""
    if (args.puzzle is None) == (args.file is None):
        raise DataError("Give one of: a puzzle, - for standard input, or --file FILE.")
    if args.puzzle is not None and args.puzzle != "-":
        yield 1, args.puzzle
        return
    if args.file is not None:
        text = read_text(args.file)
    else:
        try:
            text = sys.stdin.read().removeprefix("\ufeff")
        except UnicodeDecodeError:
            raise DataError("Standard input is not text (UTF-8).") from None
    yield from task.examples_in(text)


def parse_all(
    given: Sequence[tuple[int, str]], task: "Task"
) -> "tuple[dict[int, Batch], dict[int, str]]":
    """The parsed examples, and the errors of the others, by line."""
    good: dict[int, Batch] = {}
    bad: dict[int, str] = {}
    for line, text in given:
        try:
            good[line] = task.parse(text)
        except GraphMachineError as error:
            bad[line] = str(error)
    return good, bad


def solve(
    model: "GraphMachine",
    task: "Task",
    examples: "Sequence[Batch]",
    *,
    rounds: int | None = None,
    until_stable: int | None = None,
    tries: int = 1,
    check: bool = False,
) -> "tuple[list[Answer], list[Effort]]":
    """One answer per example, and what it took; givens stay as they are."""
    from graph_machine.lab.opening import check_tries, predict_in_tries
    from graph_machine.lab.tasks.batch import Batch
    from graph_machine.models.rounds import Rounds

    how = Rounds(rounds, until_stable)
    check_settles(how, model)
    check_tries(task, tries)
    shown: list[Answer] = []
    efforts: list[Effort] = []
    for start in range(0, len(examples), AT_ONCE):
        part = examples[start : start + AT_ONCE]
        whole = Batch.join(part)
        if tries > 1:
            found = predict_in_tries(model, task, whole, tries=tries, rounds=how)
        else:
            inputs = whole.inputs()
            first = inputs.pop("tokens")
            found = model.predict(first, **inputs, rounds=rounds, until_stable=until_stable)
        rows = zip(part, found.answers, found.confidences, strict=True)
        shown += [
            task.show(one, answers[: one.where.shape[1]], sure[: one.where.shape[1]], check=check)
            for one, answers, sure in rows
        ]
        taken = {"rounds": found.rounds, "tries": found.tries}
        counted = {name: each for name, each in taken.items() if each is not None}
        efforts += [{n: int(each[i]) for n, each in counted.items()} for i in range(len(part))]
    return shown, efforts


def main(argv: list[str]) -> int:
    args = read(Args, argv, "solve")
    rounds = parse_one(args.rounds)
    from graph_machine.lab.opening import open_model
    from graph_machine.machine import choose_device

    subject = open_model(args.model)
    subject.model.to(choose_device(args.device))
    task = subject.known_task
    given = list(read_puzzles(args, task))[: args.limit]
    if not given:
        raise DataError("There is no puzzle to solve.")
    task = task.fitting(given[0][1])  # a model may take boards of any side: that of the first
    model = subject.model.for_spec(task.spec)
    examples, bad = parse_all(given, task)
    if bad and args.puzzle not in (None, "-"):
        raise DataError(bad[1])
    for line, why in bad.items():
        print(f"graph-machine: line {line}: {why}", file=sys.stderr)
    answers, efforts = solve(
        model,
        task,
        list(examples.values()),
        rounds=rounds,
        until_stable=args.until_stable,
        tries=args.tries,
        check=args.check,
    )
    if args.json:
        print(json.dumps(as_json(dict(given), examples, answers, efforts, bad), indent=2))
    else:
        print_answers(answers, efforts, confidence=args.confidence)
    return 2 if bad else 1 if any(answer.valid is False for answer in answers) else 0


def print_answers(
    answers: "Sequence[Answer]", efforts: Sequence[Effort], *, confidence: bool = False
) -> None:
    """Every answer with a line on it; for several, the number of valid ones, then a legend."""
    from rich.console import Console
    from rich.text import Text

    # An answer may be any text, also what looks like markup.
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    marks: set[str] = set()
    for answer, effort in zip(answers, efforts, strict=True):
        drawn = answer.draw(confidence=confidence)
        marks |= {mark for mark in LEGEND if isinstance(drawn, Text) and mark in drawn.plain}
        console.print(drawn)
        console.print(f"{answer.verdict()}{in_words(effort)}")
    checked = [answer.valid for answer in answers if answer.valid is not None]
    if len(answers) > 1 and checked:
        console.print(f"{sum(checked)} of {len(checked)} answers are valid solutions.")
    if marks:
        console.print(f"({', '.join(LEGEND[mark] for mark in LEGEND if mark in marks)})")


def in_words(effort: Effort) -> str:
    """` After 32 rounds in 2 tries.`; empty if there is nothing to count."""
    words = [f"after {count_of(effort['rounds'], 'rounds')}"] if "rounds" in effort else []
    if "tries" in effort:
        words.append("in 1 try" if effort["tries"] == 1 else f"in {effort['tries']} tries")
    text = " ".join(words)
    return f" {text[0].upper()}{text[1:]}." if text else ""


def as_json(
    given: dict[int, str],
    examples: "dict[int, Batch]",
    answers: "Sequence[Answer]",
    efforts: list[Effort],
    bad: dict[int, str],
) -> list[dict[str, Any]]:
    """A list with an entry per puzzle, in the order of lines, also for one puzzle."""
    found: dict[int, dict[str, Any]] = {
        line: {"line": line, "error": why, "puzzle": given[line]} for line, why in bad.items()
    }
    for line, answer, effort in zip(examples, answers, efforts, strict=True):
        found[line] = {"line": line, "error": None, **answer.to_dict(), **effort}
    return [found[line] for line in sorted(found)]
