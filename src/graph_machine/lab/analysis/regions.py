"""Regions of boards and sequences: which one an edge points at, and how far it reaches.

For any box shape: overlap of an address with row, column, box and so on; reach in hops of the input
graph.
"""

from collections.abc import Sequence

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
