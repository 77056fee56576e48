"""The header of a recording, checked against its tensors: readers may rely on what it says."""

from collections.abc import Mapping
from typing import Any

from graph_machine.errors import DataError, GraphMachineError
from graph_machine.records.naming import TensorPath

INPUTS = "inputs."
# Kinds of numbers that are written, as safetensors calls them.
DTYPES = ("F16", "F32", "F64", "I32", "I64", "U8", "BOOL")


def check_header(meta: dict[str, Any], tensors: Mapping[str, tuple[str, list[int]]]) -> None:
    """Raise DataError where `meta` does not describe `tensors` (name -> dtype and shape)."""
    axes = meta.get("axes")
    if not isinstance(axes, dict):
        raise DataError("axes should be an object")
    if set(axes) != set(tensors):
        odd = sorted(set(axes) ^ set(tensors))[0]
        raise DataError(f"header and tensors differ, {odd}")
    nodes = meta.get("nodes")
    if type(nodes) is not int or nodes < 0:
        raise DataError("nodes should be a whole number")
    sizes = {
        "sample": len(_numbers(meta, "samples")),
        "source": len(_numbers(meta, "sources", nodes)),
    }
    for name in ("grid", "box"):
        if meta.get(name) is not None and len(_numbers(meta, name, nodes + 1)) != 2:
            raise DataError(f"{name} should be two numbers")
    grid = meta.get("grid")
    if grid is not None and grid[0] * grid[1] != nodes:
        raise DataError(f"the grid should have {nodes} cells")
    _check_model(meta.get("model"))
    for name, (dtype, shape) in tensors.items():
        _check_tensor(name, axes[name], dtype, shape, sizes)


def _check_model(model: Any) -> None:
    if not isinstance(model, dict) or not isinstance(model.get("identity"), str):
        raise DataError("model should be an object with an identity")
    config = model.get("config") or {}
    if not isinstance(config, dict) or type(config.get("num_layers", 0)) is not int:
        raise DataError("the model's config should be an object with num_layers")


def _check_tensor(
    name: str, axes: Any, dtype: str, shape: list[int], sizes: Mapping[str, int]
) -> None:
    if not isinstance(axes, list) or len(axes) != len(shape):
        raise DataError(f"{name} has other axes than its tensor")
    for axis, size in zip(axes, shape):
        if not isinstance(axis, str) or sizes.get(axis, size) != size:
            raise DataError(f"{name} has a size of {size} on the axis {axis}")
    if dtype not in DTYPES:
        raise DataError(f"{name} holds numbers of kind {dtype}")
    if not name.startswith(INPUTS):
        try:
            TensorPath.parse(name)
        except (GraphMachineError, ValueError):
            raise DataError(f"{name} is not the path of a tensor") from None


def _numbers(meta: dict[str, Any], name: str, below: int | None = None) -> list[int]:
    """A list of whole numbers from 0 on."""
    found = meta.get(name)
    if not isinstance(found, list) or any(type(n) is not int or n < 0 for n in found):
        raise DataError(f"{name} should be a list of whole numbers")
    if below is not None and any(n >= below for n in found):
        raise DataError(f"{name} should lie below {below}")
    return found
