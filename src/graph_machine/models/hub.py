"""Upload and download of checkpoint folders through the Hugging Face Hub (extra `hub`)."""

from pathlib import Path
from typing import Any

from huggingface_hub import ModelHubMixin

from graph_machine.models.checkpoint import download
from graph_machine.models.graph_machine import GraphMachine


class HubGraphMachine(ModelHubMixin, library_name="graph-machine", tags=["graph-machine"]):
    """A model with `push_to_hub`, `save_pretrained` and `from_pretrained` of the Hub's mixin."""

    def __init__(self, model: GraphMachine) -> None:
        self.model = model

    def _save_pretrained(self, save_directory: Path) -> None:
        self.model.save_pretrained(save_directory)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> "HubGraphMachine":
        folder = Path(model_id) if Path(model_id).is_dir() else download(model_id, **options)
        return cls(GraphMachine.from_pretrained(folder))
