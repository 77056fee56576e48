"""What a measurement ran on: versions and hardware, for run records and benchmarks."""

import os
import platform
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


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
