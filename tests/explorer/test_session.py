"""Examples in, packs out: texts, verdicts, recordings, two models."""

import numpy as np
import pytest

from graph_machine.config import InputSpec
from graph_machine.errors import CheckpointError, ConfigError, DataError
from graph_machine.lab.config import MazeConfig, SudokuConfig
from graph_machine.lab.explorer.examples import (
    Examples,
    LiveModel,
    PlainTask,
    ShownRecord,
    bytes_of_source,
    key_of,
    open_shown,
    page_layout,
)
from graph_machine.lab.explorer.forward import RoundAnswers, unpack
from graph_machine.lab.explorer.session import Session, by_round, open_session
from graph_machine.lab.opening import open_model
from graph_machine.lab.records.recorder import record
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.tasks.maze.mazes import generate_mazes, write_mazes
from graph_machine.lab.tasks.sudoku.reader import PuzzleRows
from graph_machine.lab.tasks.sudoku.store import SudokuStore, write_store
from graph_machine.models import GraphMachine
from graph_machine.models.handmade import handmade_gm
from support.explorer import EASY, EASY_SOLVED, SMALL, cells_of, example_of, session_of, small_model


def header_of(session: Session, puzzle: str) -> dict:
    return unpack(session.run_pack(puzzle))[0]


def test_a_run_tells_predictions_and_solution(handmade_session) -> None:
    header, arrays = unpack(handmade_session.run_pack(EASY))
    assert header["example"] == EASY
    assert header["solution"] == list(EASY_SOLVED)
    model = header["models"][0]
    blanks = EASY.count(".")
    assert f"of {blanks} answers right" in model["verdict"]
    wrong = [
        cell
        for cell in range(16)
        if EASY[cell] == "." and model["answers"][cell] != EASY_SOLVED[cell]
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
        ("." * 20_000, "20000 characters"),
        ("\x00" * 16, "symbol"),
        ("☃" * 16, "symbol"),
    ],
)
def test_garbage_is_one_clear_line(handmade_session, text, message) -> None:
    with pytest.raises(DataError, match=message) as caught:
        handmade_session.run(text)
    assert "\n" not in str(caught.value)


def test_spaces_lines_and_zeros_are_read_and_a_puzzle_is_run_once(make_model, monkeypatch) -> None:
    session = session_of(make_model())
    drawn = "0 0|0 1\n0 4|0 0\n---+---\n0 3|0 0\n0 1|3 2"
    first = session.run(drawn)
    assert first.key == EASY
    assert session.run(EASY) is session.run(EASY.replace(".", "0")) is first
    monkeypatch.setattr("graph_machine.lab.explorer.session.KEPT_BYTES", 0)  # old runs make room
    session.run("." * 16)
    assert session.run(EASY) is not first


@pytest.mark.parametrize(("model", "cell"), [(1, 0), (-1, 0), (0, 16), (0, -1)])
def test_cells_and_models_out_of_range(handmade_session, model, cell) -> None:
    with pytest.raises(DataError, match=r"models|nodes"):
        handmade_session.nodes_pack(EASY, model, [cell])


def test_two_models_side_by_side(make_model) -> None:
    plain = make_model(attention_experts="node", num_edge_sublayers=0, num_edges=0)
    session = session_of(make_model(), plain)
    about = session.describe()
    assert [model["name"] for model in about["models"]] == ["GM", "Transformer"]
    assert [model["slots"] for model in about["models"]] == [8, 0]
    assert len(header_of(session, EASY)["models"]) == 2
    with pytest.raises(ConfigError, match="two models"):
        session_of(*[make_model()] * 3)
    with pytest.raises(ConfigError, match="same kind"):
        session_of(make_model(), handmade_gm((2, 3)))


def test_a_recording_needs_no_model(make_model, tmp_path) -> None:
    tokens = np.concatenate([cells_of(EASY), cells_of("." * 16)])
    made = record(make_model(), tokens, samples=[0, 1], sources=[3, 5], box=(2, 2), name="mine")
    path = made.save(tmp_path / "mine.rec.safetensors")
    session = open_session([path])
    about = session.describe()
    assert about["nodes"] == [3, 5]
    assert not about["canRun"]
    assert [e["label"] for e in about["examples"]] == ["sample 0", "sample 1"]
    weights = unpack(session.nodes_pack(EASY, 0, [5]))[1]["layers.0.node.0.weights"]
    assert weights.shape == (1, 3, 16)
    addresses = unpack(session.run_pack(EASY))[1]["0/layers.0.edge.0.address_ins"]
    assert addresses[[3, 5]].sum() == pytest.approx(2 * 8, rel=1e-2)
    assert addresses[0].sum() == 0
    with pytest.raises(DataError, match="recording"):
        session.nodes_pack(EASY, 0, [0])
    with pytest.raises(DataError, match="mine"):
        session.run("1" + "." * 15)


def test_recordings_of_some_quantities_with_solutions(make_model, tmp_path) -> None:
    tokens = cells_of("." * 16)
    choice = {"names": ["weights"], "layers": [1], "box": (2, 2)}
    made = record(make_model(), tokens, solutions=np.zeros_like(tokens), **choice)
    subject = ShownRecord(made)
    session = Session([subject], Examples(subject.task, given=subject.examples))
    (sublayer,) = session.describe()["models"][0]["sublayers"]
    assert (sublayer["path"], sublayer["names"]) == ("layers.1.node.0", ["weights"])
    assert session.describe()["models"][0]["layers"] == 2
    assert header_of(session, "." * 16)["solution"] == ["1"] * 16  # those of the recording
    other = record(make_model(), cells_of(EASY), box=(2, 2))
    with pytest.raises(DataError, match="in common"):
        open_session([one.save(tmp_path / f"{id(one)}.rec.safetensors") for one in (made, other)])


def test_examples_come_from_the_data(tmp_path) -> None:
    puzzles = np.frombuffer(EASY.replace(".", "0").encode(), np.uint8).reshape(1, 16) - 48
    solved = np.frombuffer(EASY_SOLVED.encode(), np.uint8).reshape(1, 16) - 48
    store = SudokuStore.from_arrays(puzzles, solved)
    rows = PuzzleRows(
        *(np.asarray(v) for v in (store.puzzles, store.solutions, store.clues, store.ratings))
    )
    write_store(tmp_path / "data.store", [rows], lambda: (store.box, {}))
    found = Examples(task_of(SudokuConfig(box="2x2")), data=str(tmp_path / "data.store"))
    assert found.listed[0].key == EASY
    assert found.listed[0].label == "data 0: 6 clues"
    assert found.draw().key == EASY
    with pytest.raises(DataError, match="36 cells"):
        Examples(task_of(SudokuConfig(box="2x3")), data=str(tmp_path / "data.store"))


def test_examples_are_made_where_there_is_no_data() -> None:
    found = Examples(task_of(SudokuConfig(box="2x2", clues_extra=2)))
    assert len(found.listed) == 12
    assert found.can_draw
    drawn = found.draw()
    assert found.find(drawn.key) is drawn
    assert drawn.solution()[0] is not None


def test_checkpoints_tell_their_box_and_condition(checkpoint) -> None:
    session = open_session([checkpoint], examples=[EASY])
    assert session.subjects[0].name == "gm-0"
    assert open_shown("gm-4x4").name == "gm-4x4"
    assert open_shown("handmade:2x2").name == "handmade 2x2"
    assert session.task.blocks == (2, 2)
    shown = session.subjects[0]
    assert isinstance(shown, LiveModel)
    assert shown.task is not None
    assert shown.task.config.clues_extra == 2
    assert session.describe()["examples"] == [{"example": EASY, "label": "example 0"}]


def test_missing_and_damaged_files(tmp_path) -> None:
    for name in (tmp_path / "no", "no.safetensors"):
        with pytest.raises(CheckpointError, match="recording"):
            open_session([name])
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="damaged"):
        open_session([tmp_path / "bad.safetensors"])
    with pytest.raises(CheckpointError, match="checkpoint"):
        open_session([tmp_path])


@pytest.mark.parametrize("box", ["2x3", "3x2", "4x4"])
def test_boards_of_other_shapes(box) -> None:
    task = task_of(SudokuConfig(box=box))
    side = task.spec.num_outputs
    layout = page_layout(example_of(task, "." * side**2))
    assert (layout["kind"], layout["rows"], layout["cols"]) == ("board", side, side)
    tall, wide = (int(part) for part in box.split("x"))
    regions = np.array(layout["regions"]).reshape(side, side)
    assert len({*regions.flatten()}) == side
    assert len({*regions[:tall, :wide].flatten()}) == 1


def test_examples_of_an_unknown_task() -> None:
    task = PlainTask(InputSpec(num_tokens=3, num_outputs=2, num_nodes=7))
    example = task.parse("12..21.")
    assert task.text(example) == "12..21."
    layout = page_layout(example_of(task, "12..21."))
    assert (layout["rows"], layout["cols"], layout["nodes"], layout["regions"]) == (2, 4, 7, None)
    assert task.broken(example, np.zeros(7)) is None
    for text in ("1", "9999999"):
        with pytest.raises(DataError):
            task.parse(text)
    unnamed = PlainTask(InputSpec(num_tokens=99, num_outputs=2, num_nodes=7))
    assert key_of(unnamed, example, "sample 3") == "sample 3"


def test_what_a_round_undoes_is_told() -> None:
    """Rounds count from 1; a given cell is never undone; without a solution nothing is known."""
    session = session_of(small_model(core_layers=1, rounds=4))
    example, solved = session.examples.listed[0], np.array([int(c) - 1 for c in EASY_SOLVED])
    answers = np.tile(solved, (4, 1))
    answers[1, 0] = answers[3, 0] = (solved[0] + 1) % 4  # r1c1: right, wrong, right, wrong
    answers[0, 1] = (solved[1] + 1) % 4  # r1c2: wrong at first
    answers[2, 3] = (solved[3] + 1) % 4  # r1c4 is given
    told = RoundAnswers(2, 1, answers, np.ones((4, 16)))
    found = by_round(example, told, solved)
    assert found["undone"] == [[2, 4], *[[]] * 15]
    assert found["decided"][:3] == [4, 2, 1]
    assert by_round(example, told, None)["undone"] is None
    assert header_of(session, EASY)["models"][0]["rounds"]["undone"] is not None


def test_another_number_of_rounds(checkpoint, tmp_path) -> None:
    folder = small_model(core_layers=1, rounds=4).save_pretrained(tmp_path / "recurrent")
    session = open_session([folder], examples=[EASY], rounds=6)
    about = session.describe()["models"][0]
    assert about["layerNames"][-1] == "Round 6 of 6, core layer 0"
    assert "then 6 rounds" in about["facts"]
    with pytest.raises(ConfigError, match="core"):
        open_session([checkpoint], rounds=6)
    made = record(small_model(core_layers=1), cells_of(EASY)).save(tmp_path / "a.rec.safetensors")
    with pytest.raises(ConfigError, match="recording"):
        open_session([made], rounds=6)


def test_mazes_of_another_side(tmp_path) -> None:
    """Of a file, of the command line and typed, where places have no embeddings."""
    task = task_of(MazeConfig(side=5, mazes=40))
    model = GraphMachine(SMALL, task.spec)
    folder = model.save_pretrained(tmp_path / "gm", task=task.config.to_dict())
    data = tmp_path / "six.csv"
    write_mazes(data, generate_mazes(6, 20, 0))
    session = open_session([folder], data=data)
    assert session.describe()["layout"]["nodes"] == 36
    typed = "S...###.G...####"
    for opened in (session, open_session([folder], examples=[typed])):
        header, _ = unpack(opened.run_pack(typed))
        assert (header["layout"]["rows"], header["example"]) == (4, typed)
        assert "answers right" in header["models"][0]["verdict"]
    with pytest.raises(DataError, match="at most 1024"):
        session.run("SG" + 1598 * ".")
    subject = open_model(folder).for_data(str(data))
    assert subject.samples(str(data), 1)[0].num_nodes == subject.model.spec.num_nodes == 36
    fixed = task_of(MazeConfig(side=5, mazes=40, learned_places=True))
    live = LiveModel(GraphMachine(SMALL, fixed.spec), "fixed", fixed)
    with pytest.raises(DataError, match="25 nodes"):
        live.forward(example_of(task.fitting(typed), typed))


def test_large_examples_are_kept_in_blocks(monkeypatch) -> None:
    """Too little room for all nodes: those of one block, the same numbers, and a note."""
    model = small_model()
    whole, parts = session_of(model), session_of(model)
    assert whole.run(EASY).forwards[0].sources == tuple(range(16))
    each, address = bytes_of_source(model.config, 16, 1, 8)
    monkeypatch.setattr("graph_machine.lab.explorer.session.ROOM", 5 * each + 16 * address)
    header, arrays = unpack(parts.run_pack(EASY))
    assert "5 of 16 nodes" in " ".join(header["notes"])
    assert parts.describe()["nodes"] is None
    everything = unpack(whole.run_pack(EASY))[1]
    assert arrays.keys() == everything.keys()
    for name, values in everything.items():
        assert np.array_equal(arrays[name], values), name
    for node in (0, 7, 15):
        expected = unpack(whole.nodes_pack(EASY, 0, [node]))[1]
        found = unpack(parts.nodes_pack(EASY, 0, [node]))[1]
        assert all(np.array_equal(found[name], values) for name, values in expected.items())
        assert len(parts.run(EASY, node).forwards[0].sources) <= 5
    monkeypatch.setattr("graph_machine.lab.explorer.session.ROOM", each - 1)
    with pytest.raises(DataError, match="--rounds"):
        parts.run("." * 16)


def test_the_first_layer_is_one_with_new_edges() -> None:
    """The hand-built machine steps to neighbours in layer 0, and beyond them after that."""
    about = session_of(handmade_gm((2, 2))).describe()
    assert about["startLayer"] > 0
    assert open_session(["transformer-4x4"]).describe()["startLayer"] >= 0
