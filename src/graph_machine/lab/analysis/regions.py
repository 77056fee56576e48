"""Which region does an edge point at, how far does it reach, and what does it depend on?

The paper's claims about regions (section 3.4) as numbers, for any box shape: overlap of an address
with row, column, box and so on; reach in hops of the input graph; variation over samples; and how
much of a factor's pattern is explained by geometry and how much by digits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from graph_machine.errors import ConfigError

# An edge reaches as far as this share of its mass lies there or beyond.
REACH_MASS = 0.05
# An edge spread over more than this share of the nodes within reach points nowhere: no reach.
# Empty input slots are uniform; cross + box is half of a 4x4 board.
SPREAD_OUT = 0.75


def make_regions(
    grid: Sequence[int], box: Sequence[int] | None = None
) -> dict[str, Bool[np.ndarray, "source target"]]:
    """Region name -> which targets belong to the region of each source cell, (source, target).

    A direction leaves the board at the border: the region of such a source is empty. What no
    source has, such as `up` in a single row, is left out. `all` is there so that an edge that
    points everywhere is not mistaken for the largest other region.

    >>> regions = make_regions((4, 4), box=(2, 2))
    >>> regions["box"].shape, np.flatnonzero(regions["box"][0])
    ((16, 16), array([0, 1, 4, 5]))
    """
    rows, cols = grid
    row, col = np.divmod(np.arange(rows * cols), cols)
    down, right = row[None] - row[:, None], col[None] - col[:, None]  # from source to target
    same_row, same_col = down == 0, right == 0
    regions = {
        "self": same_row & same_col,
        "up": same_col & (down == -1),
        "down": same_col & (down == 1),
        "left": same_row & (right == -1),
        "right": same_row & (right == 1),
        "3x1": same_col & (abs(down) <= 1),
        "1x3": same_row & (abs(right) <= 1),
        "row": same_row,
        "column": same_col,
    }
    cross = same_row | same_col
    if box is not None:
        if rows % box[0] or cols % box[1]:
            raise ConfigError(f"Boxes of {box[0]}x{box[1]} do not tile a board of {rows}x{cols}.")
        place = row // box[0] * cols + col // box[1]
        same_box = place[None] == place[:, None]
        regions |= {"box": same_box, "cross": cross, "cross+box": cross | same_box}
    else:
        regions |= {"cross": cross}
    return _somewhere(regions | {"all": np.ones_like(cross)})


def _somewhere(regions: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Regions that at least one source has; the mean over none would be NaN."""
    return {name: members for name, members in regions.items() if members.any()}


def make_spans(length: int) -> dict[str, Bool[np.ndarray, "source target"]]:
    """Regions of a causal sequence: single earlier positions, the nearest ones, all so far.

    >>> spans = make_spans(6)
    >>> np.flatnonzero(spans["last 4"][5]), np.flatnonzero(spans["2 back"][5])
    (array([2, 3, 4, 5]), array([3]))
    """
    places = np.arange(length)
    back = places[:, None] - places[None]  # from source to target
    spans = {"self": back == 0, "1 back": back == 1, "2 back": back == 2, "3 back": back == 3}
    spans |= {f"last {size}": (back >= 0) & (back < size) for size in (4, 8, 16)}
    return _somewhere(spans | {"past": back > 0, "all": back >= 0})


def overlaps(
    weights: Float[np.ndarray, "*rows source target"],
    regions: Bool[np.ndarray, "region source target"],
) -> Float[np.ndarray, "region *rows source"]:
    """Mass inside each region x coverage; 1 if the address is uniform on exactly the region.

    Coverage is the number of region cells in use over their number: exp of the entropy of the mass
    inside, so all of it on one of 9 cells covers 1/9. NaN where the region is empty.

    >>> regions = make_regions((4, 4), box=(2, 2))
    >>> weights = regions["box"] / 4.0  # source target: every cell points at its box
    >>> overlaps(weights, np.stack([regions["box"], regions["row"]]))[:, 0]
    array([1.  , 0.25])
    """
    weights = np.asarray(weights, dtype=np.float64)
    mass = _contract(weights, regions)
    inside = -_contract(weights * np.log(np.maximum(weights, 1e-30)), regions)
    # Entropy of p / mass, from the unnormalised sum.
    used = np.exp(inside / np.maximum(mass, 1e-30) + np.log(np.maximum(mass, 1e-30)))
    sizes = regions.sum(axis=-1).reshape(len(regions), *[1] * (weights.ndim - 2), -1)
    return np.where(sizes > 0, mass * used / np.maximum(sizes, 1), np.nan)


def _contract(
    values: Float[np.ndarray, "*rows source target"],
    masks: Shaped[np.ndarray, "kind source target"],
) -> Float[np.ndarray, "kind *rows source"]:
    """Sum of the values over each mask, as one matrix product per source."""
    flat = values.reshape(-1, *values.shape[-2:]).swapaxes(0, 1)  # source rows target
    sums = flat @ masks.transpose(1, 2, 0).astype(np.float64)  # source rows kind
    return sums.transpose(2, 1, 0).reshape(len(masks), *values.shape[:-1])


def hop_distances(targets: Int[np.ndarray, "n k"]) -> Int[np.ndarray, "n n"]:
    """Hops from every node to every other along the input edges; n where there is no path.

    >>> hop_distances(np.array([[0, 1], [1, 2], [2, 2]]))  # n k: 0 -> 1 -> 2
    array([[0, 1, 2],
           [3, 0, 1],
           [3, 3, 0]])
    """
    n = len(targets)
    linked = np.zeros((n, n), dtype=bool)
    nodes, slots = np.nonzero(targets >= 0)
    linked[nodes, targets[nodes, slots]] = True
    hops = np.full((n, n), n)
    reached = np.eye(n, dtype=bool)
    hops[reached] = 0
    for step in range(1, n):
        new = (reached @ linked) & ~reached
        if not new.any():
            break
        hops[new] = step
        reached |= new
    return hops


def reach(
    weights: Float[np.ndarray, "*rows source target"],
    hops: Int[np.ndarray, "source target"],
    mass: float = REACH_MASS,
) -> Float[np.ndarray, "*rows source"]:
    """The farthest distance at which (or beyond which) at least `mass` of an address lies.

    NaN for an address that is spread out over all nodes within reach, as empty slots are.

    >>> hops = hop_distances(np.array([[0, 1], [1, 2], [2, 0]]))  # a ring of 3
    >>> reach(np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), hops)  # source target
    array([2., 0., 0.])
    """
    weights = np.asarray(weights, dtype=np.float64)
    entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum(axis=-1)
    pointed = np.exp(entropy) <= SPREAD_OUT * (hops < len(hops)).sum(axis=-1)
    rings = hops == np.arange(int(hops.max()) + 1)[:, None, None]  # distance source target
    at = _contract(weights, rings)
    beyond = at[::-1].cumsum(axis=0)[::-1]  # mass at this distance or farther
    return np.where(pointed, (beyond[1:] >= mass).sum(axis=0), np.nan)


class SameHead(NamedTuple):
    """The slot (its referral head) that holds a region best in most samples."""

    head: int
    overlap: float  # its own, mean over cells and samples
    samples: int  # in which it is the best slot of the layer
    cells: float  # share of cells and samples whose best slot is the cell's usual one


@dataclass
class EdgeSums:
    """Streamed detectors of one place (a layer's address-in or -out): slots x sources x targets.

    Feed it batches of addresses; nothing but sums is kept.
    """

    regions: dict[str, Bool[np.ndarray, "source target"]]
    hops: Int[np.ndarray, "source target"]
    count: int = 0
    overlaps: np.ndarray | None = None  # region slot source
    reaches: np.ndarray | None = None  # slot source: summed over samples whose edge points
    pointed: np.ndarray | None = None  # slot source: how many those are
    total: np.ndarray | None = None  # slot source target
    squares: np.ndarray | None = None  # slot source
    best: np.ndarray | None = None  # region slot: samples in which it is the best slot
    cell_best: np.ndarray | None = None  # region slot source: the same, of each cell

    def add(self, addresses: Float[np.ndarray, "sample source slot target"]) -> None:
        weights = np.moveaxis(np.asarray(addresses, dtype=np.float64), 2, 1)  # b k n m
        hops = reach(weights, self.hops)
        each = overlaps(weights, np.stack(list(self.regions.values())))  # region b k n
        slots = np.eye(weights.shape[1], dtype=np.int64)
        of_cells = slots[np.nan_to_num(each).argmax(axis=2)]  # region b n k
        found = {
            "overlaps": each.sum(axis=1),
            "best": slots[np.nan_to_num(each).sum(axis=-1).argmax(axis=2)].sum(axis=1),
            "cell_best": of_cells.sum(axis=1).swapaxes(1, 2),
            "reaches": np.nansum(hops, axis=0),
            "pointed": (~np.isnan(hops)).sum(axis=0),
            "total": weights.sum(axis=0),
            "squares": (weights**2).sum(axis=(0, 3)),
        }
        for name, value in found.items():
            before = getattr(self, name)
            setattr(self, name, value if before is None else before + value)
        self.count += len(weights)

    def region_scores(self) -> Float[np.ndarray, "region slot source"]:
        """Mean overlap over samples; NaN where a source has no such region."""
        assert self.overlaps is not None, "no addresses were added"
        return self.overlaps / self.count

    def built(self) -> Float[np.ndarray, "region"]:
        """How well each region is there in any slot: the best slot of each cell, over all cells."""
        scores = self.region_scores()
        best = np.where(np.isnan(scores), -1.0, scores).max(axis=1)  # region source
        return np.array([row[row >= 0].mean() for row in best])

    def same_head(self, region: str) -> SameHead:
        """Whether a region is held by the same slot in every sample."""
        assert self.best is not None, "no addresses were added"
        assert self.cell_best is not None
        row = list(self.regions).index(region)
        head = int(self.best[row].argmax())
        there = self.regions[region].any(axis=-1)
        return SameHead(
            head,
            float(np.nanmean(self.region_scores()[row, head])),
            int(self.best[row, head]),
            float(self.cell_best[row][:, there].max(axis=0).mean() / self.count),
        )

    def mean_reach(self) -> Float[np.ndarray, "slot source"]:
        """In hops, over the samples in which the edge points somewhere; NaN where it never does."""
        assert self.reaches is not None, "no addresses were added"
        assert self.pointed is not None
        return np.where(self.pointed > 0, self.reaches / np.maximum(self.pointed, 1), np.nan)

    def self_mass(self) -> Float[np.ndarray, "slot source"]:
        """Share of an address that lies on its own source cell, over samples."""
        assert self.total is not None, "no addresses were added"
        return np.diagonal(self.total, axis1=1, axis2=2) / self.count

    def adaptivity(self) -> Float[np.ndarray, "slot source"]:
        """Share of an address that varies over samples: 1 - |mean|^2 / mean of |.|^2.

        0: the same for every input. NaN for a single sample.
        """
        assert self.total is not None, "no addresses were added"
        assert self.squares is not None
        if self.count < 2:
            return np.full(self.squares.shape, np.nan)
        mean = self.total / self.count
        return np.clip(1 - (mean**2).sum(axis=-1) / (self.squares / self.count), 0, 1)


def best_regions(
    scores: Float[np.ndarray, "region slot source"], names: Sequence[str]
) -> list[tuple[str, float]]:
    """For every slot the region with the largest overlap, averaged over source cells.

    >>> best_regions(np.array([[[0.9, 0.7]], [[0.1, 0.3]]]), ["box", "row"])  # region slot source
    [('box', 0.8)]
    """
    means = np.nanmean(scores, axis=-1)
    best = means.argmax(axis=0)
    return [(names[region], float(means[region, slot])) for slot, region in enumerate(best)]


@dataclass
class FactorSums:
    """Streamed division of labour of one factor: is its pattern about places or about digits?

    Works on softmax(factor), the distribution that figures show. For each head and source cell,
    the variance over samples and targets is split by target place (geometry) and, within each
    sample, by what the target holds (its digit, given or inferred). Both shares are adjusted for
    chance (adjusted R squared).
    """

    count: int = 0
    total: np.ndarray | None = None  # head source target
    squares: np.ndarray | None = None  # head source: deviations from 1 / n
    by_digit: np.ndarray | None = None  # head source: between-digit sum of squares
    groups: int = 0  # digits, summed over samples

    def add(
        self,
        weights: Float[np.ndarray, "sample head source target"],
        digits: Int[np.ndarray, "sample target"],
    ) -> None:
        n = weights.shape[-1]
        centred = np.asarray(weights, dtype=np.float64) - 1 / n  # a distribution's mean is 1 / n
        between = np.zeros(weights.shape[1:3])
        for sample, labels in zip(centred, digits):
            kinds, places = np.unique(labels, return_inverse=True)
            members = np.eye(len(kinds))[places]  # target digit
            sizes = members.sum(axis=0)
            between += ((sample @ members) ** 2 / sizes).sum(axis=-1)
            self.groups += len(kinds)
        found = {
            "total": centred.sum(axis=0),
            "squares": (centred**2).sum(axis=(0, 3)),
            "by_digit": between,
        }
        for name, value in found.items():
            before = getattr(self, name)
            setattr(self, name, value if before is None else before + value)
        self.count += len(weights)

    def shares(self) -> dict[str, float]:
        """Explained variance by geometry and by digit, 0 to 1, over all heads and sources.

        Geometry needs two samples at least: NaN with one. A factor that is uniform everywhere
        has no variance to explain: NaN.
        """
        assert self.total is not None, "no factors were added"
        assert self.squares is not None
        assert self.by_digit is not None
        n, samples = self.total.shape[-1], self.count
        variance = float(self.squares.sum())
        # Rounding leaves a trace of variance in a uniform factor.
        if variance <= 1e-9 * self.squares.size * samples / n:
            return {"geometry": float("nan"), "digit": float("nan")}
        geometry = float((self.total**2).sum()) / samples / variance
        digit = float(self.by_digit.sum()) / variance
        # Every sample sums to 1, which costs it one degree of freedom.
        total = samples * (n - 1)
        free = {"geometry": total - (n - 1), "digit": total - (self.groups - samples)}
        shares = {"geometry": geometry, "digit": digit}
        return {
            name: max(0.0, 1 - (1 - value) * total / free[name]) if free[name] > 0 else float("nan")
            for name, value in shares.items()
        }
