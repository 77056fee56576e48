"""Mazes: seeded, one shortest path by an independent search, text form, what counts as right."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from graph_machine.errors import DataError
from graph_machine.lab.tasks.maze.mazes import (
    GOAL,
    START,
    WALL,
    MazeAnswer,
    Mazes,
    format_maze,
    format_path,
    generate_mazes,
    is_shortest,
    parse_maze,
    shortest_paths,
    without_dead_ends,
)

SQUARE = "S..#.#..G"  # two paths round a wall


@pytest.fixture(scope="module")
def mazes() -> Mazes:
    return generate_mazes(9, 50, seed=2)


def distances(cells: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Steps between all cells by scipy, and the numbers of start and goal."""
    side = round(len(cells) ** 0.5)
    grid = np.arange(side * side).reshape(side, side)
    ways = ((grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:]))
    pairs = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in ways])
    pairs = pairs[(cells[pairs] != WALL).all(axis=1)]
    links = csr_array((np.ones(len(pairs)), pairs.T), shape=(side * side, side * side))
    steps = shortest_path(links, directed=False, unweighted=True)
    return steps, int(np.flatnonzero(cells == START)[0]), int(np.flatnonzero(cells == GOAL)[0])


def test_the_same_seed_gives_the_same_mazes(mazes: Mazes) -> None:
    assert np.array_equal(mazes.cells, generate_mazes(9, 50, seed=2).cells)
    assert not np.array_equal(mazes.cells, generate_mazes(9, 50, seed=3).cells)
    assert len({row.tobytes() for row in mazes.cells}) == 50
    assert mazes.steps.min() >= 9


@pytest.mark.parametrize("side", [4, 9, 16, 30])
def test_one_shortest_path_by_an_independent_search(side: int) -> None:
    mazes = generate_mazes(side, 10)
    for cells, path, length in zip(mazes.cells, mazes.paths, mazes.steps):
        steps, start, goal = distances(cells)
        assert steps[start, goal] == length
        # A cell is on a shortest path if the path through it is no longer: one cell per distance.
        on_some = steps[start] + steps[:, goal] == length
        assert np.array_equal(np.flatnonzero(on_some), np.flatnonzero(path))
        assert path.sum() == length + 1
        assert is_shortest(cells, path)


def test_loops_make_dead_ends_a_poor_guide() -> None:
    tree, loops = generate_mazes(11, 40, loops=0.0), generate_mazes(11, 40, loops=0.3)
    assert (without_dead_ends(tree.cells) == tree.paths).all()
    left = without_dead_ends(loops.cells)
    assert (left >= loops.paths).all()
    assert not (left == loops.paths).all()


def test_search_of_mazes_with_several_paths_and_none() -> None:
    both = np.stack([parse_maze(SQUARE.replace("#", ".")), parse_maze("S#.##...G")])
    found = shortest_paths(both)
    assert found.counts.tolist() == [2, 0]
    assert found.steps.tolist() == [4, 0]


def test_any_shortest_path_is_right() -> None:
    cells = parse_maze("S...#...G")
    assert is_shortest(cells, np.array([0, 1, 1, 0, 0, 1, 0, 0, 0]))
    assert is_shortest(cells, np.array([0, 0, 0, 1, 0, 0, 1, 1, 0]))
    assert not is_shortest(cells, np.array([0, 1, 1, 1, 0, 1, 0, 0, 0]))
    assert not is_shortest(cells, np.array([0, 1, 1, 0, 0, 0, 0, 0, 0]))
    assert not is_shortest(cells, np.zeros(9, dtype=np.uint8))


def test_text_form(mazes: Mazes) -> None:
    text = format_maze(mazes.cells[0])
    assert np.array_equal(parse_maze(text), mazes.cells[0])
    lines = "\n".join(text[i : i + 9] for i in range(0, 81, 9))
    assert np.array_equal(parse_maze(lines), mazes.cells[0])
    assert format_path(mazes.cells[0], mazes.paths[0]).count("o") == mazes.steps[0] - 1


def test_bad_mazes() -> None:
    for text, message in (("S.G", "square"), ("S.G..x...", "'X'"), (".........", "0 and 0")):
        with pytest.raises(DataError, match=message):
            parse_maze(text)
    with pytest.raises(DataError, match="shorter paths"):
        generate_mazes(4, 100, fewest=8, loops=1.0)


def test_a_longer_path_obeys_the_rules_and_is_not_right() -> None:
    cells = parse_maze("S....##..##.G...")
    around = np.isin(np.arange(16), [1, 2, 3, 7, 11, 15, 14, 13]).astype(np.uint8)
    answer = MazeAnswer(cells, around, np.ones(16, dtype=np.float32))
    assert answer.obeys  # tries do not look at the solution
    assert not answer.valid
    gap = MazeAnswer(cells, np.where(np.arange(16) == 7, 0, around), answer.confidence)
    assert not gap.obeys
    straight = np.isin(np.arange(16), [4, 8]).astype(np.uint8)
    assert MazeAnswer(cells, straight, answer.confidence).valid
