"""Averaged weights: the formula, and that they are what is tested, opened and begun with."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from graph_machine import GraphMachine
from graph_machine.errors import CheckpointError
from graph_machine.lab.tasks.base import make_task
from graph_machine.lab.training import RunFolder, evaluate, train
from graph_machine.lab.training.optim import take_weights
from graph_machine.lab.training.trainer import Trainer
from support.runs import recurrent, same_bits, weights_of


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, puzzles: str) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    train(recurrent(ema=0.9), out=out, data=puzzles, progress="none")
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run", symlinks=True))


def test_the_average_is_the_formula(puzzles: str) -> None:
    config = recurrent(ema=0.9)
    trainer = Trainer(
        config, make_task(config.task, puzzles, 0), seed=0, device=torch.device("cpu")
    )
    expected = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    for step in range(3):
        trainer.step(step)
        decay = min(0.9, (1 + step) / (10 + step))
        for name, value in trainer.model.named_parameters():
            expected[name] = decay * expected[name] + (1 - decay) * value.detach()
    assert trainer.average is not None
    for name, value in trainer.average.tensors.items():
        torch.testing.assert_close(value, expected[name])
    last = trainer.model.readout.weight.detach().clone()
    with trainer.tested_weights():
        assert torch.equal(trainer.model.readout.weight, trainer.average.tensors["readout.weight"])
    assert torch.equal(trainer.model.readout.weight, last)


@pytest.mark.parametrize("name", ["best", "latest"])
def test_a_checkpoint_opens_with_the_weights_that_were_tested(
    finished: Path, puzzles: str, name: str
) -> None:
    folder, config = finished / "checkpoints" / name, recurrent(ema=0.9)
    step = json.loads((folder / "state.json").read_text())["step"]
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    (told,) = (line for line in lines if line["kind"] == "eval" and line["step"] == step)
    model, task = GraphMachine.from_pretrained(folder), make_task(config.task, puzzles, 0)
    found = evaluate(model, task, "eval", config=config.train, limit=config.train.eval_examples)
    assert found.summary()["loss"] == pytest.approx(told["loss"], rel=1e-6)
    raw = load_file(folder / "model.safetensors")
    assert not torch.equal(raw["readout.weight"], model.readout.weight)


def test_a_run_begins_with_the_average_of_another(finished: Path) -> None:
    latest = finished / "checkpoints" / "latest"
    config, spec = (getattr(GraphMachine.from_pretrained(latest), n) for n in ("config", "spec"))
    model = GraphMachine(config, spec)
    assert take_weights(model, str(latest)) == []
    for name, value in weights_of(finished).items():  # the final model is the average at its end
        assert torch.equal(model.state_dict()[name], value), name


def test_a_flipped_bit_of_the_average_is_seen(copy: Path) -> None:
    folder = copy / "checkpoints" / "latest"
    path = folder / "average.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"average\.safetensors"):
        GraphMachine.from_pretrained(folder)


def test_checkpoints_from_before_its_digest_are_read(
    copy: Path, finished: Path, puzzles: str
) -> None:
    """Their config.json has none; opened and resumed they are as new ones are."""
    for folder in (copy / "checkpoints").glob("step-*"):
        config = json.loads((folder / "config.json").read_text())
        del config["average_sha256"], config["checksum"]
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        rewrite_state(folder)
    ours = GraphMachine.from_pretrained(copy / "checkpoints" / "best").state_dict()
    theirs = GraphMachine.from_pretrained(finished / "checkpoints" / "best").state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    shutil.rmtree((copy / "checkpoints" / "latest").resolve())
    shutil.rmtree(copy / "model")
    (copy / "result.json").unlink()
    train(recurrent(ema=0.9), out=copy, data=puzzles, progress="none", resume=True)
    assert RunFolder(copy).finished
    assert same_bits(copy, finished)


def rewrite_state(folder: Path) -> None:
    """state.json as version 1 wrote it, for the files as they are."""
    state = json.loads((folder / "state.json").read_text()) | {"version": 1}
    del state["checksum"]
    state["sha256"] = {
        name: sha256((folder / name).read_bytes()).hexdigest() for name in state["sha256"]
    }
    (folder / "state.json").write_text(json.dumps(state))
