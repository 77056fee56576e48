"""Optimisers and their state as named tensors, averaged weights, weights to begin with."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from graph_machine.errors import CheckpointError, ConfigError, did_you_mean
from graph_machine.lab.config import TrainConfig
from graph_machine.models import GraphMachine

# Devices with a kernel that updates all parameters in one call.
FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")
# Parameters of fewer numbers on average are updated by one thread: waking others takes longer.
SMALL = 1 << 16
ADAM_STATES = ("step", "exp_avg", "exp_avg_sq")
MUON_STATES = ("momentum_buffer",)


@contextmanager
def one_thread(alone: bool) -> Iterator[None]:
    """While the block runs, torch computes with one thread, if `alone`."""
    before = torch.get_num_threads()
    if not alone or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Optimizer:
    """The optimiser of `TrainConfig.optimizer`, with its state as named tensors (no pickle).

    Muon takes the matrices but for embeddings, and AdamW all other parameters. Its updates have
    the size of AdamW's, so that one learning rate serves both.
    """

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
        by_muon = [
            value
            for value in self.parameters.values()
            if config.optimizer == "muon" and value.ndim == 2 and id(value) not in tables
        ]
        taken = {id(value) for value in by_muon}
        rest = [value for value in self.parameters.values() if id(value) not in taken]
        self.states = {
            name: MUON_STATES if id(value) in taken else ADAM_STATES
            for name, value in self.parameters.items()
        }
        device = next(model.parameters()).device.type
        fused = device in FUSED_DEVICES
        sizes = [value.numel() for value in rest]
        self.alone = device == "cpu" and bool(rest) and sum(sizes) < SMALL * len(sizes)
        betas, lr, decay = (config.beta1, config.beta2), config.peak_lr, config.weight_decay
        self.parts: list[torch.optim.Optimizer] = []
        if by_muon:
            self.parts.append(
                torch.optim.Muon(by_muon, lr=lr, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
            )
        if rest and config.optimizer == "adam":
            self.parts.append(torch.optim.Adam(rest, lr=lr, betas=betas, fused=fused))
        elif rest:
            self.parts.append(
                torch.optim.AdamW(rest, lr=lr, betas=betas, weight_decay=decay, fused=fused)
            )

    def step(self, learning_rate: float) -> None:
        """Update the parameters."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = learning_rate
            with one_thread(self.alone and not isinstance(part, torch.optim.Muon)):
                part.step()

    def tensors(self) -> dict[str, Tensor]:
        """`exp_avg.<parameter>` and so on; empty before the first step."""
        return {
            f"{kind}.{name}": part.state[value][kind].detach().cpu().contiguous()
            for name, value in self.parameters.items()
            for part in self.parts
            if value in part.state
            for kind in self.states[name]
        }

    def load(self, tensors: dict[str, Tensor], where: object) -> None:
        """The state of `tensors` put back, on the parameters' device."""
        expected = {f"{kind}.{name}" for name, kinds in self.states.items() for kind in kinds}
        if tensors and set(tensors) != expected:
            raise CheckpointError(f"The optimiser's state does not fit the model: {where}")
        for part in self.parts:
            part.state.clear()
            mine = {id(value) for group in part.param_groups for value in group["params"]}
            for name, value in self.parameters.items() if tensors else ():
                if id(value) in mine:
                    part.state[value] = {
                        kind: tensors[f"{kind}.{name}"].to(value.device, copy=True)
                        for kind in self.states[name]
                    }


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


class WeightAverage:
    """Exponential moving average of a model's parameters, in the order of their names.

    The decay grows from 0.1 to its final value as (1 + step) / (10 + step) does, so that the first
    weights do not linger.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.tensors: dict[str, Tensor] = {
            name: value.detach().clone() for name, value in model.named_parameters()
        }

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after step number `step` (from 0)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        current = [value.detach() for _, value in self.model.named_parameters()]
        torch._foreach_lerp_(list(self.tensors.values()), current, 1 - decay)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Continue from saved tensors, on the model's device."""
        for name, value in self.tensors.items():
            value.copy_(tensors[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While the block runs, the model has the averaged weights."""
        current = [value.detach() for _, value in self.model.named_parameters()]
        kept = [value.clone() for value in current]
        torch._foreach_copy_(current, list(self.tensors.values()))
        try:
            yield
        finally:
            torch._foreach_copy_(current, kept)


def take_weights(model: GraphMachine, name: str) -> list[str]:
    """Put into `model` every tensor of the model `name` that fits; a line for each that does not.

    A tensor fits if its name and its shape are the same. Nothing that fits is an error.
    """
    source, own = GraphMachine.from_pretrained(name).state_dict(), model.state_dict()
    lines = [f"'{key}' is new and starts as a new model's." for key in own.keys() - source.keys()]
    taken = 0
    for key, value in source.items():
        if key not in own:
            lines.append(f"'{key}' of {name} has no place in this model.")
        elif own[key].shape != value.shape:
            lines.append(
                f"'{key}' is {tuple(own[key].shape)} here and {tuple(value.shape)} in {name}: it "
                "starts as a new model's."
            )
        else:
            own[key].copy_(value)  # detached: it is the model's own memory
            taken += 1
    if not taken:
        raise CheckpointError(f"--init-from: no tensor of '{name}' fits this model.")
    return sorted(f"--init-from: {line}" for line in lines)
