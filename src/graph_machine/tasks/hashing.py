"""Random numbers that are the same on every machine and with every version of every package.

Everything that is drawn here comes from SplitMix64, a documented integer hash: number `i` of the
stream `key` is `mix(key + (i + 1) * GAMMA)`. No state is carried along, so any element can be
computed on its own; that is what lets a run resume at any step.
"""

import numpy as np
from jaxtyping import Int64, UInt64

GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix(values: UInt64[np.ndarray, "*shape"]) -> UInt64[np.ndarray, "*shape"]:
    """The finaliser of SplitMix64, a bijection of 64-bit integers."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def stream_key(*parts: int | str) -> int:
    """One 64-bit key from a purpose and integers, for example `stream_key("epoch", seed, 3)`."""
    key = 0
    for part in parts:
        word = int.from_bytes(part.encode()[:8], "little") if isinstance(part, str) else part
        key = int(mix(np.array([(key + GAMMA + word) & _MASK], dtype=np.uint64))[0])
    return key


def stream(key: int, count: int, start: int = 0) -> UInt64[np.ndarray, "count"]:
    """Numbers `start .. start + count` of a stream."""
    index = np.arange(start + 1, start + count + 1, dtype=np.uint64)
    return mix(index * np.uint64(GAMMA) + np.uint64(key))


def permutation(key: int, size: int) -> Int64[np.ndarray, "size"]:
    """A random order of 0 .. size - 1: the order of the first `size` numbers of the stream.

    The numbers are distinct (a bijection of distinct inputs), so the order has no ties.
    """
    return np.argsort(stream(key, size))
