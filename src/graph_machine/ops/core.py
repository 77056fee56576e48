"""The cores of attention and referral: what remains once every source has weights over its edges.

Each core has one dataclass of inputs, from which `operators.py` makes a torch operator; gradients
come back in the same dataclass. The last axis is contiguous (for keys and values of e2 the last
two); other axes may have any strides. Addresses are contiguous.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

# Numbers per row that the C kernels keep for the backward pass (native/factors.h).
STATS = 8
I = TypeVar("I", bound="CoreInputs")


@dataclass(frozen=True, kw_only=True)
class CoreInputs:
    """Tensors, some of them absent, and settings."""

    given: ClassVar[tuple[str, ...]] = ("mask", "entropy_weights")  # without gradients

    @property
    def device(self) -> torch.device:
        return next(value.device for value in vars(self).values() if isinstance(value, Tensor))

    def empty_grads(self: I) -> I:
        """Gradients to be filled, dense in the order of their tensors' strides."""
        made = {
            name: torch.empty_like(value)
            for name, value in vars(self).items()
            if isinstance(value, Tensor) and name not in self.given
        }
        return type(self)(**(vars(self) | made))


@dataclass(frozen=True, kw_only=True)
class SharpenInputs(CoreInputs):
    addresses: Tensor  # b n k m
    temps: Tensor  # b n k
    mask: Tensor | None  # (b or 1) (n or 1) m
    eps: float


@dataclass(frozen=True, kw_only=True)
class FactorInputs(CoreInputs):
    """What decides where n1 looks. Queries hold the node temperature and the 1/sqrt(d)."""

    e1_weights: Tensor | None  # b n h k
    e1_addresses: Tensor | None  # b n k m
    edge_temps: Tensor | None  # b n h
    n1_queries: Tensor | None  # b h n d
    n2_keys: Tensor | None  # b h m d
    mask: Tensor | None  # (b or 1) (n or 1) m
    entropy_weights: Tensor | None  # b n: how much each source counts; None: not asked for
    eps: float
    logit_space: bool

    @property
    def edge(self) -> bool:
        return self.e1_weights is not None

    @property
    def node(self) -> bool:
        return self.n1_queries is not None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(b, h, n, m)."""
        if self.n1_queries is not None:
            assert self.n2_keys is not None
            b, h, n, _ = self.n1_queries.shape
            return b, h, n, self.n2_keys.shape[2]
        assert self.e1_weights is not None
        assert self.e1_addresses is not None
        b, n, h, _ = self.e1_weights.shape
        return b, h, n, self.e1_addresses.shape[-1]


@dataclass(frozen=True, kw_only=True)
class AttendInputs(FactorInputs):
    """What is collected, and for pre-aggregated referral how every n2 mixes its own edges."""

    n2_values: Tensor  # b h m v
    e2_queries: Tensor | None = None  # b h n e
    e2_keys: Tensor | None = None  # b h m e
    own_weights: Tensor | None = None  # b m h l
    e2_addresses: Tensor | None = None  # b m l a

    @property
    def widths(self) -> tuple[int, int]:
        """Columns of values and of addresses."""
        a = 0 if self.e2_addresses is None else self.e2_addresses.shape[-1]
        return self.n2_values.shape[-1], a


@dataclass(frozen=True, kw_only=True)
class ReferInputs(FactorInputs):
    """What is referred to; `u` sets of keys and values, one per head or one for all."""

    e2_queries: Tensor  # b n h d; with temperature and 1/sqrt(d)
    e2_keys: Tensor  # b u m l d
    e2_values: Tensor  # b u m l e
    n2_values: Tensor  # b h m e
    e2_addresses: Tensor  # b m l a
    conditional: bool

    @property
    def shared(self) -> bool:
        """One set for all heads, so that values lie beside the addresses."""
        return self.e2_keys.shape[1] == 1

    @property
    def widths(self) -> tuple[int, int, int]:
        """Of keys, values and addresses."""
        return self.e2_keys.shape[-1], self.e2_values.shape[-1], self.e2_addresses.shape[-1]


class SharpenOuts(NamedTuple):
    """Outputs, or their gradients: so for all three."""

    addresses: Tensor  # b n k m


class AttendOuts(NamedTuple):
    features: Tensor  # b n h v
    addresses: Tensor  # b n h a; a = 0 without any
    entropies: Tensor  # of the edge and of the node factor
    stats: Tensor  # b h n STATS: what kernels keep for the backward pass


class ReferOuts(NamedTuple):
    addresses: Tensor  # b n h a
    n2: Tensor  # b n h e: what n2 carries
    e2: Tensor  # b n h e: what e2 carries
    entropies: Tensor
    stats: Tensor


def empty_sharpened(x: SharpenInputs) -> SharpenOuts:
    return SharpenOuts(torch.empty_like(x.addresses))


def empty_attended(x: AttendInputs) -> AttendOuts:
    (b, h, n, _), (v, a), like = x.sizes, x.widths, x.n2_values.new_empty
    return AttendOuts(like(b, n, h, v), like(b, n, h, a), like(2), like(b, h, n, STATS))


def empty_referred(x: ReferInputs) -> ReferOuts:
    (b, h, n, _), (_, e, a), like = x.sizes, x.widths, x.n2_values.new_empty
    n2 = like(b, n, h, x.n2_values.shape[-1])
    return ReferOuts(like(b, n, h, a), n2, like(b, n, h, e), like(2), like(b, h, n, STATS))
