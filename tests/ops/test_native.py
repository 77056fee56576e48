"""The C kernels: built once, optional everywhere, equal on any number of threads."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from graph_machine.ops import edge_centric_referral, native
from support.cases import Sizes, referral_case
from tolerances import assert_close

needs_compiler = pytest.mark.skipif(
    native.library() is None, reason="there is no C compiler here; with one, it is tested"
)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache folder, and a process that has not looked for the kernels yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("GRAPH_MACHINE_NATIVE", raising=False)
    native.library.cache_clear()
    yield tmp_path / "graph-machine"
    native.library.cache_clear()


@needs_compiler
def test_built_once(fresh: Path) -> None:
    assert native.library() is not None
    (built,) = fresh.iterdir()
    before = built.stat().st_mtime_ns
    assert native.build() == built
    assert built.stat().st_mtime_ns == before


def test_switched_off(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPH_MACHINE_NATIVE", "0")
    assert native.library() is None
    assert not fresh.exists()


@pytest.mark.parametrize("compiler", ["false", "/nowhere/cc"])
def test_without_a_working_compiler(
    fresh: Path,
    monkeypatch: pytest.MonkeyPatch,
    compiler: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("CC", compiler)
    for _ in range(2):
        assert native.library() is None
    (record,) = caplog.records  # said, and said once
    assert "C kernels of the fused backend are not used" in record.message


def test_a_cache_that_cannot_be_written(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.parent.joinpath("graph-machine").write_text("a file where a folder should be")
    assert native.library() is None


def test_other_systems_and_other_numbers(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.kernels(torch.zeros(1, dtype=torch.float64)) is None
    assert native.kernels(torch.zeros(1, device="meta")) is None
    assert native.kernels(torch.zeros(1), native.LARGEST + 1) is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert native.build() is None


@needs_compiler
def test_any_number_of_threads() -> None:
    case = referral_case(Sizes(b=5, h=3, n=11, k=3, d=4, v=4), torch.float32)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(edge_centric_referral(**case, backend="fused"))
    finally:
        torch.set_num_threads(before)
    for one, three in zip(*found):
        assert torch.equal(one, three)  # threads take whole graphs, so sums keep their order


@needs_compiler
def test_not_a_number_is_not_hidden() -> None:
    case = referral_case(dtype=torch.float32)
    case["e1_addresses"][0, 2, 1, 3] = torch.nan
    features, addresses = edge_centric_referral(**case, backend="fused")
    assert features[0, :, 2].isnan().all()
    assert addresses[0, :, 2].isnan().all()
    assert not features[1].isnan().any()


@needs_compiler
def test_the_process_keeps_its_tiny_numbers() -> None:
    """Linked with -ffast-math, loading the library would flush them to 0 everywhere."""
    code = (
        "import torch; from graph_machine.ops import native; assert native.library(); "
        "print(float(torch.tensor(1e-30) * torch.tensor(1e-10)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0


@needs_compiler
def test_sharp_softmax_and_hard_addresses_are_finite() -> None:
    case = referral_case(dtype=torch.float32)
    for name in ("e1_addresses", "e2_addresses"):
        case[name] = torch.eye(7)[torch.randint(7, (2, 7, 3))]
    for name in ("n2_edge_factor_temps", "n2_node_factor_temps", "e2_factor_temps"):
        case[name] = 40 * case[name]
    leaf = case["n1_queries"].requires_grad_()
    fused = edge_centric_referral(**case, backend="fused")
    reference = edge_centric_referral(**case, backend="reference")
    for one, other in zip(fused, reference):
        assert_close(one, other)
    (grad,) = torch.autograd.grad(fused[0].square().sum(), leaf)
    assert grad.isfinite().all()
