"""What this machine will do with a model, and how much of it has been tried: facts as lines."""

import os
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from graph_machine.config import TrainConfig
from graph_machine.machine import hardware, versions
from graph_machine.ops import native, policy
from graph_machine.ops.backend import choose
from graph_machine.ops.core import AttendInputs, CoreInputs, ReferInputs, SharpenInputs
from graph_machine.training.devices import precision_of

Section = tuple[str, list[tuple[str, str]]]


def report(device: torch.device) -> list[Section]:
    """Sections of (name, text): device, ops, kernels, settings, what has never been run."""
    return [
        ("device", _device(device)),
        ("ops on this device", _ops(device)),
        ("kernels", _kernels(device)),
        ("settings that matter", _settings(device)),
        ("never run on a device like this", _unproven(device)),
    ]


def _device(device: torch.device) -> list[tuple[str, str]]:
    facts = hardware()
    lines = [("device", str(device)), ("cpu", f"{facts['cpu']}, {facts['cores']} cores")]
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        free, total = torch.cuda.mem_get_info(device)
        lines += [
            ("gpu", f"{found.name}, compute capability {found.major}.{found.minor}"),
            ("memory", f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"),
        ]
    known = versions()
    if policy.triton_installed():
        known |= {"triton": _triton_version()}
    return [*lines, ("versions", ", ".join(f"{name} {text}" for name, text in known.items()))]


def _triton_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return "of unknown version"


def paper_sized(op: str, device: torch.device) -> CoreInputs:
    """Inputs of one op of the paper's 9x9 model, batch 64, without numbers."""
    b, h, n, k, d = 64, 8, 81, 8, 8
    with FakeTensorMode():

        def make(*shape: int) -> Tensor:
            return torch.empty(shape, device=device)

        if op == "sharpen":
            return SharpenInputs(
                addresses=make(b, n, k, n), temps=make(b, n, k), mask=None, eps=1e-8
            )
        factors: dict[str, Any] = {
            "e1_weights": make(b, n, h, k),
            "e1_addresses": make(b, n, k, n),
            "edge_temps": make(b, n, h),
            "n1_queries": make(b, h, n, d),
            "n2_keys": make(b, h, n, d),
            "n2_values": make(b, h, n, d),
            "mask": None,
            "entropy_weights": None,
            "eps": 1e-8,
            "logit_space": False,
        }
        if op == "attention":
            return AttendInputs(**factors)
        return ReferInputs(
            **factors,
            e2_queries=make(b, n, h, d),
            e2_keys=make(b, 1, n, k, d),
            e2_values=make(b, 1, n, k, d),
            e2_addresses=make(b, n, k, n),
            conditional=False,
        )


OPS = ("attention", "referral", "sharpen")


def _ops(device: torch.device) -> list[tuple[str, str]]:
    found = [(op, choose(op, paper_sized(op, device))) for op in OPS]
    return [(op, f"{name} ({policy.proof(device, name)})") for op, name in found]


def _kernels(device: torch.device) -> list[tuple[str, str]]:
    compiled = "built" if native.library() is not None else "no C compiler: torch code serves"
    lines = [("C, for CPUs", compiled)]
    if device.type == "cuda":
        reason = policy.why_no_triton(device)
        lines.append(("Triton, for GPUs", "they serve" if reason is None else f"none: {reason}"))
    elif policy.triton_installed():
        lines.append(("Triton, for GPUs", "installed; nothing to do for them on this device"))
    else:
        lines.append(("Triton, for GPUs", "not installed; not needed on this device"))
    return lines


def _settings(device: torch.device) -> list[tuple[str, str]]:
    precision = precision_of(TrainConfig(), device)
    products = torch.get_float32_matmul_precision()
    lines = [
        ("train.precision=auto", f"{precision} on this device"),
        ("float32 products", "exact" if products == "highest" else f"'{products}': rounded"),
        ("chunks of torch code", f"{policy.chunk_numbers(device):,} numbers per scratch tensor"),
    ]
    if device.type == "cpu":
        asked = os.environ.get("OMP_NUM_THREADS", "unset")
        lines.append(("threads", f"{torch.get_num_threads()} (OMP_NUM_THREADS is {asked})"))
    if os.environ.get("TRITON_INTERPRET", "0") != "0":
        lines.append(("TRITON_INTERPRET", "set: Triton kernels run in the interpreter, for tests"))
    return lines


def _unproven(device: torch.device) -> list[tuple[str, str]]:
    if device.type == "cpu":
        return [("nothing", "every path that is used here has been tested here")]
    lines = [(name, policy.proof(device, name)) for name in policy.implementations_on(device)]
    advice = "make gpu-test, then graph-machine bench --suite gpu; docs/gpu.md says what to expect"
    return [*lines, ("to change that", advice)]
