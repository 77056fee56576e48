"""Graphs of different sizes together: padded batches, and buckets that keep the padding small."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from graph_machine.errors import GraphError
from graph_machine.graphs.checks import check_tensors, check_whole
from graph_machine.graphs.slots import InputGraph

# A graph is padded by at most this share of its size, or by a few nodes if it is tiny.
PADDING = 0.5
FEW = 4


def batch_graphs(graphs: Sequence[InputGraph]) -> tuple[InputGraph, Bool[Tensor, "b n"]]:
    """Graphs of different sizes as one padded batch, and the node mask (b, n) that goes with it.

    Graphs with fewer slots than others get empty ones.

    >>> from graph_machine.graphs import sequence_graph
    >>> graph, node_mask = batch_graphs([sequence_graph(2, 2), sequence_graph(3, 2)])
    >>> graph.targets.shape, node_mask  # b n k, b n
    (torch.Size([2, 3, 2]), tensor([[ True,  True, False],
            [ True,  True,  True]]))
    """
    if not graphs:
        raise GraphError("batch_graphs: no graphs were given.")
    for number, given in enumerate(graphs):
        if given.targets.ndim != 2:
            raise GraphError(
                f"batch_graphs: graph {number} should have targets (n, k), got "
                f"{tuple(given.targets.shape)}: a batch already; give its graphs one by one."
            )
    kinds = {
        (g.num_categories, None if g.features is None else g.features.shape[-1]) for g in graphs
    }
    if len(kinds) > 1:
        raise GraphError("batch_graphs: the graphs differ in categories or features.")
    if len({g.targets.device for g in graphs}) > 1:
        raise GraphError("batch_graphs: the graphs are on different devices.")
    slots = max(g.num_edges for g in graphs)
    graphs = [g.check().with_slots(slots) for g in graphs]
    sizes = [g.targets.shape[0] for g in graphs]
    first, n = graphs[0], max(sizes)
    features = None
    if first.features is not None:
        features = pad_rows([g.features for g in graphs if g.features is not None], n, 0)
    arange = torch.arange(n, device=first.targets.device)
    return InputGraph(
        pad_rows([g.targets for g in graphs], n, -1),
        pad_rows([g.categories for g in graphs], n, first.num_categories - 1),
        first.num_categories,
        features,
    ), arange < torch.tensor(sizes, device=arange.device).unsqueeze(-1)


def pad_rows(
    parts: Sequence[Shaped[Tensor, "..."]], length: int, fill: int | float
) -> Shaped[Tensor, "b ..."]:
    """Tensors (n_i, ...) as one (b, length, ...), filled up at the end.

    >>> pad_rows([torch.tensor([1, 2]), torch.tensor([3])], length=3, fill=-1)
    tensor([[ 1,  2, -1],
            [ 3, -1, -1]])
    """
    whole = parts[0].new_full((len(parts), length, *parts[0].shape[1:]), fill)
    for row, part in zip(whole, parts):
        row[: len(part)] = part
    return whole


@dataclass(frozen=True)
class Bucket:
    """Some graphs of a flat batch, padded to the largest of them.

    >>> bucket = next(bucketed([(0, 2), (2, 3)], torch.device("cpu")))
    >>> bucket.ids.shape, bucket.mask.sum(dim=1)  # b n, b
    (torch.Size([2, 3]), tensor([2, 3]))
    """

    ids: Int[Tensor, "b n"]  # flat node ids; any valid id at padding
    starts: Int[Tensor, " b"]  # the flat id of each graph's first node
    mask: Bool[Tensor, "b n"]

    @property
    def padded(self) -> bool:
        """Whether some graphs are smaller than the largest."""
        return not bool(self.mask.all())

    def graph(self, flat: InputGraph) -> InputGraph:
        """Slots of these graphs, with targets counted from each graph's own first node."""
        real = self.mask.unsqueeze(-1)
        targets = flat.targets[self.ids]
        local = targets - self.starts[:, None, None]
        features = None
        if flat.features is not None:
            features = flat.features[self.ids] * real.unsqueeze(-1)
        return InputGraph(
            torch.where(real & (targets >= 0), local, -1),
            torch.where(real, flat.categories[self.ids], flat.num_categories - 1),
            flat.num_categories,
            features,
        )


def graph_ranges(
    batch: Int[Tensor, " n"] | None, num_nodes: int, where: str = "graph_ranges"
) -> list[tuple[int, int]]:
    """(first node, nodes) of every graph that has nodes, from PyG's sorted batch vector.

    >>> graph_ranges(torch.tensor([0, 0, 1, 1, 1]), num_nodes=5)
    [(0, 2), (2, 3)]
    """
    if num_nodes < 1:
        raise GraphError(f"{where}: there are no nodes.")
    if batch is None:
        return [(0, num_nodes)]
    check_tensors(where, batch=batch)
    if batch.shape != (num_nodes,):
        raise GraphError(
            f"{where}: batch should be (n,) = ({num_nodes},), got {tuple(batch.shape)}."
        )
    check_whole(where, "batch", batch)
    batch = batch.long()  # differences of unsigned numbers wrap round
    if int(batch[0]) < 0 or bool((batch.diff() < 0).any()):
        steps = batch.diff(prepend=batch.new_zeros(1))
        bad = int((steps < 0).nonzero()[0])
        raise GraphError(
            f"{where}: batch should count graphs from 0 upwards in order, but entry {bad} is "
            f"{int(batch[bad])}; sort the nodes by graph first."
        )
    sizes = batch.unique_consecutive(return_counts=True)[1].tolist()
    starts = [0]
    for size in sizes[:-1]:
        starts.append(starts[-1] + size)
    return list(zip(starts, sizes, strict=True))


def buckets(sizes: Sequence[int], padding: float = PADDING) -> list[list[int]]:
    """Numbers of graphs that go into one padded batch: none is padded by more than its share.

    The largest graphs come first; within a bucket the order of the graphs is kept.

    >>> buckets([50, 10, 48, 9])
    [[0, 2], [1, 3]]
    """
    order = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    found: list[list[int]] = []
    largest = 0
    for number in order:
        if not found or largest > sizes[number] * (1 + padding) + FEW:
            found.append([])
            largest = sizes[number]
        found[-1].append(number)
    return [sorted(bucket) for bucket in found]


def bucketed(
    ranges: Sequence[tuple[int, int]], device: torch.device, padding: float | None = PADDING
) -> Iterator[Bucket]:
    """Padded batches over the graphs of a flat batch; `padding=None`: all in one.

    >>> [bucket.ids.shape for bucket in bucketed([(0, 50), (50, 10)], torch.device("cpu"))]
    [torch.Size([1, 50]), torch.Size([1, 10])]
    """
    sizes = [size for _, size in ranges]
    together = [list(range(len(sizes)))] if padding is None else buckets(sizes, padding)
    for members in together:
        starts = torch.tensor([ranges[m][0] for m in members], device=device)
        counts = torch.tensor([sizes[m] for m in members], device=device)
        steps = torch.arange(max(sizes[m] for m in members), device=device)
        mask = steps < counts.unsqueeze(-1)
        ids = starts.unsqueeze(-1) + torch.where(mask, steps, 0)
        yield Bucket(ids, starts, mask)
