"""What a kernel takes and gives: the core of attention and referral.

Attention and all kinds of referral are one computation once every source has weights over its own
edges: a softmax over nodes n2, or over pairs (n2, e2), and what it collects. So they share one
tuple of inputs, which is also the list of arguments of the torch operator (`operators.py`).
Gradients come back in the same tuple. The last axis is contiguous (for keys and values of e2 the
last two); other axes may have any strides. Addresses are contiguous.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from graph_machine.ops.numerics import in_float32

# Numbers per row that kernels keep for the backward pass (native/factors.h).
STATS = 8
# The first fields of `KernelInputs` have gradients, the first `TENSORS` are tensors.
LEARNED, TENSORS = 11, 14


class Packed(NamedTuple):
    """Graphs of different sizes one after the other, without padding: rows of one batch entry.

    Their addresses are one vector: for each graph a block (nodes, slots, nodes). Only the C kernels
    take such calls, which have neither a mask nor entropies.
    """

    starts: Tensor  # (2, graphs + 1): the first row of every graph, its first pair of nodes
    largest: int  # nodes of the largest graph
    pairs: int  # pairs of nodes of the same graph: entries of one address of every node

    @staticmethod
    def of(sizes: Sequence[int]) -> "Packed":
        """Graphs with these numbers of nodes.

        >>> Packed.of([3, 2]).starts
        tensor([[ 0,  3,  5],
                [ 0,  9, 13]])
        """
        first = [*accumulate(sizes, initial=0)]
        pairs = [*accumulate((size * size for size in sizes), initial=0)]
        return Packed(torch.tensor([first, pairs]), max(sizes), pairs[-1])

    @property
    def graphs(self) -> int:
        """How many there are."""
        return self.starts.shape[1] - 1

    @property
    def pointers(self) -> tuple[int, int]:
        """Where both rows of `starts` are, which lie in the memory of a CPU."""
        first = self.starts.data_ptr()
        return first, first + 8 * self.starts.shape[1]


class KernelInputs(NamedTuple):
    """Absent parts are None. Queries hold their temperature and 1/sqrt(d).

    Attention has no e2. Pre-aggregated referral has `own_weights`: every n2 mixes its edges to one
    per head, with one key (l = 1); its value is part of `n2_values`. Joint and conditional referral
    have `e2_values`, in `u` sets: one per head, or one for all.

    Given edges and the empty edge have no row of addresses: `e1_weights`, `own_weights`, keys and
    values of e2 have entries for them after those of the addresses.
    """

    n2_values: Tensor  # b h m v
    n1_queries: Tensor | None = None  # b h n d
    n2_keys: Tensor | None = None  # b h m d
    e1_weights: Tensor | None = None  # b n h k
    e1_addresses: Tensor | None = None  # b n k m
    edge_temps: Tensor | None = None  # b n h
    e2_queries: Tensor | None = None  # b n h e
    e2_keys: Tensor | None = None  # b u m l e
    e2_values: Tensor | None = None  # b u m l c
    own_weights: Tensor | None = None  # b m h l
    e2_addresses: Tensor | None = None  # b m l a
    mask: Tensor | None = None  # (b or 1) (n or 1) m
    entropy_weights: Tensor | None = None  # (b or 1) (n or 1): how much the entropy of a row counts
    given: Tensor | None = None  # b n g, int32: targets of edges without a row; -1: no edge
    empty: bool = False  # one more edge without a row, even over all targets that may be seen
    given_scale: float = 1.0  # the mass of such an edge
    eps: float = 0.0
    logit_space: bool = False
    conditional: bool = False
    packed: Packed | None = None  # then addresses are vectors

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(b, h, n, m)."""
        b, h, m, _ = self.n2_values.shape
        if self.n1_queries is not None:
            return b, h, self.n1_queries.shape[2], m
        assert self.e1_weights is not None
        return b, h, self.e1_weights.shape[1], m

    @property
    def slots(self) -> int:
        """Edges of n2 that are keys of their own."""
        return 1 if self.e2_keys is None else self.e2_keys.shape[3]

    @property
    def widths(self) -> tuple[int, int, int]:
        """Of what is collected: values of n2, values of e2, addresses (of the largest graph)."""
        e2, addresses = self.e2_values, self.e2_addresses
        targets = 0 if addresses is None else addresses.shape[-1]
        if self.packed is not None and addresses is not None:
            targets = self.packed.largest
        return self.n2_values.shape[-1], 0 if e2 is None else e2.shape[-1], targets

    @property
    def address_slots(self) -> tuple[int, int]:
        """Slots of e1 and of e2 that have a row of addresses."""
        without = (0 if self.given is None else self.given.shape[-1]) + self.empty
        e2 = self.own_weights if self.e2_values is None else self.e2_values.transpose(-1, -2)
        each = ((self.e1_addresses, self.e1_weights), (self.e2_addresses, e2))
        k, l = (0 if x is None or y is None else y.shape[-1] - without for x, y in each)
        return k, l

    def empty_grads(self) -> "KernelInputs":
        """Gradients to be filled, dense in the order of their tensors' strides."""
        made = (None if x is None else torch.empty_like(x) for x in self[:LEARNED])
        return KernelInputs(*made, *self[LEARNED:])  # type: ignore[arg-type]


class KernelOuts(NamedTuple):
    """Outputs, or their gradients. Parts that are not collected have width 0."""

    features: Tensor  # b n h v: what n2 carries
    e2: Tensor  # b n h c: what e2 carries
    addresses: Tensor  # b n h a
    entropies: Tensor  # weighted sums for the edge and the node factor
    stats: Tensor  # b h n STATS: what kernels keep for the backward pass


def empty_outs(x: KernelInputs, dtype: torch.dtype | None = None) -> KernelOuts:
    """Outputs of the right shapes, to be filled; by default in the dtype of the values."""
    (b, h, n, _), (v, c, a) = x.sizes, x.widths
    addresses = (b, n, h, a) if x.packed is None or not a else (h * x.packed.pairs,)
    shapes = ((b, n, h, v), (b, n, h, c), addresses, (2,), (b, h, n, STATS))
    return KernelOuts(*(x.n2_values.new_empty(shape, dtype=dtype) for shape in shapes))


def even_rows(
    mask: Shaped[Tensor, "#b #n m"] | None, num_nodes: int, scale: float, like: Tensor
) -> Float[Tensor, "#b #n 1 m"]:
    """The addresses of empty edges: `scale`, shared evenly by all nodes that may be seen."""
    if mask is None:
        return like.new_full((1, 1, 1, num_nodes), 1.0 / num_nodes) * scale
    seen = mask.unsqueeze(2).to(like.dtype)
    return seen / seen.sum(dim=-1, keepdim=True).clamp_min(1.0) * scale


def beside(
    x: KernelInputs,
) -> tuple[Int[Tensor, "b n g"] | None, float, Float[Tensor, "#b #n 1 m"] | None]:
    """The edges without rows: given ones, their mass, and addresses of the empty ones."""
    if not x.empty:
        return x.given, x.given_scale, None
    like = in_float32(x.n2_values[:0])
    return x.given, x.given_scale, even_rows(x.mask, x.sizes[3], x.given_scale, like)


def mixture(
    weights: Float[Tensor, "b n h t"],
    addresses: Float[Tensor, "b n k m"],
    given: Int[Tensor, "b n g"] | None,
    scale: float,
    even: Float[Tensor, "#b #n 1 m"] | None,
) -> Float[Tensor, "b n h m"]:
    """`scale` is the mass of a given edge; without an empty edge, `even` is None."""
    weights, made = in_float32(weights), addresses.shape[2]
    mixed = torch.matmul(weights[..., :made], in_float32(addresses))
    if given is not None:
        at, there = _targets(given, weights.shape[2])
        found = weights[..., made : made + given.shape[-1]] * (there * scale)
        mixed = mixed.scatter_add(3, at, found)
    return mixed if even is None else mixed + weights[..., -1:] * even


def mixture_grads(
    weights: Float[Tensor, "b n h t"],
    addresses: Float[Tensor, "b n k m"],
    given: Int[Tensor, "b n g"] | None,
    scale: float,
    even: Float[Tensor, "#b #n 1 m"] | None,
    above: Float[Tensor, "b n h m"],
) -> tuple[Float[Tensor, "b n h t"], Float[Tensor, "b n k m"]]:
    """Gradients of weights and addresses from that of their mixture."""
    found = [torch.matmul(above, addresses.to(above.dtype).mT)]
    if given is not None:
        at, there = _targets(given, weights.shape[2])
        found.append(above.gather(3, at) * (there * scale))
    if even is not None:
        found.append((above * even).sum(dim=-1, keepdim=True))
    made = weights[..., : addresses.shape[2]].to(above.dtype)
    return torch.cat(found, dim=-1), torch.matmul(made.mT, above)


def _targets(given: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Where given edges point, (b, n, h, g), and which there are, (b, n, 1, g)."""
    at = given.clamp_min(0).long().unsqueeze(2)
    return at.expand(-1, -1, heads, -1), (given >= 0).unsqueeze(2)
