"""`graph-machine evaluate` and `solve` on a small trained model."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import OutOf
from graph_machine.errors import CheckpointError, ConfigError, DataError
from graph_machine.lab.cli import run
from graph_machine.lab.config import SudokuConfig
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.tasks.digits import FilledBoard, conflicts, format_board
from graph_machine.lab.tasks.rows import split_rows
from graph_machine.lab.tasks.scores import Scores
from graph_machine.lab.tasks.sudoku.store import write_store
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training import train
from graph_machine.lab.zoo.assess import mixes, with_intervals
from support.runs import BOX, puzzle_store, tiny, write_puzzles

PUZZLE = format_board(puzzle_store(1).puzzles[0])
SOLUTION = format_board(puzzle_store(1).solutions[0])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on 200 puzzles; the model has learned next to nothing."""
    folder = tmp_path_factory.mktemp("trained")
    data = write_puzzles(folder / "data.store")
    train(tiny(steps=2), out=folder / "run", data=str(data), condition="gm", progress="none")
    return folder


def test_its_own_test_split_then_other_data(trained: Path, out_of: OutOf) -> None:
    own = json.loads(out_of(["evaluate", str(trained / "run"), "--json"]))
    result = json.loads((trained / "run" / "result.json").read_text())
    assert own["examples"] == 10
    assert own["loss"] == pytest.approx(result["loss"])
    # Data that the model was trained on: the rows it did not see, and it says so.
    assert "(the model was trained on the rest)" in out_of(
        ["evaluate", str(trained / "run"), "--data", str(trained / "data.store")]
    )
    # Another file with puzzles that it was trained on: it says how many.
    rows = puzzle_store().take(np.arange(150))
    write_store(trained / "part.store", [rows], lambda: (BOX, {}))
    seen = re.search(
        r"\ntrained on +(\d+) of these puzzles, so",
        out_of(["evaluate", str(trained / "run"), "--data", str(trained / "part.store")]),
    )
    assert seen is not None
    assert 150 > int(seen[1]) >= np.count_nonzero(split_rows(200, 0).train < 150)
    other = write_puzzles(trained / "other.store", 90, seed=5)
    command = ["evaluate", str(trained / "run" / "checkpoints" / "best"), "--data", str(other)]
    report = json.loads(out_of([*command, "--json", "--limit", "80"]))
    clues = report["groups"]["clues"]
    assert 0 <= report["trained_on"] < 80
    assert report["examples"] == 80 == sum(part["examples"] for part in clues.values())
    low, high = report["intervals"]["board_accuracy"]
    assert low <= report["board_accuracy"] <= high
    assert report["mixes"]["Sudoku-3M"]["weights"]["0.0"] == 0.431
    assert report["examples_per_second"] > 0
    text = out_of(command)
    for part in ("natural mix", "boards by rating", "exact solver", "puzzles/s"):
        assert part in text


def test_weights_of_the_natural_mix() -> None:
    task = task_of(SudokuConfig())
    ratings = np.repeat([0.0, 1.5, 3.0, 5.0], 1000)
    right = np.concatenate([np.arange(1000) < 1000 * share for share in (1.0, 0.5, 0.25, 0.0)])
    ones = np.ones(4000)
    columns = {"example_right": right.astype(float), "nodes": ones, "nodes_right": ones}
    scores = Scores(columns, {"rating": ratings}, task.metrics)
    mix = mixes(scores, task)["Sudoku-3M"]
    expected = 0.431 + 0.5 * 0.295 + 0.25 * 0.252
    assert mix["board_accuracy"] == pytest.approx(expected)
    low, high = mix["intervals"]["board_accuracy"]
    assert low < expected < high
    few = {name: values[:3000] for name, values in columns.items()}
    assert mixes(Scores(few, {"rating": ratings[:3000]}, task.metrics), task) == {}
    none = Scores({name: values[:0] for name, values in columns.items()}, {}, task.metrics)
    assert none.summary()["board_accuracy"] is None
    assert with_intervals(none.summary(), task.metrics)["intervals"] == {}


def test_data_that_does_not_fit(trained: Path, tmp_path: Path) -> None:
    sample = Path(__file__).parent.parent / "assets" / "sudoku-sample.csv"
    copied = tmp_path / "sample.csv"
    copied.write_text("".join(sample.read_text().splitlines(keepends=True)[:5]))
    with pytest.raises(DataError, match="81"):
        run(["evaluate", str(trained / "run"), "--data", str(copied)])
    from graph_machine.models import GraphMachine

    GraphMachine.from_pretrained(trained / "run").save_pretrained(tmp_path / "alone")
    with pytest.raises(CheckpointError, match="--data"):
        run(["evaluate", str(tmp_path / "alone")])


def test_solve_says_whether_the_answer_is_valid(
    trained: Path, capsys: pytest.CaptureFixture[str], out_of: OutOf
) -> None:
    model = str(trained / "run")
    assert run(["solve", model, PUZZLE, "--check", "--confidence"]) == 1
    text = capsys.readouterr().out
    assert "not a valid solution; the puzzle has" in text
    assert "┌" in text
    # Nothing is left to the model here, so the answer is right.
    [answer] = json.loads(out_of(["solve", model, SOLUTION, "--json"]))
    assert answer["valid"]
    assert (answer["line"], answer["error"]) == (1, None)
    assert answer["answer"] == SOLUTION
    assert run(["solve", model, SOLUTION]) == 0


def test_many_puzzles_from_a_file_or_a_pipe(
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    out_of: OutOf,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = str(trained / "run")
    file = tmp_path / "puzzles.txt"
    file.write_text(
        f"id,puzzle,solution,clues,difficulty\n1,{SOLUTION},{SOLUTION},16,0\n{PUZZLE}\n"
    )
    assert run(["solve", model, "--file", str(file), "--json"]) == 1
    assert [a["valid"] for a in json.loads(capsys.readouterr().out)] == [True, False]
    # A bad line is told by its number; the others are answered.
    file.write_text(f"{SOLUTION}\n\n12\n11{SOLUTION[2:]}\n{SOLUTION}\n")
    assert run(["solve", model, "--file", str(file), "--json"]) == 2
    told = capsys.readouterr()
    entries = json.loads(told.out)
    assert [(one["line"], one["error"] is None) for one in entries] == [
        (1, True), (3, False), (4, False), (5, True),
    ]  # fmt: skip
    assert "graph-machine: line 3: Board of 2 cells: expected 16" in told.err
    assert "graph-machine: line 4: The givens contradict each other: 1 in row 1" in told.err
    file.write_text(f"source,question,answer,rating\na,{SOLUTION},{SOLUTION},3\n")
    assert run(["solve", model, "--file", str(file)]) == 0
    assert run(["solve", model, "--file", str(file), "--limit", "1"]) == 0
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{SOLUTION}\n\n{SOLUTION}\n"))
    assert "2 of 2 answers are valid" in out_of(["solve", model, "-"])


def test_what_is_no_puzzle(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    files = (("--file empty", "no puzzle"), ("--file binary", "text file"))
    for words, message in (("", "one of"), ("123", "16"), ("x" * 16, "'x'"), *files):
        with pytest.raises(DataError, match=message):
            run(["solve", str(trained / "run"), *words.split()])


def test_answers_against_the_exact_solver() -> None:
    store = puzzle_store(1)
    solution = store.solutions[0]
    wrong = solution.copy()
    wrong[0] = wrong[0] % 4 + 1
    assert conflicts(wrong, BOX.regions)[0]
    assert not conflicts(solution, BOX.regions).any()
    puzzle = solution.copy()
    puzzle[0] = 0
    empty = np.zeros(16, dtype=np.uint8)

    def answered(puzzle: np.ndarray, digits: np.ndarray) -> FilledBoard:
        task = task_of(SudokuConfig(box="2x2"))
        assert isinstance(task, SudokuTask)
        example = task.parse(format_board(puzzle))
        return task.show(example, digits.astype(np.int64) - 1, np.full(16, 0.5), check=True)

    answer = answered(puzzle, wrong)
    assert (answer.solutions, answer.valid, answer.wrong.sum()) == (1, False, 1)
    assert "from which this differs in 1 cell." in answer.verdict()
    right = answered(puzzle, solution)
    assert "a valid solution; the puzzle has one solution, which this is" in right.verdict()
    assert "has more than one solution" in answered(empty, solution).verdict()


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recurrent")
    data = write_puzzles(folder / "data.store")
    train(tiny("gm-recurrent", steps=2), out=folder / "run", data=str(data), progress="none")
    return folder / "run"


def test_accuracy_against_rounds_with_a_picture(
    recurrent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], out_of: OutOf
) -> None:
    plot = tmp_path / "rounds.png"
    command = ["evaluate", str(recurrent), "--rounds", "1,4,32"]
    text = out_of([*command, "--plot", str(plot)])
    assert "trained with 16 rounds" in text
    assert "   32 rounds  boards" in text
    assert f"{recurrent}: 10 puzzles, the test split" in text
    assert text.endswith(f"\n{plot}: accuracy against rounds\n")
    assert plot.stat().st_size > 5_000
    assert run([*command, "--json", "--plot", str(plot)]) == 0
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert "accuracy against rounds" in told.err
    single = json.loads(out_of(["evaluate", str(recurrent), "--rounds", "4", "--json"]))
    assert single["loss"] == pytest.approx(report["rounds"]["4"]["loss"])
    assert single["rounds"]["mean"] == 4


def test_answers_are_taken_when_they_stay(
    recurrent: Path, capsys: pytest.CaptureFixture[str], out_of: OutOf
) -> None:
    command = ["evaluate", str(recurrent), "--rounds", "40", "--until-stable", "2"]
    assert "rounds      " in out_of(command)
    run(["solve", str(recurrent), PUZZLE, "--rounds", "40", "--until-stable", "2", "--json"])
    assert 3 <= json.loads(capsys.readouterr().out)[0]["rounds"] <= 40
    run(["solve", str(recurrent), PUZZLE, "--rounds", "5"])
    assert "After 5 rounds." in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"below the number of rounds \(3\), got 3"):
        run(["solve", str(recurrent), PUZZLE, "--rounds", "3", "--until-stable", "3"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0", "'0'"),
        ("four", "4,8,16"),
        ("4,8 --until-stable 2", "one number"),
        ("2 --until-stable 5", r"rounds \(2\)"),
        ("16 --until-stable 16", r"rounds \(16\)"),
        ("16 --plot x.png", "--plot"),
    ],
)
def test_rounds_that_cannot_be_are_one_line(recurrent: Path, line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(["evaluate", str(recurrent), "--rounds", *line.split()])


def test_several_tries(trained: Path, capsys: pytest.CaptureFixture[str], out_of: OutOf) -> None:
    found = json.loads(out_of(["evaluate", "gm-4x4", "--tries", "5", "--limit", "60", "--json"]))
    assert found["tries"]["most"] == 5
    after = found["tries"]["after"]
    assert list(after) == ["1", "2", "4", "5"]
    assert after["5"] == pytest.approx(found["board_accuracy"])
    assert "boards by number of tries: 1: " in out_of(
        ["evaluate", "gm-4x4", "--tries", "5", "--limit", "60"]
    )
    assert " In 1 try." in out_of(["solve", "gm-4x4", "..3...4..4...2..", "--tries", "2"])
    puzzle = ["solve", str(trained / "run"), PUZZLE, "--tries", "3", "--json"]
    assert run(puzzle) == 1
    assert json.loads(capsys.readouterr().out)[0]["tries"] == 3
    with pytest.raises(ConfigError, match="--tries"):
        run(["evaluate", "gm-recurrent-6x6", "--tries", "2", "--rounds", "2,4"])
