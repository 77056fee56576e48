"""`graph-machine bench`: the door to `benchmarks/`, in a checkout of the repository."""

import importlib
import sys
from functools import partial
from pathlib import Path

from graph_machine.errors import ConfigError
from graph_machine.lab.cli._options import Bench

CHECKOUT = Path(__file__).parents[4]


def main(args: Bench) -> int:
    if not (CHECKOUT / "benchmarks" / "suites.py").is_file():
        raise ConfigError(
            "bench: benchmarks are not part of the installed package; run it from a checkout of "
            "the repository (pip install -e .)."
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.append(str(CHECKOUT))
    path = importlib.import_module("benchmarks").run(
        args.suite,
        Path(args.out),
        rounds=args.rounds,
        threads=args.threads,
        only=args.only,
        max_nodes=args.max_nodes,
        say=partial(print, flush=True),  # a benchmark takes minutes: piped lines appear at once
    )
    please = " Please send it to us: this has not been measured yet."
    print(f"written: {path}{'.' + please if args.suite == 'gpu' else ''}")
    return 0
