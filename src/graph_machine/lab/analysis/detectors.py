"""Numbers for the mechanisms that the paper describes (section 3.4), streamed over samples.

Each detector is fed batches and keeps nothing but sums. `values` has its findings: a number, or an
array with a number for each slot (or head, or round). Most are `Means` of the findings of a
function in a batch: by name, a sum and the number of its summands.
"""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graph_machine.lab.analysis.regions import overlaps, reach
from graph_machine.lab.records.drawing import decided, lost

HELD = 0.5  # more than this share of a distribution on the source cell is "on the source"
ALIKE = 0.1  # two distributions closer than this (total variation) say the same
ROUNDING = 1e-3  # of a logarithm: what rounding may add to that of eps
# Regions of which the head that makes them is looked for.
MADE = ("box", "row", "column", "cross", "cross+box")
# Regions that are reported of what is read: of boards and, from `1 back` on, of causal sequences.
READ = ("self", "row", "column", "box", "cross+box", "1 back", "last 4", "last 16")

Regions = dict[str, Bool[np.ndarray, "source target"]]
Values = dict[str, Any]
Shares = dict[str, tuple[Any, Any]]  # name -> (sum, number of summands)


class Sums:
    """Sums over samples, by name: numbers or arrays."""

    def __init__(self) -> None:
        self.sums: Values = {}

    def add_up(self, **found: Any) -> None:
        for name, value in found.items():
            self.sums[name] = self.sums.get(name, 0) + value

    def values(self) -> Values:
        return self.sums


class Means(Sums):
    """Means over samples; NaN if there are none."""

    def add(self, found: Shares) -> None:
        for name, (total, count) in found.items():
            before, of = self.sums.get(name, (0, 0))
            self.sums[name] = (before + total, of + count)

    def values(self) -> Values:
        return {n: total / count if count else np.nan for n, (total, count) in self.sums.items()}


class EdgeSums(Sums):
    """Edges of one place (a layer's address-in or -out): their regions, reach and adaptivity.

    `cells` are single cells whose best region is reported too, by name.
    """

    def __init__(
        self,
        regions: Regions,
        hops: Int[np.ndarray, "source target"],
        cells: dict[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.regions, self.hops, self.cells = regions, hops, cells or {}

    def add(self, addresses: Float[np.ndarray, "sample source slot target"]) -> None:
        weights = np.moveaxis(np.asarray(addresses, dtype=np.float64), 2, 1)  # b k n m
        hops = reach(weights, self.hops)
        each = overlaps(weights, np.stack(list(self.regions.values())))  # region b k n
        slots = np.eye(weights.shape[1], dtype=np.int64)
        of_cells = slots[np.nan_to_num(each).argmax(axis=2)]  # region b n k
        self.add_up(
            count=len(weights),
            overlaps=each.sum(axis=1),  # region slot source
            best=slots[np.nan_to_num(each).sum(axis=-1).argmax(axis=2)].sum(axis=1),  # region slot
            cell_best=of_cells.sum(axis=1).swapaxes(1, 2),  # region slot source
            reaches=np.nansum(hops, axis=0),  # slot source: over samples whose edge points
            pointed=(~np.isnan(hops)).sum(axis=0),  # slot source: how many those are
            total=weights.sum(axis=0),  # slot source target
            squares=(weights**2).sum(axis=(0, 3)),  # slot source
        )

    def overlaps(self) -> Float[np.ndarray, "region slot source"]:
        """Mean overlap over samples; NaN where a source has no such region."""
        return self.sums["overlaps"] / self.sums["count"]

    def reach(self) -> Float[np.ndarray, "slot source"]:
        """In hops, over the samples in which the edge points somewhere; NaN where it never does."""
        pointed = self.sums["pointed"]
        return np.where(pointed > 0, self.sums["reaches"] / np.maximum(pointed, 1), np.nan)

    def adaptivity(self) -> Float[np.ndarray, "slot source"]:
        """Share of an address that varies over samples: 1 - |mean|^2 / mean of |.|^2.

        0: the same for every input. NaN for a single sample.
        """
        count, squares = self.sums["count"], self.sums["squares"]
        if count < 2:
            return np.full(squares.shape, np.nan)
        mean = self.sums["total"] / count
        return np.clip(1 - (mean**2).sum(axis=-1) / (squares / count), 0, 1)

    def values(self) -> Values:
        """A region by its name: the overlap of each cell's best slot, over all cells.

        `overlap NAME` is that of each slot, `at CELL: NAME` that of the slots whose best region in
        this cell it is. `NAME head` is the slot that holds the region best in most samples, with
        its overlap, the samples in which it is the best slot of the layer, and the share of cells
        and samples whose best slot is the cell's usual one.
        """
        scores, hops, adaptivity = self.overlaps(), self.reach(), self.adaptivity()
        own = np.diagonal(self.sums["total"], axis1=1, axis2=2) / self.sums["count"]  # slot source
        found: Values = {
            "reach": over_numbers(np.mean, hops),
            "farthest": over_numbers(np.max, hops),
            "self mass": own.mean(),
            "self slots": (own > HELD).any(axis=0).mean(),
            "adaptivity": over_numbers(np.mean, adaptivity),
            "slot reach": [over_numbers(np.mean, row) for row in hops],
            "slot farthest": [over_numbers(np.max, row) for row in hops],
            "slot adaptivity": [over_numbers(np.mean, row) for row in adaptivity],
        }
        for row, (name, members) in enumerate(self.regions.items()):
            there = members.any(axis=-1)
            found[name] = scores[row][:, there].max(axis=0).mean()
            found[f"overlap {name}"] = np.nanmean(scores[row], axis=-1)
            if name in MADE:
                best, cells = self.sums["best"][row], self.sums["cell_best"][row][:, there]
                head = int(best.argmax())
                found[f"{name} head"] = head
                found[f"{name} head overlap"] = np.nanmean(scores[row, head])
                found[f"{name} head samples"] = best[head]
                found[f"{name} head cells"] = cells.max(axis=0).mean() / self.sums["count"]
        for name, cell in self.cells.items():
            each = np.nan_to_num(scores[:, :, cell], nan=-1.0)  # region slot
            for row, region in enumerate(self.regions):
                best = each.argmax(axis=0) == row
                found[f"at {name}: {region}"] = np.where(best, each[row], np.nan)
        return found


def over_numbers(summary: Any, values: np.ndarray) -> float:
    """A summary of the values that are numbers; NaN where none is."""
    known = values[~np.isnan(values)]
    return float(summary(known)) if len(known) else np.nan


class FactorSums(Sums):
    """Division of labour of one factor: is its pattern about places or about digits?

    Works on softmax(factor), the distribution that figures show. For each head and source cell,
    the variance over samples and targets is split by target place (geometry) and, within each
    sample, by what the target holds (its digit, given or inferred). Both shares are adjusted for
    chance (adjusted R squared).
    """

    def add(
        self,
        weights: Float[np.ndarray, "sample head source target"],
        digits: Int[np.ndarray, "sample target"],
    ) -> None:
        centred = np.asarray(weights, dtype=np.float64) - 1 / weights.shape[-1]  # its mean is 1 / n
        for sample, labels in zip(centred, digits):
            kinds, places = np.unique(labels, return_inverse=True)
            members = np.eye(len(kinds))[places]  # target digit
            between = ((sample @ members) ** 2 / members.sum(axis=0)).sum(axis=-1)  # head source
            self.add_up(by_digit=between, groups=len(kinds))
        self.add_up(
            count=len(weights),
            total=centred.sum(axis=0),  # head source target
            squares=(centred**2).sum(axis=(0, 3)),  # head source
        )

    def values(self) -> Values:
        """Explained variance by geometry and by digit, 0 to 1, over all heads and sources.

        Geometry needs two samples at least: NaN with one. A factor that is uniform everywhere
        has no variance to explain: NaN.
        """
        samples, squares, total = (self.sums[name] for name in ("count", "squares", "total"))
        n, variance = total.shape[-1], float(squares.sum())
        # Rounding leaves a trace of variance in a uniform factor.
        if variance <= 1e-9 * squares.size * samples / n:
            return {"geometry": np.nan, "digit": np.nan}
        # Every sample sums to 1, which costs it one degree of freedom.
        degrees = samples * (n - 1)
        shares = {
            "geometry": ((total**2).sum() / samples, degrees - (n - 1)),
            "digit": (self.sums["by_digit"].sum(), degrees - (self.sums["groups"] - samples)),
        }
        return {
            name: max(0.0, 1 - (1 - part / variance) * degrees / free) if free > 0 else np.nan
            for name, (part, free) in shares.items()
        }


SELF = (
    "n2 weight on source", "edge factor on source", "self-referring", "without self-edge",
    "edge factor there",
)  # fmt: skip


def self_referral(
    n2_weights: Float[Tensor, "b h n n"],
    edge_factors: Float[Tensor, "b h n n"] | None,
    self_edges: Bool[Tensor, "b n"],
) -> Shares:
    """Referral to the source cell's own edges, over (sample, head, cell) triples of a layer;
    `self_edges` marks the cells with a slot that points at themselves."""
    own = n2_weights.diagonal(dim1=-2, dim2=-1)  # b h n
    edge = torch.zeros_like(own)
    if edge_factors is not None:
        edge = edge_factors.float().softmax(dim=-1).diagonal(dim1=-2, dim2=-1)
    referring = own > HELD
    bare = referring & ~self_edges[:, None]  # the cell has no self-edge among its address-ins
    sums = [float(own.double().sum()), float(edge.double().sum()), int(referring.sum())]
    sums += [int(bare.sum()), float(edge[bare].double().sum())]
    return dict(zip(SELF, zip(sums, [own.numel()] * 3 + sums[2:4]), strict=True))


def slot_shares(addresses: Float[Tensor, "b n k m"]) -> Shares:
    """The effective number of slots of a node: exp(entropy of their mean - mean of their
    entropies), 1 where all hold the same address, k where no two overlap."""
    one = addresses.double()
    entropy = torch.special.entr(one).sum(dim=-1).mean(dim=-1)
    effective = (torch.special.entr(one.mean(dim=2)).sum(dim=-1) - entropy).exp()
    return {"effective": (float(effective.sum()), effective.numel())}


def floor_shares(
    factors: Float[Tensor, "b h n m"],
    temps: Float[Tensor, "b h n"] | None,
    eps: float,
    seen: Bool[Tensor, "n m"] | None,
) -> Shares:
    """Targets whose mass in the mixed address is below eps: the clip before the logarithm has no
    gradient there. Edge factors are temperature x log(mass); targets that a source does not see
    are not counted."""
    floor = (math.log(eps) + ROUNDING) * (1 if temps is None else temps.float()[..., None])
    low, pairs = factors.float() <= floor, torch.ones_like(factors[0, 0], dtype=torch.bool)
    pairs = pairs if seen is None else seen
    return {"floor": (int((low & pairs).sum()), int(pairs.sum()) * low[..., 0, 0].numel())}


EXPERTS = ("both", "edge alone", "node alone", "either")


def expert_shares(
    edge_factors: Float[Tensor, "b h n m"], node_factors: Float[Tensor, "b h n m"]
) -> Shares:
    """Who makes the product of experts, over (sample, head, cell) triples."""
    edge, node = edge_factors.float(), node_factors.float()
    both = (edge + node).softmax(dim=-1)
    by_edge, by_node = (
        (both - alone.softmax(dim=-1)).abs().sum(dim=-1) / 2 < ALIKE for alone in (edge, node)
    )
    kinds = (~by_edge & ~by_node, by_edge & ~by_node, by_node & ~by_edge, by_edge & by_node)
    return {name: (int(kind.sum()), kind.numel()) for name, kind in zip(EXPERTS, kinds)}


class RoundSums(Sums):
    """Answers after every round: right ones, decided ones, and right ones that were given up."""

    def add(
        self,
        answers: Int[np.ndarray, "b round n"],
        solutions: Int[np.ndarray, "b n"],
        where: Bool[np.ndarray, "b n"],
    ) -> None:
        rounds = answers.shape[1]
        for mine, solution, asked in zip(answers, solutions, where, strict=True):
            mine, solution = mine[:, asked], solution[asked]
            right, gone = mine == solution, lost(mine, solution)  # round cell
            given_up = gone.any(axis=0)
            self.add_up(
                samples=1,
                cells=right.shape[1],  # places that are asked for
                right=right.sum(axis=1),
                solved=right.all(axis=1).astype(int),
                decided=np.bincount(decided(mine) - 1, minlength=rounds),
                lost=gone.sum(axis=1),
                ever_undone=int(given_up.sum()),
                restored=int((given_up & right[-1]).sum()),  # of these, right again in the end
            )


def slots_read(weights: Float[np.ndarray, "b head source slot"]) -> Shares:
    """The share of e1 weight on each edge slot, over all heads."""
    total = weights.sum(axis=(0, 2), dtype=np.float64).mean(axis=0)
    return {"slots": (total, weights.shape[0] * weights.shape[2])}


def regions_read(weights: Float[np.ndarray, "b head source target"], regions: Regions) -> Shares:
    """By region, attention's mean mass inside, of each head, and beside it the mass if attention
    were spread evenly."""
    masks = {name: regions[name] for name in READ if name in regions}
    if not masks:
        return {}
    stacked = np.stack([*masks.values()]).astype(weights.dtype)
    found = np.einsum("bhnm,rnm->rh", weights, stacked, dtype=np.float64, optimize=True)
    many, allowed = weights.shape[0] * weights.shape[2], regions["all"].sum(axis=-1)
    shares = {name: (mass, many) for name, mass in zip(masks, found)}
    even = {f"even {n}": ((r.sum(axis=-1) / allowed).mean(), 1) for n, r in masks.items()}
    return shares | even
