"""Random partitions of a square board into connected regions of equal size.

First a chain of recombinations: two neighbouring regions are joined, a random tree spans both, and
one of its edges that leaves two halves of equal size is cut. That mixes fast but prefers compact
regions. Then a chain of swaps of two cells, accepted so that every partition is equally likely in
the end. These kernels call nothing outside this file but `bits` (see there).
"""

import numpy as np

from graph_machine.lab.tasks.kernels import kernel, neighbour, random_below


@kernel
def _recombine(rng, regions, one, two, side, buffers):
    """Split the union of two regions anew; as it was where the tree has no cut in the middle."""
    order, parent, size, edges = buffers
    for cell in range(len(size)):
        size[cell] = 0
    start = -1
    skip = random_below(rng, 2 * side)
    for cell in range(len(regions)):
        if regions[cell] == one or regions[cell] == two:
            if skip == 0:
                start = cell
            skip -= 1
    order[0] = start
    parent[start] = -1
    size[start] = 1
    count, open_edges = 1, 0
    added = start
    while True:
        for direction in range(4):
            cell = neighbour(added, direction, side)
            if cell >= 0 and size[cell] == 0 and (regions[cell] == one or regions[cell] == two):
                edges[open_edges, 0] = added
                edges[open_edges, 1] = cell
                open_edges += 1
        if count == 2 * side:
            break
        # A random edge that leads out of the tree; those that lead back in are dropped.
        while True:
            pick = random_below(rng, open_edges)
            source, cell = edges[pick, 0], edges[pick, 1]
            open_edges -= 1
            edges[pick, 0], edges[pick, 1] = edges[open_edges, 0], edges[open_edges, 1]
            if size[cell] == 0:
                break
        parent[cell] = source
        size[cell] = 1
        order[count] = cell
        count += 1
        added = cell
    cut, ties = -1, 0
    for place in range(count - 1, 0, -1):
        cell = order[place]
        size[parent[cell]] += size[cell]
        if size[cell] == side:
            ties += 1
            if random_below(rng, ties) == 0:
                cut = cell
    if cut < 0:
        return
    # Parents come before children, so one pass colours the subtree below the cut.
    for place in range(count):
        cell = order[place]
        below = cell == cut or (parent[cell] >= 0 and size[parent[cell]] < 0)
        regions[cell] = two if below else one
        if below:
            size[cell] = -1


@kernel
def _degree(regions, cell, label, side):
    """How many neighbours of a cell are in a region."""
    count = 0
    for direction in range(4):
        other = neighbour(cell, direction, side)
        if other >= 0 and regions[other] == label:
            count += 1
    return count


@kernel
def _connected(regions, start, side, stack, seen):
    """Whether the region of `start` is in one piece."""
    label = regions[start]
    for cell in range(len(seen)):
        seen[cell] = False
    seen[start] = True
    stack[0] = start
    height, found = 1, 1
    while height:
        height -= 1
        cell = stack[height]
        for direction in range(4):
            other = neighbour(cell, direction, side)
            if other >= 0 and regions[other] == label and not seen[other]:
                seen[other] = True
                stack[height] = other
                height += 1
                found += 1
    return found == side


@kernel
def _swap(rng, regions, side, stack, seen):
    """Propose to swap a cell at a border with a cell of the region beyond (Metropolis-Hastings)."""
    one = random_below(rng, len(regions))
    beyond = neighbour(one, random_below(rng, 4), side)
    if beyond < 0 or regions[beyond] == regions[one]:
        return
    mine, theirs = regions[one], regions[beyond]
    skip = random_below(rng, side)
    two = -1
    for cell in range(len(regions)):
        if regions[cell] == theirs:
            if skip == 0:
                two = cell
            skip -= 1
    # The pair is proposed as often as either of its cells has the other's region beside it.
    before = _degree(regions, one, theirs, side) + _degree(regions, two, mine, side)
    regions[one], regions[two] = theirs, mine
    after = _degree(regions, one, mine, side) + _degree(regions, two, theirs, side)
    rejected = after < before and random_below(rng, before) >= after
    if (
        rejected
        or not _connected(regions, one, side, stack, seen)
        or not _connected(regions, two, side, stack, seen)
    ):
        regions[one], regions[two] = mine, theirs


@kernel
def partitions(seeds, steps, swaps, regions):
    """Fill `regions` (b, side * side) with labels 0 .. side - 1, one chain a board:
    `steps` recombinations from a board of rows, then `swaps` proposals to swap two cells."""
    count = regions.shape[1]
    side = int(np.sqrt(count) + 0.5)
    rng = np.zeros(1, dtype=np.uint64)
    order = np.zeros(2 * side, dtype=np.int64)
    parent = np.zeros(count, dtype=np.int64)
    size = np.zeros(count, dtype=np.int64)
    edges = np.zeros((8 * side, 2), dtype=np.int64)
    seen = np.zeros(count, dtype=np.bool_)
    for i in range(len(seeds)):
        rng[0] = seeds[i] | np.uint64(1)
        for cell in range(count):
            regions[i, cell] = cell // side
        done = 0
        while done < steps:
            cell = random_below(rng, count)
            other = neighbour(cell, random_below(rng, 4), side)
            if other >= 0 and regions[i, cell] != regions[i, other]:
                one, two = regions[i, cell], regions[i, other]
                _recombine(rng, regions[i], one, two, side, (order, parent, size, edges))
                done += 1
        for _ in range(swaps):
            _swap(rng, regions[i], side, order, seen)
