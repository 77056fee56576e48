"""The suite for GPUs, as far as it goes without one: its file, its rows, its arithmetic."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import gpu, roofline
from graph_machine.errors import ConfigError
from graph_machine.lab.cli import run

ROOT = Path(__file__).parents[2]
TINY = roofline.Size(b=1, n=81, k=8, h=8, layers=1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU; without one, it is tested")
def test_without_a_gpu_one_line_says_so() -> None:
    with pytest.raises(ConfigError, match="CUDA"):
        run(["bench", "--suite", "gpu"])


def test_outside_of_a_checkout_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("graph_machine.lab.cli.bench.CHECKOUT", tmp_path)
    with pytest.raises(ConfigError, match="checkout"):
        run(["bench"])


def test_every_contestant_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU and on torch code; kernels are for the GPU."""
    monkeypatch.delitem(gpu.CONTESTANTS, "triton")
    cpu = torch.device("cpu")
    before = torch.get_float32_matmul_precision()
    rows = list(gpu.timed_rows(TINY, cpu, rounds=1))
    assert torch.get_float32_matmul_precision() == before
    assert not [row for row in rows if "failed" in row]
    assert {row["op"] for row in rows} == {
        "attention", "joint", "preaggregated", "step-joint", "step-preaggregated",
    }  # fmt: skip


def test_a_contestant_that_fails_is_a_row() -> None:
    def fail(backend: str) -> None:
        raise RuntimeError(f"no {backend}\nmore")

    row = gpu._row("attention", "torch", "high", fail, torch.device("cpu"), 1)
    assert row["failed"] == "RuntimeError: no fused"


def test_the_page_shows_what_is_computed() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert roofline.roofline_markdown() in page
    rows = json.loads((ROOT / "benchmarks" / "results" / "gpu-kernels.json").read_text())
    most = dict.fromkeys((80, 89, 90), 0)
    for row in rows:
        most[row["target"]] = max(most[row["target"]], row["registers"])
    for target, registers in most.items():
        assert f"| sm_{target} | {registers} |" in page


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no GPU here; on one, it is tested"
)
def test_on_a_gpu(tmp_path: Path) -> None:
    path = gpu.run_gpu(tmp_path, rounds=2)
    rows = json.loads(path.read_text())["rows"]
    assert not [row for row in rows if "failed" in row]


def test_arithmetic() -> None:
    """The address product of the joint referral dominates; pre-aggregated it is k times less."""
    joint, mixed = roofline.referral(), roofline.referral(joint=False)
    assert 7 < joint.flops / mixed.flops < 9
    for card in roofline.GPUS:
        for _, work in roofline.table():
            assert card.floor(work) < card.expected(work)
