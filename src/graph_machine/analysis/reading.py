"""What the attention of a layer reads: edge slots by their weight, regions by attention's mass."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

# (sublayer, tensor) that tell it.
READ = (("node", "e1_weights"), ("node", "weights"))
# Regions that are told of boards and, from `1 back` on, of causal sequences.
TOLD = ("self", "row", "column", "box", "cross+box", "1 back", "last 4", "last 16")


@dataclass
class ReadSums:
    """Streamed over samples and source cells; every head is kept apart."""

    regions: dict[str, Bool[np.ndarray, "source target"]]
    slot_rows: int = 0  # samples x cells
    slots: np.ndarray | None = None  # head slot: sums of e1 weights
    rows: int = 0
    mass: np.ndarray | None = None  # region head: sums of attention's mass inside

    @property
    def told(self) -> list[str]:
        """Names of the regions on the axis of `mass`."""
        return [name for name in TOLD if name in self.regions]

    def add(self, name: str, weights: Float[np.ndarray, "b head source choice"]) -> None:
        """One batch of `e1_weights` (over slots) or of `weights` (over targets)."""
        many = weights.shape[0] * weights.shape[2]
        if name == "e1_weights":
            found = weights.sum(axis=(0, 2), dtype=np.float64)
            self.slots = found if self.slots is None else self.slots + found
            self.slot_rows += many
        elif self.told:
            masks = np.stack([self.regions[each] for each in self.told]).astype(weights.dtype)
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
        return np.array([(self.regions[n].sum(axis=-1) / allowed).mean() for n in self.told])
