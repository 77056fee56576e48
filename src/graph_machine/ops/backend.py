"""Which implementation an op uses, depending on the `backend` setting, the device and the sizes.

`backend` is one of three. `reference` is the paper's listing in plain einsum and defines what is
right. `fused` recomputes large tensors in the backward pass instead of keeping them; it has no
second derivative. `auto` is the fastest one that is tested to equal the reference: `fused`, except
in an exported program, which should run without this package.

`fused` has several implementations, each a forward and a backward pass over the same tuple of
inputs (`core.py`). The first in the device's `ORDER` that supports the inputs is used.
`graph-machine doctor` prints this for your machine; docs/gpu.md gives the reasons.
"""

import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch

from graph_machine.errors import ConfigError, check_choice
from graph_machine.machine import free_memory
from graph_machine.ops.core import KernelInputs

Backend = Literal["auto", "reference", "fused"]
BACKENDS: tuple[str, ...] = get_args(Backend)

# Device type -> implementations, first choice first. `native` are C kernels for CPUs, `triton`
# kernels for GPUs, `torch` is torch code for every device and dtype.
ORDER: dict[str, tuple[str, ...]] = {"cpu": ("native", "torch"), "cuda": ("triton", "torch")}
ELSEWHERE = ("torch",)

# Device type -> how far each implementation has been tested there.
PROOF: dict[str, dict[str, str]] = {
    "cpu": {
        "native": "run and tested against the reference",
        "torch": "run and tested against the reference",
    },
    "cuda": {
        "triton": "interpreted on a CPU and compiled for sm_80, sm_89, sm_90; never run on a GPU",
        "torch": "run only on CPUs; never run on a GPU",
    },
}
UNPROVEN = "run only on CPUs; never run on this kind of device"

# Kernels are compiled for this and later GPUs: tf32 and asynchronous copies begin here.
LEAST_CAPABILITY = (8, 0)

# Weights per block of torch code. On a CPU a block should stay in the cache: 420,000 are one
# graph's at n = 81 and k = 8. A GPU should get large blocks, as memory allows: about BUFFERS
# tensors of this size live at once.
CPU_CHUNK = 420_000
LEAST_CHUNK, MOST_CHUNK = 1 << 20, 1 << 26
BUFFERS = 16
SHARE = 0.25  # of the free memory; the rest is for activations


class Implementation(NamedTuple):
    """One implementation of an op.

    `forward(inputs)` returns the op's outputs, `backward(inputs, outs, grads)` the gradients of the
    inputs, in the same order.
    """

    forward: Callable[[Any], Any]
    backward: Callable[[Any, Any, Any], Any]
    serves: Callable[[Any], bool] = lambda inputs: True


_implementations: dict[str, dict[str, Implementation]] = {}


def register(op: str, name: str, implementation: Implementation) -> None:
    """Add an implementation of an op; a name that exists already is an error."""
    known = _implementations.setdefault(op, {})
    if name in known:
        raise ConfigError(f"{op}: there is an implementation '{name}' already.")
    known[name] = implementation


def implementations(op: str) -> dict[str, Implementation]:
    return _implementations.get(op, {})


def choose(op: str, inputs: KernelInputs) -> str:
    """The name of the implementation that `op` uses for these inputs."""
    device, known = inputs[0].device, _implementations[op]
    for name in implementations_on(device):
        if name in known and known[name].serves(inputs):
            return name
    raise ConfigError(f"{op}: no implementation on '{device.type}' supports inputs like these.")


def resolve(backend: str, op: str, *, staged: bool = False) -> str:
    """`reference` or `fused`; an unknown word is an error.

    `staged`: a listener needs the single stages of the op, which only the reference has.
    """
    check_choice(op, "backend", backend, BACKENDS)
    if staged or (backend == "auto" and torch.compiler.is_exporting()):
        return "reference"
    return "fused" if backend == "auto" else backend


def implementations_on(device: torch.device) -> tuple[str, ...]:
    return ORDER.get(device.type, ELSEWHERE)


def proof(device: torch.device, implementation: str) -> str:
    """How far an implementation has been tested on this type of device."""
    return PROOF.get(device.type, {}).get(implementation, UNPROVEN)


def triton_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def capability(device: torch.device) -> tuple[int, int] | None:
    """The compute capability of an NVIDIA GPU; None without one."""
    return torch.cuda.get_device_capability(device) if torch.cuda.is_available() else None


@functools.cache
def why_no_triton(device: torch.device) -> str | None:
    """Why Triton kernels cannot be used on a GPU; None if they can."""
    if not triton_installed():
        return "the package 'triton' is missing: pip install 'graph-machine[gpu]'"
    if torch.version.hip is not None:
        return "they have never been compiled for AMD GPUs"
    found = capability(device)
    if found is not None and found < LEAST_CAPABILITY:
        least = ".".join(map(str, LEAST_CAPABILITY))
        return f"they need compute capability {least}; this GPU has {found[0]}.{found[1]}"
    return None


@functools.cache
def triton_serves(device: torch.device) -> bool:
    """Whether Triton kernels may be used; a GPU without them gets one warning."""
    if device.type != "cuda":
        return triton_installed()  # in the interpreter, for tests
    reason = why_no_triton(device)
    if reason is not None:
        warnings.warn(
            f"No Triton kernels here: {reason}. Torch code is used instead.", stacklevel=2
        )
    return reason is None


@functools.cache
def device_chunk(device: torch.device) -> int:
    """Weights per block on a device that is not a CPU.

    Computed once per process: blocks keep their shapes from step to step, as CUDA graphs need.
    """
    free = free_memory(device)
    if free is None:
        return MOST_CHUNK
    return min(MOST_CHUNK, max(LEAST_CHUNK, int(SHARE * free) // (4 * BUFFERS)))


def chunk_numbers(device: torch.device) -> int:
    return CPU_CHUNK if device.type == "cpu" else device_chunk(device)
