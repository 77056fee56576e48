"""One word chooses the implementation of an op.

`reference` is the paper's listing in plain einsum and decides what is right. `fused` works chunk
by chunk and recomputes in the backward pass; it has no second derivative. `auto` takes the fastest
implementation that is tested to equal the reference: `fused`, except in an exported program, which
should not need this package to run.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from graph_machine.errors import ConfigError, did_you_mean

Backend = Literal["auto", "reference", "fused"]
BACKENDS: tuple[str, ...] = get_args(Backend)


def resolve(backend: str, op: str, example: Tensor) -> str:
    """The implementation to use for `op`; an unknown word is an error."""
    if backend not in BACKENDS:
        raise ConfigError(
            f"{op}: unknown backend '{backend}'.{did_you_mean(backend, BACKENDS)} "
            f"Known: {', '.join(BACKENDS)}."
        )
    if backend != "auto":
        return backend
    return "reference" if torch.compiler.is_exporting() else "fused"
