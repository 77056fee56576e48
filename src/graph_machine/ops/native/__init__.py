"""The fused ops as a few small C files, built on first use where a C compiler is at hand.

It is optional: without a compiler, on other systems than Linux, in float64, for very large graphs
or with GRAPH_MACHINE_NATIVE=0, the torch code of this package computes the same. The build takes
about two seconds and is kept in the user's cache folder.
"""

import ctypes
import functools
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SOURCES = ("attend.c", "feed_forward.c", "own_edges.c", "refer.c", "sharpen.c")
HEADERS = ("common.h", "factors.h")
# Not -ffast-math: linked into a library it would change how the whole process treats tiny numbers.
FLAGS = (
    *("-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-std=gnu11", "-ffp-contract=fast"),
    *("-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"),
)
# Above this many values of a graph (pairs times their width) referral takes MKL: n = 256 has
# 540,000 and takes three quarters of the time in C, n = 1,024 has 8.5 million and takes the same.
LARGEST = 1 << 22
Pointer = ctypes.c_void_p


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "graph-machine"


def build() -> Path | None:
    """The built library, from the cache if it is there; None where it cannot be built."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or not compiler:
        return None
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    here = Path(__file__).parent
    texts = [(here / name).read_text() for name in (*HEADERS, *SOURCES)]
    key = "\n".join([*texts, version.stdout, torch.__version__, _cpu_flags(), *FLAGS])
    target = cache_folder() / f"kernels-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        command = [
            compiler,
            *FLAGS,
            *(str(here / name) for name in SOURCES),
            "-o",
            str(made),
            "-lm",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return None
        os.replace(made, target)  # whole or not at all, also when several processes build
    return target


def _cpu_flags() -> str:
    """What -march=native depends on: a home folder may be shared by different machines."""
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


@functools.cache
def library() -> ctypes.CDLL | None:
    """The kernels, or None: then the torch code is used, and on Linux a log line says why."""
    if os.environ.get("GRAPH_MACHINE_NATIVE") == "0":
        return None
    try:
        path = build()
        if path is not None:
            return _declare(ctypes.CDLL(str(path)))
        reason = "no C compiler that builds them was found"
    except OSError as error:  # no place to write, or a library that does not load
        reason = str(error)
    if sys.platform == "linux":
        logging.getLogger("graph_machine").warning(
            "The C kernels of the fused backend are not used: %s. Torch code computes the same, "
            "more slowly (GRAPH_MACHINE_NATIVE=0 silences this).",
            reason,
        )
    return None


def _declare(found: ctypes.CDLL) -> ctypes.CDLL:
    long, real = ctypes.c_long, ctypes.c_float
    arguments = {
        "gm_refer": [Pointer] * 6,
        "gm_refer_backward": [Pointer] * 8,
        "gm_attend": [Pointer] * 7,
        "gm_attend_backward": [Pointer] * 8,
        "gm_sharpen": [*[long] * 4, *[Pointer] * 3, long, long, real, Pointer, Pointer],
        "gm_sharpen_backward": [long, long, *[Pointer] * 4, real, *[Pointer] * 2],
        "gm_slots": [Pointer] * 2,
        "gm_slots_backward": [Pointer] * 4,
        "gm_collect": [Pointer] * 3,
        "gm_collect_backward": [Pointer] * 5,
        "gm_norm": [long, long, Pointer, Pointer, real, Pointer],
        "gm_norm_backward": [long, long, Pointer, Pointer, real, *[Pointer] * 3],
        "gm_ffn": [Pointer] * 3,
        "gm_ffn_backward": [Pointer] * 5,
    }
    for name, types in arguments.items():
        getattr(found, name).argtypes = [*types, ctypes.c_int]  # and the number of threads
        getattr(found, name).restype = None
    sizes = {
        "gm_refer_work": [Pointer] * 2,
        "gm_attend_work": [Pointer] * 2,
        "gm_sharpen_work": [long],
    }
    for name, types in sizes.items():
        getattr(found, name).argtypes = types
        getattr(found, name).restype = long
    return found


def kernels(like: Tensor, values_per_graph: int = 0) -> ctypes.CDLL | None:
    """The kernels, if they serve tensors like this one and graphs of this size."""
    if like.dtype != torch.float32 or like.device.type != "cpu" or values_per_graph > LARGEST:
        return None
    return library()


def loaded() -> Any:
    """The kernels, for callers that know from `kernels` that they serve."""
    found = library()
    assert found is not None
    return found


def pointer(tensor: Tensor | None) -> int | None:
    """Where a contiguous tensor's numbers are."""
    if tensor is None:
        return None
    assert tensor.is_contiguous()
    return tensor.data_ptr()


def work(size: int, like: Tensor) -> Tensor:
    """Work memory for every thread."""
    return like.new_empty(size * torch.get_num_threads())
