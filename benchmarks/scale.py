"""Time and memory of one layer against n, for every address space and a Transformer layer.

Each measurement is a process of its own, on one thread: a training step (forward and backward) of
one edge and one node sublayer at the paper's widths, batch 1. Time is the CPU time of the process,
which other work on the machine disturbs least; memory is the peak resident set above what the
process held before the step.
"""

import csv
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import ROOT
from graph_machine.errors import ConfigError, MissingExtraError, TrainingError, did_you_mean
from graph_machine.files import atomic_path
from graph_machine.nn import EdgeSublayer, Layer, NodeSublayer, RMSNorm, SwiGLU
from graph_machine.ops.referral import ReferralKind
from graph_machine.spaces import (
    Addresses,
    CompressedSpace,
    DenseSpace,
    SparseAddresses,
    SparseSettings,
)
from graph_machine.state import GraphState

D_NODE, D_EDGE, K, S, CHAINS, WIDTH = 64, 8, 8, 8, 8, 32
SIZES = (64, 128, 256, 512, 1024, 4096, 16384, 65536, 100_000)


@dataclass(frozen=True)
class Measurement:
    """One training step of one case."""

    case: str
    n: int
    cpu_seconds: float  # the fastest of the repeats
    peak_mb: float


class TransformerLayer(nn.Module):
    """A Transformer layer of the same widths on `scaled_dot_product_attention`."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.ffn_norm = RMSNorm(D_NODE), RMSNorm(D_NODE)
        self.qkv = nn.Linear(D_NODE, 3 * D_NODE, bias=False)
        self.out = nn.Linear(D_NODE, D_NODE, bias=False)
        self.ffn = SwiGLU(D_NODE)

    def forward(self, nodes: Tensor) -> Tensor:
        heads = self.qkv(self.norm(nodes)).unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2])
        nodes = nodes + self.out(mixed.transpose(1, 2).flatten(-2))
        return nodes + self.ffn(self.ffn_norm(nodes))


def sparse_addresses(n: int) -> Addresses:
    """Full rows of random entries: the most candidates, and no order in memory to gain from."""
    indices = torch.randint(0, n, (1, n, K, S))
    weights = torch.rand(1, n, K, S).softmax(dim=-1)
    return SparseAddresses(indices, weights, SparseSettings(S, chains=CHAINS))


def dense_addresses(n: int) -> Addresses:
    return DenseSpace().initial(torch.randint(0, n, (1, n, K)), torch.zeros(1, n, D_NODE))


def compressed_addresses(n: int) -> Addresses:
    space = CompressedSpace(c=WIDTH, decoder="features", d_node=D_NODE)
    return space.initial(torch.randint(0, n, (1, n, K)), torch.randn(1, n, D_NODE))


def layer_step(make: Callable[[int], Addresses], kind: ReferralKind, n: int) -> Callable[[], None]:
    layer = Layer([EdgeSublayer(d_node=D_NODE, kind=kind)], [NodeSublayer(d_node=D_NODE)])
    nodes = torch.randn(1, n, D_NODE, requires_grad=True)
    edges = torch.randn(1, n, K, D_EDGE, requires_grad=True)
    with torch.no_grad():
        addresses = make(n)

    def step() -> None:
        new, _, _ = layer(GraphState(nodes, edges, addresses))
        assert new.edge_features is not None
        (new.node_features.square().mean() + new.edge_features.square().mean()).backward()

    return step


def transformer_step(n: int) -> Callable[[], None]:
    layer, nodes = TransformerLayer(), torch.randn(1, n, D_NODE, requires_grad=True)
    return lambda: layer(nodes).square().mean().backward()


# The order by which a case's time grows, to see beforehand what would take too long.
CASES: dict[str, tuple[Callable[[int], Callable[[], None]], float]] = {
    "dense": (lambda n: layer_step(dense_addresses, "joint", n), 3),
    "dense-preaggregated": (lambda n: layer_step(dense_addresses, "preaggregated", n), 3),
    "compressed": (lambda n: layer_step(compressed_addresses, "joint", n), 2),
    "compressed-preaggregated": (lambda n: layer_step(compressed_addresses, "preaggregated", n), 2),
    "sparse": (lambda n: layer_step(sparse_addresses, "joint", n), 1),
    "sparse-preaggregated": (lambda n: layer_step(sparse_addresses, "preaggregated", n), 1),
    "transformer": (transformer_step, 2),
}


def resident_mb(field: str) -> float:
    """`VmRSS`, the present resident set, or `VmHWM`, its peak (Linux)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError as error:
        raise ConfigError("bench: peak memory is read from /proc, which only Linux has.") from error
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def measure_case(case: str, n: int, *, repeats: int = 2) -> Measurement:
    """Measure in this process, which should be a fresh one: the peak is the process's own."""
    if case not in CASES:
        raise ConfigError(
            f"bench: unknown case '{case}'.{did_you_mean(case, CASES)} Known: {', '.join(CASES)}."
        )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    make, _ = CASES[case]
    make(16)()  # one-time costs
    step = make(n)
    before, best = resident_mb("VmRSS"), math.inf
    for _ in range(repeats):
        start = time.process_time()
        step()
        best = min(best, time.process_time() - start)
    return Measurement(case, n, best, max(0.0, resident_mb("VmHWM") - before))


def measure_apart(case: str, n: int, repeats: int) -> Measurement:
    """The same in a new process."""
    command = [sys.executable, "-m", "benchmarks.scale", case, str(n), str(repeats)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TrainingError(f"bench: {case} at n = {n} failed ({done.returncode}): {last}")
    return Measurement(**json.loads(done.stdout))


def slope(rows: list[Measurement], case: str, field: str, low: int, high: int) -> float | None:
    """Exponent of the power of n fitted to a case between two sizes; None with too few points."""
    points = [
        (math.log(row.n), math.log(getattr(row, field)))
        for row in rows
        if row.case == case and low <= row.n <= high and getattr(row, field) > 0
    ]
    if len(points) < 3:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
        (x - mean_x) ** 2 for x, _ in points
    )


def run_scale(
    out: Path,
    max_nodes: int = 100_000,
    *,
    limit_seconds: float = 300.0,
    limit_mb: float = 8_000.0,
    cases: tuple[str, ...] = tuple(CASES),
    sizes: tuple[int, ...] = SIZES,
    say: Callable[[str], None] = print,
) -> Path:
    """Measure all cases up to `max_nodes` into `out`/scale_*.csv and .png; returns the CSV.

    A case ends where a step would, by its growth so far, take longer than `limit_seconds` of CPU
    time or more than `limit_mb`: that is as far as it goes.
    """
    if max_nodes < SIZES[0]:
        raise ConfigError(f"bench: max_nodes should be at least {SIZES[0]}, got {max_nodes}.")
    rows: list[Measurement] = []
    last: dict[str, Measurement] = {}
    target = out / f"scale_{platform.machine()}_cpu_{time.strftime('%Y%m%d')}.csv"
    for n in (size for size in sizes if size <= max_nodes):
        for case in cases:
            order = CASES[case][1]
            if case in last:
                growth = n / last[case].n
                seconds = last[case].cpu_seconds * growth**order
                megabytes = last[case].peak_mb * growth ** min(order, 2)
                if case.startswith(("sparse", "compressed", "transformer")):
                    megabytes = last[case].peak_mb * growth
                if seconds > limit_seconds or megabytes > limit_mb or last[case].n * 4 < n:
                    continue
            last[case] = measure_apart(case, n, repeats=2)
            rows.append(last[case])
            say(f"{case:25s} n {n:7d} {last[case].cpu_seconds:9.3f} s {last[case].peak_mb:9.1f} MB")
            write_rows(rows, target)
    plot_rows(rows, target.with_suffix(".png"))
    return target


def write_rows(rows: list[Measurement], path: Path) -> None:
    """A CSV whose first lines say what was measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial, open(partial, "w", newline="") as file:
        file.write(f"# torch {torch.__version__}, {platform.processor() or platform.machine()}, ")
        file.write(f"1 thread, k={K} s={S} chains={CHAINS} c={WIDTH} d_node={D_NODE}, batch 1\n")
        writer = csv.DictWriter(file, fieldnames=list(Measurement.__annotations__))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def plot_rows(rows: list[Measurement], path: Path) -> None:
    """Time and memory against n, both axes logarithmic."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "analysis", "The plot of the benchmark") from error
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, field, label in zip(
        axes, ("cpu_seconds", "peak_mb"), ("CPU seconds per training step", "peak memory, MB")
    ):
        for number, case in enumerate(CASES):
            points = [(row.n, getattr(row, field)) for row in rows if row.case == case]
            points = [point for point in points if point[1] > 0]
            if points:
                dashed = "--" if case.endswith("preaggregated") else "-"
                axis.loglog(*zip(*points), dashed, marker="o", ms=3, label=case, color=f"C{number}")
        axis.set_xlabel("nodes n")
        axis.set_ylabel(label)
        axis.grid(True, which="major", alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.suptitle("One layer, batch 1, one CPU thread")
    with atomic_path(path) as partial:
        figure.savefig(partial, format="png", dpi=130)


def main(argv: list[str]) -> None:
    """`CASE N REPEATS`: one measurement as JSON, for `measure_apart`."""
    case, n, repeats = argv
    print(json.dumps(asdict(measure_case(case, int(n), repeats=int(repeats)))))


if __name__ == "__main__":
    main(sys.argv[1:])
