"""`graph-machine doctor`: honest about this machine, and about GPUs that are not here."""

import json

import pytest
import torch

from cli.conftest import OutOf
from graph_machine.lab.training import doctor
from graph_machine.ops import backend


def test_here(out_of: OutOf) -> None:
    text = out_of(["doctor", "--device", "cpu"])
    for words in ("device", "attention", "referral", "train.precision=auto", "tested"):
        assert words in text
    found = json.loads(out_of(["doctor", "--device", "cpu", "--json"]))
    assert found["device"]["device"] == "cpu"
    assert found["ops on this device"]["attention"].startswith(("native", "torch"))


def test_a_gpu_is_told_what_was_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as it can be asked without one."""
    cuda = torch.device("cuda")
    monkeypatch.setattr(backend, "triton_installed", lambda: True)
    for cache in (backend.why_no_triton, backend.triton_serves):
        cache.cache_clear()
    ops = dict(doctor._ops(cuda))
    assert ops["attention"].startswith("triton (interpreted on a CPU and compiled for")
    assert dict(doctor._kernels(cuda))["Triton, for GPUs"] == "they serve"
    assert "make gpu-test" in dict(doctor._unproven(cuda))["to change that"]
