"""`graph-machine data --task NAME`: boards of other tasks than Sudoku."""

import json

import pytest

from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.cli import run


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


@pytest.fixture
def made(cli, tmp_path):
    def make(task, side):
        path = tmp_path / f"{task}.csv"
        words = ("--task", task, "--count", 12, "--set", f"task.side={side}")
        cli("generate", *words, "--out", path)
        return path

    return make


@pytest.mark.parametrize(("task", "side"), [("jigsaw", 4), ("maze", 5)])
def test_files_as_editors_write_them(cli, made, task, side):
    path = made(task, side)
    plain = cli("info", path, "--task", task)
    picture = cli("draw", path, "--task", task)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + b"\r\n\n")
    assert cli("info", path, "--task", task) == plain
    assert cli("draw", path, "--task", task) == picture
    for content in (b"\xff\xfe\x00binary", f"id,{'x' * 200_000}\n".encode()):
        path.write_bytes(content)
        for command in ("info", "draw"):
            with pytest.raises(DataError, match=r"Line 1 is longer|Not a file of"):
                cli(command, path, "--task", task)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.num_layers=2", "takes settings of the task .*got 'model.num_layers'"),
        ("task.data_seed=3", "task.data_seed is given by --seed here"),
        ("task.mazes=30", "task.mazes is given by --count here"),
    ],
)
def test_settings_that_generate_does_not_read(cli, tmp_path, setting, message):
    words = ("--task", "maze", "--count", 3, "--set", setting)
    with pytest.raises(ConfigError, match=message):
        cli("generate", *words, "--out", tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").exists()


def test_draw_says_where_a_solution_is_one_of_several(cli):
    text = cli("draw", "." * 16 + "/AABBAABBCCDDCCDD", "--task", "jigsaw", "--solve")
    assert text.startswith("The puzzle has more than one solution; this is one of them.\n")
    text = cli("draw", "S......" + "." * 8 + "G", "--task", "maze", "--solve")
    assert text.startswith("The maze has more than one shortest path; this is one of them.\n")


def test_info_of_other_tasks(cli, made):
    path = made("maze", 5)
    text = cli("info", path, "--task", "maze")
    assert text.startswith(f"12 mazes of side 5: {path}\n")
    facts = json.loads(cli("info", path, "--task", "maze", "--json"))
    assert (facts["mazes"], facts["side"], sum(facts["steps"].values())) == (12, 5, 12)
    path = made("jigsaw", 4)
    facts = json.loads(cli("info", path, "--task", "jigsaw", "--json"))
    assert (facts["puzzles"], facts["side"]) == (12, 4)
    assert sum(facts["rating"].values()) == sum(facts["clues"].values()) == 12


def test_rate_a_jigsaw(cli, made, tmp_path):
    path, rated = made("jigsaw", 4), tmp_path / "rated.csv"
    text = cli("rate", path, "--task", "jigsaw", "--limit", 5, "--out", rated)
    assert text.startswith("5 puzzles rated in ")
    assert "0 here where the file says 0, and nowhere else: 100.00% of the rows" in text
    assert len(rated.read_text().splitlines()) == 6
    puzzle = "/".join(path.read_text().splitlines()[1].split(",")[1:3])
    assert float(cli("rate", puzzle, "--task", "jigsaw")) >= 0


@pytest.mark.parametrize(
    ("task", "side", "what"), [("jigsaw", 4, "jigsaw puzzles"), ("maze", 5, "mazes")]
)
@pytest.mark.parametrize("command", ["info", "rate", "prepare", "draw"])
def test_a_file_of_another_task_is_not_read_as_sudoku(cli, made, task, side, what, command):
    path = made(task, side)
    with pytest.raises(DataError, match=f"A file of {what}, not of Sudoku; .* with --task {task}"):
        cli(command, path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["draw", "....", "--task", "recall"], "--task takes sudoku, jigsaw, maze"),
        (["draw", "none.csv", "--task", "maze"], "There is no such file or store"),
        (["info", "none.csv", "--task", "maze"], "There is no such data file"),
        (["info", "none.csv", "--task", "maze", "--verify"], "--verify is for stores of Sudoku"),
        (["rate", "none.csv", "--task", "jigsaw"], "There is no such file or store"),
        (["rate", "S..G", "--task", "maze"], "The task maze has no rating"),
        (["rate", "...././AABBAABB", "--task", "jigsaw"], "A jigsaw puzzle is PUZZLE/REGIONS"),
        (["rate", "." * 16 + "/AABBAABBCCDDCCDD", "--task", "jigsaw"], "more than one solution"),
        (["draw", "S##.", "--task", "maze", "--solve"], "goal"),
        (["generate", "--count", "1", "--out", "x.csv", "--task", "maze", "--box", "2x2"], "--box"),
        (["generate", "--count", "1", "--out", "x.txt", "--task", "maze"], "should end in .csv"),
        (["generate", "--count", "1", "--out", "x.csv", "--set", "task.side=4"], "--set is for"),
    ],
)
def test_errors_of_other_tasks(cli, arguments, message):
    with pytest.raises((ConfigError, DataError), match=message):
        cli(*arguments)
