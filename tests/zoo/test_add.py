"""From a run to a model with a card: facts, commands, refusals, nothing half done."""

import errno
import json
import os
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import tyro

from graph_machine import files
from graph_machine.errors import CheckpointError, ConfigError, GraphMachineError
from graph_machine.lab.cli._options import Train
from graph_machine.lab.cli.train import resolved_config
from graph_machine.lab.conditions.budgets import config_for, training_command
from graph_machine.lab.opening import open_model
from graph_machine.lab.training import RunFolder, train
from graph_machine.lab.zoo import add, cards
from graph_machine.models import GraphMachine
from support.run_folders import make_run
from support.runs import tiny, write_puzzles


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a data file, and another file of puzzles."""
    folder = tmp_path_factory.mktemp("trained")
    data = write_puzzles(folder / "puzzles.store")
    write_puzzles(folder / "other.store", 30, seed=7)
    config = tiny(steps=2)
    facts = {"condition": "gm", "budget": "smoke", "seed": 4}
    train(config, out=folder / "run", data=str(data), progress="none", **facts)
    return folder


@pytest.fixture(scope="module")
def made(trained: Path) -> Path:
    also = {
        "other puzzles": str(trained / "other.store"),
        "the rest": str(trained / "puzzles.store"),
    }
    return add.add_model(
        trained / "run", "gm-tiny", also=also, notes=["Too small."], into=trained / "zoo"
    )


@pytest.mark.parametrize(
    ("condition", "budget", "box", "settings"),
    [
        ("gm", "cpu", None, {}),
        ("transformer", "cpu", "2x3", {"train.steps": "5e3", "train.peak_lr": "5e-4"}),
        ("gm", "cpu", "3x3", {"task.clues_extra": "20", "model.referral": "preaggregated"}),
        ("gm-edge-sublayers-4", "paper", None, {"model.num_edge_sublayers": "none"}),
        ("gm-sparse-annealed", "smoke", None, {"model.sparse_s_start": "none"}),
        ("gm", "smoke", None, {"model.factor_temps": "false", "train.test_examples": "7"}),
    ],
)
@pytest.mark.parametrize("source", ["generated", "/some/where/my puzzles.csv"])
def test_the_command_gives_the_same_run(
    condition: str, budget: str, box: str | None, settings: dict[str, str], source: str
) -> None:
    config = config_for(condition, budget, box)
    for key, value in settings.items():
        config = config.set(key, value)
    facts = {"condition": condition, "budget": budget, "seed": 3, "data": {"source": source}}
    command = training_command(facts | {"config": config.to_dict()})
    words = shlex.split(command)
    assert words[:2] == ["graph-machine", "train"]
    args = tyro.cli(Train, args=words[2:])
    assert resolved_config(args) == config
    assert (args.condition, args.budget, args.seed) == (condition, budget, 3)
    assert args.data == (None if source == "generated" else "my puzzles.csv")
    assert "/some" not in command
    assert ("--set" in words) == bool(settings)


@pytest.mark.parametrize("changes", [{"condition": None}, {"budget": "custom"}])
def test_runs_of_a_library_call_have_no_command(trained: Path, changes: dict[str, object]) -> None:
    facts = RunFolder(trained / "run").info().to_dict() | changes
    with pytest.raises(CheckpointError, match="command"):
        training_command(facts)


def test_the_folder(trained: Path, made: Path) -> None:
    assert made == trained / "zoo" / "gm-tiny"
    names = {"README.md", "card.json", "config.json", "model.safetensors"}
    assert {path.name for path in made.iterdir()} == names
    assert [path.name for path in made.parent.iterdir()] == ["gm-tiny"]
    assert made.stat().st_mode & 0o777 == 0o755
    ours, theirs = (
        GraphMachine.from_pretrained(made).state_dict(),
        GraphMachine.from_pretrained(trained / "run").state_dict(),
    )
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor.half().float(), rtol=0, atol=0)
    assert (made / "model.safetensors").stat().st_size < sum(
        3 * tensor.numel() for tensor in theirs.values()
    ) + 20_000
    # Nothing of the machine it was made on.
    for name in ("README.md", "card.json", "config.json"):
        assert str(trained) not in (made / name).read_text()


def test_the_facts(trained: Path, made: Path) -> None:
    card = cards.read_facts(made)
    result = json.loads((trained / "run" / "result.json").read_text())
    assert (card.name, card.board, card.condition) == ("gm-tiny", "4x4", "gm")
    assert card.parameters == result["parameters"]
    assert card.bytes == (made / "model.safetensors").stat().st_size
    assert card.data["source"] == "puzzles.store"
    assert card.training.seconds == result["seconds"]
    assert card.training.flops == 2 * result["flops_per_step"]
    assert card.full_precision["cell_accuracy"] == result["cell_accuracy"]
    own, other, rest = card.accuracy
    assert (own["on"], own["file"], own["puzzles"]) == (add.OWN, None, 10)
    assert own["cell_accuracy"] == pytest.approx(result["cell_accuracy"], abs=0.05)
    assert sum(part["puzzles"] for part in own["by_clues"].values()) == 10
    assert set(own["by_rating"]) == set(result["groups"]["rating"])
    assert (other["on"], other["file"], other["puzzles"]) == ("other puzzles", "other.store", 30)
    # The file that it was trained on: the rows that were held back, and no others.
    assert rest["puzzles"] == 10
    assert (own["seen"], rest["seen"]) == (0, 0)
    assert card.example is not None
    assert len(card.example["puzzle"]) == 16
    assert "100,000 steps" in card.not_shown[0]


def test_the_page_is_rendered_from_the_facts(made: Path) -> None:
    text = (made / "README.md").read_text()
    card = cards.read_facts(made)
    assert text == cards.card_markdown(card)
    assert text.startswith("---\nlicense: apache-2.0\n")
    for part in (
        "# gm-tiny",
        card.training.command,
        "### Other puzzles (`other.store`)",
        "| rating | puzzles | boards | 95% interval | cells |",
        "| clues | puzzles | boards | 95% interval | cells |",
        "None of them was trained on",
        "of its test split with full precision, on 10 puzzles.",
        "    - type: accuracy",
        "- Too small.",
        "graph-machine evaluate gm-tiny --data puzzles.store",
        "## What this does not show",
    ):
        assert part in text
    some = [card.accuracy[0] | {"seen": 3}]
    for task, line in (
        ("sudoku", " **3 of them were trained on**, under"),
        ("maze", " **3 of them were trained on**.\n"),
        ("jigsaw", " **The regions of 3 of them occur"),
    ):
        assert line in cards.card_markdown(replace(card, task=task, accuracy=some))
    bits = {"bits_per_byte": {"title": "bits per byte", "share": False}}
    accuracy = [card.accuracy[0] | {"bits_per_byte": 2.5}]
    other = cards.card_markdown(replace(card, metrics=bits, accuracy=accuracy))
    assert "    - type: bits_per_byte" in other
    (made / "README.md").unlink()
    assert cards.render_card(made).read_text() == text


def test_clues_in_ranges() -> None:
    by_clues = {str(n): {"puzzles": 10, "board_accuracy": n / 100} for n in range(20, 50)}
    found = cards.folded(by_clues, "board_accuracy")
    assert list(found) == ["20-24", "25-29", "30-34", "35-39", "40-44", "45-49"]
    assert found["20-24"] == pytest.approx(0.22)
    few = {str(n): {"puzzles": 10**n, "board_accuracy": 1.0} for n in range(4)}
    assert list(cards.folded(few, "board_accuracy")) == ["0", "1", "2", "3"]
    assert cards.folded({}, "board_accuracy") == {}


def test_an_older_model_is_replaced_only_on_request(trained: Path, made: Path) -> None:
    with pytest.raises(CheckpointError, match="--replace"):
        add.add_model(trained / "run", "gm-tiny", into=made.parent)
    before = cards.read_facts(made)
    (made / "left").write_text("over")
    again = add.add_model(trained / "run", "gm-tiny", into=made.parent, replace=True, limit=4)
    after = cards.read_facts(again)
    assert (len(before.accuracy), len(after.accuracy)) == (3, 1)
    assert after.accuracy[0]["puzzles"] == 4
    assert not (made / "left").exists()
    assert [path.name for path in made.parent.iterdir()] == ["gm-tiny"]


def test_what_cannot_be_a_model(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="GM/4x4"):
        add.add_model(trained / "run", "GM/4x4", into=tmp_path)
    with pytest.raises(CheckpointError, match="run"):
        add.add_model(tmp_path, "gm", into=tmp_path)
    unfinished = make_run(tmp_path / "runs", "gm", 0, None, status="running")
    with pytest.raises(CheckpointError, match="finished"):
        add.add_model(unfinished, "gm", into=tmp_path)
    monkeypatch.setattr(files, "ZOO", tmp_path / "zoo")
    monkeypatch.setattr(add, "LARGEST", 1_000)
    with pytest.raises(CheckpointError, match="--into"):
        add.add_model(trained / "run", "gm")
    # Nothing is left behind, not even hidden.
    assert list((tmp_path / "zoo").iterdir()) == []


@pytest.mark.parametrize("fails", range(1, 6))
@pytest.mark.usefixtures("made")
def test_a_full_disk_leaves_the_older_model(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    """Weights, config, card and page, each written to a disk that has no room for it."""
    shutil.copytree(trained / "zoo" / "gm-tiny", tmp_path / "gm-tiny")
    before = {path.name: path.read_bytes() for path in (tmp_path / "gm-tiny").iterdir()}
    real, calls = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GraphMachineError, match="full"):
        add.add_model(trained / "run", "gm-tiny", into=tmp_path, replace=True, limit=4)
    assert {path.name: path.read_bytes() for path in (tmp_path / "gm-tiny").iterdir()} == before
    assert os.listdir(tmp_path) == ["gm-tiny"]


def test_cards_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match="no card"):
        cards.read_facts(tmp_path)
    (tmp_path / "card.json").write_text("{")
    with pytest.raises(CheckpointError, match="damaged"):
        cards.read_facts(tmp_path)
    (tmp_path / "card.json").write_text("{}")
    with pytest.raises(CheckpointError, match="format"):
        cards.read_facts(tmp_path)
    monkeypatch.setattr(files, "ZOO", tmp_path / "none")
    with pytest.raises(CheckpointError, match="'gm-4x4'"):
        cards.read_card("gm-4x4")


def test_a_chain_of_warm_starts_is_listed_stage_by_stage(trained: Path) -> None:
    facts: dict[str, Any] = {"condition": "gm-recurrent", "budget": "smoke", "progress": "none"}
    data, first = str(trained / "puzzles.store"), trained / "first"
    config = tiny("gm-recurrent", steps=2)
    start = str(trained / "run")
    train(config, out=first, data=data, init_from=start, **facts)
    latest = str(first / "checkpoints" / "latest")
    train(config, out=trained / "second", data=data, init_from=latest, **facts)
    folder = add.add_model(trained / "second", "gm-chain", into=trained / "zoo")
    earlier = json.loads((folder / "card.json").read_text())["training"]["earlier"]
    assert [stage["steps"] for stage in earlier] == [2, 2]
    assert "train gm " in earlier[0]["command"]
    page = (folder / "README.md").read_text()
    assert re.search(r"1\. 2 steps of 8 in \d+ s of CPU", page)
    assert "begun with stage 1: `graph-machine train gm-recurrent" in page
    assert "2 layers and a core of 2, 16 rounds" in page
    assert open_model(folder).budget.endswith("2 steps of 8 after a warm start")
    written = "".join((folder / name).read_text() for name in ("card.json", "config.json"))
    assert str(trained) not in page + written
