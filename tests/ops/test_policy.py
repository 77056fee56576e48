"""What ops do on devices that are not here: fake tensors have a device and no numbers."""

from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from graph_machine.ops import policy
from graph_machine.ops.backend import choose
from graph_machine.ops.core import AttendInputs, ReferInputs

CUDA = torch.device("cuda")
OTHERS = ("mps", "xpu")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answers about a device are kept for the process; not here."""
    caches = (policy.why_no_triton, policy.triton_serves, policy.device_chunk)
    monkeypatch.setattr(policy, "triton_installed", lambda: True)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def inputs(
    device: str,
    *,
    dtype: torch.dtype = torch.float32,
    width: int = 8,
    slots: int = 8,
    conditional: bool | None = None,
) -> AttendInputs | ReferInputs:
    """Of attention, or with `conditional` of referral."""
    with FakeTensorMode():

        def make(*shape: int) -> torch.Tensor:
            return torch.empty(shape, device=device, dtype=dtype)

        factors = {
            "e1_weights": make(2, 9, 4, slots),
            "e1_addresses": make(2, 9, slots, 9),
            "edge_temps": None,
            "n1_queries": make(2, 4, 9, width),
            "n2_keys": make(2, 4, 9, width),
            "n2_values": make(2, 4, 9, width),
            "mask": None,
            "entropy_weights": None,
            "eps": 1e-8,
            "logit_space": False,
        }
        if conditional is None:
            return AttendInputs(**factors)
        return ReferInputs(
            **factors,
            e2_queries=make(2, 9, 4, width),
            e2_keys=make(2, 1, 9, slots, width),
            e2_values=make(2, 1, 9, slots, width),
            e2_addresses=make(2, 9, slots, 9),
            conditional=conditional,
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kernels_serve_on_cuda(dtype: torch.dtype) -> None:
    assert choose("attention", inputs("cuda", dtype=dtype)) == "triton"
    assert choose("referral", inputs("cuda", dtype=dtype, conditional=False)) == "triton"


def test_torch_code_serves_the_rest_on_cuda() -> None:
    assert choose("attention", inputs("cuda", dtype=torch.float64)) == "chunked"
    assert choose("attention", inputs("cuda", width=256)) == "chunked"
    assert choose("attention", inputs("cuda", slots=64)) == "chunked"
    assert choose("referral", inputs("cuda", conditional=True)) == "chunked"


@pytest.mark.parametrize("device", OTHERS)
def test_torch_code_serves_other_devices(device: str) -> None:
    assert choose("attention", inputs(device)) == "chunked"
    assert choose("referral", inputs(device, conditional=False)) == "chunked"
    assert policy.proof(torch.device(device), "chunked") == policy.UNPROVEN


def test_cpu_never_takes_triton() -> None:
    assert choose("attention", inputs("cpu")) in ("native", "chunked")


def test_without_triton_torch_code_serves_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "triton_installed", lambda: False)
    with pytest.warns(UserWarning, match=r"pip install 'graph-machine\[gpu\]'.*Torch code is used"):
        assert choose("attention", inputs("cuda")) == "chunked"
    assert choose("attention", inputs("cuda")) == "chunked"  # told once


@pytest.mark.parametrize(
    ("capability", "hip", "reason"),
    [((7, 5), None, "this GPU has 7.5"), ((9, 4), "6.4", "AMD"), ((8, 0), None, None)],
)
def test_gpus_without_kernels(
    capability: tuple[int, int],
    hip: str | None,
    reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    found = policy.why_no_triton(CUDA)
    assert found is None if reason is None else found is not None and reason in found


GIGABYTE = 1 << 30


@pytest.mark.parametrize(
    ("free", "numbers"),
    [
        (80 * GIGABYTE, policy.MOST_CHUNK),
        (4 * GIGABYTE, 1 << 24),
        (GIGABYTE // 100, policy.LEAST_CHUNK),
        (None, policy.MOST_CHUNK),
    ],
)
def test_chunks_follow_free_memory(
    free: int | None, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "free_memory", lambda device: free)
    assert policy.chunk_numbers(CUDA) == numbers
    monkeypatch.setattr(policy, "free_memory", lambda device: 0)
    assert policy.chunk_numbers(CUDA) == numbers  # shapes stay from step to step
    assert policy.chunk_numbers(torch.device("cpu")) == policy.CPU_CHUNK


def test_what_has_never_run_is_told() -> None:
    for device, order in policy.ORDER.items():
        for implementation in order:
            said = policy.proof(torch.device(device), implementation)
            assert ("never run" in said) == (device != "cpu")
