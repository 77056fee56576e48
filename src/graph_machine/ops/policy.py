"""What ops do on each device: implementations, chunk sizes, and how far they have been tested.

`graph-machine doctor` prints this for the machine at hand; docs/gpu.md tells the reasons.
"""

import functools
import importlib.util
import warnings

import torch

# Device type -> implementations, first choice first. `native` are C kernels for CPUs, `triton`
# kernels for GPUs, `chunked` is torch code for every device and dtype.
ORDER: dict[str, tuple[str, ...]] = {
    "cpu": ("native", "chunked"),
    "cuda": ("triton", "chunked"),
}
ELSEWHERE = ("chunked",)

# Device type -> what stands behind each implementation there.
PROOF: dict[str, dict[str, str]] = {
    "cpu": {
        "native": "run and tested against the reference",
        "chunked": "run and tested against the reference",
    },
    "cuda": {
        "triton": "interpreted on a CPU and compiled for sm_80, sm_89, sm_90; never run on a GPU",
        "chunked": "run only on CPUs; never run on a GPU",
    },
}
UNPROVEN = "run only on CPUs; never run on this kind of device"

# Kernels are compiled (and counted on) from here up: tf32 and asynchronous copies begin here.
LEAST_CAPABILITY = (8, 0)

# Numbers per scratch tensor of the chunked path. On a CPU a chunk should stay in the cache: 420,000
# is one graph's e2 weights at n = 81 and k = 8 (docs/fast.md has the sweep). A GPU should get large
# kernels, as memory allows: about BUFFERS scratch tensors of a chunk live at once.
CPU_CHUNK = 420_000
LEAST_CHUNK, MOST_CHUNK = 1 << 20, 1 << 26
BUFFERS = 16
SHARE = 0.25  # of the free memory; the rest is for activations


def implementations_on(device: torch.device) -> tuple[str, ...]:
    return ORDER.get(device.type, ELSEWHERE)


def proof(device: torch.device, implementation: str) -> str:
    return PROOF.get(device.type, {}).get(implementation, UNPROVEN)


def triton_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def capability(device: torch.device) -> tuple[int, int] | None:
    """Of an NVIDIA GPU; None where there is none to ask."""
    return torch.cuda.get_device_capability(device) if torch.cuda.is_available() else None


@functools.cache
def why_no_triton(device: torch.device) -> str | None:
    """Why Triton kernels do not serve on a GPU; None if they do."""
    if not triton_installed():
        return "the package 'triton' is missing: pip install 'graph-machine[gpu]'"
    if torch.version.hip is not None:
        return "they have never been compiled for AMD GPUs"
    found = capability(device)
    if found is not None and found < LEAST_CAPABILITY:
        least = ".".join(map(str, LEAST_CAPABILITY))
        return f"they need compute capability {least}, this GPU has {found[0]}.{found[1]}"
    return None


@functools.cache
def triton_serves(device: torch.device) -> bool:
    """Whether Triton kernels may be used; a GPU without them gets one warning."""
    if device.type != "cuda":
        return triton_installed()  # for the interpreter: only tests ask for it
    reason = why_no_triton(device)
    if reason is not None:
        warnings.warn(
            f"No Triton kernels here: {reason}. Torch code is used instead.", stacklevel=2
        )
    return reason is None


def free_memory(device: torch.device) -> int | None:
    """Bytes of a GPU that a new tensor could take; None where that is not known."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


@functools.cache
def device_chunk(device: torch.device) -> int:
    """Numbers per scratch tensor on a device that is no CPU.

    Asked once per process: chunks keep their shapes from step to step, as CUDA graphs need.
    """
    free = free_memory(device)
    if free is None:
        return MOST_CHUNK
    return min(MOST_CHUNK, max(LEAST_CHUNK, int(SHARE * free) // (4 * BUFFERS)))


def chunk_numbers(device: torch.device) -> int:
    return CPU_CHUNK if device.type == "cpu" else device_chunk(device)
