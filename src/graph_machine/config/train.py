"""How a model is trained (paper, appendix B). The same for every condition."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from graph_machine.config import legacy
from graph_machine.config.base import Config, field, require


@dataclass(frozen=True)
class TrainConfig(Config):
    """Defaults are the paper's recipe; the second group says how it is carried out.

    >>> TrainConfig(steps=500, batch_size=64).peak_lr
    0.001
    """

    OLD_NAMES: ClassVar[dict[str, str]] = legacy.TRAIN

    steps: int = field(100_000, "optimiser steps")
    batch_size: int = field(64, "examples per step, over all processes together")
    peak_lr: float = field(1e-3, "learning rate after warm-up")
    warmup: float = field(0.01, "share of the steps spent in linear warm-up")
    final_lr: float = field(0.1, "learning rate at the end, as a share of the peak")
    beta1: float = field(0.9, "Adam's first beta")
    beta2: float = field(0.95, "Adam's second beta")
    clip_norm: float = field(1.0, "largest gradient norm")
    entropy_weight: float = field(
        1e-3, "weight of each entropy loss at the start, annealed linearly to 0; 0: off"
    )
    entropy_of: Literal["factors", "raw"] = field(
        "factors", "entropy losses see the factors after their temperatures, or raw (dense spaces)"
    )
    policy_entropy: float = field(
        1e-2, "entropy bonus for the choices of the hard address space; 0: off"
    )

    rounds_min: int | None = field(
        None, "fewest rounds of a step, drawn uniformly up to the most; none: always the most"
    )
    rounds_start: int | None = field(
        None, "most rounds at the start, growing to model.rounds; none: model.rounds throughout"
    )
    rounds_ramp: float = field(0.5, "share of the steps over which the most rounds grow")
    grad_rounds: int | None = field(
        None, "gradients flow only through this many last rounds; none: through all"
    )
    round_loss: Literal["all", "last", "growing"] = field(
        "all",
        "rounds with gradients in the loss: all equally, the last, or weighted 1, 2, 3, ...",
    )
    ema: float = field(
        0.0, "decay of a moving average of the weights, which is then what is tested; 0: off"
    )
    freeze: str = field("", "parts that are not trained, such as stack or nodes,stack.layers.0")

    precision: Literal["auto", "float32", "bfloat16"] = field(
        "auto", "autocast; auto: bfloat16 where it is faster on the device"
    )
    backend: Literal["auto", "reference", "fused"] = field("auto", "implementation of the ops")
    compile: bool = field(False, "torch.compile the model")
    checkpoint_layers: bool = field(False, "recompute activations in the backward pass")
    accumulate: int = field(1, "micro-batches per step")
    log_every: int = field(50, "steps between metric lines")
    eval_every: int = field(1_000, "steps between evaluations on the eval split")
    eval_examples: int = field(4_096, "eval examples used during training")
    test_examples: int | None = field(None, "test examples used at the end; none: all of them")
    save_every: int = field(1_000, "steps between checkpoints")

    def validate(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "log_every", "eval_every", "save_every"):
            require(getattr(self, name) >= 1, f"{name} should be at least 1.")
        require(self.eval_examples >= 1, "eval_examples should be at least 1.")
        require(
            self.test_examples is None or self.test_examples >= 1,
            "test_examples should be at least 1, or none.",
        )
        require(
            self.batch_size % self.accumulate == 0,
            f"batch_size {self.batch_size} should be a multiple of accumulate {self.accumulate}.",
        )
        require(self.peak_lr > 0, "peak_lr should be positive.")
        require(0 <= self.warmup < 1, "warmup should be a share from 0 to below 1.")
        require(0 <= self.final_lr <= 1, "final_lr should be a share from 0 to 1.")
        require(0 <= self.beta1 < 1 and 0 <= self.beta2 < 1, "betas should lie in [0, 1).")
        require(self.clip_norm > 0, "clip_norm should be positive.")
        require(self.entropy_weight >= 0, "entropy_weight should not be negative.")
        require(self.policy_entropy >= 0, "policy_entropy should not be negative.")
        for name in ("rounds_min", "rounds_start", "grad_rounds"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} should be at least 1, or none.")
        require(0 < self.rounds_ramp <= 1, "rounds_ramp should be a share above 0, at most 1.")
        require(0 <= self.ema < 1, "ema should be a decay from 0 to below 1.")
