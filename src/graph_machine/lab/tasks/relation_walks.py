"""Training graphs of relations: longer walks, walks that come back to a node, side branches."""

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

NONE = -1  # in a table: two relations in a row from which no relation follows


class Example(NamedTuple):
    """A graph with relations along its edges, and a question about two of its nodes.

    The class's name and its fields' are in the hash that identifies data (`RelationsTask.open`).
    """

    edges: list[tuple[int, int]]  # (a, b): b is the relation of a
    types: list[int]
    query: tuple[int, int]
    target: int


def branched(example: Example, types: list[int], rng: np.random.Generator) -> Example:
    """With one edge more for each of `types`, to or from a new node: the answer stays the same.

    >>> chain = Example([(0, 1), (1, 2)], [3, 4], (0, 2), 5)
    >>> branched(chain, [6], np.random.default_rng(0)).types
    [3, 4, 6]
    """
    edges, new = list(example.edges), 1 + max(map(max, example.edges))
    for node in range(new, new + len(types)):
        edge = (int(rng.integers(node)), node)
        edges.append(edge if rng.random() < 0.5 else edge[::-1])
    return example._replace(edges=edges, types=[*example.types, *types])


def grown(
    example: Example, others: dict[int, list[Example]], most: int, rng: np.random.Generator
) -> Example:
    """A longer path, of at most `most` steps, that has the same answer.

    An edge is replaced by a path of `others` whose answer is its relation, again and again.

    >>> chain, other = Example([(0, 1), (1, 2)], [3, 4], (0, 2), 5), ([(0, 1), (1, 2)], [6, 7])
    >>> grown(chain, {3: [Example(*other, (0, 2), 3)]}, 3, np.random.default_rng(0)).types
    [4, 6, 7]
    """
    edges, types = list(example.edges), list(example.types)
    while True:
        fitting = [
            (place, other)
            for place, kind in enumerate(types)
            for other in others.get(kind, ())
            if len(types) + len(other.types) - 1 <= most
        ]
        if not fitting:
            return example._replace(edges=edges, types=types)
        place, other = fitting[rng.integers(len(fitting))]
        ends = dict(zip(other.query, edges.pop(place), strict=True))
        new = itertools.count(1 + max(*itertools.chain.from_iterable(edges), *ends.values()))
        for node in itertools.chain.from_iterable(other.edges):
            if node not in ends:
                ends[node] = next(new)
        edges += [(ends[a], ends[b]) for a, b in other.edges]
        types = [*types[:place], *types[place + 1 :], *other.types]


def rules_of(examples: list[Example], count: int) -> Int[np.ndarray, "r r"]:
    """What follows from two of `count` relations in a row, read off walks of two and three steps.

    >>> first, second = Example([(0, 1), (1, 2)], [3, 4], (0, 2), 5), [(0, 1), (1, 2), (2, 3)]
    >>> table = rules_of([first, Example(second, [3, 4, 6], (0, 3), 7)], 8)
    >>> int(table[3, 4]), int(table[5, 6]), int(table[6, 5])
    (5, 7, -1)
    """
    table = np.full((count, count), NONE)
    for example in examples:
        if len(example.types) == 2:
            table[*example.types] = example.target
    for example in examples:
        if len(example.types) == 3:
            a, b, c = example.types
            for x, y in ((table[a, b], c), (a, table[b, c])):
                if x != NONE and y != NONE and table[x, y] == NONE:
                    table[x, y] = example.target
    return table


def same_nodes(types: list[int], table: list[list[int]]) -> list[tuple[int, int]]:
    """Pairs of nodes of a walk that may be one node: both have one relation to a third node.

    >>> [wife, daughter, mother], none = range(3), [NONE] * 3
    >>> same_nodes([wife, daughter, mother], [[NONE, daughter, NONE], [NONE, NONE, wife], none])
    [(1, 3)]
    """
    n = len(types) + 1
    known = {(i, i + 1): kind for i, kind in enumerate(types)}
    for width in range(2, n):
        for i in range(n - width):
            j = i + width
            for m in range(i + 1, j):
                first, second = known.get((i, m)), known.get((m, j))
                if first is not None and second is not None and table[first][second] != NONE:
                    known[i, j] = table[first][second]
                    break
    return [
        (i, j)
        for i, j in itertools.combinations(range(n), 2)
        if j > i + 1
        and (
            any(known.get((a, i), NONE) == known.get((a, j)) for a in range(i))
            or any(known.get((i, a), NONE) == known.get((j, a)) for a in range(j + 1, n))
        )
    ]


def returned(
    example: Example, table: list[list[int]], share: float, rng: np.random.Generator
) -> Example:
    """A walk that comes back to one or two of its nodes, where the table allows it.

    It does so once with probability `share`, and twice with its square.
    """
    follow = {a: (b, kind) for (a, b), kind in zip(example.edges, example.types, strict=True)}
    walk, types = [example.query[0]], []
    while walk[-1] in follow and len(walk) <= len(example.edges):
        node, kind = follow[walk[-1]]
        walk.append(node)
        types.append(kind)
    if len(set(walk)) != len(example.edges) + 1 or walk[-1] != example.query[1]:
        return example  # not a walk that visits every node once
    places = list(range(len(walk)))  # of the walk -> where its node was visited first
    pairs = same_nodes(types, table)
    for _ in range(2):
        if not pairs or rng.random() >= share:
            break
        i, j = pairs[rng.integers(len(pairs))]
        merged = [places[i] if place == places[j] else place for place in places]
        if merged[0] != merged[-1] and all(a != b for a, b in itertools.pairwise(merged)):
            places = merged
    number = {place: new for new, place in enumerate(sorted(set(places)))}
    nodes = [number[place] for place in places]
    return Example(list(itertools.pairwise(nodes)), types, (nodes[0], nodes[-1]), example.target)
