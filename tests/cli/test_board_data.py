"""`graph-machine data --task NAME`: boards of other tasks than Sudoku."""

import pytest

from graph_machine.cli import run
from graph_machine.errors import ConfigError, DataError


@pytest.fixture
def cli(capsys):
    def call(*arguments):
        assert run(["data", *map(str, arguments)]) in (0, None)
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize(
    ("task", "side", "drawn", "solved"), [("jigsaw", 4, 9, "1234"), ("maze", 5, 7, "SoG.#")]
)
def test_boards_of_other_tasks(cli, tmp_path, task, side, drawn, solved):
    path = tmp_path / "made.csv"
    words = ("generate", "--task", task, "--count", 3, "--seed", 5, "--set", f"task.side={side}")
    assert cli(*words, "--out", path).startswith("3 ")
    again = tmp_path / "again.csv"
    cli(*words, "--out", again)
    assert path.read_bytes() == again.read_bytes()
    lines = path.read_text().splitlines()
    assert len(lines) == 4
    picture = cli("draw", path, "--task", task, "--row", 2)
    assert len(picture.splitlines()) == drawn
    text = lines[3].split(",")[1] if task == "maze" else "/".join(lines[3].split(",")[1:3])
    assert cli("draw", text, "--task", task) == picture
    answer = cli("draw", text, "--task", task, "--solve").splitlines()[-1]
    assert len(answer) == side * side
    assert set(answer) <= set(solved)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["draw", "....", "--task", "recall"], "--task takes sudoku, jigsaw, maze"),
        (["draw", "none.csv", "--task", "maze"], "There is no such file or store"),
        (["draw", "S##.", "--task", "maze", "--solve"], "goal"),
        (["generate", "--count", "1", "--out", "x.csv", "--task", "maze", "--box", "2x2"], "--box"),
        (["generate", "--count", "1", "--out", "x.txt", "--task", "maze"], "should end in .csv"),
        (["generate", "--count", "1", "--out", "x.csv", "--set", "task.side=4"], "--set is for"),
    ],
)
def test_errors_of_other_tasks(cli, arguments, message):
    with pytest.raises((ConfigError, DataError), match=message):
        cli(*arguments)
