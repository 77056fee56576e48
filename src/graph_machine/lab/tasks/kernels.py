"""What numba kernels share: bit counting, random numbers (SplitMix64), grids.

Load kernels with `tasks.load_kernels`, which names the extra where numba is missing. Numba's cache
on disk looks at the file of a kernel only, not at the files it calls into. Hence kernels call
nothing outside of their own file but this one; whoever changes this one must touch all of them.
"""

import inspect
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic


def kernel(function):
    """Compile a function, with a cache on disk and without holding the GIL.

    The shape checker of the tests wraps every function of the package; numba wants the bare one.
    """
    bare = inspect.unwrap(function)
    # Unused entry points would be compiled, too. Numba's types do not know these options.
    options: Any = {
        "no_cfunc_wrapper": True,
        "no_cpython_wrapper": bare.__name__.startswith("_"),
    }
    return njit(bare, cache=True, nogil=True, error_model="numpy", **options)


_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_U27, _U30, _U31, _U32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


@intrinsic
def _trailing_zeros(typing_context, value):
    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def _population(typing_context, value):
    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


# To the type checker, an intrinsic still has the typing context as its first argument.
@kernel
def lowest_bit(value):
    """Index of the lowest set bit of a non-zero int64."""
    return _trailing_zeros(value)  # pyrefly: ignore[missing-argument]


@kernel
def count_bits(value):
    """Number of set bits of an int64."""
    return _population(value)  # pyrefly: ignore[missing-argument]


@kernel
def next_random(state):
    """The next 64 random bits; `state` is an array of one uint64."""
    state[0] += _GAMMA
    value = state[0]
    value = (value ^ (value >> _U30)) * _MIX1
    value = (value ^ (value >> _U27)) * _MIX2
    return value ^ (value >> _U31)


@kernel
def random_below(state, bound):
    """A random integer of 0 .. bound - 1 (multiply-shift; its bias is below bound / 2**32)."""
    return np.int64(((next_random(state) >> _U32) * np.uint64(bound)) >> _U32)


@kernel
def shuffle(state, items):
    """Put an array into random order."""
    for last in range(len(items) - 1, 0, -1):
        place = random_below(state, last + 1)
        items[last], items[place] = items[place], items[last]


@kernel
def neighbour(cell, direction, side):
    """The cell above, below, left or right on a square board; -1 beyond the border."""
    row, col = cell // side, cell % side
    if direction == 0:
        return cell - side if row > 0 else -1
    if direction == 1:
        return cell + side if row < side - 1 else -1
    if direction == 2:
        return cell - 1 if col > 0 else -1
    return cell + 1 if col < side - 1 else -1


@kernel
def put_back(state, order, puzzle, grid, left, low, high, extra):
    """Put up to `extra` clues back at random; the number of clues, 0 if it misses low .. high.

    `left` is the number of clues that the puzzle has now.
    """
    fewest = max(0, low - left)
    most = min(extra, high - left)
    if fewest > most:
        return 0
    wanted = fewest + random_below(state, most - fewest + 1)
    for cell in order:
        if wanted and puzzle[cell] == 0:
            puzzle[cell] = grid[cell]
            wanted -= 1
            left += 1
    return left
