"""How an example is drawn: a board where the nodes form a grid, else nodes and links."""

from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from graph_machine.errors import DataError
from graph_machine.records.layout import graph_layout, node_radius
from graph_machine.tasks.base import Task
from graph_machine.tasks.batch import Batch


def size_of(example: Batch) -> int:
    """Nodes of an example, without padding."""
    if example.node_mask is not None:
        return int(example.node_mask[0].sum())
    given = example.features if example.tokens is None else example.tokens
    assert given is not None
    return given.shape[1]


def key_of(task: Task, example: Batch, otherwise: str) -> str:
    """What an example is asked for with: its text, or a name where the task has no text form."""
    try:
        return task.text(example)
    except DataError:
        return otherwise


def layout_of(task: Task, example: Batch) -> dict[str, Any]:
    """For the page: a board (`rows`, `cols`, `regions`) or nodes (`places`, `links`)."""
    nodes, grid = size_of(example), task.spec.grid
    in_lines = task.spec.graph == "sequence" or (grid is None and example.graph is None)
    if in_lines:  # whatever grid the model has: one row of all would be a strip
        cols = line_length(nodes)
        grid = (-(-nodes // cols), cols)
    if grid is not None:
        return {
            "kind": "board",
            "isSequence": in_lines,
            "rows": grid[0],
            "cols": grid[1],
            "cells": nodes,
            "regions": regions_of(task, example),
        }
    links = links_of(example)
    places = task.places(example)
    places = graph_layout(nodes, links) if places is None else np.asarray(places)[:nodes]
    return {
        "kind": "nodes",
        "cells": nodes,
        "places": np.round(places, 4).tolist(),
        "radius": round(node_radius(places), 4),
        "links": links.tolist(),
        **graph_words(task, example, links),
    }


def graph_words(task: Task, example: Batch, links: Int[np.ndarray, "e 2"]) -> dict[str, Any]:
    """What stands beside nodes and links: who stands out, and numbers that they carry."""
    nodes, told = size_of(example), task.link_values(example)
    values = task.node_values(example)
    return {
        "marked": [node for node in task.marked_nodes(example) if node < nodes],
        "values": None if values is None else values[:nodes],
        "linkValues": None if told is None else [told.get((a, b), "") for a, b in links.tolist()],
    }


def line_length(nodes: int) -> int:
    """Columns of a sequence that is drawn in lines: nearly square, and pairs are not torn apart."""
    return min(nodes, 4 * int(np.ceil(np.sqrt(nodes) / 4)))


def regions_of(task: Task, example: Batch) -> list[int] | None:
    """The region of every cell, where the board has lines between regions."""
    own = task.example_regions(example)
    if own:
        return [int(region) for region in next(iter(own.values()))[0]]
    if task.blocks is None or task.spec.grid is None:
        return None
    (rows, cols), (tall, wide) = task.spec.grid, task.blocks
    row, col = np.divmod(np.arange(rows * cols), cols)
    return (row // tall * -(-cols // wide) + col // wide).tolist()


def links_of(example: Batch) -> Int[np.ndarray, "e 2"]:
    """The input edges: (from, to). Of those from a node to itself, such that not all nodes have."""
    assert example.graph is not None
    targets = example.graph.expand(1).targets[0, : size_of(example)].cpu().numpy()
    source = np.broadcast_to(np.arange(len(targets))[:, None], targets.shape)
    loops = targets == source
    real = (targets >= 0) & ~(loops & (np.cumsum(loops, axis=1) <= loops.sum(axis=1).min()))
    return np.unique(np.stack([source[real], targets[real]], axis=1), axis=0).astype(np.int64)


def token_names(task: Task, example: Batch) -> list[str]:
    """What every node holds, in a word; nodes without tokens have none."""
    return task.token_words(example)[: size_of(example)]


def question_names(task: Task, example: Batch) -> list[str] | None:
    """What is asked at every node, where that differs from node to node."""
    found = task.questions(example)
    return None if found is None else found[: size_of(example)]


def answer_names(
    task: Task, example: Batch, answers: Shaped[np.ndarray, "q *o"]
) -> list[str] | None:
    """An answer of every node, in a word; None where answers are not of nodes."""
    nodes, spec = size_of(example), task.spec
    if spec.output not in ("node", "slot", "pointer"):
        return None
    if spec.output_kind == "numbers":
        return [" ".join(f"{x:.3g}" for x in np.atleast_1d(a)) for a in answers[:nodes]]
    found = [int(answer) for answer in answers[:nodes]]
    if spec.output == "pointer":
        return [f"→{answer}" for answer in found]
    if spec.output == "slot" and example.graph is not None:
        targets = example.graph.expand(1).targets[0]
        return [f"→{int(targets[node, slot])}" for node, slot in enumerate(found)]
    return task.answer_words(found)


def start_of(task: Task, example: Batch) -> int:
    """The source to begin with: a node that is asked, nearest to the middle where there is one."""
    where, grid = np.flatnonzero(asked(task, example)), task.spec.grid
    if not where.size:
        return 0
    if task.spec.graph == "sequence" or grid is None:
        return int(where[0 if example.graph is not None else len(where) // 2])
    row, col = np.divmod(where, grid[1])
    return int(where[np.hypot(row - grid[0] // 2, col - grid[1] // 2).argmin()])


def asked(task: Task, example: Batch) -> list[bool]:
    """Which nodes have an answer that counts."""
    nodes = size_of(example)
    if task.spec.output not in ("node", "slot", "pointer"):
        return [False] * nodes
    return example.where[0, :nodes].tolist()
