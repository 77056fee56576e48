"""Which implementation an op uses, by the caller's choice, the device and the sizes.

The word chooses between two ways. `reference` is the paper's listing in plain einsum and decides
what is right. `fused` recomputes in the backward pass instead of keeping what is large; it has no
second derivative. `auto` takes the fastest way that is tested to equal the reference: `fused`,
except in an exported program, which should not need this package to run.

The fused way has one or more implementations per op, each a forward and a backward pass over the
same dataclass of inputs. `policy.ORDER` says which comes first on which device; the first one that
serves the inputs at hand (sizes, dtypes, a compiler) is taken.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch

from graph_machine.errors import ConfigError, did_you_mean
from graph_machine.ops.core import CoreInputs
from graph_machine.ops.policy import implementations_on

Backend = Literal["auto", "reference", "fused"]
BACKENDS: tuple[str, ...] = get_args(Backend)


class Implementation(NamedTuple):
    """One way of carrying out an op.

    `forward(inputs)` gives the op's outputs, `backward(inputs, outs, grads)` the inputs again with
    gradients in place of tensors; of `outs` only what the op keeps is there, and a gradient that
    nobody asked for is None.
    """

    forward: Callable[[Any], Any]
    backward: Callable[[Any, Any, Any], Any]
    serves: Callable[[Any], bool] = lambda inputs: True


_implementations: dict[str, dict[str, Implementation]] = {}


def register(op: str, name: str, implementation: Implementation) -> None:
    """Offer an implementation of an op; a name that is taken is an error."""
    known = _implementations.setdefault(op, {})
    if name in known:
        raise ConfigError(f"{op}: there is an implementation '{name}' already.")
    known[name] = implementation


def implementations(op: str) -> dict[str, Implementation]:
    return dict(_implementations.get(op, {}))


def choose(op: str, inputs: CoreInputs) -> str:
    """The name of the implementation that `op` takes for these inputs."""
    device, known = inputs.device, _implementations[op]
    for name in implementations_on(device):
        if name in known and known[name].serves(inputs):
            return name
    raise ConfigError(f"{op}: no implementation on '{device.type}' supports inputs like these.")


def chosen(op: str, inputs: CoreInputs) -> Implementation:
    return _implementations[op][choose(op, inputs)]


def resolve(backend: str, op: str, *, staged: bool = False) -> str:
    """`reference` or `fused`; an unknown word is an error.

    `staged` asks for an op's stages one by one, for a listener: only the reference has them.
    """
    if backend not in BACKENDS:
        raise ConfigError(
            f"{op}: unknown backend '{backend}'.{did_you_mean(backend, BACKENDS)} "
            f"Known: {', '.join(BACKENDS)}."
        )
    if staged or (backend == "auto" and torch.compiler.is_exporting()):
        return "reference"
    return "fused" if backend == "auto" else backend
