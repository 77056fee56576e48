"""Address spaces: one interface for every way of storing where edges point.

Layers call `sharpen`, `attend` and `refer` and never ask which kind of address they hold. A new
kind is one file with an `Addresses` (a dataclass) and an `AddressSpace`, and one line in
`spaces/__init__.py`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from graph_machine.errors import ConfigError
from graph_machine.ops.backend import Backend, resolve
from graph_machine.ops.inputs import AttentionInputs, FactorEntropies, ReferralInputs
from graph_machine.ops.numerics import Tap, silent
from graph_machine.ops.referral.hard import Policy
from graph_machine.state import GivenEdges, Visibility

# Not typing.Self: beartype, which checks annotations in the tests, refuses it on methods.
A = TypeVar("A", bound="Addresses")
Nodes = Float[Tensor, "b n d"]
Targets = Int[Tensor, "b n k"]  # of edges in slots
Temps = Float[Tensor, "b n k"]
C = TypeVar("C", AttentionInputs, ReferralInputs)


@dataclass(frozen=True)
class Context:
    """How a call is carried out. It does not change what is computed.

    `tap` sees every named tensor, such as (b, h, n, m), and returns the one to continue with.

    >>> Context(backend="reference").backend
    'reference'
    """

    backend: Backend = "auto"
    entropies: bool = False  # also return the mean normalised entropies of the n2 factors
    raw_entropies: bool = False  # take them before the factors' temperatures (reference alone)
    training: bool | None = None  # noise and sampling; None: as the mode of the layer says
    dropout: float = 0.0  # on what sublayers add to features
    round: int | None = None  # number of the round inside a recurrent core, from 0
    tap: Tap | None = None  # None: no listener, so fused paths may be taken

    def report(self, name: str, tensor: Tensor) -> Tensor:
        """Pass a tensor through the tap, if there is one."""
        return tensor if self.tap is None else self.tap(name, tensor)

    def fused(self, op: str) -> bool:
        """Whether an op may take its fast way: no listener, and the backend allows it."""
        return resolve(self.backend, op, staged=self.tap is not None) == "fused"

    @property
    def listener(self) -> Tap:
        """The tap, or one that does nothing."""
        return silent if self.tap is None else self.tap


class AttentionOut(NamedTuple):
    """What attention returns: `outs` (b, n, d_n), and the entropies of its factors."""

    outs: Tensor  # b h n v
    entropies: FactorEntropies


class ReferralOut(NamedTuple):
    """What referral returns: the new edges' features (b, n, k, d_e), addresses, and entropies."""

    features: Tensor  # b n k e: the k heads are the k new slots
    addresses: "Addresses"
    entropies: FactorEntropies


@dataclass(frozen=True)
class Addresses(ABC):
    """Where the k edges of every node point, and edges beside them (see `GivenEdges`)."""

    given: Any = field(default=None, kw_only=True)  # has `targets` (b, n, g) and `empty`

    @property
    @abstractmethod
    def slots(self) -> tuple[int, int, int]:
        """(b, n, k)."""

    @abstractmethod
    def sharpen(self: A, temps: Temps | None, sight: Visibility, context: Context) -> A:
        """Addresses after their sharpener temperatures; None leaves temperatures at 1."""

    @abstractmethod
    def attend(self, inputs: AttentionInputs, sight: Visibility, context: Context) -> AttentionOut:
        """Edge-augmented attention with these addresses as e1."""

    @abstractmethod
    def refer(
        self: A, inputs: ReferralInputs, collected: A, sight: Visibility, context: Context
    ) -> ReferralOut:
        """Edge-centric referral with these addresses as e1 and `collected` as e2."""

    def beside(self: A, given: GivenEdges) -> A:
        """These addresses with edges beside them that stay as they are."""
        return replace(self, given=given)

    def with_given(self, inputs: C) -> C:
        """Inputs that say which slots hold an edge."""
        given = self.given
        if given is None:
            return inputs
        return replace(inputs, given_targets=given.targets, empty_edge=given.empty)

    def settled(self: A) -> A:
        """The same, for callers who attend along them many times: what can be kept, is kept."""
        return self

    @abstractmethod
    def to_dense(self) -> Float[Tensor, "b n k m"]:
        """Weights over all nodes, for recording and for tests; may be large."""

    @property
    def policy(self) -> Policy | None:
        """Log probabilities and entropy of choices made so far; None where nothing is chosen."""
        return None

    def with_dense(self: A, weights: Float[Tensor, "b n k m"]) -> A:
        """These addresses with other weights: how a listener intervenes."""
        raise ConfigError(f"{type(self).__name__} cannot be replaced by dense weights.")


class AddressSpace(nn.Module, ABC):
    """Makes the first addresses of a graph. Holds the settings, and parameters where it has any."""

    schedule: "Annealing | None" = None

    @abstractmethod
    def initial(
        self, targets: Targets, node_features: Nodes, sight: Visibility = Visibility()
    ) -> Addresses:
        """Hard input targets (-1: empty, spread over all allowed nodes) as addresses."""

    def set_progress(self, fraction: float) -> None:
        """The share of training that is done, for spaces that anneal something."""
        if self.schedule is not None:
            self.schedule.progress = min(1.0, max(0.0, fraction / self.schedule.anneal))


class Annealing:
    """From a start to an end: s geometrically, tau linearly.

    For spaces that keep the best s entries under noise. Both arrive after the share `anneal` of the
    training; a start of None is the end. Without any progress set, as after loading a model, both
    are at the end.
    """

    def __init__(
        self, space: str, s: tuple[int | None, int], tau: tuple[float | None, float], anneal: float
    ) -> None:
        (s_start, s_end), (tau_start, tau_end) = s, tau
        if s_start is not None and s_start < 1:
            raise ConfigError(f"{space} space: s_start should be at least 1, got {s_start}.")
        if tau_start is not None and tau_start < 0:
            raise ConfigError(
                f"{space} space: gumbel_tau_start should not be negative, got {tau_start}."
            )
        if not 0 < anneal <= 1:
            raise ConfigError(f"{space} space: anneal should lie in (0, 1], got {anneal}.")
        self.ends, self.anneal, self.progress = (s_end, tau_end), anneal, 1.0
        self.starts = (s_start or s_end, tau_end if tau_start is None else tau_start)

    @property
    def s(self) -> int:
        return round(self.starts[0] ** (1 - self.progress) * self.ends[0] ** self.progress)

    @property
    def tau(self) -> float:
        return self.starts[1] + self.progress * (self.ends[1] - self.starts[1])
