"""Jigsaw as a task: what edges tell, splits by regions, text, baselines, and training."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.cli import run
from graph_machine.lab.config import JigsawConfig
from graph_machine.lab.tasks.base import baseline_scores, task_of
from graph_machine.lab.tasks.jigsaw.puzzles import (
    CATEGORIES,
    JigsawTask,
    batch_regions,
    generate_jigsaws,
    jigsaw_graph,
    write_jigsaws,
)

SMALL = JigsawConfig(side=5, puzzles=200, clues_extra=4)


@pytest.fixture(scope="module")
def task() -> JigsawTask:
    return JigsawTask(SMALL).open()


def test_edges_tell_direction_and_region(task: JigsawTask) -> None:
    regions = task.store.regions[:20]
    graph = jigsaw_graph(regions).check()
    assert graph.num_categories == len(CATEGORIES) == 10
    ways = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
    for board in range(20):
        for cell in range(25):
            seen = {
                CATEGORIES[category]: target
                for target, category in zip(
                    graph.targets[board, cell].tolist(), graph.categories[board, cell].tolist()
                )
                if target >= 0
            }
            assert seen.pop("self") == cell
            for way, (down, right) in ways.items():
                row, col = cell // 5 + down, cell % 5 + right
                if row in range(5) and col in range(5):
                    other = 5 * row + col
                    same = regions[board, cell] == regions[board, other]
                    assert seen.pop(way if same else f"{way}, other region") == other
            assert not seen


def test_regions_follow_from_the_edges_alone(task: JigsawTask) -> None:
    rows = next(iter(task.split_batches("test", 64)))
    assert int(rows.known_tokens.max()) <= 5  # no token holds a region
    assert np.array_equal(batch_regions(rows), task.store.regions[task.splits.test[:64]])


def test_tokens_hold_digit_and_region(task: JigsawTask) -> None:
    seen = JigsawTask(SMALL.replace(regions_in_tokens=True)).use(task.store)
    plain, with_regions = task.batch(3, 8, 0), seen.batch(3, 8, 0)
    assert torch.equal(with_regions.known_tokens // 5, plain.known_tokens)
    assert np.array_equal(with_regions.known_tokens % 5, batch_regions(plain))
    assert torch.equal(with_regions.where, plain.where)
    assert seen.spec.num_tokens == 30
    assert np.array_equal(seen.boards(with_regions)[0], plain.known_tokens)


def test_no_layout_of_a_test_board_is_met_in_training(task: JigsawTask) -> None:
    keys = task.keys(task.store)
    parts = [set(keys[getattr(task.splits, split)].tolist()) for split in task.sizes]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert task.seen_in_training(task, None) == 0
    assert sum(task.sizes.values()) == 200


@pytest.mark.parametrize("augment", ["none", "relabel", "all"])
def test_batches_follow_from_step_and_seed(task: JigsawTask, augment: str) -> None:
    one = JigsawTask(SMALL.replace(augment=augment)).use(task.store)
    two = JigsawTask(SMALL.replace(augment=augment)).use(task.store)
    for step in (7, 2):
        assert torch.equal(one.batch(step, 8, 1).tokens, two.batch(step, 8, 1).tokens)  # type: ignore[arg-type]
    assert not torch.equal(one.batch(2, 8, 1).tokens, one.batch(2, 8, 2).tokens)  # type: ignore[arg-type]


def test_baselines(task: JigsawTask) -> None:
    found = baseline_scores(task, "test")
    assert found["exact solver"].summary()["board_accuracy"] == 1.0
    rated = task.store.ratings[task.splits.test]
    easy = found["singles only"].summary()["board_accuracy"]
    assert easy == pytest.approx(float((rated == 0).mean()))


def test_text_in_and_out(task: JigsawTask) -> None:
    puzzle, regions = task.store.puzzles[0], task.store.regions[0]
    text = task.text(task.batch_of(task.store.take(slice(1))))
    example = task.parse(text)
    assert np.array_equal(task.boards(example)[0][0], puzzle)
    assert np.array_equal(batch_regions(example)[0], regions)
    solution = task.store.solutions[0].astype(np.int64)
    answer = task.show(example, solution - 1, np.ones(25), check=True)
    assert answer.valid
    assert "which this is" in answer.verdict()
    assert answer.to_dict()["puzzle"] == text
    blank = int(np.flatnonzero(puzzle == 0)[0])
    solution[blank] = solution[blank] % 5 + 1
    wrong = task.show(example, solution - 1, np.ones(25))
    assert not wrong.valid
    assert wrong.wrong[blank]
    assert "!" in wrong.draw().plain
    with pytest.raises(DataError, match="25 cells"):
        task.parse("1....3....4....2/AABBAABBCCDDCCDD")


def test_files_as_data(tmp_path: Path, task: JigsawTask) -> None:
    write_jigsaws(tmp_path / "some.csv", task.store)
    found = JigsawTask(SMALL).open(str(tmp_path / "some.csv"))
    assert len(found.store) == 200
    lines = list(task.examples_in((tmp_path / "some.csv").read_text()))
    assert [number for number, _ in lines] == list(range(2, 202))  # the header is line 1
    assert lines[0][1] == task.text(task.batch_of(task.store.take(slice(1))))
    held, words = task.held_out(str(tmp_path / "some.csv"), None, 0)
    assert (held.sizes["test"], words.split()[0]) == (200, "all")
    held, words = task.held_out(str(tmp_path / "some.csv"), found.identity, 0)
    assert held.sizes["test"] < 200
    with pytest.raises(DataError, match=r"task\.side=5"):
        JigsawTask(JigsawConfig()).open(str(tmp_path / "some.csv"))


def test_config() -> None:
    assert task_of(JigsawConfig()).label == "jigsaw-6x6"
    with pytest.raises(ConfigError, match="side"):
        JigsawConfig(side=2)


def test_train_solve_and_evaluate_by_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    assert run(["train", "--task", "jigsaw", "--budget", "smoke", "--steps", "2", "--out", out,
                "--progress", "none"]) == 0  # fmt: skip
    assert "test puzzles after 2 steps" in capsys.readouterr().out
    assert run(["solve", out, "1....3....4....2/AABBAABBCCDDCCDD"]) in (0, 1)
    assert "├───────┼───────┤" in capsys.readouterr().out
    write_jigsaws(tmp_path / "three.csv", generate_jigsaws(side=4, count=3))
    assert run(["solve", out, "--file", str(tmp_path / "three.csv"), "--json"]) in (0, 1)
    assert [one["line"] for one in json.loads(capsys.readouterr().out)] == [2, 3, 4]
    assert run(["evaluate", out]) == 0
    assert "exact solver" in capsys.readouterr().out
