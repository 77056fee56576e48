"""`graph-machine demo`: a small GM and a Transformer on jigsaw boards, side by side."""

import time
from pathlib import Path
from typing import Literal

from graph_machine.cli._options import Count, Seconds, Seed, options, read


@options
class Args:
    """Generate 5x5 jigsaw puzzles, train a small GM and a Transformer of about its size, compare
    them, solve a puzzle and draw the edges. An interrupted demo continues where it stopped."""

    out: Path = Path("out/demo")
    """where runs and the picture go"""
    seconds: Seconds = 225.0
    """the time that it may take; the number of steps follows from it, 500 at most"""
    steps: Count | None = None
    """steps of each model, whatever time they take"""
    seed: Seed = 0
    """initialisation, split and order of the data"""
    device: str | None = None
    """cpu, cuda, ...; default: the accelerator if there is one"""
    progress: Literal["auto", "bar", "plain", "none"] = "auto"
    """live bar, plain lines, or nothing; auto: a bar on a terminal"""


def main(argv: list[str]) -> int:
    args = read(Args, argv, "demo")
    from rich.console import Console

    from graph_machine.cli._demo import Demo, run_demo
    from graph_machine.training.log import duration

    start = time.perf_counter()
    console = Console(highlight=False, soft_wrap=True)
    demo = Demo(args.out, args.seconds, args.steps, args.seed, args.device)
    run_demo(demo, console, args.progress)
    console.print(f"All in {duration(time.perf_counter() - start)}; runs are in {args.out}.")
    return 0
