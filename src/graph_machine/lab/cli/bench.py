"""`graph-machine bench`: the door to `benchmarks/`, in a checkout of the repository."""

import importlib
import sys
from functools import partial
from pathlib import Path

from graph_machine.errors import ConfigError
from graph_machine.lab.cli._options import Count, options, read

CHECKOUT = Path(__file__).parents[4]


@options
class Args:
    """Time and memory of the fast path beside the paper's listing, a Transformer and the floor."""

    suite: str = "quick"
    """quick (a minute), standard (the figures of docs/fast.md), scale (address spaces against n),
    rounds (what a recurrent model costs), gpu (what docs/gpu.md expects of a CUDA
    GPU; writes the file to send us)"""
    out: str = "benchmarks/results"
    """folder for the CSV, the Markdown page and the plot"""
    rounds: Count | None = None
    """turns of every contestant; default: the suite's own"""
    threads: Count | None = None
    """torch threads; default: torch's own choice"""
    only: str | None = None
    """only the cases whose name matches this, such as 'layer n=81'; other rows of the file stay"""
    max_nodes: Count = 100_000
    """suite scale: largest n"""


def main(argv: list[str]) -> int:
    args = read(Args, argv, "bench")
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
