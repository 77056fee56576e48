"""The Hub's mixin: the same folder up and down; without a network, one clear line."""

from pathlib import Path

import pytest
import torch

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import CheckpointError, MissingExtraError
from graph_machine.models import GraphMachine

SPEC = InputSpec(
    num_tokens=4, num_outputs=3, num_nodes=9, grid=(3, 3), graph="grid", num_edge_categories=6
)
TOKENS = torch.arange(9).reshape(1, 9) % 4


@pytest.fixture
def model() -> GraphMachine:
    return GraphMachine(ModelConfig(d_node=8, num_layers=1), SPEC).eval()


def test_mixin_saves_and_loads_our_own_folder(model: GraphMachine, tmp_path: Path) -> None:
    from graph_machine.models.hub import HubGraphMachine

    HubGraphMachine(model).save_pretrained(tmp_path)
    for loaded in (
        HubGraphMachine.from_pretrained(str(tmp_path)).model,
        GraphMachine.from_pretrained(tmp_path),
    ):
        assert torch.equal(loaded(TOKENS).logits, model(TOKENS).logits)


@pytest.mark.usefixtures("unchecked")
def test_offline_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import huggingface_hub

    def no_network(*args: object, **options: object) -> str:
        raise OSError("network is unreachable\nsecond line")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", no_network)
    with pytest.raises(CheckpointError) as caught:
        GraphMachine.from_pretrained("hf:someone/some-model")
    assert str(caught.value) == (
        "Cannot fetch 'someone/some-model' from the Hub: network is unreachable"
    )


def test_not_in_the_local_cache(tmp_path: Path) -> None:
    from graph_machine.models.checkpoint import download

    with pytest.raises(CheckpointError, match="Hub"):
        download("someone/some-model", local_files_only=True, cache_dir=str(tmp_path))


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'graph-machine\[hub\]'"):
        GraphMachine.from_pretrained("hf:someone/some-model")


def test_only_the_prefix_reaches_for_the_network(
    model: GraphMachine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import huggingface_hub

    asked: list[tuple[str, object]] = []

    def fetch(name: str, *, allow_patterns: list[str], revision: object = None) -> str:
        asked.append((name, revision))
        return str(model.save_pretrained(tmp_path))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(CheckpointError, match="'hf:runs/mistyped'"):
        GraphMachine.from_pretrained("runs/mistyped")
    assert asked == []
    GraphMachine.from_pretrained("hf:someone/some-model")
    GraphMachine.from_pretrained("hf:someone/some-model@v1.0")
    assert asked == [("someone/some-model", None), ("someone/some-model", "v1.0")]
    said = capsys.readouterr().err.splitlines()
    assert "model.safetensors of someone/some-model at revision v1.0" in said[1]
    with pytest.raises(CheckpointError, match="hf:owner/name"):
        GraphMachine.from_pretrained("hf:nonsense")
