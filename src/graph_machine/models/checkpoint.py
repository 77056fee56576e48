"""Weights and config on disk: a folder with `config.json` and `model.safetensors`. No pickle.

A checkpoint of a run with averaged weights also has `average.safetensors`. These weights were
tested, so a model is opened with them; training continues from the others.
"""

import hashlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from graph_machine import files
from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import (
    CheckpointError,
    ConfigError,
    MissingExtraError,
    count_of,
    did_you_mean,
)
from graph_machine.files import atomic_path, read_object, shipped, write_json
from graph_machine.models.build import ShapesOnly

if TYPE_CHECKING:
    from graph_machine.models.graph_machine import GraphMachine

M = TypeVar("M", bound=torch.nn.Module)

FORMAT = "graph-machine"
VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
AVERAGE_FILE = "average.safetensors"
# hf:owner/name or hf:owner/name@revision. Only this prefix reaches for the network.
HUB = "hf:"
HUB_NAME = re.compile(r"hf:([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w./-]+))?")
HUB_OPTIONS = ("revision", "cache_dir", "token", "local_files_only")
# Of a Graph Machine, or of another `model.body`.
LAYER = re.compile(r"(stack|body)\.layers\.[0-9]+\.")


def save_model(
    model: "GraphMachine", folder: str | Path, *, half: bool = False, **extra: Any
) -> Path:
    """Write a checkpoint folder; `extra` goes into config.json, with `half` weights are float16.

    >>> from graph_machine import GraphMachine
    >>> model = GraphMachine.from_pretrained("gm-4x4")
    >>> folder = save_model(model, "mine", half=True)
    >>> GraphMachine.from_pretrained(folder).config == model.config
    True
    """
    own = {"model": model.config.to_dict(), "spec": model.spec.to_dict()}
    return save_folder(model, folder, own | extra, half=half)


def save_folder(
    model: torch.nn.Module, folder: str | Path, facts: dict[str, Any], *, half: bool = False
) -> Path:
    """Write the weights of a model, and `facts` with their checksums as `config.json`."""
    folder = Path(folder)
    weights = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    if half:
        weights = {n: t.half() if t.is_floating_point() else t for n, t in weights.items()}
    content = save(weights, metadata={"format": "pt"})
    if (folder / AVERAGE_FILE).exists():  # of other weights, and it would be opened
        (folder / AVERAGE_FILE).unlink()
    with atomic_path(folder / WEIGHTS_FILE) as temporary:
        temporary.write_bytes(content)
    # The config comes last: a folder with a config has its weights.
    data = config_data(facts | {"sha256": hashlib.sha256(content).hexdigest()})
    write_json(folder / CONFIG_FILE, data)
    return folder


def config_data(facts: dict[str, Any]) -> dict[str, Any]:
    """The contents of `config.json`, with their checksum."""
    data = {"format": FORMAT, "version": VERSION, **facts}
    return data | {"checksum": checksum_of(data)}


def checksum_of(data: dict[str, Any]) -> str:
    """A digest of JSON data that does not depend on its layout."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def read_config(folder: str | Path, kind: str = FORMAT) -> dict[str, Any]:
    """Read `config.json` and verify its checksum."""
    path = Path(folder) / CONFIG_FILE
    try:
        data = read_object(path, CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(f"No checkpoint here (there is no {CONFIG_FILE}): {folder}") from None
    if data.get("format") != kind:
        raise CheckpointError(f"{CONFIG_FILE} does not belong to a {kind} checkpoint: {path}")
    if data.get("version") != VERSION:
        raise CheckpointError(
            f"The checkpoint has format version {data.get('version')}; this program reads "
            f"{VERSION}: {path}"
        )
    # Before anything in it is interpreted. Checkpoints of earlier versions have no checksum.
    checksum = data.pop("checksum", None)
    if checksum is not None and checksum != checksum_of(data):
        raise CheckpointError(f"{CONFIG_FILE} is damaged (its checksum is wrong): {path}")
    return data


def read_weights(
    folder: str | Path, sha256: object = None, name: str = WEIGHTS_FILE
) -> dict[str, Tensor]:
    """Read the weights, in float32; `sha256` is their digest from config.json."""
    path = Path(folder) / name
    try:
        content = path.read_bytes()
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise CheckpointError(f"{name} is damaged (its checksum is wrong): {path}")
        weights = load(content)
    except FileNotFoundError:
        raise CheckpointError(f"The checkpoint has no {name}: {folder}") from None
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{name} is damaged or cut short ({error}): {path}") from None
    return {n: t.float() if t.dtype == torch.float16 else t for n, t in weights.items()}


def misfit(error: RuntimeError, where: str | Path) -> CheckpointError:
    """An error with torch's first reason why the weights do not fit the model, in one line."""
    first, *reasons = str(error).splitlines()  # torch lists the reasons below a heading
    reason = (reasons or [first])[0].strip()
    more = "..." if len(reason) > 200 else ""
    return CheckpointError(f"The weights do not fit their config: {reason[:200]}{more}: {where}")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose `config.json` has been read and checked, but not its weights."""

    folder: Path
    config: ModelConfig
    spec: InputSpec
    facts: dict[str, Any]  # all of config.json: what is known of the training besides

    def load(self, make: Callable[[ModelConfig, InputSpec], M]) -> M:
        """Build a model with `make` and load the weights of this checkpoint."""
        weights = read_weights(self.folder, self.facts.get("sha256"))
        if (self.folder / AVERAGE_FILE).exists():
            average = self.facts.get("average_sha256")
            weights |= read_weights(self.folder, average, AVERAGE_FILE)
        shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        # Layers and nodes, before anything is built: many of them take long even without memory.
        layers = {name.split(".")[2] for name in shapes if LAYER.match(name)}
        nodes = self.spec.num_nodes or 0
        places = shapes.get("nodes.position.weight", (nodes,))[0]
        sizes = (("layers", self.config.own_layers, len(layers)), ("nodes", nodes, places))
        for what, stated, found in sizes:
            if stated != found:
                raise CheckpointError(
                    f"The weights do not fit their config, which has {count_of(stated, what)}; the "
                    f"file has {found}: {self.folder}"
                )
        # Nothing is allocated: a config that does not fit its weights costs nothing.
        with ShapesOnly():
            model = make(self.config, self.spec)
        # Copies: parts of one large buffer are not aligned as torch's own tensors are.
        own = {name: tensor.clone() for name, tensor in weights.items()}
        try:
            model.load_state_dict(own, assign=True)
        except RuntimeError as error:
            raise misfit(error, self.folder) from None
        return model.eval()


def open_checkpoint(name: str | Path) -> Checkpoint:
    """The checkpoint in a folder or run folder (its model, or its best checkpoint where the run
    was interrupted), of a shipped model, or of the Hub (`hf:`).

    >>> from graph_machine import GraphMachine
    >>> open_checkpoint("gm-4x4").load(GraphMachine).num_parameters
    505856
    """
    if not isinstance(name, str | Path):
        raise CheckpointError(f"A model should be a name or folder, got {name!r}.")
    if str(name).startswith(HUB):
        found = HUB_NAME.fullmatch(str(name))
        if found is None:
            raise CheckpointError(f"Write hf:owner/name or hf:owner/name@revision, got '{name}'.")
        places = [download(found[1], revision=found[2])]
    else:
        run = Path(name)
        places = [run, run / "model", run / "checkpoints" / "best", files.ZOO / str(name)]
    folder = next((place for place in places if (place / CONFIG_FILE).exists()), None)
    if folder is None:
        raise _not_found(name)
    if folder == Path(name) / "checkpoints" / "best":
        print(f"The run is not finished; this is its best checkpoint: {folder}", file=sys.stderr)
    data = read_config(folder)
    try:
        config, spec = ModelConfig.from_dict(data["model"]), InputSpec.from_dict(data["spec"])
    except (ConfigError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{CONFIG_FILE} does not describe a model ({error}): {folder}"
        ) from None
    return Checkpoint(folder, config, spec, data)


def _not_found(name: str | Path) -> CheckpointError:
    if Path(name).is_file():
        return CheckpointError(
            f"A model should be a folder with {CONFIG_FILE}; this is a file: {name}"
        )
    known = f" Shipped models: {', '.join(shipped())}." if shipped() else ""
    is_repository = not Path(name).exists() and HUB_NAME.fullmatch(f"{HUB}{name}") is not None
    hub = f" For a model of the Hugging Face Hub write '{HUB}{name}'." if is_repository else ""
    near = did_you_mean(str(name), shipped())
    return CheckpointError(
        f"No checkpoint here (there is no {CONFIG_FILE}): {name}.{near}{hub}{known}"
    )


def download(name: str, **options: Any) -> Path:
    """Download only config and weights of a model of the Hub; returns the local folder."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingExtraError(
            "huggingface_hub", "hub", f"Loading '{name}' from the Hub"
        ) from None
    keep = {key: options[key] for key in HUB_OPTIONS if options.get(key) is not None}
    files = [CONFIG_FILE, WEIGHTS_FILE]
    at = f" at revision {keep['revision']}" if "revision" in keep else ""
    print(f"From the Hugging Face Hub: {', '.join(files)} of {name}{at}", file=sys.stderr)
    try:
        return Path(snapshot_download(name, allow_patterns=files, **keep))
    except OSError as error:  # also: no such repository, not in the cache
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"Cannot fetch '{name}' from the Hub: {reason}") from None
