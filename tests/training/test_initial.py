"""Runs that begin with the weights of another model, and how they are resumed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from graph_machine.errors import CheckpointError, ConfigError
from graph_machine.lab.cli import run as command
from graph_machine.lab.training import RunFolder, train
from support.runs import crash, recurrent, same_bits, tiny, weights_of

FROZEN = "nodes,edges,stack"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, puzzles: str) -> str:
    out = tmp_path_factory.mktemp("source") / "run"
    train(tiny("gm-preaggregated", steps=2), out=out, data=puzzles, progress="none")
    return str(out)


def test_what_fits_is_taken_and_what_does_not_is_named(
    tmp_path: Path, puzzles: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = recurrent(steps=1)
    train(config, out=tmp_path / "out", data=puzzles, progress="none", init_from=source)
    said = capsys.readouterr().err
    assert "'core.inject.weight' is new and starts as a new model's." in said
    wide = recurrent(steps=1).with_model(d_edge=6)
    train(wide, out=tmp_path / "wide", data=puzzles, progress="none", init_from=source)
    assert "'edges.category.weight' is (6, 6) here and" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="nowhere"):
        train(config, out=tmp_path / "c", data=puzzles, progress="none", init_from="nowhere")
    assert not RunFolder(tmp_path / "c").exists


@pytest.mark.parametrize("at", [1, 3], ids=["before the first save", "after it"])
def test_a_killed_run_still_knows_what_it_began_with(
    tmp_path: Path, puzzles: str, source: str, at: int
) -> None:
    config = recurrent(freeze=FROZEN, save_every=2, eval_every=100)
    whole, out = tmp_path / "whole", tmp_path / "cut"
    train(config, out=whole, data=puzzles, progress="none", init_from=source)
    crash(at, config=config, out=out, data=puzzles, init_from=source)
    assert (out / "checkpoints").exists() == (at == 3)
    # As `train --resume --out RUN` does it: the folder says what the run began with.
    assert command(["train", "--resume", "--out", str(out), "--progress", "none"]) == 0
    assert same_bits(whole, out)
    begun, ended = weights_of(Path(source)), weights_of(out)
    for name in begun:
        frozen = name.split(".")[0] in FROZEN.split(",")
        assert torch.equal(begun[name], ended[name]) == frozen, name
    for name in ("run.json", "result.json", "model/config.json"):
        assert json.loads((out / name).read_text())["init_from"] == source


def test_a_source_that_is_gone_matters_only_before_the_first_save(
    tmp_path: Path, puzzles: str
) -> None:
    source, config = tmp_path / "source", recurrent(save_every=2, eval_every=100)
    train(config.with_train(steps=1), out=source, data=puzzles, progress="none")
    for at in (1, 3):
        out = tmp_path / str(at)
        crash(at, config=config, out=out, data=puzzles, init_from=str(source))
    source.rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="checkpoint"):
        train(config, out=tmp_path / "1", data=puzzles, progress="none", resume=True)
    train(config, out=tmp_path / "3", data=puzzles, progress="none", resume=True)


def test_another_source_is_refused(tmp_path: Path, puzzles: str, source: str) -> None:
    config = recurrent(steps=1)
    warm, new = tmp_path / "warm", tmp_path / "new"
    train(config, out=warm, data=puzzles, progress="none", init_from=source)
    train(config, out=new, data=puzzles, progress="none")
    again: dict[str, Any] = {"data": puzzles, "progress": "none", "resume": True}
    train(config, out=warm, init_from=source, **again)
    for out in (warm, new):
        with pytest.raises(CheckpointError, match=r"init_from was .*, is other"):
            train(config, out=out, init_from="other", **again)
    words = ["train", "--out", str(new), "--init-from", "other"]
    for more in (["--resume"], ["--extend", "--steps", "2"]):
        with pytest.raises(ConfigError, match="init_from"):
            command([*words, *more])
    assert RunFolder(new).finished
