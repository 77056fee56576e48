"""`graph-machine bench`: benchmarks against the reference and the arithmetic floor."""

from pathlib import Path

from graph_machine.cli._options import Count, options, read


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
    out = Path(args.out)
    if args.suite == "scale":
        from graph_machine.bench.scale import run_scale

        print(f"written: {run_scale(out, args.max_nodes)}")
        return 0
    if args.suite == "rounds":
        from graph_machine.bench.rounds import run_rounds

        print(f"written: {run_rounds(out, args.rounds or 15, _say)}")
        return 0
    if args.suite == "gpu":
        from graph_machine.bench.gpu import run_gpu

        path = run_gpu(out, args.rounds or 20, _say)
        print(f"written: {path}. Please send it to us: this has not been measured yet.")
        return 0
    from graph_machine.bench.suites import run_suite

    path = run_suite(
        args.suite, out, rounds=args.rounds, threads=args.threads, only=args.only, say=_say
    )
    print(f"written: {path}")
    return 0


def _say(line: str) -> None:
    # Piped output is a file's buffer away from being seen; a benchmark takes minutes.
    print(line, flush=True)
