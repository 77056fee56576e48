"""Compressed addresses: logit-space vectors of width c with a linear decoder (paper, 2.5)."""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from graph_machine.errors import ConfigError, ShapeError, check_choice
from graph_machine.ops.address.dense import to_weights
from graph_machine.ops.address.sparse import allowed_targets
from graph_machine.ops.attention import attend
from graph_machine.ops.attention.reference import own_edge_values
from graph_machine.ops.attention.sparse import own_edge_weights
from graph_machine.ops.compressed import (
    dot_product_attention,
    factor_parts,
    product_entropy,
    refer_compressed,
)
from graph_machine.ops.inputs import AttentionInputs, FactorEntropies, ReferralInputs
from graph_machine.ops.numerics import in_float32
from graph_machine.ops.referral import refer
from graph_machine.ops.referral.sparse import e1_outs
from graph_machine.spaces.base import (
    Addresses,
    AddressSpace,
    AttentionOut,
    Context,
    Nodes,
    ReferralOut,
    Targets,
    Temps,
)
from graph_machine.spaces.dense import LogitAddresses
from graph_machine.spaces.sparse import real_nodes
from graph_machine.state import GivenEdges, Visibility

Decoder = Literal["position", "features"]
C = TypeVar("C", bound="CompressedAddresses")


@dataclass(frozen=True)
class CompressedAddresses(Addresses):
    """Vectors (b, n, k, c) whose dot products with the decoder's rows are address logits.

    Mixing and sharpening are linear, as in the logit space, so they never leave width c. The
    decoder travels with the addresses and stays the same: what a vector points at does not move.

    >>> import torch
    >>> targets, nodes = torch.tensor([[[0, 1], [1, -1]]]), torch.zeros(1, 2, 64)  # b n k, b n d_n
    >>> space = CompressedSpace(c=16, decoder="features", d_node=64)
    >>> space.initial(targets, torch.randn(1, 2, 64)).values.shape  # b n k c
    torch.Size([1, 2, 2, 16])
    """

    values: Float[Tensor, "b n t c"]
    decoder: Float[Tensor, "b m c"]
    scale: float = 5.0
    sight: Visibility = Visibility()

    @property
    def slots(self) -> tuple[int, int, int]:
        b, n, k, _ = self.values.shape
        return b, n, k

    def sharpen(self: C, temps: Temps | None, sight: Visibility, context: Context) -> C:
        return self if temps is None else replace(self, values=self.values * temps.unsqueeze(-1))

    def beside(self: C, given: GivenEdges) -> C:
        # A vector of zeros has the same logit everywhere, so the empty edge is even.
        seen = allowed_targets(
            given.targets, real_nodes(given.targets, self.sight), self.sight.causal
        )
        hard = decoder_rows(self.decoder, seen) * self.scale * (seen >= 0).unsqueeze(-1)
        empty = hard.new_zeros(*self.values.shape[:2], int(given.empty), hard.shape[-1])
        return replace(self, values=torch.cat([self.values, hard, empty], dim=2), given=given)

    def to_dense(self) -> Float[Tensor, "b n k m"]:
        return to_weights(torch.einsum("bnkc,bmc->bnkm", self.values, self.decoder))

    def staged(self, sight: Visibility, context: Context) -> dict[str, Any]:
        """The call of dense logits, whose stages a listener sees and may replace."""
        logits = torch.einsum("bnkc,bmc->bnkm", self.values, self.decoder)
        call = LogitAddresses(logits).settings(sight, context)
        if self.given is not None:
            made = self.values.shape[2] - self.given.exists.shape[2]
            there = functional.pad(self.given.exists, (made, 0), value=True)
            call |= {"e1_slots": there, "e2_slots": there}
        return call

    def attend(self, inputs: AttentionInputs, sight: Visibility, context: Context) -> AttentionOut:
        if context.tap is not None:
            call = replace(inputs, **self.staged(sight, context))
            return AttentionOut(*attend(call, backend=context.backend, tap=context.tap))
        inputs = self.with_given(inputs)
        features, weights = inputs.e1_features, inputs.e1_key_weights
        assert features is not None
        assert weights is not None
        e1_weights = own_edge_weights(inputs, features, weights)
        mixed = torch.einsum("bhnk,bnkc->bhnc", e1_weights, self.values)
        temps = inputs.edge_factor_temps, inputs.node_factor_temps
        parts = factor_parts(inputs.n1_queries, inputs.n2_keys, mixed, self.decoder, *temps)
        entropies = entropies_of_products(*parts, (True, len(parts[0]) > 1), sight, context)
        values, mask = in_float32(inputs.n2_values), sight.node_mask
        outs = dot_product_attention(*parts, values, real=mask, causal=sight.causal)
        if inputs.e1_value_weights is not None:
            outs = outs + own_edge_values(inputs, e1_weights)
        return AttentionOut(outs, entropies)

    def refer(
        self: C, inputs: ReferralInputs, collected: C, sight: Visibility, context: Context
    ) -> ReferralOut:
        if inputs.kind == "conditional":
            raise ConfigError(
                "compressed addresses: conditional referral is not a dot product; choose joint or "
                "preaggregated."
            )
        if context.tap is not None:
            call = self.staged(sight, context) | {"e2_addresses": collected.values}
            found = refer(replace(inputs, **call), backend=context.backend, tap=context.tap)
            features, values, entropies = found
            return ReferralOut(features, replace(self, values=values, given=None), entropies)
        inputs = self.with_given(inputs)
        e1_weights = own_edge_weights(inputs, inputs.edge_features, inputs.e1_key_weights)
        mixed = None
        if inputs.edge_expert:
            mixed = torch.einsum("bhnk,bnkc->bhnc", e1_weights, self.values)
        temps = inputs.n2_edge_factor_temps, inputs.n2_node_factor_temps
        parts = factor_parts(inputs.n1_queries, inputs.n2_keys, mixed, self.decoder, *temps)
        how = {"node_mask": sight.node_mask, "causal": sight.causal}
        features, addresses = refer_compressed(inputs, *parts, collected.values, **how)
        present = inputs.edge_expert, inputs.n2_keys is not None
        entropies = entropies_of_products(*parts, present, sight, context)
        features = features + e1_outs(inputs, e1_weights)
        new = replace(self, values=addresses.transpose(1, 2), given=None)
        return ReferralOut(features.transpose(1, 2), new, entropies)


def entropies_of_products(
    queries: list[Tensor],
    keys: list[Tensor],
    present: tuple[bool, bool],
    sight: Visibility,
    context: Context,
) -> FactorEntropies:
    """Entropies of the edge and node factors, if asked for: in blocks, at attention's cost."""
    if not context.entropies:
        return FactorEntropies()
    found = iter(
        product_entropy(q, k, sight.node_mask, sight.causal) for q, k in zip(queries, keys)
    )
    return FactorEntropies(*(next(found) if there else None for there in present))


class CompressedSpace(AddressSpace):
    """Compressed addresses. The decoder has a row per position, or is read off node features.

    `position` learns one row for each of `num_positions` places. `features` projects the node
    features that enter the first layer, so that n may vary; nodes with equal features cannot be
    distinguished. Rows have unit length, and a hard edge starts as `scale` times the row of its
    target, an empty one as `scale` times the mean row of the allowed nodes.

    >>> import torch
    >>> targets, nodes = torch.tensor([[[0, 1], [1, -1]]]), torch.zeros(1, 2, 64)  # b n k, b n d_n
    >>> space = CompressedSpace(c=16, decoder="position", num_positions=2)
    >>> space.initial(targets, nodes).to_dense().shape  # b n k m
    torch.Size([1, 2, 2, 2])
    """

    def __init__(
        self,
        *,
        c: int = 32,
        decoder: Decoder = "features",
        d_node: int | None = None,
        num_positions: int | None = None,
        scale: float = 5.0,
    ) -> None:
        super().__init__()
        if c < 1:
            raise ConfigError(f"compressed space: c should be at least 1, got {c}.")
        check_choice("compressed space", "decoder", decoder, get_args(Decoder))
        self.scale = scale
        self.rows = self.project = None
        if decoder == "position":
            if num_positions is None:
                raise ConfigError(
                    "compressed space: a decoder per position needs the number of positions; "
                    "choose decoder=features where n varies."
                )
            self.rows = nn.Parameter(torch.randn(num_positions, c))
        else:
            if d_node is None:
                raise ConfigError("compressed space: a decoder from features needs d_node.")
            self.project = nn.Linear(d_node, c, bias=False)

    def reset_parameters(self) -> None:
        """Draw the rows of the positions anew."""
        if self.rows is not None:
            nn.init.normal_(self.rows)

    def decode(self, node_features: Float[Tensor, "b n d"]) -> Float[Tensor, "b n c"]:
        """Unit rows for the nodes at hand."""
        b, n, _ = node_features.shape
        if self.project is not None:
            return functional.normalize(in_float32(self.project(node_features)), dim=-1)
        assert self.rows is not None
        if n > len(self.rows):
            raise ShapeError(
                f"compressed space: the decoder has {len(self.rows)} positions, got n = {n}."
            )
        return functional.normalize(self.rows[:n], dim=-1).expand(b, n, -1)

    def initial(
        self, targets: Targets, node_features: Nodes, sight: Visibility = Visibility()
    ) -> Addresses:
        decoder = self.decode(node_features)
        empty = (targets < 0).unsqueeze(-1)
        mean = mean_rows(decoder, sight.node_mask, sight.causal)
        values = torch.where(empty, mean.unsqueeze(2), decoder_rows(decoder, targets))
        return CompressedAddresses(values * self.scale, decoder, self.scale, sight)


def decoder_rows(
    decoder: Float[Tensor, "b m c"], targets: Int[Tensor, "b n k"]
) -> Float[Tensor, "b n k c"]:
    """The decoder's rows of targets; those of -1 mean nothing."""
    rows = targets.clamp_min(0).flatten(1).unsqueeze(-1).expand(-1, -1, decoder.shape[-1])
    return decoder.gather(1, rows).unflatten(1, targets.shape[1:])


def mean_rows(
    decoder: Float[Tensor, "b n c"], node_mask: Bool[Tensor, "b n"] | None, causal: bool
) -> Float[Tensor, "b #n c"]:
    """Mean decoder row of the nodes that each node may target."""
    real = decoder.new_ones(decoder.shape[:2]) if node_mask is None else node_mask.to(decoder.dtype)
    rows, counts = decoder * real.unsqueeze(-1), real.unsqueeze(-1)
    if causal:
        return rows.cumsum(dim=1) / counts.cumsum(dim=1).clamp_min(1)
    return rows.sum(dim=1, keepdim=True) / counts.sum(dim=1, keepdim=True).clamp_min(1)
