"""Carving mazes and searching them breadth first. Calls nothing outside this file but `bits`.

Cells are 0 wall, 1 open, 2 start, 3 goal, row by row on a square.
"""

import numpy as np

from graph_machine.lab.tasks.kernels import kernel, neighbour, random_below

WALL, OPEN, START, GOAL = 0, 1, 2, 3
STARTS = 20  # places to start from that are tried before a maze is given up


@kernel
def _open_around(maze, cell, side):
    count = 0
    for direction in range(4):
        other = neighbour(cell, direction, side)
        if other >= 0 and maze[other] != WALL:
            count += 1
    return count


@kernel
def _carve(rng, maze, side, active):
    """A tree of passages: a wall cell is opened if it touches exactly one open cell.

    It grows at the newest cell or at any, as a coin falls: long corridors, and branches.
    """
    for cell in range(len(maze)):
        maze[cell] = WALL
    start = random_below(rng, len(maze))
    maze[start] = OPEN
    active[0] = start
    height = 1
    while height:
        place = height - 1 if random_below(rng, 2) else random_below(rng, height)
        cell = active[place]
        chosen, ties = -1, 0
        for direction in range(4):
            other = neighbour(cell, direction, side)
            if other >= 0 and maze[other] == WALL and _open_around(maze, other, side) == 1:
                ties += 1
                if random_below(rng, ties) == 0:
                    chosen = other
        if chosen < 0:
            height -= 1
            active[place] = active[height]
        else:
            maze[chosen] = OPEN
            active[height] = chosen
            height += 1


@kernel
def _open_loops(rng, maze, side, per_million):
    """Open walls between passages, each with the same chance."""
    for cell in range(len(maze)):
        if (
            maze[cell] == WALL
            and _open_around(maze, cell, side) >= 2
            and random_below(rng, 1_000_000) < per_million
        ):
            maze[cell] = OPEN


@kernel
def _search(maze, start, side, steps, path_counts, queue):
    """Breadth first: steps from `start` (-1: none) and shortest paths (0, 1, 2: more than one)."""
    for cell in range(len(maze)):
        steps[cell] = -1
        path_counts[cell] = 0
    steps[start] = 0
    path_counts[start] = 1
    queue[0] = start
    head, tail = 0, 1
    while head < tail:
        cell = queue[head]
        head += 1
        for direction in range(4):
            other = neighbour(cell, direction, side)
            if other < 0 or maze[other] == WALL:
                continue
            if steps[other] < 0:
                steps[other] = steps[cell] + 1
                queue[tail] = other
                tail += 1
            if steps[other] == steps[cell] + 1:
                path_counts[other] = min(2, path_counts[other] + path_counts[cell])


@kernel
def _mark(goal, side, steps, path):
    """Mark one shortest path back from the goal."""
    for cell in range(len(path)):
        path[cell] = 0
    cell = goal
    path[cell] = 1
    while steps[cell] > 0:
        for direction in range(4):
            other = neighbour(cell, direction, side)
            if other >= 0 and steps[other] == steps[cell] - 1:
                cell = other
                break
        path[cell] = 1


@kernel
def _ends(rng, maze, side, fewest, steps, path_counts, queue):
    """Start and goal with one shortest path of at least `fewest` steps; -1, -1 if none is found."""
    for _ in range(STARTS):
        start = random_below(rng, len(maze))
        if maze[start] == WALL:
            continue
        _search(maze, start, side, steps, path_counts, queue)
        goal, ties = -1, 0
        for cell in range(len(maze)):
            if steps[cell] >= fewest and path_counts[cell] == 1:
                ties += 1
                if random_below(rng, ties) == 0:
                    goal = cell
        if goal >= 0:
            return start, goal
    return -1, -1


@kernel
def generate_all(seeds, per_million, fewest, mazes, paths, lengths):
    """One attempt per seed; `lengths` is 0 where no start and goal were found."""
    count = mazes.shape[1]
    side = int(np.sqrt(count) + 0.5)
    rng = np.zeros(1, dtype=np.uint64)
    steps = np.zeros(count, dtype=np.int64)
    path_counts = np.zeros(count, dtype=np.int64)
    queue = np.zeros(count, dtype=np.int64)
    for i in range(len(seeds)):
        rng[0] = seeds[i] | np.uint64(1)
        _carve(rng, mazes[i], side, queue)
        _open_loops(rng, mazes[i], side, per_million)
        start, goal = _ends(rng, mazes[i], side, fewest, steps, path_counts, queue)
        lengths[i] = 0
        if start >= 0:
            _mark(goal, side, steps, paths[i])
            lengths[i] = steps[goal]
            mazes[i, start] = START
            mazes[i, goal] = GOAL


@kernel
def solve_all(mazes, paths, lengths, counts):
    """A shortest path through each maze, its steps, and how many there are (0, 1, 2: more)."""
    count = mazes.shape[1]
    side = int(np.sqrt(count) + 0.5)
    steps = np.zeros(count, dtype=np.int64)
    path_counts = np.zeros(count, dtype=np.int64)
    queue = np.zeros(count, dtype=np.int64)
    for i in range(len(mazes)):
        start, goal = 0, 0
        for cell in range(count):
            if mazes[i, cell] == START:
                start = cell
            elif mazes[i, cell] == GOAL:
                goal = cell
        _search(mazes[i], start, side, steps, path_counts, queue)
        counts[i] = path_counts[goal]
        lengths[i] = max(0, steps[goal])
        if counts[i]:
            _mark(goal, side, steps, paths[i])


@kernel
def fill_dead_ends(mazes, left):
    """`left` is 1 where a cell remains after dead ends were filled until there were none."""
    count = mazes.shape[1]
    side = int(np.sqrt(count) + 0.5)
    for i in range(len(mazes)):
        for cell in range(count):
            left[i, cell] = mazes[i, cell] != WALL
        changed = True
        while changed:
            changed = False
            for cell in range(count):
                if (
                    left[i, cell]
                    and mazes[i, cell] == OPEN
                    and _open_around(left[i], cell, side) <= 1
                ):
                    left[i, cell] = 0
                    changed = True
