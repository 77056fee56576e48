"""What decides where n1 looks, as whole tensors; shared by attention and referral."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class FactorInputs:
    """What decides where n1 looks. Queries hold the node temperature and the 1/sqrt(d)."""

    e1_weights: Tensor | None  # b n h k
    addresses: Tensor | None  # b n k m
    edge_temps: Tensor | None  # b n h
    queries: Tensor | None  # b h n d
    keys: Tensor | None  # b h m d
    mask: Tensor | None  # (b or 1) (n or 1) m
    entropy_weights: Tensor | None  # b n: how much each source counts; None: not asked for
    eps: float
    logit_space: bool

    @property
    def edge(self) -> bool:
        return self.e1_weights is not None

    @property
    def node(self) -> bool:
        return self.queries is not None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(b, h, n, m)."""
        if self.queries is not None:
            assert self.keys is not None
            b, h, n, _ = self.queries.shape
            return b, h, n, self.keys.shape[2]
        assert self.e1_weights is not None
        assert self.addresses is not None
        b, n, h, _ = self.e1_weights.shape
        return b, h, n, self.addresses.shape[-1]


@dataclass
class FactorGrads:
    """Gradients of the tensors of FactorInputs, filled chunk by chunk."""

    e1_weights: Tensor | None
    addresses: Tensor | None
    edge_temps: Tensor | None
    queries: Tensor | None
    keys: Tensor | None

    @classmethod
    def like(cls, inputs: FactorInputs) -> "FactorGrads":
        def empty(x: Tensor | None) -> Tensor | None:
            return None if x is None else torch.empty_like(x)

        return cls(
            empty(inputs.e1_weights),
            empty(inputs.addresses),
            empty(inputs.edge_temps),
            empty(inputs.queries),
            empty(inputs.keys),
        )
