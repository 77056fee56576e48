"""What a measurement ran on: versions and hardware, for run records and benchmarks."""

import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from graph_machine import __version__


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
    """Bytes that are free for this process on a device; None where the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"), re.M)
    if found is None:
        return None
    return min(int(found[1]) * 1024, _container_memory())


def _container_memory() -> int:
    """What a container's limit (cgroup v2) leaves; what is cached of files does not count."""
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
