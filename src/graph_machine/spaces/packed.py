"""Dense addresses of graphs of different sizes, one after the other: no padding anywhere.

A batch of such graphs is one entry (b = 1) with the nodes of all graphs as its rows. Everything
that is done to rows (projections, norms, networks) needs no change; only attention, referral and
sharpening have to know where a graph ends. The C kernels do, other implementations do not.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.ops.attention.fused import fused_attention
from graph_machine.ops.backend import Backend, resolve
from graph_machine.ops.core import Packed
from graph_machine.ops.inputs import AttentionInputs, ReferralInputs
from graph_machine.ops.native import LARGEST, served
from graph_machine.ops.numerics import ADDRESS_EPS
from graph_machine.ops.referral.fused import fused_referral
from graph_machine.ops.rows import sharpen_packed
from graph_machine.spaces.base import Addresses, AttentionOut, C, Context, ReferralOut, Temps
from graph_machine.state import Visibility


def can_pack(like: Tensor, backend: Backend, values: int) -> bool:
    """Whether kernels serve, where referral has at most this number of values per graph."""
    return resolve(backend, "GraphEncoder") == "fused" and values <= LARGEST and served(like)


@dataclass(frozen=True)
class PackedAddresses(Addresses):
    """For each graph a block (nodes, k, nodes), as one vector.

    `given` are edges whose targets are rows; `local` has the same targets within their graph.

    >>> graphs = Packed.of([2, 1])
    >>> addresses = PackedAddresses(torch.tensor([0.0, 1, 1, 0, 1]), 1, graphs)
    >>> addresses.to_dense()[0, :, 0]  # r m
    tensor([[0., 1.],
            [1., 0.],
            [1., 0.]])
    """

    values: Float[Tensor, " s"]
    count: int  # k
    graphs: Packed
    local: Int[Tensor, "1 r g"] | None = None
    eps: float = ADDRESS_EPS

    @property
    def slots(self) -> tuple[int, int, int]:
        return 1, int(self.graphs.starts[0, -1]), self.count

    def sharpen(
        self: "PackedAddresses", temps: Temps | None, sight: Visibility, context: Context
    ) -> "PackedAddresses":
        if temps is None:
            return self
        return replace(self, values=sharpen_packed(self.values, temps, self.graphs, self.eps))

    def with_given(self, inputs: C) -> C:
        if self.given is None:
            return replace(inputs, eps=self.eps)
        beside = {"given_targets": self.local, "empty_edge": self.given.empty}
        return replace(inputs, eps=self.eps, **beside)

    def attend(self, inputs: AttentionInputs, sight: Visibility, context: Context) -> AttentionOut:
        return AttentionOut(*fused_attention(self.with_given(inputs), (self.values, self.graphs)))

    def refer(
        self: "PackedAddresses",
        inputs: ReferralInputs,
        collected: "PackedAddresses",
        sight: Visibility,
        context: Context,
    ) -> ReferralOut:
        both = (self.values, collected.values, self.graphs)
        features, values, entropies = fused_referral(self.with_given(inputs), both)
        made = replace(self, values=values, count=features.shape[2], given=None)
        return ReferralOut(features, made, entropies)

    def to_dense(self) -> Float[Tensor, "1 r k m"]:
        """Every row over the places within its graph, padded to the largest."""
        starts, most = self.graphs.starts[0], self.graphs.largest
        sizes = starts.diff()
        own = sizes.repeat_interleave(sizes)  # r
        there = (torch.arange(most) < own.unsqueeze(-1)).unsqueeze(1).expand(-1, self.count, -1)
        found = self.values.new_zeros(len(own), self.count, most)
        return found.masked_scatter(there, self.values).unsqueeze(0)
