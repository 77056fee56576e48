"""`graph-machine data`, as a user calls it."""

import json
import shutil
from pathlib import Path

import pytest

from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.cli import run
from graph_machine.lab.tasks.sudoku import generate

ASSET = Path(__file__).parents[1] / "assets" / "sudoku-sample.csv"
PUZZLE = "12.434.....3..2."


@pytest.fixture
def file(tmp_path):
    return shutil.copy(ASSET, tmp_path / "sample.csv")


@pytest.fixture
def cli(capsys):
    def call(*arguments):
        assert run(["data", *map(str, arguments)]) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture
def made(cli, tmp_path):
    """A file of 12 boards of another task."""

    def make(task, name="made.csv", count=12):
        path, side = tmp_path / name, {"jigsaw": 4, "maze": 5}[task]
        words = ("--task", task, "--count", count, "--seed", 5, "--set", f"task.side={side}")
        assert cli("generate", *words, "--out", path).startswith(f"{count} ")
        return path

    return make


def test_prepare_and_info(cli, file):
    text = cli("prepare", file, "--check-unique")
    assert text.startswith("500 puzzles of box 3x3 in ")
    store = file.with_name("sample.csv.store")
    assert f"store {store}" in text
    facts = json.loads(cli("info", store, "--json", "--verify"))
    assert (facts["puzzles"], facts["box"]) == (500, "3x3")
    assert sum(facts["clues"].values()) == sum(facts["ratings"].values()) == 500
    assert facts["identity"] in text
    assert json.loads(cli("info", file, "--json")) == facts | {"identity": None}
    shown = cli("info", store)
    assert "500 puzzles of box 3x3" in shown
    assert f"{facts['clues']['24']:>11,}" in shown


def test_bad_rows(cli, file, tmp_path):
    file.write_text(file.read_text() + "1,2,3\n")
    with pytest.raises(DataError, match="Line 502"):
        cli("prepare", file)
    text = cli("prepare", file, "--on-bad", "skip", "--out", tmp_path / "elsewhere")
    assert "left out: 1 rows (columns)" in text
    assert "bad rows: 1 (columns)" in cli("info", file)
    file.write_text(file.read_text().splitlines()[0] + "\n")
    with pytest.raises(DataError, match="no rows"):
        cli("info", file)


def test_ratings_of_another_scale_and_unknown_ones(cli, tmp_path):
    row = f"{PUZZLE},1234341221434321"
    path = tmp_path / "extreme.csv"
    path.write_text(f"source,question,answer,rating\na,{row},\nb,{row},0\nc,{row},40\n")
    cli("prepare", path)
    for place in (path, tmp_path / "extreme.csv.store"):
        found = json.loads(cli("info", place, "--json"))["ratings"]
        assert found == {"0": 1, "1-10": 0, "11-100": 1, "over 100": 0, "unrated": 1}
    (tmp_path / "lines.txt").write_text(f"{PUZZLE}\n{PUZZLE}\n")
    assert json.loads(cli("info", tmp_path / "lines.txt", "--json"))["ratings"]["unrated"] == 2


def test_generate_and_rate(cli, tmp_path):
    path, again, out = (tmp_path / name for name in ("made.csv", "again.csv", "rated.csv"))
    words = ("generate", "--box", "2x3", "--count", 40, "--seed", 3, "--out")
    assert cli(*words, path).startswith("40 puzzles in ")
    cli(*words, again, "--workers", 1)
    assert path.read_bytes() == again.read_bytes()
    text = cli("rate", path, "--out", out, "--attempts", 10, "--limit", 30)
    assert "30 puzzles rated" in text
    assert "100.00% of the rows" in text
    assert len(out.read_text().splitlines()) == 31
    words = ("--clues", "30-40", "--max-clues-extra", 15, "--no-rate", "--force")
    cli("generate", "--count", 3, "--out", path, *words)
    assert json.loads(cli("info", path, "--json"))["ratings"]["unrated"] == 3
    assert "Pearson" not in cli("rate", path)
    assert cli("rate", PUZZLE) == "0.00\n"


def test_rate_agrees_with_the_data_set(cli):
    text = cli("rate", ASSET)
    assert "100.00% of the rows" in text
    assert float(text.rsplit(":", 1)[1]) >= 0.9


@pytest.mark.parametrize("words", [["generate", "--box", "2x2", "--count", "2"], ["rate", ASSET]])
def test_files_are_not_overwritten(cli, tmp_path, words):
    path = tmp_path / "mine.csv"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="--force"):
        cli(*words, "--out", path)
    assert path.read_text() == "precious"
    limit = ["--limit", 2] if words[0] == "rate" else []
    cli(*words, *limit, "--out", path, "--force")
    assert len(path.read_text().splitlines()) == 3


def test_the_seed_of_training_data_is_reported(tmp_path, capsys):
    words = ["data", "generate", "--box", "2x2", "--count", "2", "--out"]
    run([*words, str(tmp_path / "new.csv")])
    assert capsys.readouterr().err == ""
    run([*words, str(tmp_path / "old.csv"), "--seed", "0"])
    assert "--seed 0" in capsys.readouterr().err


def test_draw(cli, file):
    assert cli("draw", PUZZLE).splitlines()[1] == "│ 1 2 │ . 4 │"
    solved = cli("draw", PUZZLE, "--solve").splitlines()
    assert solved[1] == "│ 1  2  │ 3' 4  │"
    assert solved[-1] == "1234341221434321"
    assert len(cli("draw", file, "--row", 3).splitlines()) == 13
    assert len(cli("draw", "." * 36, "--box", "3x2").splitlines()[1]) == 19
    several = "more than one solution; this is one of them.\n"
    assert several in cli("draw", "." * 16, "--solve")
    assert several in cli("draw", "." * 16 + "/AABBAABBCCDDCCDD", "--task", "jigsaw", "--solve")
    text = cli("draw", "S......" + "." * 8 + "G", "--task", "maze", "--solve")
    assert text.startswith("The maze has more than one shortest path; this is one of them.\n")


@pytest.mark.parametrize(("task", "drawn", "solved"), [("jigsaw", 9, "1234"), ("maze", 7, "SoG.#")])
def test_boards_of_other_tasks(cli, made, task, drawn, solved):
    path = made(task)
    assert path.read_bytes() == made(task, "again.csv").read_bytes()
    lines = path.read_text().splitlines()
    assert len(lines) == 13
    picture = cli("draw", path, "--task", task, "--row", 2)
    assert len(picture.splitlines()) == drawn
    text = lines[3].split(",")[1] if task == "maze" else "/".join(lines[3].split(",")[1:3])
    assert cli("draw", text, "--task", task) == picture
    answer = cli("draw", text, "--task", task, "--solve").splitlines()[-1]
    assert len(answer) == len(text.partition("/")[0])
    assert set(answer) <= set(solved)
    # As editors write them, and what is something else.
    plain = cli("info", path, "--task", task)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + b"\r\n\n")
    assert cli("info", path, "--task", task) == plain
    for content in (b"\xff\xfe\x00binary", f"id,{'x' * 200_000}\n".encode()):
        path.write_bytes(content)
        for command in ("info", "draw"):
            with pytest.raises(DataError, match=r"Line 1 is longer|Not a file of"):
                cli(command, path, "--task", task)


def test_info_of_other_tasks(cli, made):
    path = made("maze")
    assert cli("info", path, "--task", "maze").startswith(f"12 mazes of side 5: {path}\n")
    facts = json.loads(cli("info", path, "--task", "maze", "--json"))
    assert (facts["mazes"], facts["side"], sum(facts["steps"].values())) == (12, 5, 12)
    facts = json.loads(cli("info", made("jigsaw", "other.csv"), "--task", "jigsaw", "--json"))
    assert (facts["puzzles"], facts["side"]) == (12, 4)
    assert sum(facts["rating"].values()) == sum(facts["clues"].values()) == 12


def test_rate_a_jigsaw(cli, made, tmp_path):
    path, rated = made("jigsaw"), tmp_path / "rated.csv"
    text = cli("rate", path, "--task", "jigsaw", "--limit", 5, "--out", rated, "--workers", 2)
    assert text.startswith("5 puzzles rated in ")
    assert "100.00% of the rows" in text
    assert len(rated.read_text().splitlines()) == 6
    puzzle = "/".join(path.read_text().splitlines()[1].split(",")[1:3])
    assert float(cli("rate", puzzle, "--task", "jigsaw")) >= 0


@pytest.mark.parametrize(("task", "what"), [("jigsaw", "jigsaw puzzles"), ("maze", "mazes")])
def test_a_file_of_another_task_is_not_read_as_sudoku(cli, made, task, what):
    path = made(task)
    for command in ("info", "rate", "prepare", "draw"):
        with pytest.raises(DataError, match=f"A file of {what}, .* --task {task}"):
            cli(command, path)


OUT = ("--count", "1", "--out")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["draw", "1234"], "4 cells"),
        (["draw", "11" + "." * 14, "--solve"], "1 in row 1, column 1"),
        (["draw", "123....4" + "." * 8, "--solve"], "no solution"),
        (["draw", str(ASSET), "--row", "900"], "Row 900 of 500"),
        (["draw", "missing.csv"], "missing.csv"),
        (["draw", "none.csv", "--task", "maze"], "no such file"),
        (["draw", "....", "--task", "recall"], "sudoku, jigsaw, maze"),
        (["draw", "S##.", "--task", "maze", "--solve"], "goal"),
        (["draw", "S..G", "--task", "maze", "--box", "2x2"], "--box"),
        (["rate", "some/where"], "no such file"),
        (["rate", "none.csv", "--task", "jigsaw"], "no such file"),
        (["rate", "." * 16], "more than one solution"),
        (["rate", "S..G", "--task", "maze"], "no rating"),
        (["rate", "...././AABBAABB", "--task", "jigsaw"], "PUZZLE/REGIONS"),
        (["rate", "." * 16 + "/AABBAABBCCDDCCDD", "--task", "jigsaw"], "more than one solution"),
        (["prepare", "missing.csv"], "missing.csv"),
        (["info", "nothing.csv"], "no such"),
        (["info", "none.csv", "--task", "maze"], "no such data file"),
        (["info", "none.csv", "--task", "maze", "--verify"], "--verify"),
        (["generate", *OUT, "x.csv", "--box", "3"], "'3'"),
        (["generate", *OUT, "x.csv", "--clues", "x"], "'x'"),
        (["generate", *OUT, "x.txt"], "csv"),
        (["generate", *OUT, "x.csv", "--box", "2x2", "--clues", "1-2"], "allow more"),
        (["generate", *OUT, "x.csv", "--set", "task.side=4"], "--set"),
        (["generate", *OUT, "x.txt", "--task", "maze"], "csv"),
        (["generate", *OUT, "x.csv", "--task", "maze", "--box", "2x2"], "--box"),
        (
            ["generate", *OUT, "x.csv", "--task", "maze", "--set", "model.num_layers=2"],
            "num_layers",
        ),
        (["generate", *OUT, "x.csv", "--task", "maze", "--set", "task.data_seed=3"], "--seed"),
        (["generate", *OUT, "x.csv", "--task", "maze", "--set", "task.mazes=30"], "--count"),
    ],
)
def test_errors(cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(generate, "PATIENCE", 500)
    with pytest.raises((ConfigError, DataError), match=message) as error:
        cli(*arguments)
    assert "at most 0" not in str(error.value)
    assert not list(tmp_path.iterdir())
