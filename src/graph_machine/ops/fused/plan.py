"""How the work is cut, and the scratch memory that chunks share."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# Numbers per scratch tensor. On a CPU a chunk should stay in the cache; elsewhere, kernels should
# be large. Measured at n = 16, 36, 81 and 256 on two cores with 32 MB of shared cache.
CPU_CHUNK = 1 << 19
DEVICE_CHUNK = 1 << 26


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


def chunk_size(device: torch.device) -> int:
    return CPU_CHUNK if device.type == "cpu" else DEVICE_CHUNK


def chunks(b: int, n: int, per_source: int, device: torch.device) -> Iterator[Chunk]:
    """Chunks of about `chunk_size` numbers, when a source node needs `per_source` of them."""
    yield from _split(slice(0, b), slice(0, n), per_source, chunk_size(device))


def within(outer: Chunk, per_source: int, device: torch.device) -> Iterator[tuple[Chunk, Chunk]]:
    """Smaller chunks of a chunk: where each lies in whole tensors, and where in the chunk's."""
    graphs, sources = outer.graphs, outer.sources
    for inner in _split(graphs, sources, per_source, chunk_size(device)):
        local = inner._replace(
            graphs=slice(inner.graphs.start - graphs.start, inner.graphs.stop - graphs.start),
            sources=slice(inner.sources.start - sources.start, inner.sources.stop - sources.start),
        )
        yield inner, local


def _split(graphs: slice, sources: slice, per_source: int, size: int) -> Iterator[Chunk]:
    b, n = graphs.stop - graphs.start, sources.stop - sources.start
    if per_source * n <= size:
        # Even groups: two of 32 rather than one of 60 and one of 4.
        groups = -(-b * per_source * n // size)
        step = -(-b // groups)
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

    def __call__(self, name: str, *shape: int) -> Tensor:
        """A tensor of this shape with undefined contents."""
        size = 1
        for length in shape:
            size *= length
        buffer = self.buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self.buffers[name] = self.like.new_empty(size)
        return buffer[:size].view(shape)


def pad_width(width: int) -> int:
    """The next multiple of 16: MKL is several times slower at widths such as 8, 81 or 89."""
    return -(-width // 16) * 16
