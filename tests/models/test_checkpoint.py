"""Checkpoints: what goes in comes out, and every damaged one is one clear line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from graph_machine.config import ModelConfig
from graph_machine.errors import CheckpointError
from graph_machine.models import GraphMachine, save_model
from graph_machine.models.checkpoint import open_checkpoint, read_config
from support.recordings import board_spec

CONFIG = ModelConfig(d_node=8, d_edge=4, num_layers=2, num_heads=2, d_attn_key=4)
SPEC = board_spec()
TOKENS = torch.arange(32).reshape(2, 16) % 5


@pytest.fixture
def model() -> GraphMachine:
    return GraphMachine(CONFIG, SPEC).eval()


@pytest.fixture
def folder(model: GraphMachine, tmp_path: Path) -> Path:
    return save_model(model, tmp_path / "checkpoint", condition="gm", seed=3)


def test_round_trip_is_exact(model: GraphMachine, folder: Path) -> None:
    loaded = GraphMachine.from_pretrained(folder)
    assert (loaded.config, loaded.spec, loaded.training) == (CONFIG, SPEC, False)
    assert torch.equal(loaded(TOKENS).logits, model(TOKENS).logits)
    assert read_config(folder)["seed"] == 3
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_averaged_weights_are_opened(model: GraphMachine, folder: Path) -> None:
    average = {name: value + 1 for name, value in model.named_parameters()}
    save_file(average, folder / "average.safetensors")
    loaded = GraphMachine.from_pretrained(folder)
    for name, value in loaded.named_parameters():
        assert torch.equal(value, average[name]), name
    save_file({"readout.weight": torch.zeros(2, 2)}, folder / "average.safetensors")
    with pytest.raises(CheckpointError, match=r"size mismatch for readout\.weight"):
        GraphMachine.from_pretrained(folder)
    (folder / "average.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"average\.safetensors"):
        GraphMachine.from_pretrained(folder)
    # An average that was there is not that of a model which is saved in its place.
    save_model(model, folder)
    assert torch.equal(GraphMachine.from_pretrained(folder)(TOKENS).logits, model(TOKENS).logits)


def test_methods_and_run_folders(model: GraphMachine, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "run" / "model")
    for name in (tmp_path / "run", tmp_path / "run" / "model", str(tmp_path / "run")):
        loaded = GraphMachine.from_pretrained(name)
        assert torch.equal(loaded(TOKENS).logits, model(TOKENS).logits)


def test_half_precision_on_disk_float32_in_memory(model: GraphMachine, tmp_path: Path) -> None:
    save_model(model, tmp_path / "whole")
    save_model(model, tmp_path / "half", half=True)
    stored = load_file(tmp_path / "half" / "model.safetensors")
    assert {t.dtype for t in stored.values()} == {torch.float16}
    loaded = GraphMachine.from_pretrained(tmp_path / "half")
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    assert torch.allclose(loaded(TOKENS).logits, model(TOKENS).logits, atol=2e-2)


def _weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")
        _config(lambda data: data.pop("sha256"))(folder)

    return damage


def _config(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        data = json.loads((folder / "config.json").read_text())
        change(data)
        data.pop("checksum")
        (folder / "config.json").write_text(json.dumps(data))

    return damage


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "No checkpoint here"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors"),
    "cut short": (_cut, "model.safetensors is damaged"),
    "empty": (lambda f: (f / "model.safetensors").write_bytes(b""), "damaged"),
    "garbage": (lambda f: (f / "model.safetensors").write_bytes(b"\x80\x04pickle" * 9), "damaged"),
    "config not JSON": (lambda f: (f / "config.json").write_text("{"), "not valid JSON"),
    "config not text": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), "damaged"),
    "config a list": (lambda f: (f / "config.json").write_text("[]"), "should be an object"),
    "other program": (_config(lambda d: d.update(format="x")), "graph-machine checkpoint"),
    "other version": (_config(lambda d: d.update(version=9)), "format version 9; this program"),
    "no model": (_config(lambda d: d.pop("model")), "does not describe a model"),
    "unknown setting": (_config(lambda d: d["model"].update(depth=3)), "no setting 'depth'"),
    "bad setting": (_config(lambda d: d["model"].update(d_node=-1)), "d_node should be at least"),
    "bad type": (_config(lambda d: d["model"].update(d_node="8")), "d_node should be a whole"),
    "spec a number": (_config(lambda d: d.update(spec=3)), "InputSpec should be an object"),
    "other shapes": (_config(lambda d: d["model"].update(d_node=12)), r"size mismatch for nodes"),
    "fewer layers": (
        _config(lambda d: d["model"].update(num_layers=1)),
        "which has 1 layer; the file has 2",
    ),
    "surplus": (_weights(lambda w: w.update(extra=torch.ones(1))), 'Unexpected key.* "extra"'),
    "missing": (_weights(lambda w: w.pop("readout.weight")), 'Missing key.* "readout.weight"'),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", list(DAMAGES))
def test_damaged_checkpoints(name: str, folder: Path) -> None:
    damage, message = DAMAGES[name]
    damage(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        GraphMachine.from_pretrained(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_a_flipped_bit_in_the_config_is_damage_not_a_setting(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"d_node"', '"d_nodf"'))
    with pytest.raises(CheckpointError, match="damaged"):
        GraphMachine.from_pretrained(folder)


def test_every_file_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = Path.read_bytes

    def read(path: Path) -> bytes:
        opened.append(path.name)
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    before = torch.random.get_rng_state()
    GraphMachine.from_pretrained(folder)
    assert opened == ["config.json", "model.safetensors"]
    assert torch.equal(torch.random.get_rng_state(), before), "nothing is drawn for it"


def test_an_interrupted_run_opens_its_best_checkpoint(
    model: GraphMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(model, tmp_path / "checkpoints" / "best")
    loaded = GraphMachine.from_pretrained(tmp_path)
    assert torch.equal(loaded(TOKENS).logits, model(TOKENS).logits)
    assert "not finished" in capsys.readouterr().err


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", [None, 3])
def test_what_is_not_a_name(name: Any) -> None:
    with pytest.raises(CheckpointError, match=repr(name)):
        open_checkpoint(name)


def test_saving_over_a_checkpoint_replaces_it(model: GraphMachine, folder: Path) -> None:
    with torch.no_grad():
        model.readout.weight.zero_()
    save_model(model, folder)
    assert GraphMachine.from_pretrained(folder)(TOKENS).logits.abs().max() == 0
