"""`graph-machine models`, and every command that takes a model by its name."""

import json
from pathlib import Path

import pytest

from cli.conftest import OutOf
from graph_machine import files
from graph_machine.errors import CheckpointError, ConfigError
from graph_machine.lab.cli import run
from graph_machine.lab.training import train
from support.runs import tiny, write_puzzles

NAME = "gm-tiny"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on generated puzzles, and a zoo that holds it."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPH_MACHINE_CACHE", str(folder / "cache"))
        patch.setattr(files, "ZOO", folder / "zoo")
        facts = {"condition": "gm", "budget": "smoke", "seed": 2}
        train(tiny(steps=2), out=folder / "run", progress="none", **facts)
        assert run(["models", "add", str(folder / "run"), "--name", NAME, "--note", "Tiny."]) == 0
    return folder


@pytest.fixture
def zoo(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(home / "cache"))
    monkeypatch.setattr(files, "ZOO", home / "zoo")
    return home / "zoo"


def test_the_list(zoo: Path, out_of: OutOf) -> None:
    text = out_of(["models"])
    head, first = text.splitlines()[:2]
    assert head.split() == ["name", "task", "condition", "parameters", "size", "right"]
    assert first.split()[:3] == [NAME, "4x4", "gm"]
    assert "by clues" in text
    assert "trained by graph-machine train gm --budget smoke --seed 2 --set" in text
    (card,) = json.loads(out_of(["models", "list", "--json"]))
    assert card["name"] == NAME


def test_a_card(zoo: Path, out_of: OutOf) -> None:
    text = out_of(["models", "show", NAME])
    assert text.startswith(f"# {NAME}\n")
    assert text in (zoo / NAME / "README.md").read_text()
    assert json.loads(out_of(["models", "show", NAME, "--json"])) == json.loads(
        (zoo / NAME / "card.json").read_text()
    )
    (zoo / NAME / "README.md").write_text("old")
    assert run(["models", "render"]) == 0
    assert text in (zoo / NAME / "README.md").read_text()


def test_without_any_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out_of: OutOf) -> None:
    monkeypatch.setattr(files, "ZOO", tmp_path / "none")
    assert "graph-machine models add RUN --name gm-4x4" in out_of(["models"])
    assert json.loads(out_of(["models", "--json"])) == []


def test_wrong_words(zoo: Path, home: Path) -> None:
    with pytest.raises(CheckpointError, match="gm-tiny"):
        run(["models", "show", "gm-tniy"])
    with pytest.raises(CheckpointError, match="gm-tiny"):
        run(["solve", "gm-tinny", "1" * 16])
    with pytest.raises(ConfigError, match=r"gm-tiny.*models show"):
        run(["models", NAME])
    with pytest.raises(ConfigError, match="render"):
        run(["models", "ad"])
    for also in ("file.csv", "=file.csv", "label="):
        with pytest.raises(ConfigError, match="--also"):
            run(["models", "add", str(home / "run"), "--name", "b", "--also", also])


def test_also_from_the_command_line(
    zoo: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_puzzles(tmp_path / "other.store", 30, seed=7)
    command = ["models", "add", str(home / "run"), "--name", "b", "--into", str(tmp_path)]
    words = ["--also", f"other puzzles={other}", "--also", f"again={other}", "--note", "A b."]
    assert run([*command, *words, "--note", "C."]) == 0
    assert "Testing on: other puzzles" in capsys.readouterr().err
    card = json.loads((tmp_path / "b" / "card.json").read_text())
    assert [found["on"] for found in card["accuracy"]][1:] == ["other puzzles", "again"]
    assert card["notes"] == ["A b.", "C."]


def test_commands_take_the_name(
    zoo: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    out_of: OutOf,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    card = json.loads((zoo / NAME / "card.json").read_text())
    assert run(["solve", NAME, card["example"]["solution"]]) == 0
    capsys.readouterr()
    found = json.loads(out_of(["evaluate", NAME, "--json"]))
    # The split that its run held back, made again from the seed.
    assert found["examples"] == card["accuracy"][0]["puzzles"] == 10
    assert found["cell_accuracy"] == pytest.approx(card["accuracy"][0]["cell_accuracy"])
    assert "2 layers, 2 steps of 8" in out_of(["stats", NAME, "--limit", "2", "--detect", "0"])
    assert run(["record", NAME, "--samples", "0", "--out", "one.safetensors"]) == 0
    assert run(["figures", NAME, "--only", "puzzle", "--formats", "png"]) == 0
    assert (tmp_path / "figures" / "puzzle.png").exists()
    assert run(["explore", NAME, "--export", "page.html"]) == 0
    assert (tmp_path / "page.html").exists()


def test_the_test_split_of_a_shipped_model_is_its_own_or_none(zoo: Path, tmp_path: Path) -> None:
    config = json.loads((zoo / NAME / "config.json").read_text())
    del config["checksum"]  # older models have none
    weights = (zoo / NAME / "model.safetensors").read_bytes()
    for data, message in (
        ({"identity": "another"}, "cannot be made again by this version"),
        ({"source": "sudoku-3m.csv"}, "trained on the file 'sudoku-3m.csv', which does not come"),
    ):
        changed = config | {"data": config["data"] | data}
        (tmp_path / "config.json").write_text(json.dumps(changed))
        (tmp_path / "model.safetensors").write_bytes(weights)
        with pytest.raises(CheckpointError, match=message):
            run(["evaluate", str(tmp_path)])
