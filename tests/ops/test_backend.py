"""One place decides which implementation an op takes, also on devices that are not here.

Fake tensors have a device and no numbers.
"""

from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from graph_machine.errors import ConfigError
from graph_machine.ops import backend, edge_augmented_attention, native, torch_code
from graph_machine.ops.backend import Implementation, choose, implementations, register, resolve
from graph_machine.ops.core import KernelInputs, KernelOuts

CUDA = torch.device("cuda")
OTHERS = ("mps", "xpu", "meta")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answers about a device are kept for the process; not here."""
    caches = (backend.why_no_triton, backend.triton_serves, backend.device_chunk)
    monkeypatch.setattr(backend, "triton_installed", lambda: True)
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
) -> KernelInputs:
    """Of attention, or with `conditional` of referral."""
    with FakeTensorMode():

        def make(*shape: int) -> torch.Tensor:
            return torch.empty(shape, device=device, dtype=dtype)

        nodes, edges = make(2, 4, 9, width), make(2, 1, 9, slots, width)
        given = KernelInputs(
            n2_values=nodes,
            n1_queries=nodes,
            n2_keys=nodes,
            e1_weights=make(2, 9, 4, slots),
            e1_addresses=make(2, 9, slots, 9),
        )
        if conditional is None:
            return given
        return given._replace(
            e2_queries=make(2, 9, 4, width),
            e2_keys=edges,
            e2_values=edges,
            e2_addresses=make(2, 9, slots, 9),
            conditional=conditional,
        )


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An implementation of attention, which notes that it was called."""
    calls: list[str] = []

    def forward(given: KernelInputs) -> KernelOuts:
        calls.append("forward")
        return torch_code.forward(given)

    known = backend._implementations["attend"]
    monkeypatch.setitem(backend._implementations, "attend", dict(known))
    register("attend", "offered", Implementation(forward, torch_code.backward))
    return calls


def test_cpu() -> None:
    kernels = "native" if native.library() is not None else "torch"
    assert choose("attend", inputs("cpu")) == kernels
    assert choose("attend", inputs("cpu", dtype=torch.float64)) == "torch"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("conditional", [None, False, True])
def test_kernels_serve_on_cuda(dtype: torch.dtype, conditional: bool | None) -> None:
    case = inputs("cuda", dtype=dtype, conditional=conditional)
    assert choose("attend", case) == "triton"
    with FakeTensorMode():
        given = torch.empty(2, 9, 40, dtype=torch.int32, device="cuda")
    assert choose("attend", case._replace(given=given, empty=True)) == "triton"


def test_torch_code_serves_the_rest_on_cuda() -> None:
    assert choose("attend", inputs("cuda", dtype=torch.float64)) == "torch"
    assert choose("attend", inputs("cuda", width=256)) == "torch"
    assert choose("attend", inputs("cuda", slots=64)) == "torch"
    before_referral = inputs("cuda", slots=0, conditional=False)
    assert choose("attend", before_referral) == "torch"
    assert choose("attend", before_referral._replace(empty=True)) == "triton"


@pytest.mark.parametrize("device", OTHERS)
def test_torch_code_serves_other_devices(device: str) -> None:
    assert choose("attend", inputs(device)) == "torch"
    assert choose("attend", inputs(device, conditional=False)) == "torch"
    assert backend.proof(torch.device(device), "torch") == backend.UNPROVEN


def test_a_registered_implementation_is_taken_without_touching_layers(
    offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = torch.randn(1, 2, 3, 4)
    edge_augmented_attention(n1_queries=nodes, n2_keys=nodes, n2_values=nodes)
    assert not offered
    monkeypatch.setitem(backend.ORDER, "cpu", ("offered", "torch"))
    edge_augmented_attention(n1_queries=nodes, n2_keys=nodes, n2_values=nodes)
    assert offered == ["forward"]
    with pytest.raises(ConfigError, match="'offered' already"):
        register("attend", "offered", implementations("attend")["offered"])


def test_no_implementation_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backend.ORDER, "cpu", ())
    with pytest.raises(ConfigError, match="'cpu'"):
        choose("attend", inputs("cpu"))


def test_words() -> None:
    assert resolve("auto", "attention") == "fused"
    assert resolve("fused", "attention", staged=True) == "reference"
    assert resolve("reference", "attention") == "reference"


def test_without_triton_torch_code_serves_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "triton_installed", lambda: False)
    with pytest.warns(UserWarning, match=r"pip install 'graph-machine\[gpu\]'"):
        assert choose("attend", inputs("cuda")) == "torch"
    assert choose("attend", inputs("cuda")) == "torch"


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
    monkeypatch.setattr(backend, "capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    found = backend.why_no_triton(CUDA)
    assert found is None if reason is None else found is not None and reason in found


GIGABYTE = 1 << 30


@pytest.mark.parametrize(
    ("free", "numbers"),
    [
        (80 * GIGABYTE, backend.MOST_CHUNK),
        (4 * GIGABYTE, 1 << 24),
        (GIGABYTE // 100, backend.LEAST_CHUNK),
        (None, backend.MOST_CHUNK),
    ],
)
def test_blocks_follow_free_memory(
    free: int | None, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "free_memory", lambda device: free)
    assert backend.chunk_numbers(CUDA) == numbers
    monkeypatch.setattr(backend, "free_memory", lambda device: 0)
    assert backend.chunk_numbers(CUDA) == numbers  # shapes stay from step to step
    assert backend.chunk_numbers(torch.device("cpu")) == backend.CPU_CHUNK


def test_what_has_never_run_is_reported() -> None:
    for device, order in backend.ORDER.items():
        for implementation in order:
            said = backend.proof(torch.device(device), implementation)
            assert ("never run" in said) == (device != "cpu")
