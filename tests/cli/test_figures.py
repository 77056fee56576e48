"""`graph-machine figures`."""

from pathlib import Path

import pytest
from PIL import Image

from cli.conftest import OutOf
from graph_machine.errors import ConfigError, DataError
from graph_machine.lab.cli import run
from graph_machine.lab.cli._options import RecordOptions
from graph_machine.lab.cli.figures import SAMPLES
from graph_machine.lab.config import parse_numbers
from support.recordings import handmade_record, random_record, small_model


@pytest.fixture
def hand(tmp_path: Path) -> str:
    return str(handmade_record().save(tmp_path / "hand.rec.safetensors"))


def test_figures_choices_and_contact_sheets(hand: str, tmp_path: Path, out_of: OutOf) -> None:
    other = str(random_record("transformer").save(tmp_path / "t.rec.safetensors"))
    out, png = tmp_path / "out", ["--formats", "png", "--out", str(tmp_path / "out")]
    words = ["--only", "puzzle", "compose", "attention", "--source", "r1c2"]
    assert "compose: composed regions" in out_of(["figures", hand, other, *png, *words])
    assert {path.name for path in out.iterdir()} == {"attention.png", "compose.png", "puzzle.png"}
    words = ["--only", "construct", "labour", "--heads", "box=l1r5", "l0a3", "l3r6"]
    out_of(["figures", hand, *png, *words, "--sample", "2", "--all-cells", "l1r5"])
    assert {path.name for path in out.iterdir()} > {"construct.png", "labour.png", "cells-l1r5.png"}


def test_what_a_recording_cannot_give_is_left_out(tmp_path: Path, out_of: OutOf) -> None:
    from graph_machine.lab.records import record
    from support.recordings import boards

    made = record(small_model(), boards()[0], names=("node_factors",))
    path = str(made.save(tmp_path / "part"))
    printed = out_of(["figures", path, "--out", str(tmp_path / "out"), "--formats", "png"])
    assert "left out: late (This figure needs 'weights' of node sublayers" in printed
    assert "out/puzzle: puzzle" in printed


def test_list(out_of: OutOf) -> None:
    assert "expansion " in out_of(["figures", "--list"])
    # A model by its name is recorded on the samples of `record`.
    assert parse_numbers(RecordOptions("x").samples) == tuple(range(SAMPLES))


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
    for words, message in (
        ("", "recording"),
        ("none", "recording"),
        (f"{hand} --only x", "'x'"),
        (f"{hand} --only puzzle --sample 77", "77"),
        (f"{hand} --only puzzle maze", "mazes"),
        (f"{hand} --heads box=l99r2", "--heads box=l99r2: The recording of .* has no 'layers.99"),
        (f"{hand} --heads box=l0r99", "--heads box=l0r99: .* has slot 0 to"),
        (f"{hand} --heads l0x1", "--heads l0x1"),
        (f"{hand} --all-cells l99a0", "--all-cells l99a0"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            run(["figures", *words.split(), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
