"""Damage, drawn at random from a seed: to bytes, to text, to JSON and to safetensors files."""

import json
import string
import struct
from random import Random
from typing import Any

# Whole files that break readers of JSON, each in its own way.
NO_JSON = (
    b"",
    b"null",
    b"[]",
    b"{",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 5_000,
    b'{"seed": ' + b"9" * 5_000 + b"}",
    b'"\\ud800"',
)

# Values of every kind that JSON has, of which each is somewhere the wrong one; as text, so that
# each use has a value of its own, which may be damaged further.
ODD = [
    *map(json.dumps, (
        None, True, False, 0, 1, -1, 3, 10**9, 2**31, 2**63, -(2**63) - 1, 10**400,
        0.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf"),
        "", "a", "²x2", "0", "-1", "1e5", "nan", "\x00", "\ud800", "ε" * 3, "x" * 20_000,
        "../../../etc/passwd", "2x2", "<!-- end -->", "\n", "|", "[bold]",
        [], {}, [1], [None], [[]], {"a": 1}, {"": {}}, ["a", 1], [1, 2, 3],
    )),
    "[" * 400 + "]" * 400,
]  # fmt: skip


def odd(rng: Random) -> Any:
    return json.loads(rng.choice(ODD))


def mutate_bytes(data: bytes, rng: Random) -> bytes:
    """A few local injuries: flipped, deleted, doubled, inserted or blanked bytes; or a cut."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        at = rng.randrange(len(found) + 1)
        length = rng.choice((1, 1, 2, 8, 100))
        what = rng.randrange(7)
        if what == 0 and found:
            found[at % len(found)] ^= 1 << rng.randrange(8)
        elif what == 1:
            del found[at : at + length]
        elif what == 2:
            found[at:at] = rng.randbytes(length)
        elif what == 3:
            found[at:at] = found[at : at + length]
        elif what == 4:
            found[at : at + length] = bytes(len(found[at : at + length]))
        elif what == 5:
            found[at : at + length] = rng.randbytes(len(found[at : at + length]))
        elif rng.random() < 0.3:
            del found[at:]
    return bytes(found)


def mutate_text(text: str, rng: Random) -> str:
    """Characters, digits and separators put elsewhere, doubled or left out."""
    found = list(text)
    for _ in range(rng.choice((1, 1, 2, 4, 10))):
        at = rng.randrange(len(found) + 1)
        what = rng.randrange(5)
        if what == 0:
            del found[at : at + rng.choice((1, 1, 3, 20))]
        elif what == 1:
            found[at:at] = found[at : at + rng.choice((1, 3, 20))]
        elif what == 2:
            found.insert(at, rng.choice(string.printable + "²½٣ε\x00\u2028\ufeff"))
        elif what == 3:
            found.insert(at, rng.choice(("nan", "inf", "1e999", "-1", "9" * 400, ",", "=", "..")))
        elif found:
            found[at % len(found)] = rng.choice(string.printable)
    return "".join(found)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key (or index) inside of a value."""
    inner = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    found = [(value, key) for key, _ in inner]
    for _, part in inner:
        found += places(part)
    return found


def mutate_value(value: Any, rng: Random) -> Any:
    """A JSON value with some of its parts replaced, left out, renamed or doubled."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        spots = places(value)
        if not spots or rng.random() < 0.02:
            return odd(rng)
        container, key = rng.choice(spots)
        what = rng.randrange(8)
        if what == 0:
            del container[key]
        elif what == 1 and isinstance(container, dict):
            container[rng.choice((str(key).upper(), f"{key} ", "", "\ud800"))] = container.pop(key)
        elif what == 2 and isinstance(container[key], (int, float)):
            container[key] = container[key] * rng.choice((-1, 0, 1.5, 10**6, 10**30))
        elif what == 3 and isinstance(container[key], str):
            container[key] = mutate_text(container[key], rng)
        elif what == 4:
            container[key] = {"a": container[key]} if rng.random() < 0.5 else [container[key]]
        else:
            container[key] = odd(rng)
    return value


def mutate_json(data: bytes, rng: Random) -> bytes:
    """A JSON file: mostly still JSON, with wrong contents."""
    how = rng.random()
    if how < 0.05:
        return rng.choice(NO_JSON)
    if how < 0.25:
        return mutate_bytes(data, rng)
    try:
        return json.dumps(mutate_value(json.loads(data), rng)).encode()
    except (ValueError, RecursionError):  # damaged before
        return mutate_bytes(data, rng)


def mutate_lines(data: bytes, rng: Random) -> bytes:
    """A file of JSON lines: some of them mutated, left out, doubled or put elsewhere."""
    if rng.random() < 0.2:
        return mutate_bytes(data, rng)
    lines = data.splitlines()
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(lines)) if lines else 0
        what = rng.randrange(6)
        if not lines or what == 0:
            lines.insert(at, rng.choice(NO_JSON))
        elif what == 1:
            del lines[at]
        elif what == 2:
            lines.insert(rng.randrange(len(lines)), lines[at])
        elif what == 3:
            lines[at] = mutate_bytes(lines[at], rng)
        else:
            try:
                lines[at] = json.dumps(mutate_value(json.loads(lines[at]), rng)).encode()
            except (ValueError, RecursionError):
                continue
    return b"\n".join(lines) + (b"\n" if rng.random() < 0.8 else b"")


def mutate_safetensors(data: bytes, rng: Random) -> bytes:
    """A safetensors file: its bytes, the length of its header, or what the header says."""
    if rng.random() < 0.3:
        return mutate_bytes(data, rng)
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    except (struct.error, ValueError, RecursionError):  # damaged before
        return mutate_bytes(data, rng)
    if rng.random() < 0.1:
        length = rng.choice((0, 1, length - 1, length + 1, 2**31, 2**63, 2**64 - 1))
        return struct.pack("<Q", length) + data[8:]
    meta = header.get("__metadata__") if isinstance(header, dict) else None
    meta = meta if isinstance(meta, dict) else {}
    inside = [key for key in meta if str(meta[key]).startswith("{")]
    if inside and rng.random() < 0.7:
        text = str(meta[inside[0]])
        meta[inside[0]] = mutate_json(text.encode(), rng).decode("utf-8", "replace")
    else:
        header = mutate_value(header, rng)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest
