"""What the fused ops work on, as whole tensors.

The last axis is contiguous (for the keys and values of referral the last two); other axes may have
any strides. Addresses are contiguous.
"""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor

# Numbers per row that the C kernels keep for the backward pass (native/factors.h).
STATS = 8


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


@dataclass(frozen=True)
class AttendInputs:
    """What is collected, and for pre-aggregated referral how every n2 mixes its own edges."""

    values: Tensor  # b h m v
    e2_queries: Tensor | None = None  # b h n e
    e2_keys: Tensor | None = None  # b h m e
    own_weights: Tensor | None = None  # b m h l
    e2_addresses: Tensor | None = None  # b m l a

    @property
    def widths(self) -> tuple[int, int]:
        """Columns of values and of addresses."""
        a = 0 if self.e2_addresses is None else self.e2_addresses.shape[-1]
        return self.values.shape[-1], a


@dataclass(frozen=True)
class ReferInputs:
    """What is referred to; `u` sets of keys and values, one per head or one for all."""

    queries: Tensor  # b n h d; with temperature and 1/sqrt(d)
    keys: Tensor  # b u m l d
    values: Tensor  # b u m l e
    n2_values: Tensor  # b h m e
    addresses: Tensor  # b m l a
    conditional: bool

    @property
    def shared(self) -> bool:
        """One set for all heads, so that values lie beside the addresses."""
        return self.keys.shape[1] == 1

    @property
    def widths(self) -> tuple[int, int, int]:
        """Of keys, values and addresses."""
        return self.keys.shape[-1], self.values.shape[-1], self.addresses.shape[-1]


@dataclass
class FactorGrads:
    """Gradients of the tensors of FactorInputs; so below."""

    e1_weights: Tensor | None
    addresses: Tensor | None
    edge_temps: Tensor | None
    queries: Tensor | None
    keys: Tensor | None


@dataclass
class AttendGrads:
    values: Tensor
    e2_queries: Tensor | None
    e2_keys: Tensor | None
    own_weights: Tensor | None
    e2_addresses: Tensor | None


@dataclass
class ReferGrads:
    queries: Tensor
    keys: Tensor
    values: Tensor
    n2_values: Tensor
    addresses: Tensor


Grads = TypeVar("Grads", FactorGrads, AttendGrads, ReferGrads)


def empty_grads(kind: type[Grads], inputs: Any) -> Grads:
    """Gradients to be filled, dense in the order of their tensors' strides."""
    found = [getattr(inputs, field.name) for field in fields(kind)]
    return kind(*(None if x is None else torch.empty_like(x) for x in found))
