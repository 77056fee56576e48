"""What the paper says of mechanisms (section 3.4) as numbers, streamed over samples.

Self-referral: does a head fetch a cell's own edges, and does it need an edge to that cell for it?
Experts: does one factor alone make the weights, or do both? Rounds: when is an answer decided?
Reading: which edge slots and regions does the attention of a layer read?
"""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.lab.records.drawing import decided, lost
from graph_machine.lab.records.naming import TensorPath

HELD = 0.5  # more than this share of a distribution on the source cell is "on the source"
ALIKE = 0.1  # two distributions closer than this (total variation) say the same


@dataclass
class SelfSums:
    """Referral to the source cell's own edges, over (sample, head, cell) triples of a layer."""

    NAMES: ClassVar = (
        "n2 weight on source",
        "edge factor on source",
        "self-referring",
        "without self-edge",
        "edge factor there",
    )
    triples: int = 0
    n2: float = 0.0  # n2 weight on the source
    edge: float = 0.0  # mass of softmax(n2 edge factor) on the source
    referring: int = 0  # triples with more than HELD of the n2 weight on the source
    bare: int = 0  # of these, those whose cell has no self-edge among its address-ins
    bare_edge: float = 0.0  # edge factor's mass on the source, in those

    def add(
        self,
        n2_weights: Float[Tensor, "b h n n"],
        edge_factors: Float[Tensor, "b h n n"] | None,
        self_edges: Bool[Tensor, "b n"],
    ) -> None:
        """One batch; `self_edges` marks the cells with a slot that points at themselves."""
        own = n2_weights.diagonal(dim1=-2, dim2=-1)  # b h n
        edge = torch.zeros_like(own)
        if edge_factors is not None:
            edge = edge_factors.float().softmax(dim=-1).diagonal(dim1=-2, dim2=-1)
        referring = own > HELD
        bare = referring & ~self_edges[:, None]
        self.triples += own.numel()
        self.n2 += float(own.double().sum())
        self.edge += float(edge.double().sum())
        self.referring += int(referring.sum())
        self.bare += int(bare.sum())
        self.bare_edge += float(edge[bare].double().sum())

    def row(self) -> dict[str, float]:
        """Means and shares; NaN where there is nothing to take a share of."""
        means = (part / self.triples for part in (self.n2, self.edge, self.referring))
        there = _share(self.bare, self.referring), _share(self.bare_edge, self.bare)
        return dict(zip(self.NAMES, (*means, *there), strict=True))


@dataclass
class ExpertSums:
    """Who makes the product of experts, over (sample, head, cell) triples."""

    NAMES: ClassVar = ("both", "edge alone", "node alone", "either")
    triples: int = 0
    edge: int = 0  # the product is the edge expert's own distribution, not the node expert's
    node: int = 0  # the node expert's, not the edge expert's
    either: int = 0  # both say the same

    def add(
        self, edge_factors: Float[Tensor, "b h n m"], node_factors: Float[Tensor, "b h n m"]
    ) -> None:
        edge, node = edge_factors.float(), node_factors.float()
        both = (edge + node).softmax(dim=-1)
        by_edge, by_node = (
            (both - alone.softmax(dim=-1)).abs().sum(dim=-1) / 2 < ALIKE for alone in (edge, node)
        )
        self.triples += by_edge.numel()
        self.edge += int((by_edge & ~by_node).sum())
        self.node += int((by_node & ~by_edge).sum())
        self.either += int((by_edge & by_node).sum())

    def row(self) -> dict[str, float]:
        shares = [part / self.triples for part in (self.edge, self.node, self.either)]
        return dict(zip(self.NAMES, (1 - sum(shares), *shares), strict=True))


class Place(NamedTuple):
    layer: int
    sublayer: str


@dataclass
class Mechanisms:
    """Listens to the taps of layers, whose tensors come sublayer by sublayer."""

    own: dict[int, SelfSums] = field(default_factory=dict)
    experts: dict[Place, ExpertSums] = field(default_factory=dict)
    _at: tuple[int, str, int] | None = field(default=None, repr=False)
    _seen: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def listen(self, path: TensorPath, tensor: Tensor) -> None:
        if self._at != (path.layer, path.sublayer, path.index):
            self._at, self._seen = (path.layer, path.sublayer, path.index), {}
        seen = self._seen
        if path.name == "address_ins":
            on_source = tensor.diagonal(dim1=1, dim2=3)  # b k n
            seen["self_edges"] = (on_source > HELD).any(dim=1)
        elif path.name in ("n2_edge_factors", "edge_factors"):
            seen[path.name] = tensor
        elif path.name in ("n2_node_factors", "node_factors"):
            edge = seen.get(path.name.replace("node", "edge"))
            if edge is not None:
                place = Place(path.layer, path.sublayer)
                self.experts.setdefault(place, ExpertSums()).add(edge, tensor)
        elif path.name == "n2_weights" and "self_edges" in seen:
            sums = self.own.setdefault(path.layer, SelfSums())
            sums.add(tensor.float(), seen.get("n2_edge_factors"), seen["self_edges"])


@dataclass
class RoundSums:
    """Answers after every round: right ones, decided ones, and right ones that were given up."""

    samples: int = 0
    cells: int = 0  # places that are asked for
    right: np.ndarray = field(default_factory=lambda: np.zeros(0))  # of each: by round
    solved: np.ndarray = field(default_factory=lambda: np.zeros(0))
    decided: np.ndarray = field(default_factory=lambda: np.zeros(0))
    lost: np.ndarray = field(default_factory=lambda: np.zeros(0))
    ever_undone: int = 0
    restored: int = 0  # of these, right again in the end

    def add(
        self,
        answers: Int[np.ndarray, "b round n"],
        solutions: Int[np.ndarray, "b n"],
        where: Bool[np.ndarray, "b n"],
    ) -> None:
        rounds = answers.shape[1]
        for name in ("right", "solved", "decided", "lost"):
            if not len(getattr(self, name)):
                setattr(self, name, np.zeros(rounds, dtype=np.int64))
        for mine, solution, asked in zip(answers, solutions, where, strict=True):
            mine, solution = mine[:, asked], solution[asked]
            right = mine == solution  # round cell
            self.right += right.sum(axis=1)
            self.solved += right.all(axis=1)
            self.decided += np.bincount(decided(mine) - 1, minlength=rounds)
            gone = lost(mine, solution)
            self.lost += gone.sum(axis=1)
            given_up = gone.any(axis=0)
            self.ever_undone += int(given_up.sum())
            self.restored += int((given_up & right[-1]).sum())
            self.cells += right.shape[1]
        self.samples += len(answers)


def _share(part: float | int, whole: int) -> float:
    return part / whole if whole else float("nan")


# (sublayer, tensor) that are read from.
READ = (("node", "e1_weights"), ("node", "weights"))
# Regions that are reported of boards and, from `1 back` on, of causal sequences.
REPORTED = ("self", "row", "column", "box", "cross+box", "1 back", "last 4", "last 16")


@dataclass
class ReadSums:
    """Streamed over samples and source cells; every head is kept apart."""

    regions: dict[str, Bool[np.ndarray, "source target"]]
    slot_rows: int = 0  # samples x cells
    slots: np.ndarray | None = None  # head slot: sums of e1 weights
    rows: int = 0
    mass: np.ndarray | None = None  # region head: sums of attention's mass inside

    @property
    def names(self) -> list[str]:
        """Names of the regions on the axis of `mass`."""
        return [name for name in REPORTED if name in self.regions]

    def add(self, name: str, weights: Float[np.ndarray, "b head source choice"]) -> None:
        """One batch of `e1_weights` (over slots) or of `weights` (over targets)."""
        many = weights.shape[0] * weights.shape[2]
        if name == "e1_weights":
            found = weights.sum(axis=(0, 2), dtype=np.float64)
            self.slots = found if self.slots is None else self.slots + found
            self.slot_rows += many
        elif self.names:
            masks = np.stack([self.regions[each] for each in self.names]).astype(weights.dtype)
            found = np.einsum("bhnm,rnm->rh", weights, masks, dtype=np.float64, optimize=True)
            self.mass = found if self.mass is None else self.mass + found
            self.rows += many

    def slot_shares(self) -> Float[np.ndarray, "slot"] | None:
        """Share of e1 weight on each edge slot, over all heads; None without an edge expert."""
        return None if self.slots is None else self.slots.mean(axis=0) / self.slot_rows

    def masses(self) -> Float[np.ndarray, "region head"] | None:
        """Mean mass of attention inside each region; None where there are no regions."""
        return None if self.mass is None else self.mass / self.rows

    def even(self) -> Float[np.ndarray, "region"]:
        """The mass that attention would have there if it were spread evenly."""
        allowed = self.regions["all"].sum(axis=-1)
        return np.array([(self.regions[n].sum(axis=-1) / allowed).mean() for n in self.names])
