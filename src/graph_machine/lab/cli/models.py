"""`graph-machine models`: what ships with the package, and how a run becomes such a model."""

import json
import sys
from pathlib import Path
from typing import Annotated

import tyro

from graph_machine.errors import ConfigError
from graph_machine.lab.cli._options import Count, options, read

Many = tyro.conf.UseAppendAction[tuple[str, ...]]
NONE = (
    "No model ships with this package yet. Train one and add it:\n"
    "  graph-machine train gm --budget cpu --out RUN\n"
    "  graph-machine models add RUN --name gm-4x4"
)


@options
class ListArgs:
    """List the models that ship with the package; `models show NAME` prints a card, `models add
    RUN --name NAME` makes one of a run, `models render` writes the cards again."""

    json: bool = False
    """print the facts as JSON, for programs"""


@options
class ShowArgs:
    """The card of a model: budget, command, accuracy by difficulty, what was not shown."""

    name: Annotated[str, tyro.conf.Positional]
    json: bool = False
    """print the facts as JSON, for programs"""


@options
class AddArgs:
    """Make a model of a finished run: half-precision weights, tested again, with a card."""

    run: Annotated[Path, tyro.conf.Positional]
    """folder of a finished run"""
    name: str
    """name of the model, such as gm-4x4"""
    also: Annotated[Many, tyro.conf.arg(metavar="LABEL=FILE")] = ()
    """further puzzles to test on, such as 'real sample=sudoku.csv'; may be repeated"""
    note: Annotated[Many, tyro.conf.arg(metavar="TEXT")] = ()
    """a sentence for the card; may be repeated"""
    limit: Count | None = None
    """only the first N puzzles of each set"""
    batch_size: Count = 256
    into: Path | None = None
    """folder to write NAME into; default: the package's own"""
    replace: bool = False
    """take the place of an older model of this name"""


@options
class RenderArgs:
    """Write README.md of every shipped model (or of these folders) again from its card.json."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()


def list_models(argv: list[str]) -> int:
    args = read(ListArgs, argv, "models")
    from graph_machine.files import shipped
    from graph_machine.lab.zoo.cards import listing, read_card

    cards = [read_card(name) for name in shipped()]
    if args.json:
        print(json.dumps([card.to_dict() for card in cards], indent=2))
    elif not cards:
        print(NONE)
    else:
        print(listing(cards))
        print("Use them by name: graph-machine solve NAME PUZZLE, graph-machine explore NAME")
    return 0


def show(argv: list[str]) -> int:
    args = read(ShowArgs, argv, "models show")
    from rich.console import Console
    from rich.markdown import Markdown

    from graph_machine.lab.zoo.cards import body, read_card

    card = read_card(args.name)
    if args.json:
        print(json.dumps(card.to_dict(), indent=2))
        return 0
    console = Console()
    if console.is_terminal:
        console.print(Markdown(body(card)))
    else:
        print(body(card), end="")
    return 0


def add(argv: list[str]) -> int:
    args = read(AddArgs, argv, "models add")
    from graph_machine.lab.zoo.add import add_model
    from graph_machine.lab.zoo.cards import listing, read_card

    also = {}
    for text in args.also:
        label, equals, path = text.partition("=")
        if not equals or not label.strip() or not path:
            raise ConfigError(
                f"--also takes LABEL=FILE, such as 'real sample=a.csv', got '{text}'."
            )
        also[label.strip()] = path
    folder = add_model(
        args.run,
        args.name,
        also=also,
        notes=args.note,
        limit=args.limit,
        batch_size=args.batch_size,
        into=args.into,
        replace=args.replace,
        report=lambda text: print(text, file=sys.stderr),
    )
    print(f"Wrote {folder}", file=sys.stderr)
    if args.into is None:
        print(listing([read_card(args.name)]))
    return 0


def renew(argv: list[str]) -> int:
    args = read(RenderArgs, argv, "models render")
    from graph_machine.files import ZOO, shipped
    from graph_machine.lab.zoo.cards import render_card

    for folder in args.folders or [ZOO / name for name in shipped()]:
        print(f"Wrote {render_card(folder)}", file=sys.stderr)
    return 0


COMMANDS = {"list": list_models, "show": show, "add": add, "render": renew}


def main(argv: list[str]) -> int:
    if argv and not argv[0].startswith("-"):
        if argv[0] not in COMMANDS:
            from graph_machine.files import shipped

            known = ", ".join(COMMANDS)
            hint = f" For its card: graph-machine models show {argv[0]}."
            hint = hint if argv[0] in shipped() else f" Known: {known}."
            raise ConfigError(f"'{argv[0]}' is not a command of 'graph-machine models'.{hint}")
        return COMMANDS[argv[0]](argv[1:])
    return list_models(argv)
