"""Kernels on a GPU are compared with the reference first; shown in the interpreter.

Wrong kernels are planted; the verdict is kept, and torch code takes over with one warning.
"""

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from graph_machine.ops import backend, edge_augmented_attention
from support.cases import Sizes, attention_case
from support.gradients import outputs_and_gradients
from tolerances import assert_close

pytest.importorskip("triton", reason="triton is not installed; with the extra 'gpu', it is tested")

from graph_machine.ops.triton import check, launch

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The CPU takes Triton kernels first, and has them checked; small inputs, one precision."""
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path))
    monkeypatch.setitem(backend.ORDER, "cpu", ("triton", "torch"))
    monkeypatch.setattr(check, "needed", lambda device: True)
    monkeypatch.setattr(check, "SIZES", (1, 2, 5, 2, 3, 4))
    monkeypatch.setattr(check, "ALLOWED", {"highest": 1e-3})
    check.verdict.cache_clear()
    yield tmp_path / "triton"
    check.verdict.cache_clear()
    check._failed.clear()


def attend() -> torch.Tensor:
    return edge_augmented_attention(**attention_case(Sizes(n=4), torch.float32), backend="fused")


def wrong_output(forward: Callable[..., Any]) -> Callable[..., Any]:
    def planted(x: Any) -> Any:
        outs = forward(x)
        return outs._replace(addresses=outs.addresses * 1.01)

    return planted


def wrong_gradient(backward: Callable[..., Any]) -> Callable[..., Any]:
    def planted(*given: Any) -> Any:
        grads = backward(*given)
        return grads._replace(n2_keys=grads.n2_keys.flip(2))

    return planted


def wrong_target(forward: Callable[..., Any]) -> Callable[..., Any]:
    def planted(x: Any) -> Any:
        return forward(x if x.given is None else x._replace(given=x.given.clamp_min(0)))

    return planted


def failing(forward: Callable[..., Any]) -> Callable[..., Any]:
    def planted(*given: Any) -> Any:
        raise RuntimeError("no kernel image is available\nfor this device")

    return planted


def test_right_kernels_are_trusted_and_the_verdict_is_kept(
    as_on_a_gpu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attend()
    (kept,) = as_on_a_gpu.iterdir()
    assert json.loads(kept.read_text())["problem"] == ""
    check.verdict.cache_clear()
    monkeypatch.setattr(check, "_check", lambda device: pytest.fail("checked again"))
    assert str(check.verdict(CPU)) == "equal to the reference"


@pytest.mark.parametrize(
    ("name", "plant", "problem"),
    [
        ("forward", wrong_output, "addresses is off by"),
        ("backward", wrong_gradient, "gradient of n2_keys is off by"),
        ("forward", wrong_target, "attention, given edges (highest precision): features is off by"),
        ("forward", failing, "RuntimeError: no kernel image is available"),
    ],
)
def test_wrong_kernels_are_replaced_by_torch_code(
    name: str,
    plant: Callable[..., Any],
    problem: str,
    as_on_a_gpu: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, name, plant(getattr(launch, name)))
    with pytest.warns(UserWarning, match="doctor --json") as raised:
        attended = [attend() for _ in range(2)]
    assert all(outs.isfinite().all() for outs in attended)
    (warning,) = [found for found in raised if "Triton" in str(found.message)]
    assert problem in str(warning.message)
    assert "\n" not in str(warning.message)
    assert problem in json.loads(next(as_on_a_gpu.iterdir()).read_text())["problem"]
    assert not check.trusted(CPU)


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_a_launch_that_fails_later_is_replaced_by_torch_code(
    name: str, as_on_a_gpu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check has one size: at others a kernel may need more than the GPU has."""
    assert not check.verdict(CPU).problem
    monkeypatch.setattr(launch, name, failing(getattr(launch, name)))
    case = attention_case(Sizes(n=4), torch.float32)
    with pytest.warns(UserWarning, match="doctor --json") as raised:
        found = [
            outputs_and_gradients(edge_augmented_attention, case, backend="fused") for _ in range(2)
        ]
    (warning,) = [each for each in raised if "Triton" in str(each.message)]
    assert "RuntimeError: no kernel image is available" in str(warning.message)
    exact = outputs_and_gradients(edge_augmented_attention, case, backend="reference")
    for each in found:
        for key, value in exact.items():
            assert_close(each[key], value, what=key)
    assert not check.trusted(CPU)
    assert not check.verdict(CPU).problem  # the next process tries again


def test_too_little_memory_is_no_fault_of_a_kernel(as_on_a_gpu: Path) -> None:
    def full() -> None:
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        check.or_torch(CPU, full, lambda: None)
    assert check.trusted(CPU)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"problem": 3}'])
def test_a_damaged_verdict_is_made_again(
    text: str, as_on_a_gpu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_check", lambda device: "")
    path = check.verdict(CPU).path
    path.write_text(text)
    check.verdict.cache_clear()
    assert not check.verdict(CPU).problem
    assert json.loads(path.read_text())["problem"] == ""
