"""`graph-machine models`: what ships with the package, and how a run becomes such a model."""

import json
import sys

from graph_machine import files
from graph_machine.errors import ConfigError
from graph_machine.lab.cli._options import AddModel, ListModels, RenderModels, ShowModel
from graph_machine.lab.zoo.cards import card_markdown, listing, read_card, render_card

NONE = (
    "No model ships with this package yet. Train one and add it:\n"
    "  graph-machine train gm --budget cpu --out RUN\n"
    "  graph-machine models add RUN --name gm-4x4"
)


def main(args: ListModels | ShowModel | AddModel | RenderModels) -> int:
    if isinstance(args, ShowModel):
        show(args)
    elif isinstance(args, AddModel):
        add(args)
    elif isinstance(args, RenderModels):
        for folder in args.folders or [files.ZOO / name for name in files.shipped()]:
            print(f"Wrote {render_card(folder)}", file=sys.stderr)
    else:
        cards = [read_card(name) for name in files.shipped()]
        if args.json:
            print(json.dumps([card.to_dict() for card in cards], indent=2))
        elif not cards:
            print(NONE)
        else:
            print(listing(cards))
            print("Use them by name: graph-machine solve NAME PUZZLE, graph-machine explore NAME")
    return 0


def show(args: ShowModel) -> None:
    card = read_card(args.name)
    if args.json:
        print(json.dumps(card.to_dict(), indent=2))
    elif sys.stdout.isatty():
        from rich.console import Console  # a list does not wait for these
        from rich.markdown import Markdown

        Console().print(Markdown(card_markdown(card, front=False)))
    else:
        print(card_markdown(card, front=False), end="")


def add(args: AddModel) -> None:
    from graph_machine.lab.zoo.add import add_model

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
