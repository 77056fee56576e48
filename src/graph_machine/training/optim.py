"""Adam, and its state as named tensors (no pickle)."""

import torch
from torch import Tensor, nn

from graph_machine.config import TrainConfig
from graph_machine.errors import CheckpointError

# Devices with a kernel that updates all parameters in one call.
FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")
STATES = ("step", "exp_avg", "exp_avg_sq")


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Adam:
    """Adam without weight decay; the learning rate is set anew at every step."""
    fused = next(model.parameters()).device.type in FUSED_DEVICES
    return torch.optim.Adam(
        model.parameters(), lr=config.peak_lr, betas=(config.beta1, config.beta2), fused=fused
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Adam) -> dict[str, Tensor]:
    """`exp_avg.<parameter>` and so on; empty before the first step."""
    return {
        f"{kind}.{name}": optimizer.state[parameter][kind].detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        for kind in STATES
        if parameter in optimizer.state
    }


def load_optimizer(
    model: nn.Module, optimizer: torch.optim.Adam, tensors: dict[str, Tensor], where: object
) -> None:
    """The state of `optimizer_tensors` put back, on the parameters' device."""
    parameters = dict(model.named_parameters())
    if tensors and set(tensors) != {f"{kind}.{name}" for kind in STATES for name in parameters}:
        raise CheckpointError(f"The optimiser's state does not fit the model: {where}")
    optimizer.state.clear()
    for name, parameter in parameters.items() if tensors else ():
        optimizer.state[parameter] = {
            kind: tensors[f"{kind}.{name}"].to(parameter.device, copy=True) for kind in STATES
        }
