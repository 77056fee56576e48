"""`graph-machine explore`: look inside a model in the browser."""

from graph_machine.files import refuse_to_replace
from graph_machine.lab.cli._options import Explore
from graph_machine.lab.explorer.export import export_page
from graph_machine.lab.explorer.session import open_session


def main(args: Explore) -> int:
    if args.export is not None:
        refuse_to_replace(args.export, args.force)
    names = [args.model] if args.compare is None else [args.model, args.compare]
    session = open_session(names, data=args.data, examples=args.puzzle, rounds=args.rounds)
    if args.export is not None:
        size = export_page(session, args.export, samples=args.samples, force=args.force)
        print(f"{args.export}: {size / 1e6:.1f} MB, opens without a server")
        return 0
    from graph_machine.lab.explorer.serve import serve

    serve(session, host=args.host, port=args.port, open_page=args.open)
    return 0
