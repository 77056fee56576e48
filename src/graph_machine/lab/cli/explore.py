"""`graph-machine explore`: look inside a model in the browser."""

from pathlib import Path
from typing import Annotated

import tyro

from graph_machine.lab.cli._options import Bounds, Count, options, parse_one, read


@options
class Args:
    """Look inside a model in the browser, or write a page that needs no server."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT|REC")]
    """checkpoint or run folder, name of a shipped model, or a recording"""
    compare: str | None = None  # a second model or recording, side by side
    data: Path | None = None  # puzzle file or store to choose and draw puzzles from
    puzzle: tuple[str, ...] = ()  # puzzles to begin with, as text
    rounds: Annotated[str | None, tyro.conf.arg(metavar="INT")] = None
    """rounds of a recurrent core; default: as trained"""
    host: str = "127.0.0.1"  # address to listen on; others than loopback are reachable from outside
    port: Annotated[int, Bounds(0, 65_535)] = 8765  # port to listen on; 0: any free one
    open: bool = True  # open the page in the browser
    export: Path | None = None  # write one self-contained page instead of serving
    force: bool = False  # replace the exported page if it is there already
    samples: Count = 1  # puzzles in the exported page, from the first one on


def main(argv: list[str]) -> int:
    args = read(Args, argv, "explore")
    rounds = parse_one(args.rounds)
    from graph_machine.lab.explorer.export import check_absent, export_page
    from graph_machine.lab.explorer.session import open_session

    if args.export is not None:
        check_absent(args.export, force=args.force)

    names = [args.model] if args.compare is None else [args.model, args.compare]
    session = open_session(names, data=args.data, examples=args.puzzle, rounds=rounds)
    if args.export is not None:
        size = export_page(session, args.export, samples=args.samples, force=args.force)
        print(f"{args.export}: {size / 1e6:.1f} MB, opens without a server")
        return 0
    from graph_machine.lab.explorer.serve import serve

    serve(session, host=args.host, port=args.port, open_page=args.open)
    return 0
