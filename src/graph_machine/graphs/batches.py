"""Batches of graphs of different sizes: padded, and in buckets that keep the padding small."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from graph_machine.errors import GraphError
from graph_machine.graphs.slots import InputGraph, check_tensors

# A graph is padded by at most this share of its size,
PADDING = 0.5
# but one more bucket takes about as long as 240 rows of small graphs, and in a graph of 150 nodes a
# row takes twice as long as in a small one (CPU, four layers of width 32).
BUCKET, LARGE = 240, 150


def batch_graphs(graphs: Sequence[InputGraph]) -> tuple[InputGraph, Bool[Tensor, "b n"]]:
    """Graphs of different sizes as one padded batch, with its node mask (b, n).

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
                f"{tuple(given.targets.shape)}: already a batch; pass its graphs one by one."
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

    >>> bucket = next(bucketed([2, 3], torch.device("cpu")))
    >>> bucket.ids.shape, bucket.real  # b n, r
    (torch.Size([2, 3]), tensor([0, 1, 3, 4, 5]))
    """

    members: Sequence[int]  # which graphs these are
    ids: Int[Tensor, "b n"]  # flat node ids; any valid id at padding
    starts: Int[Tensor, " b"]  # the flat id of each graph's first node
    mask: Bool[Tensor, "b n"] | None  # None: nothing is padded
    real: Int[Tensor, " r"] | None  # places of real nodes among all b n; None: all of them

    def targets(self, flat: Int[Tensor, "all k"]) -> Int[Tensor, "b n k"]:
        """Targets of these graphs, counted from each graph's own first node."""
        targets = flat[self.ids]
        there = targets >= 0 if self.mask is None else self.mask.unsqueeze(-1) & (targets >= 0)
        return torch.where(there, targets - self.starts[:, None, None], -1)

    def graph(self, flat: InputGraph) -> InputGraph:
        """Slots of these graphs."""
        found = flat.apply(lambda tensor: tensor[self.ids])
        if self.mask is not None:
            found = found.without(~self.mask.unsqueeze(-1))
        return replace(found, targets=self.targets(flat.targets))

    def rows(self, padded: Shaped[Tensor, "b n ..."]) -> Shaped[Tensor, "r ..."]:
        """What belongs to real nodes."""
        flat = padded.flatten(0, 1)
        return flat if self.real is None else flat[self.real]


def graph_sizes(
    batch: Int[Tensor, " n"] | None, num_nodes: int, where: str = "graph_sizes"
) -> list[int]:
    """Nodes of every graph that has nodes, from PyG's sorted batch vector.

    >>> graph_sizes(torch.tensor([0, 0, 1, 1, 1]), num_nodes=5)
    [2, 3]
    """
    if num_nodes < 1:
        raise GraphError(f"{where}: there are no nodes.")
    if batch is None:
        return [num_nodes]
    check_tensors(where, {"batch": batch})
    if batch.shape != (num_nodes,):
        raise GraphError(
            f"{where}: batch should be (n,) = ({num_nodes},), got {tuple(batch.shape)}."
        )
    check_tensors(where, {"batch": batch}, whole={"batch"})
    batch = batch.long()  # differences of unsigned numbers wrap round
    steps = batch.diff(prepend=batch.new_zeros(1))
    if bool((steps < 0).any()):
        bad = int((steps < 0).nonzero()[0])
        raise GraphError(
            f"{where}: batch should count graphs from 0 upwards in order, but entry {bad} is "
            f"{int(batch[bad])}; sort the nodes by graph first."
        )
    return batch.unique_consecutive(return_counts=True)[1].tolist()


def buckets(sizes: Sequence[int], padding: float = PADDING) -> list[list[int]]:
    """Numbers of graphs that go into one padded batch: none is padded by more than its share,
    unless another bucket would cost more time than it saves.

    The largest graphs come first; within a bucket the order of the graphs is kept.

    >>> buckets([500, 10, 480, 9])
    [[0, 2], [1, 3]]
    """
    order = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    alike: list[list[int]] = []
    for number in order:
        if not alike or sizes[alike[-1][0]] > sizes[number] * (1 + padding):
            alike.append([])
        alike[-1].append(number)

    def cost(bucket: list[int]) -> float:
        largest = sizes[bucket[0]]
        return BUCKET + len(bucket) * largest * (1 + largest / LARGE)

    found = alike[:1]
    for bucket in alike[1:]:
        both = found[-1] + bucket
        if cost(both) <= cost(found[-1]) + cost(bucket):
            found[-1] = both
        else:
            found.append(bucket)
    return [sorted(bucket) for bucket in found]


def bucketed(
    sizes: Sequence[int], device: torch.device, padding: float | None = PADDING
) -> Iterator[Bucket]:
    """Padded batches over the graphs of a flat batch; `padding=None`: all in one.

    >>> [bucket.ids.shape for bucket in bucketed([500, 10], torch.device("cpu"))]
    [torch.Size([1, 500]), torch.Size([1, 10])]
    """
    count, first = np.array(sizes), np.cumsum([0, *sizes[:-1]])
    alone = padding is None or len(sizes) == 1
    together = [list(range(len(sizes)))] if alone else buckets(sizes, padding)
    for members in together:
        own, starts = count[members][:, None], first[members][:, None]
        steps = np.arange(own.max())
        there = steps < own
        mask = real = None
        if not there.all():
            mask, real = torch.from_numpy(there), torch.from_numpy(np.flatnonzero(there))
            mask, real = mask.to(device), real.to(device)
        ids = torch.from_numpy(starts + np.where(there, steps, 0)).to(device)
        yield Bucket(members, ids, torch.from_numpy(starts[:, 0]).to(device), mask, real)
