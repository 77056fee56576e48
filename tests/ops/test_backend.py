"""One place decides which implementation an op takes; shown on tensors that hold no numbers."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from graph_machine.errors import ConfigError
from graph_machine.ops import backend, native, policy, sharpen
from graph_machine.ops.backend import Implementation, choose, implementations, register, resolve
from graph_machine.ops.core import AttendInputs, SharpenInputs, SharpenOuts


def attention_inputs(device: str, dtype: torch.dtype = torch.float32) -> AttendInputs:
    with FakeTensorMode():
        x = torch.empty(2, 3, 5, 4, device=device, dtype=dtype)
    return AttendInputs(
        e1_weights=None,
        e1_addresses=None,
        edge_temps=None,
        n1_queries=x,
        n2_keys=x,
        n2_values=x,
        mask=None,
        entropy_weights=None,
        eps=1e-8,
        logit_space=False,
    )


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A Triton implementation of sharpening, which notes that it was asked."""
    calls: list[str] = []

    def forward(inputs: SharpenInputs) -> SharpenOuts:
        calls.append("forward")
        return SharpenOuts(inputs.addresses.clone())

    known = backend._implementations["sharpen"]
    monkeypatch.setitem(backend._implementations, "sharpen", dict(known))
    register("sharpen", "triton", Implementation(forward, lambda inputs, outs, grads: inputs))
    return calls


def test_by_device() -> None:
    kernels = native.library() is not None
    assert choose("attention", attention_inputs("cpu")) == ("native" if kernels else "chunked")
    assert choose("attention", attention_inputs("cpu", torch.float64)) == "chunked"
    assert choose("attention", attention_inputs("cuda", torch.float64)) == "chunked"
    assert choose("attention", attention_inputs("meta")) == "chunked"


def test_every_op_runs_everywhere() -> None:
    for op in ("attention", "referral", "sharpen"):
        assert {"native", "chunked"} <= set(implementations(op))


def test_a_registered_implementation_is_taken_without_touching_layers(
    offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses, temps = torch.rand(1, 2, 3, 4), torch.ones(1, 2, 3)
    sharpen(addresses, temps)
    assert not offered
    monkeypatch.setitem(policy.ORDER, "cpu", ("triton", "chunked"))
    assert torch.equal(sharpen(addresses, temps), addresses)
    assert offered == ["forward"]
    with pytest.raises(ConfigError, match="'triton' already"):
        register("sharpen", "triton", implementations("sharpen")["triton"])


def test_nothing_that_serves_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policy.ORDER, "cpu", ())
    with pytest.raises(ConfigError, match="no implementation on 'cpu'"):
        choose("attention", attention_inputs("cpu"))


def test_words() -> None:
    assert resolve("auto", "attention") == "fused"
    assert resolve("fused", "attention", staged=True) == "reference"
    assert resolve("reference", "attention") == "reference"
    with pytest.raises(ConfigError, match="Did you mean 'fused'"):
        resolve("fussed", "attention")
