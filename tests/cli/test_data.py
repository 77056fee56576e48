"""`graph-machine data`, as a user calls it."""

import json
import shutil
from pathlib import Path

import pytest

from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.cli import data, run

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


def test_prepare_and_info(cli, file):
    told = cli("prepare", file, "--check-unique")
    assert told.startswith("500 puzzles of box 3x3 in ")
    store = file.with_name("sample.csv.store")
    assert f"store {store}" in told
    facts = json.loads(cli("info", store, "--json", "--verify"))
    assert facts["puzzles"] == 500
    assert sum(facts["clues"].values()) == sum(facts["ratings"].values()) == 500
    assert facts["identity"] in told
    from_file = json.loads(cli("info", file, "--json"))
    assert from_file == facts | {"identity": None}
    shown = cli("info", store)
    assert "500 puzzles of box 3x3" in shown
    assert f"{facts['clues']['24']:>11,}" in shown


def test_bad_rows(cli, file, tmp_path):
    file.write_text(file.read_text() + "1,2,3\n")
    with pytest.raises(DataError, match="Line 502"):
        cli("prepare", file)
    told = cli("prepare", file, "--on-bad", "skip", "--out", tmp_path / "elsewhere")
    assert "left out: 1 rows (columns)" in told
    assert "bad rows: 1 (columns)" in cli("info", file)


def test_ratings_of_another_scale_and_unknown_ones(cli, tmp_path):
    row = f"{PUZZLE},1234341221434321"
    path = tmp_path / "extreme.csv"
    path.write_text(f"source,question,answer,rating\na,{row},\nb,{row},0\nc,{row},40\n")
    expected = {"0": 1, "1-10": 0, "11-100": 1, "over 100": 0, "unrated": 1}
    assert json.loads(cli("info", path, "--json"))["ratings"] == expected
    cli("prepare", path)
    store = tmp_path / "extreme.csv.store"
    assert json.loads(cli("info", store, "--json"))["ratings"] == expected
    (tmp_path / "lines.txt").write_text(f"{PUZZLE}\n{PUZZLE}\n")
    assert json.loads(cli("info", tmp_path / "lines.txt", "--json"))["ratings"]["unrated"] == 2


def test_info_of_nothing(cli, file, tmp_path):
    file.write_text(file.read_text().splitlines()[0] + "\n")
    with pytest.raises(DataError, match="no rows"):
        cli("info", file)
    with pytest.raises(DataError, match="no such"):
        cli("info", tmp_path / "nothing.csv")


def test_generate_and_rate(cli, tmp_path):
    path = tmp_path / "made.csv"
    told = cli("generate", "--box", "2x3", "--count", 40, "--seed", 3, "--out", path)
    assert told.startswith("40 puzzles in ")
    again = tmp_path / "again.csv"
    cli("generate", "--box", "2x3", "--count", 40, "--seed", 3, "--out", again, "--workers", 1)
    assert path.read_bytes() == again.read_bytes()
    out = tmp_path / "rated.csv"
    told = cli("rate", path, "--out", out, "--attempts", 10, "--limit", 30)
    assert "30 puzzles rated" in told
    assert "100.00% of the rows" in told
    assert len(out.read_text().splitlines()) == 31
    cli("generate", "--count", 3, "--clues", "30-40", "--max-clues-extra", 15, "--no-rate",
        "--out", path, "--force")  # fmt: skip
    assert json.loads(cli("info", path, "--json"))["ratings"]["unrated"] == 3
    assert "Pearson" not in cli("rate", path)


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


def test_the_seed_of_training_data_is_told(tmp_path, capsys):
    words = ["data", "generate", "--box", "2x2", "--count", "2", "--out"]
    run([*words, str(tmp_path / "new.csv")])
    assert capsys.readouterr().err == ""
    run([*words, str(tmp_path / "old.csv"), "--seed", "0"])
    assert "--seed 0" in capsys.readouterr().err


def test_rate_agrees_with_the_data_set(cli):
    told = cli("rate", ASSET)
    assert "100.00% of the rows" in told
    assert float(told.rsplit(":", 1)[1]) >= 0.9


def test_rate_one_puzzle(cli):
    assert cli("rate", PUZZLE) == "0.00\n"


def test_draw(cli, file):
    assert cli("draw", PUZZLE).splitlines()[1] == "│ 1 2 │ . 4 │"
    solved = cli("draw", PUZZLE, "--solve").splitlines()
    assert solved[1] == "│ 1  2  │ 3' 4  │"
    assert solved[-1] == "1234341221434321"
    assert len(cli("draw", file, "--row", 3).splitlines()) == 13
    assert "more than one solution" in cli("draw", "." * 16, "--solve")
    assert len(cli("draw", "." * 36, "--box", "3x2").splitlines()[1]) == 19


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["draw", "1234"], "A board of 4 cells has no box shape"),
        (
            ["draw", "11" + "." * 14, "--solve"],
            "contradict each other: 1 in row 1, col",
        ),
        (["draw", "123....4" + "." * 8, "--solve"], "The puzzle has no solution"),
        (["draw", str(ASSET), "--row", "900"], "Row 900 of 500 rows"),
        (["draw", "missing.csv"], "There is no such file or store: missing.csv"),
        (["rate", "some/where"], "There is no such file or store"),
        (["rate", "." * 16], "It has more than one solution"),
        (["generate", "--count", "1", "--out", "x.csv", "--box", "3"], "Box shape '3'"),
        (["generate", "--count", "1", "--out", "x.csv", "--clues", "x"], "Clue range 'x'"),
        (["prepare", "missing.csv"], "There is no such data file: missing.csv"),
    ],
)
def test_errors(cli, arguments, message):
    with pytest.raises(DataError, match=message):
        cli(*arguments)


def test_every_command_has_help(capsys):
    for name in (kind.__name__.lower() for kind in data.WORK):
        with pytest.raises(SystemExit) as left:
            run(["data", name, "--help"])
        assert left.value.code == 0
        assert f"graph-machine data {name}" in capsys.readouterr().out


def test_generate_refuses_other_endings_and_impossible_clues(cli, tmp_path, monkeypatch):
    from graph_machine.lab.tasks.sudoku import generate

    with pytest.raises(ConfigError, match="csv"):
        cli("generate", "--out", tmp_path / "g.txt", "--box", "2x2", "--count", "5")
    monkeypatch.setattr(generate, "PATIENCE", 500)
    with pytest.raises(DataError, match="allow more") as error:
        cli(
            "generate",
            "--out",
            tmp_path / "g.csv",
            "--box",
            "2x2",
            "--count",
            "5",
            "--clues",
            "1-2",
        )
    assert "at most 0" not in str(error.value)
