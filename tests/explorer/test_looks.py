"""What a page is told of a task's looks: marks, words, sequences in lines."""

import numpy as np
import pytest

from graph_machine.errors import DataError
from graph_machine.lab.config import (
    AlgorithmsConfig,
    JigsawConfig,
    MazeConfig,
    PointersConfig,
    RecallConfig,
    TextConfig,
)
from graph_machine.lab.explorer.forward import unpack
from graph_machine.lab.tasks.base import task_of
from support.explorer import example_of, graph_session

MAZE = "S....####.......####.G..."


def test_walls_and_paths_are_marks() -> None:
    session = graph_session(MazeConfig(side=5, mazes=40))
    told = session.describe()
    assert told["marks"]["#"] == {"drawn": "filled", "word": "wall"}
    assert {told["marks"][answer]["drawn"] for answer in told["answerNames"]} == {"empty", "dot"}
    assert told["marks"].keys() <= set(told["symbols"]) | set(told["answerNames"])
    assert not {"S", "G"} & told["marks"].keys()  # these are written
    header, _ = unpack(session.run_pack(MAZE))
    assert header["tokens"][0] == "S"
    assert header["tokens"][5:9] == ["#"] * 4

    # Words are the task's own.
    assert "0" not in told["hint"]
    assert told["symbols"][told["symbols"].index(told["blank"])] == "."
    assert "digits" not in told["contentsWord"]
    assert task_of(MazeConfig(side=5)).marks["o"].word == "on the path"


def test_the_first_source_is_one_that_is_asked() -> None:
    maze = MazeConfig(side=5, mazes=40)
    pointers = PointersConfig(nodes=6, train_hops=2, test_hops=4)
    assert example_of(task_of(maze), f"S{11 * '.'}#{11 * '.'}G").start == 7  # a wall in the middle
    assert example_of(task_of(pointers), "0>0 1>0 2>1 3>2").start == 0


def test_a_sequence_is_drawn_in_lines() -> None:
    session = graph_session(RecallConfig(length=20, keys=6, values=10, pairs=4, test_pairs=4))
    layout = session.describe()["layout"]
    assert (layout["rows"], layout["cols"], layout["isSequence"]) == (3, 8, True)
    # Factors of later places are masked by huge numbers; they take no more room for that.
    arrays = session.run(session.examples.listed[0].key).forwards[0].arrays
    assert {values.dtype for values in arrays.values()} == {np.dtype(np.float16)}
    header, _ = unpack(session.run_pack("5=9 0=2 | 0 5"))
    assert (header["layout"]["rows"], header["layout"]["cols"]) == (2, 4)
    assert header["tokens"] == ["5", "=9", "0", "=2", "0", "5"]
    assert header["questions"][4:] == ["0", "5"]
    assert header["solution"][4:] == ["=2", "=9"]
    assert all(answer.startswith("=") for answer in header["models"][0]["answers"])


def test_bytes_are_characters() -> None:
    session = graph_session(TextConfig(length=16))
    with pytest.raises(DataError, match="surrogate"):
        session.run_pack("a\ud800")
    header, _ = unpack(session.run_pack("a b\nc\u00e9"))
    assert header["questions"] == ["⊢", "a", "␣", "b", "⏎", "c", "C3"]
    assert header["solution"] == ["a", "␣", "b", "⏎", "c", "C3", "A9"]
    assert "of 7 answers right" in header["models"][0]["verdict"]


def test_a_jigsaw_that_tells_regions_shows_digits() -> None:
    task = task_of(JigsawConfig(side=4, regions_in_tokens=True))
    batch = task.parse("1.......2......./AABBAABBCCDDCCDD")
    assert task.token_words(batch)[:9] == ["1", *"." * 7, "2"]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("11..............", "contradict"),
        ("1.......2.......", "several solutions"),
        ("123....4........", "no solution"),
        ("12343412.1.34321", ""),
        ("S#..##.....G....", "no path"),
        ("S..............G", "several"),
        ("S...###.G...####", ""),
    ],
)
def test_typed_jigsaws_and_mazes_are_judged(text: str, note: str) -> None:
    is_maze = text.startswith("S")
    config = MazeConfig(side=4, mazes=40) if is_maze else JigsawConfig(side=4, puzzles=40)
    typed = text if is_maze else f"{text}/AABBAABBCCDDCCDD"
    header, _ = unpack(graph_session(config).run_pack(typed))
    said, model = " ".join(header["notes"]), header["models"][0]
    assert note in said
    assert bool(note) == bool(said)
    assert model["wrong"] is not None
    assert is_maze or ("break the rules" if note else "answers right") in model["verdict"]


def test_marks_that_make_no_path() -> None:
    task = task_of(MazeConfig(side=4))
    example, marks = task.parse("S..............G"), np.zeros(16, dtype=np.int64)
    marks[[1, 2, 3, 7, 11]] = 1
    assert task.broken(example, marks) == []
    marks[[5, 12]] = 1  # beside the path, and alone
    assert task.broken(example, marks) == [1, 5, 12]


@pytest.mark.parametrize(
    "config",
    [JigsawConfig(side=6), MazeConfig(side=9), JigsawConfig(side=4, regions_in_tokens=True)],
)
def test_boards_are_drawn_at_random(config) -> None:
    task = task_of(config)
    made = task.sample(3, 1)
    assert made is not None
    assert len(made) == 3
    again = task.sample(3, 2)
    assert again is not None
    assert task.text(made) != task.text(again)
    found = task.solve(made).answers
    where = made.where[0].numpy()
    assert found is not None
    assert (found == made.answers[0].numpy())[where].all()


def test_large_boards_are_not_waited_for() -> None:
    assert task_of(JigsawConfig(side=12)).sample(1, 0) is None
    assert task_of(MazeConfig(side=60)).sample(1, 0) is None


def test_what_a_graph_holds_is_told() -> None:
    """The start of a search, weights of edges, and the only number of nodes."""
    paths = graph_session(AlgorithmsConfig(algorithm="paths", train_nodes=8))
    layout = unpack(paths.run_pack("2 0-1:0.5 1-2:0.25 2-3 3-4"))[0]["layout"]
    assert layout["marked"] == [2]
    words = dict(zip(map(tuple, layout["links"]), layout["linkValues"], strict=True))
    assert (words[0, 1], words[1, 0], words[2, 1], words[2, 3]) == ("0.5", "0.5", "0.25", "1")
    assert layout["values"] is None
    config = AlgorithmsConfig(algorithm="components", train_nodes=8, name_width=0)
    layout = unpack(graph_session(config).run_pack("0.5,0.25,0.75 0-1 1-2"))[0]["layout"]
    assert layout["values"] == ["0.5", "0.25", "0.75"]
    assert (layout["marked"], layout["linkValues"]) == ([], None)
