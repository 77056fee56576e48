"""How the work is cut, and the scratch memory that chunks share."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from graph_machine.ops.policy import chunk_numbers


class Chunk(NamedTuple):
    """Some graphs with all their source nodes, or some source nodes of one graph."""

    graphs: slice
    sources: slice
    num_graphs: int
    num_sources: int
    first: bool  # of the chunks of these graphs
    last: bool

    def take(self, tensor: Tensor, source_axis: int | None) -> Tensor:
        """The chunk's part of a tensor whose first axis is the batch (size 1 broadcasts)."""
        part = tensor if tensor.shape[0] == 1 else tensor[self.graphs]
        if source_axis is None or part.shape[source_axis] in (1, self.num_sources):
            return part
        return part.narrow(source_axis, self.sources.start, self.num_sources)


def chunks(b: int, n: int, per_source: int, device: torch.device) -> Iterator[Chunk]:
    """Outer chunks, when a source node needs `per_source` numbers."""
    yield from _split(slice(0, b), slice(0, n), per_source, chunk_numbers(device))


def within(outer: Chunk, per_source: int, device: torch.device) -> Iterator[tuple[Chunk, Chunk]]:
    """Smaller chunks of a chunk: where each lies in whole tensors, and where in the chunk's."""
    graphs, sources = outer.graphs, outer.sources
    for inner in _split(graphs, sources, per_source, chunk_numbers(device)):
        local = inner._replace(
            graphs=slice(inner.graphs.start - graphs.start, inner.graphs.stop - graphs.start),
            sources=slice(inner.sources.start - sources.start, inner.sources.stop - sources.start),
        )
        yield inner, local


def _split(graphs: slice, sources: slice, per_source: int, size: int) -> Iterator[Chunk]:
    b, n = graphs.stop - graphs.start, sources.stop - sources.start
    if per_source * n <= size:
        step = size // (per_source * n)
        step = -(-b // -(-b // step))  # even groups: two of 32 rather than one of 60 and one of 4
        for start in range(graphs.start, graphs.stop, step):
            stop = min(start + step, graphs.stop)
            yield Chunk(slice(start, stop), sources, stop - start, n, True, True)
        return
    step = max(1, size // per_source)
    for graph in range(graphs.start, graphs.stop):
        for start in range(sources.start, sources.stop, step):
            stop = min(start + step, sources.stop)
            first, last = start == sources.start, stop == sources.stop
            yield Chunk(slice(graph, graph + 1), slice(start, stop), 1, stop - start, first, last)


class Scratch:
    """Named buffers that are allocated once per call and cut to the shape that a chunk needs."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.buffers: dict[str, Tensor] = {}
        self.views: dict[tuple[str | int, ...], Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        """A tensor of this shape with undefined contents."""
        view = self.views.get((name, *shape))
        if view is None:
            size = math.prod(shape)
            buffer = self.buffers.get(name)
            if buffer is None or buffer.numel() < size:
                buffer = self.buffers[name] = self.like.new_empty(size)
                # Views of one buffer under several shapes must go on sharing it.
                self.views = {key: old for key, old in self.views.items() if key[0] != name}
            view = self.views[(name, *shape)] = buffer[:size].view(shape)
        return view


def pad_width(width: int) -> int:
    """The next multiple of 16: MKL is several times slower at widths such as 8, 81 or 89."""
    return -(-width // 16) * 16


def padded(tensor: Tensor, name: str, scratch: Scratch) -> Tensor:
    """A contiguous copy whose last axis is filled up with zeros to `pad_width`."""
    width = tensor.shape[-1]
    out = scratch(name, *tensor.shape[:-1], pad_width(width))
    out[..., :width].copy_(tensor)
    out[..., width:].zero_()
    return out
