"""Data for pictures of a record: characters in nodes, answers that count, places of nodes."""

from collections.abc import Sequence

import networkx as nx
import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from graph_machine.errors import DataError
from graph_machine.lab.records.record import Record
from graph_machine.lab.tasks.view import standing_out

BLANK = "."  # the character of an empty cell in every alphabet; pictures leave it out
FILLED = "█"  # stands for a cell that pictures fill, such as a wall
SIGNS = {"filled": FILLED, "dot": "●", "empty": ""}  # of marks, as pictures write them

STEPS = 150  # of stress majorisation
PUSHES = 80  # steps that push nodes apart in the end
GAP = 0.75  # least distance of two nodes, in mean lengths of an edge
BETWEEN = 1.0  # between two parts, in the same measure
SMALLEST, LARGEST = 0.008, 0.05  # radius of a node in the unit square
TURNS = 36  # directions that are tried for a part, over a quarter of a circle
STRETCH = 1.3  # most that one axis is stretched against the other
GAIN = 0.9  # a part is turned if that makes it smaller than this share


# What stands in nodes


def is_sequence(record: Record) -> bool:
    """Whether the nodes stand in one line: there are no rows and columns."""
    return not record.graph_is_given and (record.grid is None or min(record.grid) == 1)


def no_characters(record: Record) -> str | None:
    """Why tokens and answers cannot be written into cells; None where they can."""
    spec = record.spec
    if is_sequence(record):
        return "is of sequences, and the figure shows boards"
    if not spec.get("alphabet") or record.tokens is None:
        return "has no characters for its tokens"
    if not spec.get("answers") or spec.get("output", "node") != "node":
        return "has no characters for its answers"
    return None


def token_characters(record: Record, sample: int) -> list[str] | None:
    """The token of every cell, nothing at an empty one; None where cells hold no characters."""
    tokens = record.tokens
    if no_characters(record) is not None or tokens is None:
        return None
    return _written(record, tokens[record.row(sample)], record.spec["alphabet"])


def answer_characters(record: Record, answers: Integer[np.ndarray, "n"]) -> list[str]:
    """Answers (output indices) as characters; as numbers where they have none."""
    return _written(record, answers, record.spec.get("answers"))


def asked_cells(record: Record, sample: int) -> Bool[np.ndarray, "n"]:
    """The cells of a sample whose answers count; an error where the recording does not say."""
    known = known_asked(record, sample)
    if known is None:
        raise DataError(
            f"The recording of {record.name} does not say which cells are asked; record it again."
        )
    return known


def known_asked(record: Record, sample: int) -> Bool[np.ndarray, "n"] | None:
    """As `asked_cells`, or None. If it was not stored, it follows from the givens."""
    row, spec, tokens = record.row(sample), record.spec, record.tokens
    if record.where is not None:
        return record.where[row].astype(bool)
    alphabet, answers = spec.get("alphabet"), spec.get("answers")
    keeps = spec.get("keeps_givens", True) and spec.get("output", "node") == "node"
    if not (keeps and alphabet and answers) or tokens is None:
        return None
    # A token with the character of an answer is that answer, as in `InputSpec.given_answers`.
    return np.array([alphabet[token] not in answers for token in tokens[row]])


def marked_nodes(record: Record, sample: int) -> list[int]:
    """The start of a search: the node that holds the rarer of two tokens."""
    spec = record.spec
    if record.tokens is None or spec.get("num_tokens") != 2:
        return []
    return standing_out(record.tokens[record.row(sample)])


def _written(
    record: Record, indices: Integer[np.ndarray, "n"], characters: str | None
) -> list[str]:
    if characters is None:
        return [str(index) for index in indices]
    words = [characters[index] for index in indices]
    marks = record.marks
    return [SIGNS[marks[w]] if w in marks else w.replace(BLANK, "") for w in words]


# Answers that are known after every round


def decided(answers: Int[np.ndarray, "round n"]) -> Int[np.ndarray, "n"]:
    """The round (from 1) after which the answer at a node no longer changes."""
    rounds = np.arange(1, len(answers))[:, None]
    return np.where(answers[1:] != answers[:-1], rounds, 0).max(axis=0, initial=0) + 1


def lost(
    answers: Int[np.ndarray, "round n"], solution: Int[np.ndarray, "n"]
) -> Bool[np.ndarray, "round n"]:
    """Answers that a round turned from right to wrong; none in the first."""
    right = answers == solution
    return np.concatenate([np.zeros_like(right[:1]), right[:-1] & ~right[1:]])


# Where nodes are drawn


def graph_layout(nodes: int, edges: Int[np.ndarray, "e 2"]) -> Float[np.ndarray, "n 2"]:
    """Places in the unit square, the same for the same graph, whichever way its edges go.

    Every connected part is laid out so that two nodes are as far apart as hops lie between them
    (stress majorisation from classical scaling; Gansner, Koren and North 2004). A long part has
    its large distances shortened, so that it winds instead of being a thread. Parts stand in rows,
    the tallest first. Cost: n² per step, and n³ once.

    >>> graph_layout(3, np.array([[0, 1], [1, 2]])).shape
    (3, 2)
    """
    parts = _components(nodes, edges)
    placed = [_part(hops, is_alone=len(parts) == 1) for _, hops in parts]
    corners = _corners(placed)
    places = np.zeros((nodes, 2))
    for (members, _), inside, corner in zip(parts, placed, corners, strict=True):
        places[members] = inside + corner
    low, high = places.min(axis=0), places.max(axis=0)
    size = high - low
    # The square is filled, but a circle is to look like one.
    return 0.5 + (places - (low + high) / 2) / np.maximum(size, max(size.max(), 1e-9) / STRETCH)


def node_radius(places: Float[np.ndarray, "n 2"]) -> float:
    """The radius of discs at these places, with room for an arrow between any two; with limits."""
    if len(places) < 2:
        return LARGEST
    far = _far(places)
    np.fill_diagonal(far, np.inf)
    return float(np.clip(0.36 * far.min(), SMALLEST, LARGEST))


def _components(
    nodes: int, edges: Int[np.ndarray, "e 2"]
) -> list[tuple[list[int], Int[np.ndarray, "_ _"]]]:
    """Connected parts, largest first, each with the hops between its nodes."""
    graph = nx.empty_graph(nodes)
    graph.add_edges_from(edges.tolist())
    away = dict(nx.all_pairs_shortest_path_length(graph))
    parts = sorted(
        (sorted(part) for part in nx.connected_components(graph)), key=lambda p: (-len(p), p[0])
    )
    return [(part, np.array([[away[a][b] for b in part] for a in part])) for part in parts]


def _part(hops: Int[np.ndarray, "p p"], *, is_alone: bool) -> Float[np.ndarray, "p 2"]:
    """Places of a connected part, about 1 apart along its edges, from (0, 0) on."""
    if len(hops) == 1:
        return np.zeros((1, 2))
    places = _stress(_wound(hops.astype(np.float64)))
    ends = places[np.argwhere(np.triu(hops == 1))]  # e 2 2
    length = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=-1).mean()
    return _turned(_apart(places / length), is_alone=is_alone)


def _wound(hops: Float[np.ndarray, "p p"]) -> Float[np.ndarray, "p p"]:
    """Distances as wanted: hops, or s·log(1 + hops/s) in a part that is long for its nodes.

    The latter is at most 2 √p, about the diameter of a grid of p nodes.
    """
    longest, most = hops.max(), 2 * np.sqrt(len(hops))
    if longest <= most:
        return hops
    scales = longest / np.arange(1, 200)
    scale = scales[scales * np.log1p(longest / scales) <= most][0]
    return scale * np.log1p(hops / scale)


def _stress(wanted: Float[np.ndarray, "p p"]) -> Float[np.ndarray, "p 2"]:
    """Places whose distances are near the wanted ones, relative to them (weights d⁻²)."""
    count = len(wanted)
    centred = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centred @ wanted**2 @ centred)
    places = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 1e-9))
    # Nodes that scaling puts upon each other, such as the leaves of a star, need a direction.
    places = places + np.random.default_rng(0).normal(0, 0.05, places.shape)
    weights = 1 / np.where(wanted > 0, wanted, np.inf) ** 2
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.inv(laplacian + 1 / count) - 1 / count  # its pseudo-inverse
    for _ in range(STEPS):
        pulls = weights * wanted / np.maximum(_far(places), 1e-9)
        places = inverse @ (pulls.sum(axis=1, keepdims=True) * places - pulls @ places)
    return places


def _far(places: Float[np.ndarray, "p 2"]) -> Float[np.ndarray, "p p"]:
    """Distances between places."""
    return np.hypot(*(places.T[:, :, None] - places.T[:, None]))


def _apart(places: Float[np.ndarray, "p 2"]) -> Float[np.ndarray, "p 2"]:
    """The same places, with those pushed apart that would lie upon each other."""
    for _ in range(PUSHES):
        apart = places[:, None] - places[None]
        far = _far(places)
        np.fill_diagonal(far, np.inf)
        if far.min() >= GAP:
            break
        short = np.maximum(GAP - far, 0) / np.maximum(far, 1e-6) / 2
        places = places + (apart * short[..., None]).sum(axis=1)
    return places


def _turned(places: Float[np.ndarray, "p 2"], *, is_alone: bool) -> Float[np.ndarray, "p 2"]:
    """Turned so that it needs little room: a square if it is alone, else a box that lies."""

    def turn(angle: float) -> Float[np.ndarray, "p 2"]:
        turned = places @ np.array(
            [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        )
        return turned - turned.min(axis=0)

    angles = [0.5 * np.pi * step / TURNS for step in range(TURNS)]
    boxes = np.array([turn(angle).max(axis=0) for angle in angles])
    # Its box has one least area; grids then have level lines.
    areas = (boxes[:, 0] + GAP) * (boxes[:, 1] + GAP)
    best = int(areas.argmin())
    if is_alone and boxes.max(axis=1).min() < GAIN * boxes[best].max():
        best = int(boxes.max(axis=1).argmin())
    found = turn(angles[best])
    wide, tall = found.max(axis=0)
    return found if wide >= tall else found[:, ::-1]


def _corners(placed: Sequence[Float[np.ndarray, "_ 2"]]) -> list[Float[np.ndarray, "2"]]:
    """A corner for each part, in rows that together are nearly square."""
    boxes = np.array([places.max(axis=0) for places in placed]) + BETWEEN
    order = sorted(range(len(boxes)), key=lambda part: -boxes[part, 1])
    widths = np.maximum(np.cumsum(boxes[order, 0]), boxes[:, 0].max())
    tries = [_filled(boxes, order, width) for width in np.unique(widths)]
    return min(tries, key=lambda made: made[1])[0]


def _filled(
    boxes: Float[np.ndarray, "parts 2"], order: Sequence[int], width: float
) -> tuple[list[Float[np.ndarray, "2"]], float]:
    """Rows of at most a width: corners of the boxes, and the side of a square around all."""
    corners = [np.zeros(2) for _ in boxes]
    x = y = height = widest = 0.0
    for part in order:
        wide, tall = boxes[part]
        if x and x + wide > width + 1e-9:
            x, y, height = 0.0, y + height, 0.0
        height = max(height, tall)
        corners[part] = np.array([x, y])
        x += wide
        widest = max(widest, x)
    return corners, max(widest, y + height)
