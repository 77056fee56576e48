"""`graph-machine bench --suite gpu`: measured times beside those expected in docs/gpu.md.

Every op of the paper's model, forward and backward, by kernels, by torch code and as the listings
have it; then training steps of the whole model. Nobody has run this on a GPU yet.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import roofline
from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.files import write_json
from graph_machine.machine import hardware, versions
from graph_machine.models import GraphMachine
from graph_machine.ops import backend as choice
from graph_machine.ops.attention import attend
from graph_machine.ops.inputs import AttentionInputs, ReferralInputs
from graph_machine.ops.referral import refer

# Contestant -> (backend, implementations that may serve it).
CONTESTANTS = {
    "triton": ("fused", ("triton",)),
    "torch": ("fused", ("torch",)),
    "listing": ("reference", ("torch",)),
}


def find_gpu() -> torch.device:
    if not torch.cuda.is_available():
        raise ConfigError(
            "bench: the suite 'gpu' needs a CUDA GPU, and torch sees none here "
            "('graph-machine doctor' shows what it sees)."
        )
    return torch.device("cuda")


def run_gpu(out: Path, rounds: int, say: Callable[[str], None] = print) -> Path:
    """Measure and write `out`/gpu_NAME_DATE.json, the file to send us."""
    device = find_gpu()
    name = torch.cuda.get_device_name(device)
    record: dict[str, Any] = {
        "gpu": name,
        "capability": torch.cuda.get_device_capability(device),
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions(),
        "hardware": hardware(),
        "expected": expected(),
        "rows": [],
    }
    slug = "-".join(name.lower().split())
    path = out / f"gpu_{slug}_{record['date']}.json"
    for row in timed_rows(roofline.PAPER, device, rounds):
        record["rows"].append(row)
        write_json(path, record)
        say(", ".join(f"{key} {value}" for key, value in row.items()))
    return path


def expected() -> dict[str, Any]:
    """The figures of docs/gpu.md, in milliseconds, to lie beside what is measured."""
    return {
        name: {
            gpu.name: {"at_best_ms": 1e3 * gpu.floor(work), "expected_ms": 1e3 * gpu.expected(work)}
            for gpu in roofline.GPUS
        }
        for name, work in roofline.table()
    }


def timed_rows(size: roofline.Size, device: torch.device, rounds: int) -> Iterator[dict[str, Any]]:
    """Rows of op, contestant, precision of products, milliseconds and megabytes at the peak."""
    for products in ("high", "highest"):
        for op in ("attention", "joint", "preaggregated"):
            for contestant in CONTESTANTS:
                step = op_step(op, size, device)
                yield _row(op, contestant, products, step, device, rounds)
    for kind in ("joint", "preaggregated"):
        for contestant in CONTESTANTS:
            step = model_step(kind, size, device)
            yield _row(f"step-{kind}", contestant, "high", step, device, max(3, rounds // 4))


def _row(
    op: str,
    contestant: str,
    products: str,
    step: Callable[[str], None],
    device: torch.device,
    rounds: int,
) -> dict[str, Any]:
    row: dict[str, Any] = {"op": op, "contestant": contestant, "products": products}
    backend, order = CONTESTANTS[contestant]
    with chosen(order, device, products):
        try:
            row |= timed(lambda: step(backend), device, rounds)
        except Exception as error:  # out of memory, no kernel: the others go on
            row["failed"] = f"{type(error).__name__}: {error}".splitlines()[0]
    return row


@contextmanager
def chosen(order: tuple[str, ...], device: torch.device, products: str) -> Iterator[None]:
    """These implementations alone, with this precision of float32 products."""
    before, exactness = choice.ORDER.get(device.type), torch.get_float32_matmul_precision()
    choice.ORDER[device.type] = order
    torch.set_float32_matmul_precision(products)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(exactness)
        if before is None:
            del choice.ORDER[device.type]
        else:
            choice.ORDER[device.type] = before


def timed(step: Callable[[], None], device: torch.device, rounds: int) -> dict[str, float]:
    """Median milliseconds of a step after three to warm up, and its peak of memory."""
    gpu = device.type == "cuda"
    for _ in range(3):
        step()
    times = []
    if gpu:
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(rounds):
        if gpu:
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        step()
        if gpu:
            torch.cuda.synchronize(device)
        times.append(1e3 * (time.perf_counter() - start))
    peak = torch.cuda.max_memory_allocated(device) / 1e6 if gpu else 0.0
    return {"ms": round(sorted(times)[len(times) // 2], 4), "peak_mb": round(peak, 1)}


def op_step(op: str, s: roofline.Size, device: torch.device) -> Callable[[str], None]:
    """Forward and backward of one op, as a layer calls it."""

    def make(*shape: int) -> Tensor:
        return torch.randn(shape, device=device).requires_grad_()

    def addresses() -> Tensor:
        found = torch.randn(s.b, s.n, s.k, s.n, device=device).softmax(dim=-1)
        return found.requires_grad_()

    tensors: dict[str, Any] = {
        "n1_queries": make(s.b, s.h, s.n, s.d),
        "n2_values": make(s.b, s.h, s.n, s.d),
        "n2_keys": make(s.b, s.h, s.n, s.d),
        "e1_key_weights": make(s.h, s.d, s.d),
        "e1_addresses": addresses(),
    }
    features = make(s.b, s.n, s.k, s.d)
    if op == "attention":
        tensors["e1_features"] = features
    else:
        names = ("e1_value_weights", "e2_key_weights", "e2_value_weights")
        tensors |= {name: make(s.h, s.d, s.d) for name in names}
        tensors |= {"edge_features": features, "e2_addresses": addresses()}

    def step(backend: Any) -> None:
        if op == "attention":
            loss = attend(AttentionInputs(**tensors), backend=backend)[0].sum()
        else:
            kind: Any = op
            found = refer(ReferralInputs(**tensors, kind=kind), backend=backend)
            loss = found[0].sum() + found[1].square().sum()
        torch.autograd.grad(loss, list(tensors.values()))

    return step


def model_step(kind: str, s: roofline.Size, device: torch.device) -> Callable[[str], None]:
    """Forward and backward of the paper's model under autocast, on boards without clues."""
    side = math.isqrt(s.n)
    spec = InputSpec(
        num_tokens=side + 1,
        num_outputs=side,
        num_nodes=s.n,
        grid=(side, side),
        graph="grid",
        num_edge_categories=6,  # self, four neighbours, empty
    )
    model = GraphMachine(ModelConfig().replace(referral=kind, num_layers=s.layers), spec).to(device)
    tokens = torch.zeros(s.b, s.n, dtype=torch.long, device=device)

    def step(backend: Any) -> None:
        model.backend = backend
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(tokens, entropies=True).logits.float().logsumexp(dim=-1).mean()
        loss.backward()
        model.zero_grad(set_to_none=True)

    return step
