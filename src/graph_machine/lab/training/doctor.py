"""How this machine will run a model, and how much of that has been tried: facts as lines."""

import os
from contextlib import suppress
from importlib import metadata

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from graph_machine.lab.config import TrainConfig
from graph_machine.lab.training.devices import precision_of
from graph_machine.machine import hardware, versions
from graph_machine.ops import backend, native
from graph_machine.ops.backend import choose
from graph_machine.ops.core import KernelInputs
from graph_machine.ops.triton import check

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
    with suppress(metadata.PackageNotFoundError):
        known["triton"] = metadata.version("triton")
    return [*lines, ("versions", ", ".join(f"{name} {text}" for name, text in known.items()))]


def paper_sized(op: str, device: torch.device) -> KernelInputs:
    """Inputs of one op of the paper's 9x9 model, batch 64, without numbers."""
    b, h, n, k, d = 64, 8, 81, 8, 8
    with FakeTensorMode():

        def make(*shape: int) -> Tensor:
            return torch.empty(shape, device=device)

        given = KernelInputs(
            n2_values=make(b, h, n, d),
            n1_queries=make(b, h, n, d),
            n2_keys=make(b, h, n, d),
            e1_weights=make(b, n, h, k),
            e1_addresses=make(b, n, k, n),
            edge_temps=make(b, n, h),
            eps=1e-8,
        )
        if op == "attention":
            return given
        edges = make(b, 1, n, k, d)
        return given._replace(
            e2_queries=make(b, n, h, d),
            e2_keys=edges,
            e2_values=edges,
            e2_addresses=make(b, n, k, n),
        )


OPS = ("attention", "referral")


def _ops(device: torch.device) -> list[tuple[str, str]]:
    found = [(op, choose("attend", paper_sized(op, device))) for op in OPS]
    return [(op, f"{name} ({backend.proof(device, name)})") for op, name in found]


def _kernels(device: torch.device) -> list[tuple[str, str]]:
    compiled = "built" if native.library() is not None else "no C compiler: torch code serves"
    lines = [("C, for CPUs", compiled)]
    if device.type == "cuda":
        reason = backend.why_no_triton(device)
        lines.append(("Triton, for GPUs", "they serve" if reason is None else f"none: {reason}"))
        if reason is None and check.needed(device):
            lines.append(("Triton, checked here", str(check.verdict(device))))
    elif backend.triton_installed():
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
        ("blocks of torch code", f"{backend.chunk_numbers(device):,} weights"),
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
    lines = [(name, backend.proof(device, name)) for name in backend.implementations_on(device)]
    advice = "make gpu-test, then graph-machine bench --suite gpu; docs/gpu.md says what to expect"
    return [*lines, ("to change that", advice)]
