"""Weights to begin with, from another model."""

import torch

from graph_machine.errors import CheckpointError
from graph_machine.models import GraphMachine


def take_weights(model: GraphMachine, name: str) -> list[str]:
    """Put into `model` every tensor of the model `name` that fits; a line for each that does not.

    A tensor fits if its name and its shape are the same. Nothing that fits is an error.
    """
    source = GraphMachine.from_pretrained(name).state_dict()
    own = model.state_dict()
    lines, taken = [], {}
    for key, value in source.items():
        if key not in own:
            lines.append(f"--init-from: '{key}' of {name} has no place in this model.")
        elif own[key].shape != value.shape:
            lines.append(
                f"--init-from: '{key}' is {tuple(own[key].shape)} here and {tuple(value.shape)} in "
                f"{name}: it starts as a new model's."
            )
        else:
            taken[key] = value
    if not taken:
        raise CheckpointError(f"--init-from: no tensor of '{name}' fits this model.")
    new = own.keys() - source.keys()
    lines += [f"--init-from: '{key}' is new and starts as a new model's." for key in new]
    with torch.no_grad():
        for key, value in taken.items():
            own[key].copy_(value)
    return sorted(lines)
