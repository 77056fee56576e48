"""Sharing through the Hugging Face Hub (extra `hub`): upload and download of the same folder."""

from pathlib import Path
from typing import Any

from huggingface_hub import ModelHubMixin, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

from graph_machine.errors import CheckpointError
from graph_machine.models.checkpoint import CONFIG_FILE, WEIGHTS_FILE, load_model
from graph_machine.models.graph_machine import GraphMachine


class HubGraphMachine(ModelHubMixin, library_name="graph-machine", tags=["graph-machine"]):
    """A model with `push_to_hub`, `save_pretrained` and `from_pretrained` of the Hub's mixin."""

    def __init__(self, model: GraphMachine) -> None:
        self.model = model

    def _save_pretrained(self, save_directory: Path) -> None:
        self.model.save_pretrained(save_directory)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> "HubGraphMachine":
        folder = model_id if Path(model_id).is_dir() else download(model_id, **options)
        return cls(load_model(folder))


def download(name: str, **options: Any) -> str:
    """The local folder of a model from the Hub; our two files and nothing else are fetched."""
    keep = {k: v for k, v in options.items() if k in ("revision", "cache_dir", "token")}
    keep["local_files_only"] = bool(options.get("local_files_only", False))
    try:
        return snapshot_download(name, allow_patterns=[CONFIG_FILE, WEIGHTS_FILE], **keep)
    except (RepositoryNotFoundError, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"There is no folder '{name}' here, and it could not be fetched from the Hub: {reason}"
        ) from None
