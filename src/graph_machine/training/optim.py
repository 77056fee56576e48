"""Adam, and its state as named tensors (no pickle)."""

import torch
from torch import Tensor, nn

from graph_machine.config import TrainConfig
from graph_machine.errors import CheckpointError, ConfigError, did_you_mean

# Devices with a kernel that updates all parameters in one call.
FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")
STATES = ("step", "exp_avg", "exp_avg_sq")


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Adam:
    """Adam without weight decay; the learning rate is set at every step."""
    fused = next(model.parameters()).device.type in FUSED_DEVICES
    parameters = [value for value in model.parameters() if value.requires_grad]
    return torch.optim.Adam(
        parameters, lr=config.peak_lr, betas=(config.beta1, config.beta2), fused=fused
    )


def freeze(model: nn.Module, parts: str) -> None:
    """Stop training the named parts: modules or parameters by their dotted names."""
    for part in (name.strip() for name in parts.split(",") if name.strip()):
        inside = [
            value
            for name, value in model.named_parameters()
            if name == part or name.startswith(f"{part}.")
        ]
        if not inside:
            known = sorted({name.split(".")[0] for name, _ in model.named_parameters()})
            raise ConfigError(
                f"train.freeze: the model has no part '{part}'."
                f"{did_you_mean(part, known)} Its parts: {', '.join(known)}."
            )
        for value in inside:
            value.requires_grad_(False)
    if not any(value.requires_grad for value in model.parameters()):
        raise ConfigError(f"train.freeze={parts} leaves nothing to train.")


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
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    if tensors and set(tensors) != {f"{kind}.{name}" for kind in STATES for name in parameters}:
        raise CheckpointError(f"The optimiser's state does not fit the model: {where}")
    optimizer.state.clear()
    for name, parameter in parameters.items() if tensors else ():
        optimizer.state[parameter] = {
            kind: tensors[f"{kind}.{name}"].to(parameter.device, copy=True) for kind in STATES
        }
