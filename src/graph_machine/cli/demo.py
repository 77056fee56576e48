"""`graph-machine demo`: a GM against a Transformer in a few minutes."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from graph_machine.demo import Demo, run_demo
from graph_machine.training.log import duration


@dataclass(frozen=True)
class Args:
    """Generate 4x4 puzzles, train a small GM and a Transformer of the same size, compare them,
    solve a puzzle and draw the edges. A demo that was interrupted goes on where it stopped."""

    out: Path = Path("out/demo")
    """where runs and the picture go"""
    seconds: float = 225.0
    """the time that it may take; the number of steps follows from it, 500 at most"""
    steps: int | None = None
    """steps of each model, whatever time they take"""
    seed: int = 0
    device: str | None = None
    progress: Literal["auto", "bar", "plain", "none"] = "auto"


def main(argv: list[str]) -> int:
    args = tyro.cli(Args, args=argv, prog="graph-machine demo")
    start = time.perf_counter()
    console = Console(highlight=False, soft_wrap=True)
    demo = Demo(args.out, args.seconds, args.steps, args.seed, args.device)
    run_demo(demo, console, args.progress)
    console.print(f"All in {duration(time.perf_counter() - start)}; runs are in {args.out}.")
    return 0
