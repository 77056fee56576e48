"""All that is particular to a task: spec, data, loss, metrics, and how people see it."""

import importlib
from types import ModuleType

from graph_machine.errors import MissingExtraError


def load_kernels(name: str, what: str) -> ModuleType:
    """Kernels such as `maze.kernels`, or an error that names the extra that `what` needs."""
    try:
        importlib.import_module("numba")
    except ImportError as error:
        raise MissingExtraError("numba", "data", what) from error
    return importlib.import_module(f"{__name__}.{name}")
