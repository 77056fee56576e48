"""s and the noise of its choice by schedule, for spaces that keep the best s entries."""

from graph_machine.errors import ConfigError


class Annealing:
    """From `s_start` and `tau_start` to `s` and `tau`: s geometrically, tau linearly.

    Both arrive after the share `anneal` of the training; a start of None is the end. Who is not
    told of any progress, as after loading a model, is at the end.
    """

    def __init__(
        self,
        space: str,
        *,
        s: int,
        tau: float,
        s_start: int | None,
        tau_start: float | None,
        anneal: float,
    ) -> None:
        if s_start is not None and s_start < 1:
            raise ConfigError(f"{space} space: s_start should be at least 1, got {s_start}.")
        if tau_start is not None and tau_start < 0:
            raise ConfigError(
                f"{space} space: gumbel_tau_start should not be negative, got {tau_start}."
            )
        if not 0 < anneal <= 1:
            raise ConfigError(f"{space} space: anneal should lie in (0, 1], got {anneal}.")
        self.ends = (s, tau)
        self.starts = (s if s_start is None else s_start, tau if tau_start is None else tau_start)
        self.anneal = anneal
        self.progress = 1.0

    def set_progress(self, fraction: float) -> None:
        self.progress = min(1.0, max(0.0, fraction / self.anneal))

    @property
    def s(self) -> int:
        return round(self.starts[0] ** (1 - self.progress) * self.ends[0] ** self.progress)

    @property
    def tau(self) -> float:
        return self.starts[1] + self.progress * (self.ends[1] - self.starts[1])
