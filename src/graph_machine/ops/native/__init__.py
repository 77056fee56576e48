"""The fused ops as a few small C files, built on first use if there is a C compiler.

It is optional: without a compiler, on other systems than Linux, in float64, for very large graphs
or with GRAPH_MACHINE_NATIVE=0, the torch code of this package computes the same. The build takes
about two seconds and is kept in the user's cache folder.
"""

import ctypes
import functools
import logging
import os
import re
import sys
from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.native.builds import HERE, SOURCES, build, load

# Above this many values of a graph (pairs times their width) referral takes MKL: n = 256 has
# 540,000 and takes three quarters of the time in C, n = 1,024 has 8.5 million and takes the same.
LARGEST = 1 << 22
Pointer = ctypes.c_void_p


# Results and arguments of the functions that the C files export.
_PROTOTYPE = re.compile(r"^(void|long) (gm_\w+)\(([^)]*)\)", re.MULTILINE)
_TYPES = {"void": None, "long": ctypes.c_long, "float": ctypes.c_float, "int": ctypes.c_int}


@functools.cache
def library() -> ctypes.CDLL | None:
    """The kernels, or None: then the torch code is used, and on Linux a log line says why."""
    if os.environ.get("GRAPH_MACHINE_NATIVE") == "0":
        return None
    try:
        made = build()
        if made is not None:
            return _declare(load(made))
        reason = "no C compiler that builds them was found"
    except (OSError, RuntimeError) as error:  # no place to write, no home, or it does not load
        reason = str(error)
    if sys.platform == "linux":
        logging.getLogger("graph_machine").warning(
            "The C kernels of the fused backend are not used: %s. Torch code computes the same, "
            "more slowly (GRAPH_MACHINE_NATIVE=0 silences this).",
            reason,
        )
    return None


def prototypes() -> dict[str, tuple[Any, list[Any]]]:
    """Every exported function with the types of its result and its arguments, from the sources."""
    found = {}
    for source in SOURCES:
        for result, name, arguments in _PROTOTYPE.findall((HERE / source).read_text()):
            words = [argument.split() for argument in arguments.split(",")]
            types = [Pointer if "*" in "".join(word) else _TYPES[word[0]] for word in words]
            found[name] = (_TYPES[result], types)
    return found


def _declare(found: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in prototypes().items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
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
