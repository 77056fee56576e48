"""Which edges a sublayer sees of a node: those that referral made, given ones, an empty one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

Kind = Literal["made", "given", "empty"]
# Blue, orange and grey: colour-blind readers can distinguish them (Okabe and Ito, 2008).
KIND_COLOURS: dict[Kind, str] = {"made": "#0072b2", "given": "#e69f00", "empty": "#8a8a8a"}


@dataclass(frozen=True)
class Edges:
    """The edges of a sample's nodes, by their slot in e1 and e2 weights.

    The first `made` slots are renewed by every referral. With `given_edges=always` the edges of
    the input graph follow, one target each, and with `empty_edge` one that points evenly at all
    nodes: these stay as they are, and before the first referral there are no made ones. With
    `given_edges=first`, input edges are what made slots begin with, and nothing follows.

    >>> edges = Edges(2, np.array([[1, -1], [0, 1]]), np.zeros((2, 2), dtype=int), has_empty=True)
    >>> [edges.kind(slot) for slot in range(5)]
    ['made', 'made', 'given', 'given', 'empty']
    >>> edges.name(1, 3, lambda node: f"n{node}"), edges.address(1, 2).tolist()
    ('given self', [1.0, 0.0])
    """

    made: int
    targets: Int[np.ndarray, "n g"]  # -1: no edge
    types: Int[np.ndarray, "n g"]
    has_empty: bool = False
    is_causal: bool = False
    is_grid: bool = False

    @property
    def stay(self) -> list[Kind]:
        """Kinds of edges that no referral makes."""
        given: list[Kind] = ["given"] if self.targets.shape[1] else []
        return [*given, "empty"] if self.has_empty else given

    @property
    def named_types(self) -> Int[np.ndarray, "n g"] | None:
        """Types of given edges, where they differ among edges between two nodes; on a grid, where
        they say more than the direction does."""
        steps = self.targets - np.arange(len(self.targets))[:, None]
        between = (self.targets >= 0) & (steps != 0)
        pairs = np.unique(np.stack([steps[between] * self.is_grid, self.types[between]]), axis=1)
        return self.types if len(np.unique(pairs[0])) < pairs.shape[1] else None

    def kind(self, slot: int) -> Kind:
        """What kind of edge is in a slot."""
        if slot < self.made:
            return "made"
        return "given" if slot < self.made + self.targets.shape[1] else "empty"

    def name(self, node: int, slot: int, label: Callable[[int], str]) -> str:
        """`e3`, `given n5`, `given n5 (type 2)`, `given self` or `empty`."""
        if (kind := self.kind(slot)) != "given":
            return f"e{slot}" if kind == "made" else kind
        target = int(self.targets[node, slot - self.made])
        if target in (node, -1):
            return "given self" if target == node else "none"
        types = self.named_types
        about = "" if types is None else f" (type {types[node, slot - self.made]})"
        return f"given {label(target)}{about}"

    def address(self, node: int, slot: int) -> Float[np.ndarray, "m"]:
        """Where a given or empty edge of a node points."""
        nodes = np.arange(len(self.targets))
        if self.kind(slot) == "given":
            return (nodes == self.targets[node, slot - self.made]).astype(np.float32)
        seen = nodes <= node if self.is_causal else np.ones_like(nodes)
        return (seen / seen.sum()).astype(np.float32)

    def shares(self, weights: Float[np.ndarray, "*any t"]) -> dict[Kind, float]:
        """The mean of weights over slots, by kind."""
        mean = weights.reshape(-1, weights.shape[-1]).mean(axis=0)
        found: dict[Kind, float] = {"made": 0.0, "given": 0.0, "empty": 0.0}
        for slot, weight in enumerate(mean):
            found[self.kind(slot)] += float(weight)
        return found

    def to_json(self) -> dict[str, Any] | None:
        """For the explorer's page; None where all edges are made ones."""
        if not self.stay:
            return None
        types = self.named_types
        return {
            "targets": self.targets.tolist(),
            "types": None if types is None else types.tolist(),
            "hasEmpty": self.has_empty,
        }
