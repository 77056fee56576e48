"""The binary answer of the explorer: one JSON header, then arrays. `static/pack.js` reads it.

    "GMX1" | uint32 header length | header (UTF-8 JSON, padded to 8 bytes) | arrays (8-byte steps)

The header's `arrays` maps a name to {dtype, shape, offset}; the offset counts from the end of the
header. A dtype of `u8` means 255 steps between the least and the greatest value of each row (last
axis): two float32 per row (least, step), then the bytes.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

MAGIC = b"GMX1"
Precision = Literal["f2", "u8"]
HALF_MAX = float(np.finfo(np.float16).max)


def _half(values: np.ndarray) -> bytes:
    return np.clip(values, -HALF_MAX, HALF_MAX).astype("<f2").tobytes()


def _steps(values: np.ndarray) -> bytes:
    rows = np.clip(values.astype(np.float32), -HALF_MAX, HALF_MAX)
    rows = rows.reshape(-1, values.shape[-1])
    least = rows.min(axis=1, keepdims=True)
    step = (rows.max(axis=1, keepdims=True) - least) / 255
    scaled = np.divide(rows - least, step, out=np.zeros_like(rows), where=step > 0)
    return (
        np.concatenate([least, step], axis=1).astype("<f4").tobytes()
        + np.rint(scaled).astype(np.uint8).tobytes()
    )


def encode(values: np.ndarray, precision: Precision) -> tuple[str, bytes]:
    """One array as (dtype, bytes); whole numbers are stored as int32 whatever the precision."""
    if values.dtype.kind in "iub":
        return "i4", np.ascontiguousarray(values, dtype="<i4").tobytes()
    if precision == "u8" and values.ndim and values.size:
        return "u8", _steps(values)
    return "f2", _half(values)


def pack(
    header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], precision: Precision = "f2"
) -> bytes:
    """Header and arrays of any shape, such as (n, k, m), as one answer.

    >>> answer = pack({"title": "gm"}, {"weights": np.array([0.5, 0.25])})
    >>> header, arrays = unpack(answer)
    >>> arrays["weights"]
    array([0.5 , 0.25], dtype=float16)
    """
    entries: dict[str, dict[str, Any]] = {}
    parts: list[bytes] = []
    offset = 0
    for name, values in arrays.items():
        dtype, data = encode(values, precision)
        entries[name] = {"dtype": dtype, "shape": list(values.shape), "offset": offset}
        padding = -len(data) % 8
        parts.append(data + b"\0" * padding)
        offset += len(data) + padding
    text = json.dumps({**header, "arrays": entries}, separators=(",", ":")).encode()
    # Magic and length take 8 bytes, so padding the header keeps every array on a step of 8.
    text += b" " * (-len(text) % 8)
    return b"".join([MAGIC, struct.pack("<I", len(text)), text, *parts])


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The inverse of `pack`, as the page does it: arrays such as (n, k, m), `u8` as float32.

    >>> unpack(pack({"title": "gm"}, {}))[0]["title"]
    'gm'
    """
    if data[:4] != MAGIC:
        raise ValueError("unpack: this is not an explorer answer.")
    length = struct.unpack_from("<I", data, 4)[0]
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    arrays = {}
    for name, entry in header.pop("arrays").items():
        shape, offset = entry["shape"], entry["offset"]
        count = int(np.prod(shape, dtype=np.int64))
        if entry["dtype"] == "u8":
            rows = count // shape[-1]
            scale = np.frombuffer(body, "<f4", rows * 2, offset).reshape(rows, 2)
            steps = np.frombuffer(body, np.uint8, count, offset + rows * 8).reshape(rows, -1)
            values = scale[:, :1] + scale[:, 1:] * steps.astype(np.float32)
        else:
            values = np.frombuffer(body, f"<{entry['dtype']}", count, offset)
        arrays[name] = values.reshape(shape)
    return header, arrays
