"""What general compressors need for the same text, in bits per byte."""

import bz2
import gzip
import lzma
from collections.abc import Callable

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip -9": lambda text: gzip.compress(text, 9),
    "bzip2 -9": lambda text: bz2.compress(text, 9),
    "xz -9e": lambda text: lzma.compress(text, preset=9 | lzma.PRESET_EXTREME),
}


def compressed_bits(test: bytes, train: bytes = b"") -> dict[str, float]:
    """Bits per byte of `test` by compressor: what it adds behind the training text.

    gzip looks 32 KiB back and bzip2 900 kB, so the training text is of little use to them.
    """
    return {
        name: 8 * (len(compress(train + test)) - len(compress(train) if train else b"")) / len(test)
        for name, compress in COMPRESSORS.items()
    }
