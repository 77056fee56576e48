"""Puzzles in, packs out: texts, verdicts, recordings, two models."""

import numpy as np
import pytest

from graph_machine.config import SudokuConfig
from graph_machine.errors import CheckpointError, ConfigError, DataError
from graph_machine.explorer.boards import Board
from graph_machine.explorer.pack import unpack
from graph_machine.explorer.puzzles import Puzzles
from graph_machine.explorer.session import Session, open_session
from graph_machine.explorer.shown import LiveModel, ShownRecord, open_shown
from graph_machine.models.handmade import handmade_gm
from graph_machine.records.recorder import record
from graph_machine.tasks.base import task_of
from graph_machine.tasks.sudoku.store import SudokuStore
from support.explorer import EASY, EASY_SOLVED, session_of


def header_of(session: Session, puzzle: str) -> dict:
    return unpack(session.run_pack(puzzle))[0]


def test_a_run_tells_predictions_and_solution(handmade_session) -> None:
    header, arrays = unpack(handmade_session.run_pack(EASY))
    assert header["puzzle"] == EASY
    assert header["solution"] == EASY_SOLVED
    model = header["models"][0]
    blanks = EASY.count(".")
    assert f"of {blanks} blanks right" in model["verdict"]
    wrong = [
        cell
        for cell in range(16)
        if EASY[cell] == "." and str(model["answers"][cell] + 1) != EASY_SOLVED[cell]
    ]
    assert model["wrong"] == wrong
    assert arrays["0/probabilities"].shape == (16, 4)
    assert arrays["0/layers.0.edge.0.address_ins"].shape == (16, 8, 16)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("11..............", "contradict"),
        ("." * 16, "several solutions"),
        ("123....4" + "." * 8, "no solution"),
    ],
)
def test_odd_puzzles_get_a_note(handmade_session, text, note) -> None:
    header = header_of(handmade_session, text)
    assert note in " ".join(header["notes"])
    assert header["solution"] is None
    assert "break the rules" in header["models"][0]["verdict"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Board of 0 cells"),
        ("12", "Board of 2 cells"),
        ("x" * 16, "symbol 'x'"),
        ("9" + "." * 15, "symbol '9'"),
        ("." * 5000, "5000 characters"),
        ("\x00" * 16, "symbol"),
        ("☃" * 16, "symbol"),
    ],
)
def test_garbage_is_one_clear_line(handmade_session, text, message) -> None:
    with pytest.raises(DataError, match=message) as caught:
        handmade_session.run(text)
    assert "\n" not in str(caught.value)


def test_spaces_lines_and_zeros_are_read(handmade_session) -> None:
    drawn = "0 0|0 1\n0 4|0 0\n---+---\n0 3|0 0\n0 1|3 2"
    assert handmade_session.run(drawn).puzzle == EASY


def test_a_puzzle_is_run_once(make_model) -> None:
    session = session_of(make_model())
    assert session.run(EASY) is session.run(EASY.replace(".", "0"))


@pytest.mark.parametrize(("model", "cell"), [(1, 0), (-1, 0), (0, 16), (0, -1)])
def test_cells_and_models_out_of_range(handmade_session, model, cell) -> None:
    with pytest.raises(DataError, match=r"there are models|board has cells"):
        handmade_session.cell_pack(EASY, model, cell)


def test_two_models_side_by_side(make_model) -> None:
    plain = make_model(attention_experts="node", num_edge_sublayers=0, num_edges=0)
    session = session_of(make_model(), plain)
    about = session.describe()
    assert [model["name"] for model in about["models"]] == ["GM", "Transformer"]
    assert [model["slots"] for model in about["models"]] == [8, 0]
    assert len(header_of(session, EASY)["models"]) == 2
    with pytest.raises(ConfigError, match="one or two models"):
        session_of(*[make_model()] * 3)


def test_two_boards_do_not_go_together(make_model) -> None:
    with pytest.raises(ConfigError, match="same board"):
        session_of(make_model(), handmade_gm((2, 3)))


def test_a_recording_needs_no_model(make_model, board, tmp_path) -> None:
    tokens = np.stack([board.parse(EASY), board.parse("." * 16)]).astype(np.int64)
    made = record(make_model(), tokens, samples=[0, 1], sources=[3, 5], box=(2, 2), name="mine")
    path = made.save(tmp_path / "mine.rec.safetensors")
    session = open_session([path])
    about = session.describe()
    assert about["cells"] == [3, 5]
    assert not about["canRun"]
    assert [e["label"] for e in about["examples"]] == ["sample 0", "sample 1"]
    assert unpack(session.cell_pack(EASY, 0, 5))[1]["layers.0.node.0.weights"].shape == (3, 16)
    addresses = unpack(session.run_pack(EASY))[1]["0/layers.0.edge.0.address_ins"]
    assert addresses[[3, 5]].sum() == pytest.approx(2 * 8, rel=1e-2)
    assert addresses[0].sum() == 0
    with pytest.raises(DataError, match="not part of the recording"):
        session.cell_pack(EASY, 0, 0)
    with pytest.raises(DataError, match="not in the recording of mine; it holds 2"):
        session.run("1" + "." * 15)


def test_a_recording_of_some_quantities(make_model, board) -> None:
    tokens = board.parse(EASY)[None].astype(np.int64)
    made = record(make_model(), tokens, names=["weights"], layers=[1])
    subject = ShownRecord(made)
    session = Session([subject], Puzzles(subject.board, given=subject.examples))
    (sublayer,) = session.describe()["models"][0]["sublayers"]
    assert (sublayer["path"], sublayer["names"]) == ("layers.1.node.0", ["weights"])
    assert session.describe()["models"][0]["layers"] == 2


def test_solutions_of_a_recording_are_taken(make_model, board) -> None:
    tokens = board.parse("." * 16)[None].astype(np.int64)
    subject = ShownRecord(record(make_model(), tokens, solutions=np.zeros_like(tokens)))
    session = Session([subject], Puzzles(subject.board, given=subject.examples))
    assert header_of(session, "." * 16)["solution"] == "1" * 16


def test_recordings_without_a_common_puzzle(make_model, board, tmp_path) -> None:
    paths = []
    for text in (EASY, "." * 16):
        made = record(make_model(), board.parse(text)[None].astype(np.int64), box=(2, 2))
        paths.append(made.save(tmp_path / f"{len(paths)}.rec.safetensors"))
    with pytest.raises(DataError, match="no puzzle in common"):
        open_session(paths)


def test_examples_come_from_the_data(make_model) -> None:
    puzzles = np.frombuffer(EASY.replace(".", "0").encode(), np.uint8).reshape(1, 16) - 48
    store = SudokuStore.from_arrays(puzzles, np.ones_like(puzzles))
    subject = LiveModel(make_model())
    found = Puzzles(subject.board, store=store)
    assert found.examples[0].puzzle == EASY
    assert found.examples[0].label == "data 0: 6 clues"
    assert found.draw().puzzle == EASY
    six = Board.of(None, (6, 6), 36, (2, 3))
    with pytest.raises(DataError, match="boards of box 2x2"):
        Puzzles(six, store=store)


def test_examples_are_made_where_there_is_no_data(board) -> None:
    puzzles = Puzzles(board, task=task_of(SudokuConfig(box="2x2", clues_extra=2)))
    assert len(puzzles.examples) == 12
    drawn = board.parse(puzzles.draw().puzzle)
    assert puzzles.solution(drawn)[0] is not None


def test_checkpoints_tell_their_box_and_condition(checkpoint) -> None:
    session = open_session([checkpoint], puzzles=[EASY])
    assert session.subjects[0].name == "gm-0"
    assert open_shown("gm-4x4").name == "gm-4x4"
    assert open_shown("handmade:2x2").name == "handmade 2x2"
    assert str(session.board.box) == "2x2"
    shown = session.subjects[0]
    assert isinstance(shown, LiveModel)
    assert shown.task is not None
    assert shown.task.config.clues_extra == 2
    assert session.describe()["examples"] == [{"puzzle": EASY, "label": "puzzle 0"}]


def test_missing_and_damaged_files(tmp_path) -> None:
    for name in (tmp_path / "no", "no.safetensors"):
        with pytest.raises(CheckpointError, match="no such checkpoint or recording"):
            open_session([name])
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="damaged"):
        open_session([tmp_path / "bad.safetensors"])
    with pytest.raises(CheckpointError, match="No checkpoint here"):
        open_session([tmp_path])


@pytest.mark.parametrize("side", [(2, 3), (3, 2), (4, 4)])
def test_boards_of_other_shapes(side) -> None:
    count = side[0] * side[1]
    board = Board.of(None, (count, count), count**2, side)
    assert board.layout()["boxRows"] == side[0]
    assert board.format(board.parse("." * count**2)) == "." * count**2


def test_nodes_without_a_grid_are_laid_out_as_a_rectangle() -> None:
    board = Board.of({"num_tokens": 3, "num_outputs": 2}, None, 7, None)
    assert (board.rows, board.cols, board.cells, board.box) == (3, 3, 7, None)
    assert board.format(board.parse("12..21.")) == "12..21."
    assert board.wrong_cells(np.zeros(7), np.zeros(7), None) is None
    for text in ("1", "9999999"):
        with pytest.raises(DataError):
            board.parse(text)
    with pytest.raises(ConfigError, match="one character per cell"):
        Board.of({"num_tokens": 99, "num_outputs": 2}, None, 7, None)


def test_old_runs_make_room(make_model, monkeypatch) -> None:
    session = session_of(make_model())
    first = session.run(EASY)
    monkeypatch.setattr("graph_machine.explorer.session.KEPT_BYTES", 0)
    session.run("." * 16)
    assert session.run(EASY) is not first
