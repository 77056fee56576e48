"""What rounds cost: the core layer, the memory of training against rounds, and solving.

Times are CPU times of one thread, which other work on the machine disturbs least. Weights are
random: no time depends on them.
"""

import functools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from benchmarks import ROOT
from benchmarks.cases import Case
from benchmarks.measure import peak_mb, time_case
from benchmarks.render import Stamp
from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import TrainingError
from graph_machine.files import write_text
from graph_machine.machine import hardware, tune_cpu, versions
from graph_machine.models import GraphMachine

SIDE, GRAD_ROUNDS, BATCH = 9, 6, 16
MEMORY_ROUNDS = (8, 16, 32, 64)
SOLVE_ROUNDS, SOLVE_BATCH = 16, 64


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    what: str
    value: float
    unit: str
    aim: str = ""


def build_model() -> GraphMachine:
    """The shipped recurrent model's sizes: 4 layers, then 2 whose edges stay as they are."""
    config = ModelConfig().replace(
        num_layers=4, core_layers=2, rounds=SOLVE_ROUNDS, referral="preaggregated", qk_norm=True
    )
    spec = InputSpec(
        num_tokens=SIDE + 1,
        num_outputs=SIDE,
        num_nodes=SIDE * SIDE,
        grid=(SIDE, SIDE),
        graph="grid",
        num_edge_categories=6,  # self, four neighbours, empty
    )
    return GraphMachine(config, spec)


def boards(batch: int) -> torch.Tensor:
    """Random tokens (b, n): the work is the same for all."""
    return torch.randint(SIDE + 1, (batch, SIDE * SIDE))


def core_layer(turns: int) -> list[Figure]:
    """The core layer beside a Transformer layer in plain PyTorch and beside one of ours."""
    case = Case("core-layer", batch=32)
    rows = {row.contestant: row for row in time_case(case, turns)}
    failed = [f"{name} ({row.failed})" for name, row in rows.items() if row.failed]
    if failed:
        raise TrainingError(f"bench: {case.name} failed: {'; '.join(failed)}.")

    def against(contestant: str) -> float:
        ratio = rows[contestant].to_fused_cpu
        return math.nan if ratio is None else 1 / ratio

    return [
        Figure("core layer / Transformer layer in PyTorch", against("transformer"), "ratio", "1.3"),
        Figure("core layer / the same without edges", against("without-edges"), "ratio"),
    ]


def memory_here(rounds: int) -> float:
    """Peak memory of a training step above what the process held before it, in MB."""
    tune_cpu()
    model, tokens = build_model(), boards(BATCH)
    before = peak_mb()
    for _ in range(2):
        found = model(tokens, rounds=rounds, grad_rounds=GRAD_ROUNDS)
        found.logits.float().logsumexp(dim=-1).mean().backward()
        model.zero_grad(set_to_none=True)
    return peak_mb() - before


def memory(rounds: int) -> Figure:
    """The same in a process of its own: a peak cannot be taken back."""
    command = [sys.executable, "-m", "benchmarks.rounds", str(rounds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TrainingError(f"bench: a training step of {rounds} rounds: {done.stderr[-300:]}")
    what = f"training step, {rounds} rounds, gradients through {GRAD_ROUNDS}, b={BATCH}: peak"
    return Figure(what, json.loads(done.stdout), "MB", "flat")


def cpu_seconds(step: Callable[[], object], turns: int) -> float:
    """Median CPU time of a step, after one to warm up."""
    step()
    times = []
    for _ in range(turns):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return median(times)


@torch.no_grad()
def solving(turns: int) -> list[Figure]:
    """Puzzles a second in batches, and the time of one puzzle."""
    model = build_model().eval()
    batch = cpu_seconds(functools.partial(model, boards(SOLVE_BATCH), rounds=SOLVE_ROUNDS), turns)
    one = cpu_seconds(functools.partial(model, boards(1), rounds=SOLVE_ROUNDS), 3 * turns)
    rounds = f"{SOLVE_ROUNDS} rounds"
    return [
        Figure(f"solve, {rounds}, batches of {SOLVE_BATCH}", SOLVE_BATCH / batch, "puzzles/s"),
        Figure(f"solve, {rounds}, a single puzzle", 1e3 * one, "ms", "50"),
    ]


def run_rounds(out: Path, turns: int = 15, say: Callable[[str], None] = print) -> Path:
    """Measure all on one thread and write `out`/rounds_HARDWARE_DATE.md."""
    torch.set_num_threads(1)
    tune_cpu()
    stamp = Stamp("rounds", time.strftime("%Y-%m-%d"), versions(), hardware())
    parts: list[Callable[[], list[Figure]]] = [
        functools.partial(core_layer, turns),
        functools.partial(solving, turns),
        *(functools.partial(lambda r: [memory(r)], rounds) for rounds in MEMORY_ROUNDS),
    ]
    figures: list[Figure] = []
    for part in parts:
        for figure in part():
            figures.append(figure)
            say(f"{figure.what:70s} {figure.value:8.2f} {figure.unit}")
    path = out / f"rounds_{stamp.slug}_{stamp.date}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, rounds_markdown(stamp, figures))
    return path


def rounds_markdown(stamp: Stamp, figures: list[Figure]) -> str:
    """The table as a page."""
    lines = [
        "# Benchmark suite 'rounds'",
        "",
        f"Made by `graph-machine bench --suite rounds`. {stamp.line}.",
        "",
        f"Boards of {SIDE}x{SIDE}, 4 layers and a core of 2, width 64, float32, one thread, CPU "
        "time, medians. Ratios are of one training step (forward and backward), b = 32, with "
        "contestants taking turns.",
        "",
        "| what | measured | unit | aim |",
        "| --- | ---: | --- | ---: |",
        *(f"| {f.what} | {f.value:.2f} | {f.unit} | {f.aim} |" for f in figures),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(json.dumps(memory_here(int(sys.argv[1]))))
