"""How a region grows over the layers, where every example has its own regions (jigsaw)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from graph_machine.errors import ConfigError
from graph_machine.lab.analysis.figures.board import Geometry, Panel, panels
from graph_machine.lab.analysis.regions import make_regions, overlaps
from graph_machine.lab.analysis.report import grid
from graph_machine.lab.records.drawing import BLANK
from graph_machine.lab.tasks.base import Task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.models import GraphMachine
from graph_machine.nn.taps import listen


@torch.no_grad()
def layer_addresses(model: GraphMachine, batch: Batch) -> list[Float[np.ndarray, "b n k m"]]:
    """Where edges point: at the input, then as each edge sublayer has built them.

    Where given edges stay, there are no slots at the input. Then all of its slots hold the same:
    where the given edges of a node point, evenly.
    """
    if not model.config.has_edges:
        raise ConfigError("This model has no edges to look at.")
    found: list[np.ndarray] = []

    def keep(name: str, tensor: torch.Tensor) -> None:
        if name.endswith("address_outs"):
            found.append(tensor.float().cpu().numpy())

    model = model.cpu().eval()
    state = model.initial_state(batch.tokens, batch.graph, batch.node_mask)
    assert state.addresses is not None
    first = state.addresses.to_dense().float().numpy()
    with listen(model, keep):
        model(**batch.inputs)
    if model.any_degree and state.given is not None:
        hits = state.given.targets.numpy()[..., None] == np.arange(batch.num_nodes)  # b n g m
        even = hits.sum(axis=2) / np.maximum(hits.sum(axis=(2, 3)), 1)[..., None]
        first = np.broadcast_to(even[:, :, None], found[0].shape)
    return [first, *found]


@dataclass(frozen=True)
class Growth:
    """Mean overlap of each slot with a kind of region: layer x kind x slot; layer 0 is the input.

    Overlap is mass inside x coverage (see `regions.overlaps`): 1 if an edge points evenly at
    exactly the cells of the region.
    """

    kinds: tuple[str, ...]
    overlaps: Float[np.ndarray, "layer kind slot"]
    examples: int

    def markdown(self) -> str:
        """Per layer the best slot for each kind of region."""
        rows = [
            ["input" if layer == 0 else f"after layer {layer}"]
            + [f"{row.max():.2f} (slot {row.argmax()})" for row in found]
            for layer, found in enumerate(self.overlaps)
        ]
        return grid(["edges", *self.kinds], rows)


def region_growth(model: GraphMachine, task: Task, batches: Iterable[Batch]) -> Growth:
    """Overlap of edges with rows, columns and each example's own regions, by layer and slot."""
    total: np.ndarray | None = None
    kinds: tuple[str, ...] = ()
    count = 0
    known = make_regions(model.spec.grid) if model.spec.grid else {}
    lines = {kind: known[kind] for kind in ("row", "column") if kind in known}
    for batch in batches:
        own = task.example_regions(batch)
        kinds = (*lines, *own)
        layers = layer_addresses(model, batch)
        sums = np.zeros((len(layers), len(kinds), layers[0].shape[2]))
        for row in range(len(batch)):
            mine = (labels[row] for labels in own.values())
            masks = np.stack([*lines.values(), *(each[:, None] == each[None] for each in mine)])
            for layer, addresses in enumerate(layers):
                weights = addresses[row].swapaxes(0, 1)  # k n m
                sums[layer] += overlaps(weights, masks).mean(axis=-1)
        total = sums if total is None else total + sums
        count += len(batch)
    if total is None:
        raise ConfigError("There are no examples to look at.")
    return Growth(kinds, total / count, count)


def growth_figure(
    model: GraphMachine, task: Task, batch: Batch, growth: Growth, source: int
) -> Any:
    """Edges of one cell of the first example: per layer the slot that fits each kind best."""
    one = batch[:1]
    layers = layer_addresses(model, one)
    regions = next(iter(task.example_regions(one).values()))[0]
    assert model.spec.grid is not None
    assert one.tokens is not None
    alphabet = model.spec.alphabet
    marks = alphabet and [alphabet[token].replace(BLANK, "") for token in one.tokens[0]]
    labels = ["input", *(f"layer {layer}" for layer in range(1, len(layers)))]
    if model.any_degree:
        labels[0] = "given"
    rows = []
    for layer, (label, addresses) in enumerate(zip(labels, layers, strict=True)):
        best = growth.overlaps[layer].argmax(axis=1)
        rows.append(
            [
                Panel(
                    title=kind if layer == 0 else "",
                    values=addresses[0, source, slot],
                    source=source,
                    marks=marks,
                    note="given edges" if label == "given" else f"slot {slot}",
                    kind="given" if label == "given" else "made",
                )
                for kind, slot in zip(growth.kinds, best.tolist(), strict=True)
            ]
        )
    geometry = Geometry(model.spec.grid[0], model.spec.grid[1], None, regions)
    return panels(
        rows,
        geometry,
        labels=labels,
        title="Edges of one cell",
        caption="The slot that fits rows, columns and regions best. Red frame: source cell.",
        size=1.3,
    )
