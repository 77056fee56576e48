"""What a model is given: a token per cell, and hard edges to the four neighbours.

The category of an edge says in which direction the neighbour lies and whether it is in the same
region. Nothing else tells the regions, unless the task's `told` puts them into the tokens.
"""

import numpy as np
import torch
from jaxtyping import UInt8

from graph_machine.graphs import GRID_CATEGORIES, InputGraph, grid_graph
from graph_machine.tasks.batch import Batch
from graph_machine.tasks.jigsaw.generate import Jigsaws
from graph_machine.tasks.jigsaw.regions import connected_parts, side_of

SLOTS = 5
WAYS = GRID_CATEGORIES[1:5]
# self; up, down, left, right in the same region; the same in another region; empty.
CATEGORIES = ("self", *WAYS, *(f"{way}, other region" for way in WAYS), "empty")


def jigsaw_graph(regions: UInt8[np.ndarray, "b n"]) -> InputGraph:
    """The input edges of each board."""
    side = side_of(regions.shape[1])
    grid = grid_graph(side, side, SLOTS)
    labels = torch.from_numpy(regions).long()
    other = labels[:, grid.targets.clamp(min=0)] != labels[:, :, None]  # b n k
    way = (grid.categories > 0) & (grid.targets >= 0)
    empty = grid.targets < 0
    categories = torch.where(way & other, grid.categories + len(WAYS), grid.categories)
    categories = categories.masked_fill(empty, len(CATEGORIES) - 1)
    targets = grid.targets.expand(len(regions), -1, -1)
    return InputGraph(targets, categories, len(CATEGORIES))


def graph_regions(graph: InputGraph) -> UInt8[np.ndarray, "b n"]:
    """The regions that follow from the edges of a batch, in reading order."""
    same = (graph.categories >= 1) & (graph.categories <= len(WAYS))
    targets = torch.where(same, graph.targets, -1)
    return connected_parts(targets.cpu().numpy())


def jigsaw_batch(rows: Jigsaws, *, told: bool) -> Batch:
    """Puzzles as tensors; ratings and clue counts go along as groups."""
    puzzles = torch.from_numpy(rows.puzzles).long()
    tokens = puzzles
    if told:
        tokens = puzzles * rows.side + torch.from_numpy(rows.regions).long()
    return Batch(
        tokens=tokens,
        answers=torch.from_numpy(rows.solutions).long() - 1,
        where=puzzles == 0,
        groups={"rating": rows.ratings, "clues": rows.clues},
        graph=jigsaw_graph(rows.regions),
    )


def batch_puzzles(batch: Batch, *, told: bool) -> UInt8[np.ndarray, "b n"]:
    """The cells of a batch, 0 at blanks."""
    assert batch.tokens is not None
    tokens = batch.tokens.cpu().numpy()
    return (tokens // side_of(tokens.shape[1]) if told else tokens).astype(np.uint8)


def batch_regions(batch: Batch) -> UInt8[np.ndarray, "b n"]:
    """The regions of a batch, from its edges."""
    assert batch.graph is not None
    return graph_regions(batch.graph)
