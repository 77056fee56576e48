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
from graph_machine.lab.training import schedule
from graph_machine.lab.training.devices import ALONE, Processes, autocast, precision_of
from graph_machine.lab.training.optim import Optimizer, WeightAverage, freeze
from graph_machine.models import GraphMachine
from graph_machine.nn import Entropies
from graph_machine.nn.taps import listen
from graph_machine.ops.referral.hard import Policy, policy_loss


def policy_term(
    policy: Policy, losses: Float[Tensor, "b"], entropy_bonus: float
) -> Float[Tensor, ""]:
    """What to add to the mean loss where addresses were chosen (the hard space).

    The score-function term with a leave-one-out baseline over the batch, unless the choices are
    trained straight-through, minus the bonus for their entropy.
    """
    term = -entropy_bonus * policy.entropy
    if policy.log_probs is not None:
        term = term + policy_loss(losses, policy.log_probs)
    return term


def diagnose(model: nn.Module, batch: Batch, loss_of: Callable[[Batch], Tensor]) -> str:
    """The first value that is not finite: a parameter, a tensor of a sublayer, or a gradient.

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
            bad = ~torch.isfinite(tensor)
            count, place = f"{int(bad.sum())} of {tensor.numel()}", tuple(bad.nonzero()[0].tolist())
            where = f"{count} values, the first at {place}"
            first.append(f"{path} is the first tensor that is not finite ({where})")
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
        schedule.check_schedules(config)
        self.whole = config
        self.config, self.task, self.seed = config.train, task, seed
        self.device, self.processes = device, processes
        self.precision = precision_of(config.train, device)
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

    def step(self, step: int, *, stop: bool = False) -> dict[str, float]:
        """Step number `step` (from 0) on its batch; sums over the whole batch of all processes.

        The batch, the random numbers, the learning rate and the entropy weight are functions of
        `step`, so that a step does not depend on how it was reached.
        """
        self.model.set_progress(step / self.config.steps)
        batch = self._batch(step)
        self.model.zero_grad()
        totals: dict[str, Tensor] = {}
        parts = self.config.accumulate
        size = len(batch) // parts
        for number in range(parts):
            # Processes exchange gradients once per step, with the last micro-batch.
            more = number < parts - 1 and isinstance(self.runner, DistributedDataParallel)
            with self.runner.no_sync() if more else nullcontext():  # pyrefly: ignore[not-callable]
                part = batch[number * size : (number + 1) * size]
                loss, sums, logits = self._loss(part, step)
                (loss / parts).backward()
            scores = self.task.score(self.task.decide(logits.detach()), part)
            sums |= {name: column.sum() for name, column in scores.items()}
            for name, value in sums.items():
                totals[name] = totals[name] + value if name in totals else value
        # Not torch.tensor: a copy from the host would wait for everything before it.
        totals["stop"] = torch.full((), float(stop), device=self.device)
        stats = self._reduce(totals)
        self._check(step, stats, batch)
        self.optimizer.step(schedule.learning_rate(step, self.config))
        if self.average is not None:
            self.average.update(step)
        return stats

    def loss_of_step(self, step: int) -> Tensor:
        """The forward pass of a step alone, to measure it."""
        return self._loss(self._batch(step), step)[0]

    def tested_weights(self) -> AbstractContextManager[None]:
        """While the block runs, the model has the weights that are tested: averaged, if any are."""
        return nullcontext() if self.average is None else self.average.in_place()

    def _batch(self, step: int) -> Batch:
        """This process's part of the batch of a step; the step's random numbers start here."""
        if not self.model.training:
            self.runner.train()
        # Without an accelerator, torch.manual_seed would write down where it was called, for later.
        generator = torch.default_generator if self.device.type == "cpu" else torch
        generator.manual_seed(schedule.step_seed(self.seed, step, self.processes.rank))
        done = step / self.config.steps
        whole = self.task.batch(step, self.config.batch_size, self.seed, done)
        size = len(whole) // self.processes.size
        first = self.processes.rank * size
        return whole[first : first + size].to(self.device)

    def _loss(
        self, batch: Batch, step: int, model: nn.Module | None = None
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """The loss to minimise (a mean over examples), sums over examples to report, and logits."""
        weight = self.config.entropy_weight * (1 - step / self.config.steps)  # annealed to 0
        model = self.runner if model is None else model
        with autocast(self.precision, self.device):
            out = model(
                **batch.inputs,
                entropies=weight > 0,
                raw_entropies=self.config.entropy_of == "raw",
                keep_layers=self.config.layer_loss > 0,
                **({} if self.model.core is None else self._rounds(step)),
            )
        if out.round_logits:  # a weighted mean over the rounds that count
            weights = schedule.round_weights(len(out.round_logits), self.config)
            rounds = [self.task.losses(each, batch) for each in out.round_logits]
            losses = sum(
                (w * each for w, each in zip(weights, rounds)), torch.zeros_like(rounds[0])
            )
        else:
            losses = self.task.losses(out.logits, batch)
        loss = losses.mean()
        if out.layer_logits:
            between = [self.task.losses(each, batch).mean() for each in out.layer_logits]
            loss = loss + self.config.layer_loss * torch.stack(between).mean()
        policy = None if out.state.addresses is None else out.state.addresses.policy
        if policy is not None:
            loss = loss + policy_term(policy, losses, self.config.policy_entropy)
        sums: dict[str, Tensor] = {}
        for name, term in zip(Entropies._fields, out.entropies, strict=True):
            if weight > 0 and term is not None:
                loss = loss + weight * term.float()
                sums[f"entropy_{name}"] = term.detach().float() * len(batch)
        sums["loss"] = losses.detach().sum()
        sums["examples"] = torch.full((), len(batch), device=self.device)
        return loss, sums, out.logits

    def _rounds(self, step: int) -> dict[str, Any]:
        """How often the core runs in this step, and which of its rounds are answered for."""
        rounds = schedule.training_rounds(step, self.seed, self.whole)
        learning = min(rounds, self.config.grad_rounds or rounds)
        keep = 1 if self.config.round_loss == "last" else learning
        return {"rounds": rounds, "grad_rounds": learning, "keep_rounds": keep}

    def _reduce(self, totals: dict[str, Tensor]) -> dict[str, float]:
        """Sums over all processes and the norm of the (clipped) gradients, with one transfer."""
        vector = torch.stack([value.float() for value in totals.values()])
        vector = self.processes.sum(vector)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        values = torch.cat([vector, norm.reshape(1).float()]).tolist()
        return dict(zip((*totals, "grad_norm"), values, strict=True))

    def _check(self, step: int, stats: dict[str, float], batch: Batch) -> None:
        """Stop if a value is not finite, or so large that another step would spoil the weights."""
        loss = stats["loss"] / stats["examples"]
        finite = math.isfinite(loss) and math.isfinite(stats["grad_norm"])
        if finite and loss <= self.task.largest_loss:
            return

        def loss_of(again: Batch) -> Tensor:
            torch.manual_seed(schedule.step_seed(self.seed, step, self.processes.rank))
            return self._loss(again, step, self.model)[0]

        why = diagnose(self.model, batch, loss_of)
        raise TrainingError(
            f"The loss is {loss:.4g}, the gradient norm {stats['grad_norm']:.4g} at step {step}: "
            f"{why}. The weights were not updated; the last checkpoint is intact. Try a lower "
            "train.peak_lr or train.precision=float32."
        )
