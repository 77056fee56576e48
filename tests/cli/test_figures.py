"""`graph-machine figures`."""

from pathlib import Path

import pytest
from PIL import Image

from cli.conftest import OutOf
from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.cli import run
from graph_machine.lab.cli._options import Record as RecordOptions
from graph_machine.lab.cli.figures import SAMPLES
from graph_machine.lab.config import parse_numbers
from graph_machine.lab.records.record import Record
from support.recordings import handmade_record, random_record, small_model


@pytest.fixture
def hand(tmp_path: Path) -> str:
    return str(handmade_record().save(tmp_path / "hand.rec.safetensors"))


def test_figures(hand: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = str(random_record("transformer").save(tmp_path / "t.rec.safetensors"))
    out = tmp_path / "out"
    command = ["figures", hand, other, "--out", str(out), "--formats", "png"]
    assert run([*command, "--only", "puzzle", "compose", "attention", "--source", "r1c2"]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "attention.png", "compose.png", "puzzle.png",
    ]  # fmt: skip
    assert "compose: composed regions" in capsys.readouterr().out


def test_choices_and_contact_sheets(hand: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["figures", hand, "--out", str(out), "--formats", "png", "--sample", "2"]
    command += ["--only", "construct", "labour", "--heads", "box=l1r5", "l0a3", "l3r6"]
    assert run([*command, "--all-cells", "l1r5"]) == 0
    names = {path.name for path in out.iterdir()}
    assert names == {"construct.png", "labour.png", "cells-l1r5.png"}


def test_what_a_recording_cannot_give_is_left_out(tmp_path: Path, out_of: OutOf) -> None:
    from graph_machine.lab.records import record
    from support.recordings import boards

    made = record(small_model(), boards()[0], names=("node_factors",))
    path = str(made.save(tmp_path / "part"))
    printed = out_of(["figures", path, "--out", str(tmp_path / "out"), "--formats", "png"])
    assert "left out: late (This figure needs 'weights' of node sublayers" in printed
    assert "out/puzzle: puzzle" in printed


def test_recordings_of_different_puzzles_are_refused(hand: str, tmp_path: Path) -> None:
    """B's answers are not judged on A's puzzle; figures of one recording each are drawn."""
    other = random_record("transformer")
    tensors = {name: other.tensors[name] for name in other.tensors}
    tensors["inputs.tokens"] = tensors["inputs.tokens"][::-1].copy()
    path = str(Record(tensors, other.meta).save(tmp_path / "t.rec.safetensors"))
    command = ["figures", hand, path, "--out", str(tmp_path / "out"), "--formats", "png"]
    with pytest.raises(DataError, match="different"):
        run(command)
    assert not (tmp_path / "out").exists()
    assert run([*command, "--only", "attention"]) == 0


def test_a_model_is_recorded_on_the_samples_of_record() -> None:
    assert parse_numbers(RecordOptions("x").samples) == tuple(range(SAMPLES))


def test_list(out_of: OutOf) -> None:
    assert "expansion " in out_of(["figures", "--list"])


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("rounds", "gm", "has no rounds"),
        ("graph", "gm", "is of boards"),
        ("maze", "gm", "is not of mazes"),
        ("attention", "gm", "has edges, and the figure is of models without"),
        ("labour", "transformer", "has no edges"),
    ],
)
def test_a_figure_that_the_recording_does_not_have_is_an_error(
    name: str, kind: str, why: str, tmp_path: Path
) -> None:
    path = str(random_record(kind).save(tmp_path / "a.rec.safetensors"))
    message = f"Figure '{name}' cannot be drawn: the recording of {kind} {why}"
    with pytest.raises(DataError, match=message):
        run(["figures", path, "--only", "puzzle", name, "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_rounds_are_for_models_with_a_core(hand: str, tmp_path: Path) -> None:
    folder = small_model(core_layers=1, rounds=2).save_pretrained(
        tmp_path / "gm", task={"name": "sudoku", "box": "2x2", "puzzles": 400}
    )
    words = ["--only", "rounds", "--formats", "png", "--out", str(tmp_path / "out")]
    assert run(["figures", str(folder), "--rounds", "5", *words]) == 0
    with Image.open(tmp_path / "out" / "rounds.gif") as moving:
        assert getattr(moving, "n_frames", 1) == 5
    with pytest.raises(ConfigError, match="core"):
        run(["figures", "handmade:2x2", "--rounds", "5"])
    with pytest.raises(ConfigError, match="recording"):
        run(["figures", hand, "--rounds", "5"])
    with pytest.raises(ConfigError, match="'x'"):
        run(["figures", hand, "--rounds", "x"])


def test_errors(hand: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="recording"):
        run(["figures"])
    with pytest.raises(DataError, match="recording"):
        run(["figures", str(tmp_path / "none")])
    with pytest.raises(ConfigError, match="'x'"):
        run(["figures", hand, "--only", "x"])
    with pytest.raises(DataError, match="77"):
        run(["figures", hand, "--only", "puzzle", "--sample", "77", "--out", str(tmp_path)])
    for words, message in [
        (["--heads", "box=l99r2"], "--heads box=l99r2: The recording of .* has no 'layers.99"),
        (["--heads", "box=l0r99"], "--heads box=l0r99: .* has slot 0 to"),
        (["--heads", "l0x1"], "--heads l0x1: 'l0x1' is not understood"),
        (["--all-cells", "l99a0"], "--all-cells l99a0: The recording"),
    ]:
        with pytest.raises(ConfigError, match=message):
            run(["figures", hand, *words, "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
