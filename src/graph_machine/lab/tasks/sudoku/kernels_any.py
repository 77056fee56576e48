"""Solver, singles, rating and generator for every box shape, and for regions of any shape.

`regions` holds the label of each cell: a row for all boards, or one for each of them.

State: for each cell the set of digits it can take, and for each unit (row, column, box) and digit
the set of places it can take. Taking a candidate away updates both, so naked and hidden singles
show up at once as sets of size one. Everything is undone from a trail. Guesses are made where the
fewest choices are left, over cells and over places of a digit.
"""

from collections import namedtuple

import numpy as np

from graph_machine.lab.tasks.kernels import (
    count_bits,
    kernel,
    lowest_bit,
    put_back,
    random_below,
    shuffle,
)

# cells: units -> their cells; units: cell -> its row, column, box; places: cell -> its place there.
# digits, sets: candidates by cell and by (unit, digit). values: digit + 1 once placed.
# trail: what to undo; queue: singles to place. guesses: per level [trail mark, unit or -1, cell or
# digit, choices left]. sizes: [trail, queue, placed cells].
State = namedtuple("State", "cells units places digits sets values trail queue guesses sizes")
TRAIL, QUEUE, PLACED = 0, 1, 2
NO_BUDGET = np.iinfo(np.int64).max  # of guesses
LINE = 32  # a trail or queue entry is cell * LINE + digit; a placed cell is -1 - cell


@kernel
def _make_state(count):
    """Empty arrays for boards of this many cells."""
    side = int(np.sqrt(count) + 0.5)
    return State(
        np.zeros((3 * side, side), dtype=np.int32),
        np.zeros((count, 3), dtype=np.int32),
        np.zeros((count, 3), dtype=np.int32),
        np.zeros(count, dtype=np.int32),
        np.zeros((3 * side, side), dtype=np.int32),
        np.zeros(count, dtype=np.uint8),
        np.zeros(count * (side + 1), dtype=np.int32),
        np.zeros(count * 8, dtype=np.int32),
        np.zeros((count + 1, 4), dtype=np.int32),
        np.zeros(3, dtype=np.int64),
    )


@kernel
def _lay_out(state, regions):
    """Write down the units of a board: rows, columns, and regions by the label of each cell."""
    side = state.cells.shape[1]
    filled = np.zeros(side, dtype=np.int64)
    for cell in range(side * side):
        region = np.int64(regions[cell])
        units = (cell // side, side + cell % side, 2 * side + region)
        places = (cell % side, cell // side, filled[region])
        filled[region] += 1
        for i in range(3):
            state.cells[units[i], places[i]] = cell
            state.units[cell, i] = units[i]
            state.places[cell, i] = places[i]


@kernel
def _prepare(state, regions, i):
    """The layout of board `i`: its own regions, or those of all boards, written down once."""
    if i == 0 or len(regions) > 1:
        _lay_out(state, regions[i])


@kernel
def _push(state, entry):
    """Queue a single. Each set can shrink to one but once per branch, so the queue cannot fill:
    a cell is queued by its own set and by its three units' sets, at most 4 times."""
    state.queue[state.sizes[QUEUE]] = entry
    state.sizes[QUEUE] += 1


@kernel
def _eliminate(state, cell, digit):
    """Take a candidate away; False if a cell or a digit is left with nothing."""
    bit = 1 << digit
    left = np.int64(state.digits[cell])
    if not left & bit:
        return True
    left ^= bit
    state.digits[cell] = left
    state.trail[state.sizes[TRAIL]] = cell * LINE + digit
    state.sizes[TRAIL] += 1
    alive = left != 0
    if alive and left & (left - 1) == 0:
        _push(state, cell * LINE + lowest_bit(left))
    for i in range(3):
        unit = state.units[cell, i]
        rest = np.int64(state.sets[unit, digit]) & ~(1 << np.int64(state.places[cell, i]))
        state.sets[unit, digit] = rest
        if rest == 0:
            alive = False
        elif rest & (rest - 1) == 0:
            _push(state, np.int64(state.cells[unit, lowest_bit(rest)]) * LINE + digit)
    return alive


@kernel
def _place(state, cell, digit):
    """Put a digit into an open cell and take it away from its row, column and box."""
    state.values[cell] = digit + 1
    state.trail[state.sizes[TRAIL]] = -1 - cell
    state.sizes[TRAIL] += 1
    state.sizes[PLACED] += 1
    others = np.int64(state.digits[cell]) & ~(1 << digit)
    while others:
        if not _eliminate(state, cell, lowest_bit(others)):
            return False
        others &= others - 1
    for i in range(3):
        unit = state.units[cell, i]
        others = np.int64(state.sets[unit, digit]) & ~(1 << np.int64(state.places[cell, i]))
        while others:
            if not _eliminate(state, np.int64(state.cells[unit, lowest_bit(others)]), digit):
                return False
            others &= others - 1
    return True


@kernel
def _propagate(state):
    """Place queued singles until there is none; False at a contradiction (queue emptied)."""
    while state.sizes[QUEUE]:
        state.sizes[QUEUE] -= 1
        entry = np.int64(state.queue[state.sizes[QUEUE]])
        cell, digit = entry // LINE, entry % LINE
        if state.values[cell] == digit + 1:
            continue
        if not state.digits[cell] >> digit & 1 or not _place(state, cell, digit):
            state.sizes[QUEUE] = 0
            return False
    return True


@kernel
def _undo(state, mark):
    """Return to an earlier length of the trail."""
    state.sizes[QUEUE] = 0
    while state.sizes[TRAIL] > mark:
        state.sizes[TRAIL] -= 1
        entry = np.int64(state.trail[state.sizes[TRAIL]])
        if entry < 0:
            state.values[-1 - entry] = 0
            state.sizes[PLACED] -= 1
        else:
            cell, digit = entry // LINE, entry % LINE
            state.digits[cell] |= 1 << digit
            for i in range(3):
                state.sets[state.units[cell, i], digit] |= 1 << np.int64(state.places[cell, i])


@kernel
def load(state, puzzle):
    """Start from a puzzle: givens and all singles that follow. False at a contradiction."""
    side = state.cells.shape[1]
    full = (1 << side) - 1
    # Loops: numba takes twice as long to compile all this with assignments to slices.
    for cell in range(len(state.digits)):
        state.digits[cell], state.values[cell] = full, 0
    for unit in range(3 * side):
        for digit in range(side):
            state.sets[unit, digit] = full
    state.sizes[TRAIL] = state.sizes[QUEUE] = state.sizes[PLACED] = 0
    for cell in range(len(puzzle)):
        if puzzle[cell]:
            _push(state, cell * LINE + np.int64(puzzle[cell]) - 1)
            if not _propagate(state):
                return False
    return True


@kernel
def _choose(state, level, rng):
    """Write the guess with the fewest choices to `level`: a cell's digits or a digit's places.

    With `rng[0]` set, ties are broken at random; else the first one found is taken.
    """
    side = state.cells.shape[1]
    best = LINE
    ties = 0
    for cell in range(len(state.digits)):
        options = np.int64(state.digits[cell])
        size = count_bits(options)
        if 1 < size <= best:
            ties = 1 if size < best else ties + 1
            best = size
            if ties == 1 or (rng[0] and random_below(rng, ties) == 0):
                state.guesses[level, 1] = -1
                state.guesses[level, 2] = cell
                state.guesses[level, 3] = options
        if best == 2 and not rng[0]:
            return
    for unit in range(3 * side):
        for digit in range(side):
            options = np.int64(state.sets[unit, digit])
            size = count_bits(options)
            if 1 < size <= best:
                ties = 1 if size < best else ties + 1
                best = size
                if ties == 1 or (rng[0] and random_below(rng, ties) == 0):
                    state.guesses[level, 1] = unit
                    state.guesses[level, 2] = digit
                    state.guesses[level, 3] = options


@kernel
def _next_choice(state, level, rng):
    """Take one choice from `level` and place it; False at a contradiction."""
    options = np.int64(state.guesses[level, 3])
    skip = random_below(rng, count_bits(options)) if rng[0] else 0
    rest = options
    for _ in range(skip):
        rest &= rest - 1
    choice = lowest_bit(rest)
    state.guesses[level, 3] = options & ~(1 << choice)
    unit = np.int64(state.guesses[level, 1])
    other = np.int64(state.guesses[level, 2])
    if unit < 0:
        _push(state, other * LINE + choice)
    else:
        _push(state, np.int64(state.cells[unit, choice]) * LINE + other)
    return _propagate(state)


@kernel
def search(state, limit, budget, rng, out):
    """Count the solutions of the loaded state up to `limit`; the first one goes to `out`.

    More than `budget` guesses end the search with a count of -1. `rng` is an array of one uint64:
    0 searches in a fixed order, anything else at random.
    """
    found, used, level, forward = 0, 0, 0, True
    while True:
        if forward and state.sizes[PLACED] == len(state.digits):
            if found == 0:
                for cell in range(len(out)):
                    out[cell] = state.values[cell]
            found += 1
            if found >= limit:
                return found
            forward = False
        if forward:
            state.guesses[level, 0] = state.sizes[TRAIL]
            _choose(state, level, rng)
            level += 1
        else:
            while level and state.guesses[level - 1, 3] == 0:
                level -= 1
            if level == 0:
                return found
            _undo(state, np.int64(state.guesses[level - 1, 0]))
        if used >= budget:
            return -1
        used += 1
        forward = _next_choice(state, level - 1, rng)


@kernel
def solve_all(regions, puzzles, limit, solutions, counts):
    """Solve puzzles one after the other; a board without solution stays 0."""
    state = _make_state(puzzles.shape[1])
    rng = np.zeros(1, dtype=np.uint64)
    for i in range(len(puzzles)):
        _prepare(state, regions, i)
        counts[i] = 0
        if load(state, puzzles[i]):
            counts[i] = search(state, limit, NO_BUDGET, rng, solutions[i])


@kernel
def singles_all(regions, puzzles, filled):
    """Fill in what naked and hidden singles give."""
    state = _make_state(puzzles.shape[1])
    for i in range(len(puzzles)):
        _prepare(state, regions, i)
        load(state, puzzles[i])
        filled[i, :] = state.values


@kernel
def _copy(source, target):
    """Copy candidates and placed digits from one state to another."""
    for cell in range(len(source.digits)):
        target.digits[cell], target.values[cell] = source.digits[cell], source.values[cell]
    for unit in range(source.sets.shape[0]):
        for digit in range(source.sets.shape[1]):
            target.sets[unit, digit] = source.sets[unit, digit]
    for i in range(len(source.sizes)):
        target.sizes[i] = source.sizes[i]


@kernel
def rate_all(regions, puzzles, solutions, seeds, attempts, ratings):
    """Mean depth of the guess stack at the solution, over `attempts` randomised searches.

    Guesses that turn out wrong are taken back, so the depth at the solution depends on where the
    guesses were made and not on their order: each attempt follows the right choices only.
    """
    rng = np.zeros(1, dtype=np.uint64)
    count = puzzles.shape[1]
    state, saved = _make_state(count), _make_state(count)
    for i in range(len(puzzles)):
        _prepare(state, regions, i)
        ratings[i] = 0.0
        alive = load(state, puzzles[i])
        if alive and state.sizes[PLACED] == count:
            continue
        # Every attempt starts here; copying back is faster than undoing step by step.
        _copy(state, saved)
        rng[0] = seeds[i] | np.uint64(1)
        depth = 0
        for _ in range(attempts):
            while alive and state.sizes[PLACED] < count:
                _choose(state, 0, rng)
                depth += 1
                alive = _follow(state, solutions[i])
            _copy(saved, state)
        ratings[i] = depth / attempts if alive else np.nan


@kernel
def _follow(state, solution):
    """Make the right choice of the guess at level 0."""
    unit = np.int64(state.guesses[0, 1])
    cell = np.int64(state.guesses[0, 2])
    if unit >= 0:
        digit = cell
        for place in range(state.cells.shape[1]):
            if solution[state.cells[unit, place]] == digit + 1:
                cell = np.int64(state.cells[unit, place])
    _push(state, cell * LINE + np.int64(solution[cell]) - 1)
    return _propagate(state)


@kernel
def _random_grid(state, rng, restarts, grid):
    """A random full grid; a search that gets lost is started again. False: none was found.

    Boxes always have one; the regions of a jigsaw may have none.
    """
    empty = np.zeros(len(grid), dtype=np.uint8)
    for _ in range(restarts):
        load(state, empty)
        found = search(state, 1, 4 * len(grid), rng, grid)
        if found >= 0:
            return found == 1
    return False


@kernel
def _unique(state, puzzle, budget, rng, other):
    """Whether the puzzle has one solution; not if the search takes more than its budget."""
    load(state, puzzle)
    return search(state, 2, budget, rng, other) == 1


@kernel
def _needed(state, puzzle, cell, digit, budget, rng, other):
    """Whether the puzzle, without its clue `digit` at `cell`, has a solution with another one.

    A search that takes more than its budget counts as yes: the clue then stays.
    """
    if not load(state, puzzle) or state.values[cell] == digit + 1:
        return False
    if not _eliminate(state, cell, digit) or not _propagate(state):
        return False
    return search(state, 1, budget, rng, other) != 0


@kernel
def generate_all(regions, seeds, low, high, extra, limits, puzzles, solutions, clues):
    """One attempt per seed; `clues` is 0 where it is not in low .. high, or no grid was found.

    `limits`: guesses that a proof may take, and how often the search for a grid may start anew.

    Clues are taken away in random order. Leading clues go in groups: if the puzzle without a
    whole group is unique, then each of them could have gone one by one, so the outcome is the
    same as of single steps. A group that fails is halved.
    """
    count = puzzles.shape[1]
    budget, restarts = limits
    rng, fixed = np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.uint64)
    other = np.zeros(count, dtype=np.uint8)
    order = np.arange(count)
    state = _make_state(count)
    for i in range(len(seeds)):
        _prepare(state, regions, i)
        # Boxes: each order is a shuffle of the one before. Another rule would make other puzzles.
        if len(regions) > 1:
            for cell in range(count):
                order[cell] = cell
        rng[0] = seeds[i] | np.uint64(1)
        puzzle, grid = puzzles[i], solutions[i]
        if not _random_grid(state, rng, restarts, grid):
            clues[i] = 0
            continue
        for cell in range(count):
            puzzle[cell] = grid[cell]
        shuffle(rng, order)
        at, group, left = 0, count // 3, count
        while at < count:
            size = min(group, count - at)
            for cell in order[at : at + size]:
                puzzle[cell] = 0
            cell = order[at]
            if size == 1:
                alone = not _needed(state, puzzle, cell, grid[cell] - 1, budget, fixed, other)
            else:
                alone = _unique(state, puzzle, budget, fixed, other)
            if alone:
                left -= size
                at += size
            else:
                for cell in order[at : at + size]:
                    puzzle[cell] = grid[cell]
                if size == 1:
                    at += 1
                group = max(1, size // 2)
        clues[i] = put_back(rng, order, puzzle, grid, left, low, high, extra)
