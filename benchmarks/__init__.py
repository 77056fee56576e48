"""Benchmarks of ops, layers, address spaces and rounds, with the installed library.

`graph-machine bench` runs them from a checkout.
"""

from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]  # where `python -m benchmarks.NAME` finds them


def run(
    suite: str,
    out: Path,
    *,
    rounds: int | None = None,
    threads: int | None = None,
    only: str | None = None,
    max_nodes: int = 100_000,
    say: Callable[[str], None] = print,
) -> Path:
    """Run a suite; returns the file that it wrote."""
    if suite == "scale":
        from benchmarks.scale import run_scale

        return run_scale(out, max_nodes)
    if suite == "rounds":
        from benchmarks.rounds import run_rounds

        return run_rounds(out, rounds or 15, say)
    if suite == "gpu":
        from benchmarks.gpu import run_gpu

        return run_gpu(out, rounds or 20, say)
    from benchmarks.suites import run_suite

    return run_suite(suite, out, rounds=rounds, threads=threads, only=only, say=say)
