"""One model in training: its losses, a step, and the first bad tensor when a loss is not finite."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from graph_machine.errors import TrainingError
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.tasks.base import Task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.training.devices import ALONE, Processes, autocast
from graph_machine.lab.training.optim import Optimizer, WeightAverage, freeze
from graph_machine.lab.training.schedule import (
    check_schedules,
    entropy_weight,
    learning_rate,
    round_weights,
    step_seed,
    training_rounds,
)
from graph_machine.models import GraphMachine
from graph_machine.models.graph_machine import ModelOut
from graph_machine.nn import Entropies
from graph_machine.nn.taps import listen
from graph_machine.ops.referral.hard import policy_loss
from graph_machine.state import GraphState


def entropy_terms(entropies: Entropies) -> dict[str, Tensor]:
    """The entropies that this model has, by name; each is one loss, minimised."""
    return {
        f"entropy_{name}": value
        for name, value in zip(Entropies._fields, entropies, strict=True)
        if value is not None
    }


def policy_term(
    state: GraphState, losses: Float[Tensor, "b"], entropy_bonus: float
) -> Float[Tensor, ""] | None:
    """What to add to the mean loss where addresses were chosen (the hard space); else None.

    The score-function term with a leave-one-out baseline over the batch, unless the choices are
    trained straight-through, minus the bonus for their entropy.
    """
    policy = None if state.addresses is None else state.addresses.policy
    if policy is None:
        return None
    term = -entropy_bonus * policy.entropy
    if policy.log_probs is not None:
        term = term + policy_loss(losses, policy.log_probs)
    return term


def is_bad(loss: float, norm: float, largest: float) -> bool:
    """Not finite, or so large that another step would spoil the weights."""
    return not (math.isfinite(loss) and math.isfinite(norm)) or loss > largest


def diagnose(model: nn.Module, batch: Batch, loss_of: Callable[[Batch], Tensor]) -> str:
    """Where it began: a parameter, a tensor of a sublayer (forward), or a gradient (backward).

    `loss_of` repeats the step's forward pass; listening makes every sublayer take its staged
    path, so that each quantity is seen by name.
    """
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"the parameter {name} is not finite"
    first: list[str] = []
    largest = ("", 0.0)

    def listener(path: str, tensor: Tensor) -> None:
        nonlocal largest
        if not first and not bool(torch.isfinite(tensor).all()):
            first.append(f"{path} is the first tensor that is not finite ({_where(tensor)})")
        size = float(tensor.detach().abs().max()) if tensor.numel() else 0.0
        if size > largest[1]:
            largest = (path, size)

    model.zero_grad(set_to_none=True)
    with listen(model, listener):
        loss = loss_of(batch)
    if first:
        return first[0]
    if not bool(torch.isfinite(loss)):
        return "every sublayer is finite, the readout or the loss is not"
    loss.backward()
    # Backward runs from the readout to the input, so the last parameter is the first one hit.
    for name, parameter in reversed(list(model.named_parameters())):
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
            return f"the gradient of {name} is the first that is not finite"
    if largest[0]:
        return f"all tensors are finite, the largest is {largest[0]} ({largest[1]:.3g})"
    return "all tensors of this process's part of the batch are finite"


def _where(tensor: Tensor) -> str:
    bad = ~torch.isfinite(tensor)
    place = tuple(bad.nonzero()[0].tolist())
    return f"{int(bad.sum())} of {tensor.numel()} values, the first at {place}"


def build_model(config: ExperimentConfig, task: Task, seed: int) -> GraphMachine:
    """A new model. Initialised on the CPU, so that a seed means the same on every device."""
    torch.manual_seed(seed)
    model = GraphMachine(config.model, task.spec)
    model.backend = config.train.backend
    model.stack.checkpoint_layers = config.train.checkpoint_layers
    if model.core is not None:
        model.core.checkpoint_layers = config.train.checkpoint_layers
    return model


class Trainer:
    """Model, optimiser and the step. Knows nothing of files, logs or evaluation."""

    def __init__(
        self,
        config: ExperimentConfig,
        task: Task,
        *,
        seed: int,
        device: torch.device,
        processes: Processes = ALONE,
    ) -> None:
        processes.check(config.train)
        check_schedules(config)
        self.whole = config
        self.config, self.task, self.seed = config.train, task, seed
        self.device, self.processes = device, processes
        self.model = build_model(config, task, seed).to(device)
        freeze(self.model, config.train.freeze)
        self.average = WeightAverage(self.model, config.train.ema) if config.train.ema else None
        self.runner: nn.Module = processes.wrap(self.model, device)
        if config.train.compile:
            self.runner = torch.compile(self.runner)  # pyrefly: ignore[bad-assignment]

    @cached_property
    def optimizer(self) -> Optimizer:
        """Made when first used: torch imports its compiler for it, which takes a second."""
        return Optimizer(self.model, self.config)

    def restart_average(self) -> None:
        """Average from the present weights on."""
        if self.average is not None:
            self.average = WeightAverage(self.model, self.config.ema)

    def set_progress(self, step: int) -> None:
        """Give a model whose settings are annealed the progress of the run, from 0 to 1."""
        hook = getattr(self.model, "set_progress", None)
        if hook is not None:
            hook(step / self.config.steps)

    def step(self, step: int, *, stop: bool = False) -> dict[str, float]:
        """Step number `step` (from 0) on its batch; sums over the whole batch of all processes.

        The batch, the random numbers, the learning rate and the entropy weight are functions of
        `step`, so that a step is the same whatever happened before it was reached.
        """
        self.set_progress(step)
        self.runner.train()
        torch.manual_seed(step_seed(self.seed, step, self.processes.rank))
        batch = self._batch(step)
        self.optimizer.zero_grad()
        totals: dict[str, Tensor] = {}
        parts = self.config.accumulate
        size = len(batch) // parts
        for number in range(parts):
            with self._gradients_kept_back(number < parts - 1):
                loss, sums = self._loss(batch.part(number * size, (number + 1) * size), step)
                (loss / parts).backward()
            for name, value in sums.items():
                totals[name] = totals[name] + value if name in totals else value
        # Not torch.tensor: a copy from the host would wait for everything before it.
        totals["stop"] = torch.full((), float(stop), device=self.device)
        stats = self._reduce(totals)
        self._check(step, stats, batch)
        self.optimizer.step(learning_rate(step, self.config))
        if self.average is not None:
            self.average.update(step)
        return stats

    def loss_of_step(self, step: int) -> Tensor:
        """The forward pass of a step and nothing else, to see what it takes."""
        self.runner.train()
        torch.manual_seed(step_seed(self.seed, step, self.processes.rank))
        return self._loss(self._batch(step), step)[0]

    def tested_weights(self) -> AbstractContextManager[None]:
        """While the block runs, the model has the weights that are tested: averaged, if any are."""
        return nullcontext() if self.average is None else self.average.in_place()

    def _batch(self, step: int) -> Batch:
        done = step / self.config.steps
        whole = self.task.batch(step, self.config.batch_size, self.seed, done)
        return whole.part(*self.processes.share(len(whole))).to(self.device)

    def _gradients_kept_back(self, more: bool) -> AbstractContextManager[Any]:
        """Processes exchange gradients once per step, with the last micro-batch."""
        if more and isinstance(self.runner, DistributedDataParallel):
            return self.runner.no_sync()
        return nullcontext()

    def _loss(
        self, batch: Batch, step: int, model: nn.Module | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss to minimise (a mean over examples) and sums over examples to report."""
        weight = entropy_weight(step, self.config)
        model = self.runner if model is None else model
        with autocast(self.config, self.device):
            out = model(
                **batch.inputs(),
                entropies=weight > 0,
                raw_entropies=self.config.entropy_of == "raw",
                keep_layers=self.config.layer_loss > 0,
                **self._rounds(step),
            )
        losses = self._answer_losses(out, batch)
        loss = losses.mean()
        if out.layer_logits:
            between = [self.task.losses(each, batch).mean() for each in out.layer_logits]
            loss = loss + self.config.layer_loss * torch.stack(between).mean()
        chosen = policy_term(out.state, losses, self.config.policy_entropy)
        if chosen is not None:
            loss = loss + chosen
        sums: dict[str, Tensor] = {}
        terms = entropy_terms(out.entropies) if weight > 0 else {}
        for name, term in terms.items():
            loss = loss + weight * term.float()
            sums[name] = term.detach().float() * len(batch)
        columns = self.task.score(self.task.decide(out.logits.detach()), batch)
        sums |= {name: column.sum() for name, column in columns.items()}
        sums["loss"] = losses.detach().sum()
        sums["examples"] = torch.full((), len(batch), device=self.device)
        return loss, sums

    def _rounds(self, step: int) -> dict[str, Any]:
        """How often the core runs in this step, and which of its rounds are answered for."""
        if self.model.core is None:
            return {}
        rounds = training_rounds(step, self.seed, self.whole)
        learning = min(rounds, self.config.grad_rounds or rounds)
        keep = 1 if self.config.round_loss == "last" else learning
        return {"rounds": rounds, "grad_rounds": learning, "keep_rounds": keep}

    def _answer_losses(self, out: ModelOut, batch: Batch) -> Tensor:
        """Loss per example: of the answer, or a weighted mean over the rounds that count."""
        if not out.round_logits:
            return self.task.losses(out.logits, batch)
        weights = round_weights(len(out.round_logits), self.config)
        losses = [self.task.losses(each, batch) for each in out.round_logits]
        return sum((w * loss for w, loss in zip(weights, losses)), torch.zeros_like(losses[0]))

    def _reduce(self, totals: dict[str, Tensor]) -> dict[str, float]:
        """Sums over all processes and the norm of the (clipped) gradients, with one transfer."""
        vector = torch.stack([value.float() for value in totals.values()])
        vector = self.processes.sum(vector)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        values = torch.cat([vector, norm.reshape(1).float()]).tolist()
        return dict(zip((*totals, "grad_norm"), values, strict=True))

    def _check(self, step: int, stats: dict[str, float], batch: Batch) -> None:
        loss = stats["loss"] / stats["examples"]
        if not is_bad(loss, stats["grad_norm"], self.task.largest_loss):
            return

        def loss_of(again: Batch) -> Tensor:
            torch.manual_seed(step_seed(self.seed, step, self.processes.rank))
            return self._loss(again, step, self.model)[0]

        why = diagnose(self.model, batch, loss_of)
        raise TrainingError(
            f"The loss is {loss:.4g}, the gradient norm {stats['grad_norm']:.4g} at step {step}: "
            f"{why}. The weights were not updated; the last checkpoint is intact. Try a lower "
            "train.peak_lr or train.precision=float32."
        )
