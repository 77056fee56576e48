"""Mazes as a task: what counts, text, files, baselines, and training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph_machine.config import ModelConfig
from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.cli import run
from graph_machine.lab.config import MazeConfig
from graph_machine.lab.tasks.base import baseline_scores
from graph_machine.lab.tasks.maze.mazes import MazeTask, format_maze, read_mazes, write_mazes
from graph_machine.lab.tasks.rows import Splits, join_rows
from graph_machine.models import GraphMachine

SMALL = MazeConfig(side=7, mazes=200)


@pytest.fixture(scope="module")
def task() -> MazeTask:
    return MazeTask(SMALL).open()


def test_open_cells_count(task: MazeTask) -> None:
    batch = task.batch(0, 8, seed=0)
    assert ((batch.known_tokens == 1) == batch.where).all()
    assert (batch.answers.sum(dim=1).numpy() == batch.groups["steps"] + 1).all()
    assert task.seen_in_training(task, None) == 0


def test_a_mirrored_maze_was_seen_in_training(task: MazeTask) -> None:
    seen = task.store.take(task.splits.train[:15])
    mirrored = replace(seen, cells=seen.cells.reshape(-1, 7, 7)[:, :, ::-1].reshape(-1, 49))
    new = task.store.take(task.splits.test[:5])
    other = MazeTask(SMALL).use(join_rows([mirrored, new]), splits=Splits.tests(20))
    assert other.seen_in_training(task, None) == 15


def test_baselines(task: MazeTask) -> None:
    found = baseline_scores(task, "test")
    assert found["breadth-first search"].summary()["maze_accuracy"] == 1.0
    assert 0 < found["dead ends filled"].summary()["maze_accuracy"] < 1
    assert found["dead ends filled"].by(task.groupings[0])


def test_text_in_and_out(task: MazeTask) -> None:
    cells, path = task.store.cells[0], task.store.paths[0]
    example = task.parse(format_maze(cells))
    right = task.show(example, path.astype(np.int64), np.ones(49))
    assert right.valid
    assert right.verdict() == "a shortest path."
    assert "• " in right.draw().plain
    assert right.text.count("o") == task.store.steps[0] - 1
    wrong = task.show(example, np.zeros(49, dtype=np.int64), np.ones(49))
    assert not wrong.valid
    assert wrong.wrong.sum() == task.store.steps[0] - 1
    assert "! " in wrong.draw().plain
    assert wrong.to_dict()["valid"] is False
    shut = task.parse("S#" + "." * 5 + "#" * 7 + "." * 34 + "G")
    assert "no path" in task.show(shut, np.zeros(49, dtype=np.int64), np.ones(49)).verdict()
    with pytest.raises(DataError, match="49 cells"):
        task.parse("S.......G")


def test_a_maze_of_another_side_as_text() -> None:
    """A model without places takes it: `for_spec` with the spec of the task that fits."""
    task = MazeTask(MazeConfig(side=7, shortest=13))
    large = "S" + "." * 79 + "G"
    model = GraphMachine(ModelConfig(num_layers=1, d_node=8, d_edge=4, num_heads=2), task.spec)
    other = task.fitting(large)
    found = model.for_spec(other.spec).predict(other.parse(large).tokens)
    shown = other.show(other.parse(large), found.answers[0], found.confidences[0])
    assert len(shown.text) == 81
    assert task.fitting("S" + "." * 47 + "G") is task
    assert task.fitting("no maze") is task
    with pytest.raises(DataError, match="64x64"):
        task.fitting("S.#G")
    fixed = MazeTask(MazeConfig(side=7, learned_places=True))
    assert fixed.fitting(large) is fixed


def test_files_as_data(tmp_path: Path, task: MazeTask) -> None:
    path = tmp_path / "some.csv"
    write_mazes(path, task.store)
    found = MazeTask(SMALL).open(str(path))
    assert found.identity == task.identity
    first = next(task.examples_in(path.read_text()))
    assert first == (2, format_maze(task.store.cells[0]))
    assert task.held_out(str(path), None, 0)[0].sizes["test"] == 200
    assert task.held_out(str(path), task.identity, 0)[0].sizes["test"] == 10
    with pytest.raises(DataError, match=r"set task\.side=7"):
        MazeTask(MazeConfig()).open(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "Not a file of mazes"),
        ("id,maze,path,steps\n", "Expected mazes"),
        ("id,maze\n1,S.......G,,\n", "Line 2 .* more than one"),
        ("id,maze\n1,S#.##...G,,\n", "Line 2 .* no path"),
        ("id,maze\n1,S#.##...,,\n", "Line 2 .* a square"),
        ("id,maze\n\n1,S#.##...G,,\n", "Line 3 .* no path"),
        ("id,maze\n1,SG..,,\n1,S##.#..#G,,\n", "the same size"),
        ("id,maze\n1\n", "Line 2 .*2 columns"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_mazes(tmp_path / "bad.csv")
    with pytest.raises(DataError, match="data file"):
        read_mazes(tmp_path / "none.csv")


def test_mazes_on_several_lines(task: MazeTask) -> None:
    square = "S....\n.###.\n.#.#.\n.###.\n....G"
    flat = square.replace("\n", "")
    for text, lines in (
        (f"{square}\n", [1]),
        (f"{flat}\n{flat}\n", [1, 2]),
        (f"\n{square}\n\n\n{square}", [2, 9]),
        (f"{square}\n{square}\n", [1, 6]),  # a full square needs no blank line
        (f"{square}\n\n{flat}\n", [1, 7]),
    ):
        assert list(task.examples_in(text)) == [(line, flat) for line in lines]
    ((line, cut),) = task.examples_in("S..\n..G")
    with pytest.raises(DataError, match="got 6"):
        task.parse(cut)
    assert line == 1


def test_config() -> None:
    for settings, message in (({"side": 3}, "side"), ({"shortest": 40}, "twice")):
        with pytest.raises(ConfigError, match=message):
            SMALL.replace(**settings)


def test_large_mazes_train_in_the_sparse_space(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    settings = ["task.side=18", "task.mazes=40", "model.num_layers=1"]
    assert run(["train", "maze-gm-sparse", "--budget", "smoke", "--steps", "2", "--out", out,
                "--progress", "none", "--set", *settings]) == 0  # fmt: skip
    assert "test mazes after 2 steps" in capsys.readouterr().out


@pytest.mark.parametrize("condition", ["maze-gm", "maze-transformer-edges"])
def test_a_model_takes_mazes_of_another_side(
    tmp_path: Path, task: MazeTask, condition: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, settings = str(tmp_path / "seven.csv"), ["--set", "task.side=5", "task.mazes=40"]
    write_mazes(data, task.store.take(slice(8)))
    for places in ("false", "true"):
        out = str(tmp_path / places)
        how = ["--budget", "smoke", "--steps", "2", "--out", out, "--progress", "none"]
        assert run(["train", condition, *how, *settings, f"task.learned_places={places}"]) == 0
    capsys.readouterr()
    assert run(["evaluate", str(tmp_path / "false"), "--data", data]) == 0
    assert "8 mazes" in capsys.readouterr().out
    with pytest.raises(DataError, match="side 7"):
        run(["evaluate", str(tmp_path / "true"), "--data", data])
