"""Where nodes are drawn when nobody says so: springs along edges, and nodes that push apart."""

import numpy as np
from jaxtyping import Float, Int

STEPS = 200
APART = 60  # steps that push nodes apart in the end
GAP = 0.75  # between two nodes, over the root of their number
SMALLEST, LARGEST = 0.008, 0.055  # radius of a node
GRAVITY = 0.6  # towards the middle, so that parts without an edge between them stay in sight


def spring_layout(
    nodes: int, edges: Int[np.ndarray, "e 2"], seed: int = 0
) -> Float[np.ndarray, "n 2"]:
    """Places in the unit square, the same for the same graph.

    Forces as Fruchterman and Reingold have them: r²/k along edges, k²/r between all nodes, with
    steps that become smaller. Cost: n² per step.
    """
    if nodes == 1:
        return np.full((1, 2), 0.5)
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * np.arange(nodes) / nodes
    places = np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.01, (nodes, 2))
    wanted = 2.0 / np.sqrt(nodes)
    joined = np.zeros((nodes, nodes), dtype=bool)
    joined[edges[:, 0], edges[:, 1]] = joined[edges[:, 1], edges[:, 0]] = True
    np.fill_diagonal(joined, val=False)
    for step in range(STEPS):
        apart = places[:, None] - places[None]  # n n 2
        far = np.maximum(np.linalg.norm(apart, axis=-1), 1e-6)
        force = wanted**2 / far**2 - joined * far / wanted
        moved = (apart * force[..., None]).sum(axis=1) - GRAVITY * wanted * places
        size = np.maximum(np.linalg.norm(moved, axis=-1, keepdims=True), 1e-9)
        places = places + moved / size * np.minimum(size, 0.3 * (1 - step / STEPS))
    low, high = places.min(axis=0), places.max(axis=0)
    return _apart((places - low) / np.maximum(high - low, 1e-6))


def _apart(places: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
    """Places in the unit square, with those pushed apart that would lie upon each other."""
    gap = GAP / np.sqrt(len(places))
    for _ in range(APART):
        apart = places[:, None] - places[None]
        far = np.linalg.norm(apart, axis=-1)
        np.fill_diagonal(far, np.inf)
        short = np.maximum(gap - far, 0) / np.maximum(far, 1e-6) / 2
        places = np.clip(places + (apart * short[..., None]).sum(axis=1), 0, 1)
    return places


def room(places: Float[np.ndarray, "n 2"]) -> float:
    """The radius of nodes of which few touch: by the distance to the nearest of others."""
    if len(places) < 2:
        return LARGEST
    far = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.fill_diagonal(far, np.inf)
    return float(np.clip(0.42 * np.quantile(far.min(axis=1), 0.2), SMALLEST, LARGEST))
