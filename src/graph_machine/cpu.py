"""Settings of the process that make training on CPUs faster and change no result.

They matter outside of torch: how the C library returns memory to the system, and what the processor
does with numbers too small for full precision. Elsewhere than on Linux with glibc, or on a
processor without the switch, they do nothing.
"""

import ctypes
import platform

import torch

# Names of glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
# The largest value of each that glibc takes.
KEEP = 2**31 - 1
LARGEST_FROM_HEAP = 2**30


def keep_freed_memory() -> bool:
    """Keep large freed buffers in the process instead of returning them to the system.

    glibc maps every buffer above 32 MB anew and unmaps it when freed, so each training step faults
    the same pages in again. True if the C library took the setting. The process then holds on to
    its peak memory until it ends.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    taken = mallopt(M_MMAP_THRESHOLD, LARGEST_FROM_HEAP) and mallopt(M_TRIM_THRESHOLD, KEEP)
    return bool(taken)


def tune_cpu() -> None:
    """Called once, early, by training and benchmarks: threads inherit the second setting.

    Sharp softmaxes are full of numbers below 1e-38; computing with them takes twice the time, and
    they are 0 beside the others of their row.
    """
    keep_freed_memory()
    torch.set_flush_denormal(True)
