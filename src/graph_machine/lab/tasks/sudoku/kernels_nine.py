"""The fast solver and generator for 9x9 boards of 3x3 boxes.

State: for each band b (three rows) and digit d, a plane of 27 bits says where in the band d can
still go (bit = row in band * 9 + column). In a band, a digit's places by (row, stack) form a 3x3
matrix of which it must take one permutation; in a stack, so do its places by (band, column).
Keeping only what some permutation uses covers, with one table of 512 entries, the interaction of
lines with boxes, and every hidden single ends up as a row with one place left. Naked singles come
from adding up the nine planes bit by bit. Only then is there a guess, at a cell of two digits.
"""

from itertools import permutations

import numpy as np

from graph_machine.lab.tasks.kernels import (
    count_bits,
    kernel,
    lowest_bit,
    put_back,
    random_below,
    shuffle,
)

ALL = (1 << 27) - 1
ROW = 511
PLANES = 27
WIDTH = 32  # one stack level: 27 planes (band * 9 + digit), 3 masks of open cells, 2 unused
LEVELS = 82
FIRST_GROUP = 20  # about a third of the clues can go at once, more often than not


def _tables():
    matrices = [sum(1 << (3 * i + p[i]) for i in range(3)) for p in permutations(range(3))]
    perm = np.zeros(512, dtype=np.int32)
    mini = np.zeros(512, dtype=np.int32)
    rows = np.zeros(512, dtype=np.int32)
    single = np.zeros(512, dtype=np.int32)
    for bits in range(512):
        for matrix in matrices:
            if bits & matrix == matrix:
                perm[bits] |= matrix
        for stack in range(3):
            mini[bits] |= ((bits >> (3 * stack)) & 7 != 0) << stack
        for place in range(9):
            if perm[bits] >> place & 1:
                rows[bits] |= 7 << (3 * place)
        single[bits] = bits if bits & (bits - 1) == 0 else 0
    # For each cell and band, the places left to a digit that is put into the cell.
    keep = np.full((81, 3), ALL, dtype=np.int32)
    for cell in range(81):
        row, column = divmod(cell, 9)
        for other in range(81):
            r, c = divmod(other, 9)
            box = r // 3 == row // 3 and c // 3 == column // 3
            if other != cell and (r == row or c == column or box):
                keep[cell, r // 3] &= ~(1 << (r % 3 * 9 + c))
    return perm, mini, rows, single, keep


# PERM: 3x3 matrix -> union of the permutations it contains. MINI: row -> its occupied thirds.
# ROWS: matrix of (row, stack) -> the band's cells under PERM. SINGLE: row -> itself if one bit.
PERM, MINI, ROWS, SINGLE, KEEP = _tables()


@kernel
def load(cells, state):
    """Set level 0 of the stack to a puzzle; False if two givens clash."""
    for i in range(PLANES):
        state[i] = ALL
    given = np.zeros(PLANES, dtype=np.int32)
    for cell in range(81):
        digit = np.int64(cells[cell]) - 1
        if digit >= 0:
            state[digit] &= KEEP[cell, 0]
            state[9 + digit] &= KEEP[cell, 1]
            state[18 + digit] &= KEEP[cell, 2]
            given[cell // 27 * 9 + digit] |= 1 << (cell % 27)
    for band in range(3):
        taken = 0
        for digit in range(9):
            taken |= given[band * 9 + digit]
        for digit in range(9):
            i = band * 9 + digit
            if given[i] & ~state[i]:
                return False
            state[i] &= ~taken | given[i]
        state[PLANES + band] = ALL & ~taken
    return True


@kernel
def _propagate(state, base, dirty):
    """Place singles until nothing changes; `dirty` holds the digits to look at. False: clash."""
    while True:
        while dirty:
            digit = lowest_bit(dirty)
            dirty &= dirty - 1
            i0 = base + digit
            a0 = np.int64(state[i0])
            a1 = np.int64(state[i0 + 9])
            a2 = np.int64(state[i0 + 18])
            while True:
                a0 &= ROWS[
                    MINI[a0 & ROW] | MINI[(a0 >> 9) & ROW] << 3 | MINI[(a0 >> 18) & ROW] << 6
                ]
                a1 &= ROWS[
                    MINI[a1 & ROW] | MINI[(a1 >> 9) & ROW] << 3 | MINI[(a1 >> 18) & ROW] << 6
                ]
                a2 &= ROWS[
                    MINI[a2 & ROW] | MINI[(a2 >> 9) & ROW] << 3 | MINI[(a2 >> 18) & ROW] << 6
                ]
                c0 = (a0 | a0 >> 9 | a0 >> 18) & ROW
                c1 = (a1 | a1 >> 9 | a1 >> 18) & ROW
                c2 = (a2 | a2 >> 9 | a2 >> 18) & ROW
                s0 = np.int64(PERM[c0 & 7 | (c1 & 7) << 3 | (c2 & 7) << 6])
                s1 = np.int64(PERM[c0 >> 3 & 7 | (c1 >> 3 & 7) << 3 | (c2 >> 3 & 7) << 6])
                s2 = np.int64(PERM[c0 >> 6 | c1 >> 6 << 3 | c2 >> 6 << 6])
                if s0 == 0 or s1 == 0 or s2 == 0:
                    return False
                k0 = s0 & 7 | (s1 & 7) << 3 | (s2 & 7) << 6
                k1 = s0 >> 3 & 7 | (s1 >> 3 & 7) << 3 | (s2 >> 3 & 7) << 6
                k2 = s0 >> 6 | s1 >> 6 << 3 | s2 >> 6 << 6
                if k0 == c0 and k1 == c1 and k2 == c2:
                    break
                a0 &= k0 | k0 << 9 | k0 << 18
                a1 &= k1 | k1 << 9 | k1 << 18
                a2 &= k2 | k2 << 9 | k2 << 18
            state[i0] = a0
            state[i0 + 9] = a1
            state[i0 + 18] = a2
            dirty |= _settle(state, base, 0, digit, a0)
            dirty |= _settle(state, base, 1, digit, a1)
            dirty |= _settle(state, base, 2, digit, a2)
        dirty = _naked_singles(state, base)
        if dirty < 0:
            return False
        if dirty == 0:
            return True


@kernel
def _settle(state, base, band, digit, a):
    """Close the open cells where `digit` is alone in its row; the digits that lose a place."""
    single = SINGLE[a & ROW] | SINGLE[(a >> 9) & ROW] << 9 | SINGLE[(a >> 18) & ROW] << 18
    new = np.int32(single & state[base + PLANES + band])
    if new == 0:
        return 0
    state[base + PLANES + band] &= ~new
    start = base + band * 9
    lost = 0
    for other in range(9):
        plane = state[start + other]
        lost |= np.int64(plane & new != 0) << other
        state[start + other] = plane & ~new
    state[start + digit] = a
    return lost & ~(1 << digit)


@kernel
def _naked_singles(state, base):
    """Place the digit of cells that have but one; the digits placed, -1 if a cell has none."""
    dirty = 0
    for band in range(3):
        start = base + band * 9
        once = np.int32(0)
        twice = np.int32(0)
        for digit in range(9):
            plane = state[start + digit]
            twice |= once & plane
            once |= plane
        if once != ALL:
            return -1
        naked = once & ~twice & state[base + PLANES + band]
        if naked:
            for digit in range(9):
                found = np.int64(state[start + digit] & naked)
                while found:
                    cell = band * 27 + lowest_bit(found)
                    found &= found - 1
                    state[base + digit] &= KEEP[cell, 0]
                    state[base + 9 + digit] &= KEEP[cell, 1]
                    state[base + 18 + digit] &= KEEP[cell, 2]
                    dirty |= 1 << digit
    return dirty


@kernel
def _choose(state, base, draw):
    """The cell to guess at (band * 32 + bit): one with two digits, else with the fewest found.

    `draw` (a random number, or 0) turns the order in which cells are looked at.
    """
    first = draw % 3
    shift = draw // 3 % 27
    best = -1
    for i in range(3):
        band = (first + i) % 3
        start = base + band * 9
        once = np.int32(0)
        twice = np.int32(0)
        thrice = np.int32(0)
        more = np.int32(0)
        for digit in range(9):
            plane = state[start + digit]
            more |= thrice & plane
            thrice |= twice & plane
            twice |= once & plane
            once |= plane
        two = np.int64(twice & ~thrice)
        if two:
            late = two >> shift << shift
            return band * 32 + lowest_bit(late if late else two)
        three = np.int64(thrice & ~more)
        rest = three if three else np.int64(state[base + PLANES + band])
        if rest and (best < 0 or three):
            late = rest >> shift << shift
            best = band * 32 + lowest_bit(late if late else rest)
    return best


@kernel
def search(stack, dirty, limit, rng, out):
    """Count solutions of level 0 up to `limit`; the first one found goes to `out`.

    `rng` is an array of one uint64: 0 searches in a fixed order, anything else at random.
    """
    found = 0
    level = 0
    while True:
        base = level * WIDTH
        alive = _propagate(stack, base, dirty)
        if alive:
            open_cells = stack[base + PLANES] | stack[base + PLANES + 1] | stack[base + PLANES + 2]
            if open_cells == 0:
                if found == 0:
                    _read(stack, base, out)
                found += 1
                alive = False
        if not alive:
            if level == 0 or found >= limit:
                return found
            level -= 1
            dirty = np.int64(stack[level * WIDTH + PLANES + 3])
            continue
        chosen = _choose(stack, base, random_below(rng, 81) if rng[0] else 0)
        band, bit = chosen >> 5, chosen & 31
        digits = 0
        for d in range(9):
            digits |= (np.int64(stack[base + band * 9 + d]) >> bit & 1) << d
        if rng[0]:
            for _ in range(random_below(rng, count_bits(digits))):
                digits &= digits - 1
        digit = lowest_bit(digits)
        # The level itself keeps what is left when the guess fails; the guess gets the next one.
        above = base + WIDTH
        for i in range(PLANES + 3):
            stack[above + i] = stack[base + i]
        stack[base + band * 9 + digit] &= ~(1 << bit)
        stack[base + PLANES + 3] = 1 << digit
        cell = band * 27 + bit
        stack[above + digit] &= KEEP[cell, 0]
        stack[above + 9 + digit] &= KEEP[cell, 1]
        stack[above + 18 + digit] &= KEEP[cell, 2]
        level += 1
        dirty = 1 << digit


@kernel
def _read(stack, base, out):
    for band in range(3):
        for digit in range(9):
            plane = np.int64(stack[base + band * 9 + digit])
            while plane:
                out[band * 27 + lowest_bit(plane)] = digit + 1
                plane &= plane - 1


@kernel
def solve_all(puzzles, limit, solutions, counts):
    """Solve puzzles one after the other; a board without solution stays 0."""
    stack = np.zeros(LEVELS * WIDTH, dtype=np.int32)
    rng = np.zeros(1, dtype=np.uint64)
    for i in range(len(puzzles)):
        counts[i] = 0
        if load(puzzles[i], stack):
            counts[i] = search(stack, ROW, limit, rng, solutions[i])


@kernel
def _random_grid(stack, rng, grid):
    """A random full grid: the three boxes of the diagonal at random, then a random search."""
    cells = np.zeros(81, dtype=np.uint8)
    digits = np.arange(1, 10)
    for box in range(3):
        shuffle(rng, digits)
        for i in range(9):
            cells[box * 30 + i // 3 * 9 + i % 3] = digits[i]
    load(cells, stack)
    search(stack, ROW, 1, rng, grid)


@kernel
def generate_all(seeds, low, high, extra, puzzles, solutions, clues):
    """One attempt per seed; `clues` is 0 where the number of clues is not in low .. high.

    Clues are taken away in random order. Leading clues go in groups: if the puzzle without a
    whole group is unique, then each of them could have gone one by one, so the outcome is the
    same as of single steps. A group that fails is halved. A clue on its own is needed if the
    puzzle without it has a solution with another digit there.
    """
    stack = np.zeros(LEVELS * WIDTH, dtype=np.int32)
    rng = np.zeros(1, dtype=np.uint64)
    fixed = np.zeros(1, dtype=np.uint64)
    other = np.zeros(81, dtype=np.uint8)
    order = np.arange(81)
    for i in range(len(seeds)):
        rng[0] = seeds[i] | np.uint64(1)
        puzzle, grid = puzzles[i], solutions[i]
        _random_grid(stack, rng, grid)
        for cell in range(81):
            puzzle[cell] = grid[cell]
        shuffle(rng, order)
        at, group, left = 0, FIRST_GROUP, 81
        while at < 81:
            size = min(group, 81 - at)
            for cell in order[at : at + size]:
                puzzle[cell] = 0
            load(puzzle, stack)
            if size == 1:
                cell = order[at]
                stack[cell // 27 * 9 + grid[cell] - 1] &= ~(1 << (cell % 27))
            if search(stack, ROW, 1 if size == 1 else 2, fixed, other) == (size > 1):
                left -= size
                at += size
            else:
                for cell in order[at : at + size]:
                    puzzle[cell] = grid[cell]
                if size == 1:
                    at += 1
                group = max(1, size // 2)
        clues[i] = put_back(rng, order, puzzle, grid, left, low, high, extra)
