"""Process settings: taken on glibc, harmless elsewhere."""

import platform

import pytest
import torch

from graph_machine import machine


def test_keep_freed_memory_is_taken_on_glibc_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert machine.keep_freed_memory() is False


def test_tune_cpu_changes_no_ordinary_number() -> None:
    x = torch.linspace(-80, 3, 1001)
    before = x.softmax(dim=-1)
    try:
        machine.tune_cpu()
        assert torch.equal(x.softmax(dim=-1), before)
    finally:
        torch.set_flush_denormal(False)
