"""What changes over a run: learning rate and the weight of the entropy losses (appendix B)."""

import math

from graph_machine.config import TrainConfig


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear warm-up to the peak, then a cosine down to `final_lr` of it at the last step."""
    warmup = round(config.warmup * config.steps)
    if step < warmup:
        return config.peak_lr * (step + 1) / warmup
    share = (step - warmup) / max(1, config.steps - 1 - warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return config.peak_lr * (config.final_lr + (1 - config.final_lr) * cosine)


def entropy_weight(step: int, config: TrainConfig) -> float:
    """Annealed linearly to 0."""
    return config.entropy_weight * (1 - step / config.steps)
