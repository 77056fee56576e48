"""The machine: versions and hardware for run records, free memory, and settings of the process that
make training on CPUs faster and change no result."""

import ctypes
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from graph_machine import __version__
from graph_machine.errors import ConfigError

# Names of glibc's malloc.h, and the largest value of each that it takes.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
KEEP = 2**31 - 1
LARGEST_FROM_HEAP = 2**30


def versions() -> dict[str, str]:
    names = ("torch", "numpy", "safetensors")
    found = {name: metadata.version(name) for name in names}
    return {"graph-machine": __version__, "python": platform.python_version(), **found}


def hardware() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator()
        facts["accelerator"] = f"{torch.accelerator.device_count()} x {kind}"
    return facts


def free_memory(device: torch.device) -> int | None:
    """Bytes that are free for this process on a device; None if unknown."""
    if device.type == "cuda" and torch.cuda.is_available():
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    if device.type != "cpu":
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"), re.M)
    if found is None:
        return None
    return min(int(found[1]) * 1024, _container_memory())


def _container_memory() -> int:
    """Bytes left below a container's limit (cgroup v2); cached file contents do not count."""
    limit, used = (_text(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    if not limit.isdigit() or not used.isdigit():
        return sys.maxsize
    cached = re.search(r"^inactive_file (\d+)", _text("/sys/fs/cgroup/memory.stat"), re.M)
    return int(limit) - int(used) + (int(cached[1]) if cached else 0)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def keep_freed_memory() -> bool:
    """Keep large freed buffers in the process instead of returning them to the system.

    glibc maps every buffer above 32 MB anew and unmaps it when freed, so each training step faults
    the same pages in again. Returns True if the C library accepted the setting. The process then
    keeps its peak memory until it ends.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    taken = mallopt(M_MMAP_THRESHOLD, LARGEST_FROM_HEAP) and mallopt(M_TRIM_THRESHOLD, KEEP)
    return bool(taken)


def tune_cpu() -> None:
    """Call once, early, in training and benchmarks: threads inherit the second setting.

    Sharp softmaxes are full of numbers below 1e-38. Computing with them takes twice the time, and
    they are negligible in their row.
    """
    keep_freed_memory()
    torch.set_flush_denormal(True)


def choose_device(name: str | None = None, local_rank: int = 0) -> torch.device:
    """The device of this process: by name, else the machine's accelerator, else the CPU."""
    if name is not None:
        try:
            device = torch.device(name)
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"The device '{name}' cannot be used here: {reason}") from None
        return device
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return torch.device("cpu")
    if torch.accelerator.device_count() > 1:
        return torch.device(accelerator.type, local_rank % torch.accelerator.device_count())
    return accelerator
