"""Weights and config on disk: a folder with `config.json` and `model.safetensors`. No pickle.

A checkpoint of a run whose weights are averaged has `average.safetensors` too. The averaged weights
are those that were tested, so they are what is opened; training goes on from the others.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import (
    CheckpointError,
    ConfigError,
    MissingExtraError,
    count_of,
    did_you_mean,
)
from graph_machine.files import atomic_path, read_object, write_json
from graph_machine.models.shapes import shapes_only

if TYPE_CHECKING:
    from graph_machine.models.graph_machine import GraphMachine

M = TypeVar("M", bound=torch.nn.Module)

FORMAT = "graph-machine"
VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
AVERAGE_FILE = "average.safetensors"
# owner/name, as the Hub spells it; anything else is a path.
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# Of a Graph Machine, or of another `model.body`.
LAYER = re.compile(r"(stack|body)\.layers\.[0-9]+\.")
ZOO = Path(__file__).parent.parent / "zoo" / "models"


def save_model(
    model: "GraphMachine", folder: str | Path, *, half: bool = False, **extra: Any
) -> Path:
    """Write a checkpoint folder; `extra` goes into config.json, `half` stores float16.

    >>> from graph_machine import GraphMachine
    >>> model = GraphMachine.from_pretrained("gm-4x4")
    >>> folder = save_model(model, "mine", half=True)
    >>> GraphMachine.from_pretrained(folder).config == model.config
    True
    """
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
    write_json(folder / CONFIG_FILE, config_data(model, sha256=digest(content), **extra))
    return folder


def digest(content: bytes) -> str:
    """What config.json keeps of the weights, so that a flipped bit is seen."""
    return hashlib.sha256(content).hexdigest()


def config_data(model: "GraphMachine", **extra: Any) -> dict[str, Any]:
    """The contents of `config.json`."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": model.config.to_dict(),
        "spec": model.spec.to_dict(),
        **extra,
    }


def read_config(folder: str | Path) -> dict[str, Any]:
    """The checked contents of `config.json`."""
    path = Path(folder) / CONFIG_FILE
    if not path.exists():
        raise CheckpointError(f"No checkpoint here (there is no {CONFIG_FILE}): {folder}")
    data = read_object(path, CheckpointError)
    if data.get("format") != FORMAT:
        raise CheckpointError(f"{CONFIG_FILE} is not a graph-machine checkpoint's: {path}")
    if data.get("version") != VERSION:
        raise CheckpointError(
            f"The checkpoint has format version {data.get('version')}, this program reads "
            f"{VERSION}: {path}"
        )
    return data


def read_weights(
    folder: str | Path, sha256: object = None, name: str = WEIGHTS_FILE
) -> dict[str, Tensor]:
    """The weights in float32; `sha256` is the digest that config.json has kept of them."""
    path = Path(folder) / name
    try:
        content = path.read_bytes()
        if sha256 is not None and digest(content) != sha256:
            raise CheckpointError(
                f"{name} is damaged (its bytes are not those that were written): {path}"
            )
        weights = load(content)
    except FileNotFoundError:
        raise CheckpointError(f"The checkpoint has no {name}: {folder}") from None
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{name} is damaged or cut short ({error}): {path}") from None
    return {n: t.float() if t.dtype == torch.float16 else t for n, t in weights.items()}


def tested_weights(folder: Path, config: dict[str, Any]) -> dict[str, Tensor]:
    """The weights that were tested: averaged, where a run has averaged them."""
    weights = read_weights(folder, config.get("sha256"))
    if (folder / AVERAGE_FILE).exists():
        weights |= read_weights(folder, config.get("average_sha256"), AVERAGE_FILE)
    return weights


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights, read from the file's header only."""
    path = folder / WEIGHTS_FILE
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise CheckpointError(f"The checkpoint has no {WEIGHTS_FILE}: {folder}") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{WEIGHTS_FILE} is damaged or cut short ({error}): {path}") from None


def load_weights(model: torch.nn.Module, weights: dict[str, Tensor], where: str | Path) -> None:
    """Put weights into a model; missing, surplus or misshapen ones are one clear error."""
    check_shapes(model, {name: tuple(tensor.shape) for name, tensor in weights.items()}, where)
    model.load_state_dict(weights)


def check_shapes(
    model: torch.nn.Module, weights: dict[str, tuple[int, ...]], where: str | Path
) -> None:
    expected = model.state_dict()
    missing = sorted(expected.keys() - weights.keys())
    surplus = sorted(weights.keys() - expected.keys())
    if missing or surplus:
        what = f"lacks '{missing[0]}'" if missing else f"has an unknown '{surplus[0]}'"
        more = len(missing) + len(surplus) - 1
        raise CheckpointError(
            f"The weights do not fit their config: the file {what}"
            f"{f' (and {more} more)' if more else ''}: {where}"
        )
    for name, tensor in expected.items():
        if weights[name] != tuple(tensor.shape):
            raise CheckpointError(
                f"The weights do not fit their config: '{name}' should be {tuple(tensor.shape)}, "
                f"got {weights[name]}: {where}"
            )


def find_checkpoint(name: str | Path) -> Path | None:
    """A checkpoint folder, the model inside a run folder, or a model of the package by name."""
    for folder in (Path(name), Path(name) / "model", ZOO / str(name)):
        if (folder / CONFIG_FILE).exists():
            data = (folder / CONFIG_FILE).read_text(encoding="utf-8", errors="replace")
            if '"format"' in data or not (folder / "model").exists():
                return folder
    return None


def shipped() -> list[str]:
    """Names of the models that come with the package."""
    return sorted(
        path.parent.name
        for path in ZOO.glob(f"*/{CONFIG_FILE}")
        if not path.parent.name.startswith(".")
    )


def load_checkpoint(make: Callable[[ModelConfig, InputSpec], M], name: str | Path) -> M:
    """What `make` builds, with the weights of a checkpoint: a folder, a shipped model, the Hub.

    >>> from graph_machine import GraphMachine
    >>> load_checkpoint(GraphMachine, "gm-4x4").num_parameters
    505856
    """
    folder = find_checkpoint(name)
    if folder is None:
        if not Path(name).exists() and HUB_NAME.fullmatch(str(name)):
            return load_checkpoint(make, _from_hub(str(name)))
        known = f" Shipped models: {', '.join(shipped())}." if shipped() else ""
        known = did_you_mean(str(name), shipped()) + known
        raise CheckpointError(f"No checkpoint here (there is no {CONFIG_FILE}): {name}.{known}")
    data = read_config(folder)
    try:
        config, spec = ModelConfig.from_dict(data["model"]), InputSpec.from_dict(data["spec"])
    except (ConfigError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{CONFIG_FILE} does not describe a model ({error}): {folder}"
        ) from None
    shapes = read_shapes(folder)
    _check_size(config, spec, shapes, folder)
    # Nothing is allocated yet: a config that lies about its weights costs nothing.
    with shapes_only():
        check_shapes(make(config, spec), shapes, folder)
    model = make(config, spec)
    load_weights(model, tested_weights(folder, data), folder)
    return model.eval()


def _check_size(
    config: ModelConfig, spec: InputSpec, shapes: dict[str, tuple[int, ...]], where: Path
) -> None:
    """What would take long to build, even without memory, is in the header or it is not there."""
    layers = {name.split(".")[2] for name in shapes if LAYER.match(name)}
    nodes = shapes.get("nodes.position.weight", (spec.num_nodes or 0,))[0]
    for what, told, found in (
        ("layers", config.num_layers, len(layers)),
        ("nodes", spec.num_nodes or 0, nodes),
    ):
        if told != found:
            raise CheckpointError(
                f"The weights do not fit their config: it says {count_of(told, what)}, the file "
                f"has {found}: {where}"
            )


def _from_hub(name: str) -> str:
    try:
        from graph_machine.models.download import download
    except ImportError:
        raise MissingExtraError(
            "huggingface_hub", "hub", f"Loading '{name}' from the Hub"
        ) from None
    return download(name, (CONFIG_FILE, WEIGHTS_FILE))
