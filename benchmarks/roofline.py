"""Estimates: bytes and operations of the paper's model on a GPU, and the least time they take.

Counts are of what the kernels of `ops/triton` and the torch code around them do, each tensor once
per kernel that reads or writes it, in float32. Nothing here has been measured on a GPU.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Size:
    """The paper's 9x9 model and batch."""

    b: int = 64
    n: int = 81
    k: int = 8
    h: int = 8
    d: int = 8
    d_node: int = 64
    layers: int = 32

    @property
    def pairs(self) -> int:
        """Numbers of one tensor of addresses or of n2 factors (k = h)."""
        return self.b * self.n * self.k * self.n


PAPER = Size()


class Work(NamedTuple):
    """Bytes moved and floating point operations of matrix products."""

    bytes: float
    flops: float

    def __add__(self, other: Any) -> Any:
        return Work(self.bytes + other.bytes, self.flops + other.flops)

    def times(self, count: int) -> "Work":
        return Work(self.bytes * count, self.flops * count)


@dataclass(frozen=True)
class Gpu:
    """From the data sheets: bytes per second, tf32 products per second on tensor cores (dense)."""

    name: str
    bandwidth: float
    tf32: float

    def floor(self, work: Work) -> float:
        """Seconds that the work takes at least: memory and arithmetic overlap perfectly."""
        return max(work.bytes / self.bandwidth, work.flops / self.tf32)

    def expected(self, work: Work) -> float:
        """Seconds at the shares of the peaks below, one after the other."""
        return work.bytes / (REACHED_BANDWIDTH * self.bandwidth) + work.flops / (
            REACHED_TF32 * self.tf32
        )


GPUS = (Gpu("RTX 4090", 1.008e12, 82.6e12), Gpu("H100 SXM", 3.35e12, 494.7e12))
# Guesses: streaming kernels reach most of the bandwidth; products with an inner width of 16 and
# tiles of 16 x 32 reach little of the tensor cores.
REACHED_BANDWIDTH, REACHED_TF32 = 0.7, 0.15


def attention(s: Size = PAPER) -> Work:
    """Forward: one pass over addresses. Backward: over sources, over targets, and two products."""
    passes = 1 + 3 + 1 + 4  # attend; sources; targets; gradients of e1 weights and addresses
    products = 2 + 4 + 4  # of width d over all pairs of nodes
    return Work(4.0 * s.pairs * passes, 2.0 * s.pairs * (products * s.d + 6 * s.k))


def referral(s: Size = PAPER, *, joint: bool = True) -> Work:
    """Address products are over n * l pairs of (n2, e2), or over n where n2 mixes its own first."""
    slots = s.k if joint else 1
    address = 2.0 * s.pairs * slots * s.n
    narrow = 2.0 * s.pairs * slots * s.d * (3 + 1 + 5 + 5 + 1)
    passes = 2 + 3 + 5 + 3 + 3 + 4 + (0 if joint else 7)
    return Work(4.0 * s.pairs * passes, 4 * address + narrow)


def sharpening(s: Size = PAPER) -> Work:
    """Torch code: clamp, log, scale, softmax; and backward, nine kernels over addresses."""
    return Work(4.0 * s.pairs * (4 * 2 + 9 * 2), 0.0)


def rest(s: Size = PAPER) -> Work:
    """Norms, projections and feed-forward networks of a layer: 60 passes over node features."""
    nodes = s.b * s.n * s.d_node
    weights = s.d_node * s.d_node * 17 + s.d * s.d * 12 * s.k
    return Work(4.0 * nodes * 60, 3 * 2.0 * s.b * s.n * weights)


def listing(s: Size = PAPER) -> Work:
    """Attention and joint referral as the paper's listings: e2 tensors of b h n m l numbers.

    Nine kernels read or write three of them in the forward pass, twice as many in the backward
    pass; attention the same with tensors of b h n m.
    """
    address = 2.0 * s.pairs * s.k * s.n
    return Work(4.0 * s.pairs * (s.k + 1) * 9 * 3 * 2, 3 * address)


def layer(s: Size = PAPER, *, joint: bool = True) -> Work:
    """One edge and one node sublayer, forward and backward."""
    return referral(s, joint=joint) + attention(s) + sharpening(s).times(2) + rest(s)


def table(s: Size = PAPER) -> list[tuple[str, Work]]:
    """What docs/gpu.md shows; all but the last two rows are per layer."""
    return [
        ("attention", attention(s)),
        ("referral, joint", referral(s)),
        ("referral, pre-aggregated", referral(s, joint=False)),
        ("sharpening (each of two)", sharpening(s)),
        ("norms, projections, feed-forward", rest(s)),
        ("a layer, joint", layer(s)),
        ("attention and referral as listed", listing(s)),
        (f"a step of {s.layers} layers, joint", layer(s).times(s.layers)),
        (
            f"a step of {s.layers} layers, pre-aggregated",
            layer(s, joint=False).times(s.layers),
        ),
    ]


def roofline_markdown(s: Size = PAPER) -> str:
    """The table of docs/gpu.md."""
    heads = " | ".join(f"{gpu.name}: at best | expected" for gpu in GPUS)
    lines = [f"| forward and backward | MB | GFLOP | {heads} |"]
    lines.append("| --- |" + " ---: |" * (2 + 2 * len(GPUS)))
    for name, work in table(s):
        times = " | ".join(
            f"{1e3 * gpu.floor(work):.2f} ms | {1e3 * gpu.expected(work):.2f} ms" for gpu in GPUS
        )
        lines.append(f"| {name} | {work.bytes / 1e6:,.0f} | {work.flops / 1e9:,.1f} | {times} |")
    return "\n".join(lines)
