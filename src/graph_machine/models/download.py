"""Files of a model from the Hugging Face Hub (extra `hub`)."""

from collections.abc import Sequence
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

from graph_machine.errors import CheckpointError


def download(name: str, files: Sequence[str], **options: Any) -> str:
    """The local folder of a model from the Hub; `files` and nothing else are fetched."""
    keep = {k: v for k, v in options.items() if k in ("revision", "cache_dir", "token")}
    keep["local_files_only"] = bool(options.get("local_files_only", False))
    try:
        return snapshot_download(name, allow_patterns=[*files], **keep)
    except (RepositoryNotFoundError, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"There is no folder '{name}' here, and it could not be fetched from the Hub: {reason}"
        ) from None
