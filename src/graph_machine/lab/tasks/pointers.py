"""Pointer chasing: every node points at one node and answers with the node at the chain's end."""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.config.base import is_whole
from graph_machine.errors import DataError, count_of
from graph_machine.graphs import InputGraph
from graph_machine.lab.config import PointersConfig
from graph_machine.lab.tasks.answers import Answer, Answers, PointerAnswer, Solution, Sure
from graph_machine.lab.tasks.base import Baseline, Split
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.generated import GeneratedTask, check_size
from graph_machine.lab.tasks.scores import Grouping


class PointerChains(NamedTuple):
    """Pointers of b graphs, where each node ends, and how many hops that takes."""

    pointers: Int[np.ndarray, "b n"]
    ends: Int[np.ndarray, "b n"]
    hops: Int[np.ndarray, "b n"]


def follow(pointers: Int[np.ndarray, "b n"], hops: int) -> Int[np.ndarray, "b n"]:
    """The node that each node reaches after `hops` pointers, by repeated squaring."""
    reached = np.broadcast_to(np.arange(pointers.shape[1]), pointers.shape)
    power = pointers
    while hops:
        if hops & 1:
            reached = np.take_along_axis(power, reached, axis=1)
        power = np.take_along_axis(power, power, axis=1)
        hops >>= 1
    return reached


def chains(
    rng: np.random.Generator, count: int, num_nodes: int, depth: Int[np.ndarray, "b"], ends: int
) -> PointerChains:
    """Graphs whose pointers lead to one of `ends` nodes that point at themselves.

    One chain has exactly `depth` hops; every other node points at a random node that is less than
    `depth` hops from its end. Node ids are random.
    """
    assert num_nodes >= ends + int(depth.max())
    pointers = np.zeros((count, num_nodes), dtype=np.int64)
    hops = np.zeros((count, num_nodes), dtype=np.int64)
    rows = np.arange(count)
    pointers[:, :ends] = np.arange(ends)
    for node in range(ends, num_nodes):
        step = node - ends  # the first nodes are the chain, one behind the other
        on_chain = step < depth
        allowed = hops[:, :node] < depth[:, None]
        draw = np.where(allowed, rng.random((count, node)), -1.0).argmax(axis=1)
        target = np.where(on_chain, 0 if step == 0 else node - 1, draw)
        pointers[:, node] = target
        hops[:, node] = hops[rows, target] + 1
    names = rng.permuted(np.broadcast_to(np.arange(num_nodes), pointers.shape), axis=1)
    shuffled, shuffled_hops = np.empty_like(pointers), np.empty_like(hops)
    np.put_along_axis(shuffled, names, np.take_along_axis(names, pointers, axis=1), axis=1)
    np.put_along_axis(shuffled_hops, names, hops, axis=1)
    return PointerChains(shuffled, follow(shuffled, int(depth.max())), shuffled_hops)


POINTER, SELF, EMPTY = range(3)  # categories of the input edges
HOPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


def pointer_graph(pointers: Int[Tensor, "b n"]) -> InputGraph:
    """Slots: itself, then its pointer (which may be to itself, too)."""
    own = torch.arange(pointers.shape[1]).expand_as(pointers)
    targets = torch.stack([own, pointers], dim=-1)
    categories = torch.tensor([SELF, POINTER]).expand_as(targets)
    return InputGraph(targets, categories, 3)


class PointersTask(GeneratedTask):
    """In training all nodes count; in the test, those as many hops away as the example says."""

    name = "pointers"
    examples_word = "graphs"
    text_hint = "0>3: node 0 points at 3"
    shown_by = ("name_width",)
    groupings = (Grouping("hops", "hops"),)
    config: PointersConfig

    def make_spec(self) -> InputSpec:
        counted = self.config.stop == "count"
        return InputSpec(
            num_tokens=self.config.test_hops + 1 if counted else 1,
            num_outputs=1,
            output="pointer",
            node_features=self.config.name_width,
            num_edge_categories=3,
        )

    @property
    def usual_nodes(self) -> int:
        return self.config.nodes

    @property
    def label(self) -> str:
        return f"{self.config.stop}-{self.config.nodes}"

    def hops_of(self, rng: np.random.Generator, count: int, split: Split) -> np.ndarray:
        """Hops of each example: even up to `train_hops`, or in the test a fixed list in turn."""
        if split != "test":
            return rng.integers(1, self.config.train_hops + 1, size=count)
        listed = np.array([hops for hops in HOPS if hops <= self.config.test_hops])
        return listed[np.arange(count) % len(listed)]

    def make(self, key: int, count: int, split: Split, progress: float) -> Batch:
        rng = np.random.default_rng(key)
        hops = self.hops_of(rng, count, split)
        shape = (count, self.config.nodes)
        if self.config.stop == "count":
            # Every node points at any node, itself included, all equally likely.
            pointers = rng.integers(self.config.nodes, size=shape)
            answers = np.stack([follow(p[None], int(h))[0] for p, h in zip(pointers, hops)])
            where = np.ones(shape, dtype=bool)
        else:
            made = chains(rng, *shape, hops, self.config.ends)
            pointers, answers = made.pointers, made.ends
            where = made.hops == hops[:, None] if split == "test" else made.hops > 0
        tokens = np.broadcast_to(hops[:, None] if self.config.stop == "count" else 0, shape)
        return Batch(
            tokens=torch.from_numpy(tokens.astype(np.int64)),
            answers=torch.from_numpy(answers),
            where=torch.from_numpy(where),
            groups={"hops": hops.astype(np.float64)},
            graph=pointer_graph(torch.from_numpy(pointers)),
            features=self.names_of(rng, shape),
        )

    def names_of(
        self, rng: np.random.Generator, shape: tuple[int, int]
    ) -> Float[Tensor, "b n f"] | None:
        if not self.config.name_width:
            return None
        return torch.from_numpy(rng.standard_normal((*shape, self.config.name_width))).float()

    def baselines(self) -> dict[str, Baseline]:
        return {"the first pointer": first_pointer, "exact": self.walk}

    def walk(self, batch: Batch) -> Int[Tensor, "b n"]:
        """One hop after the other, to the end."""
        pointers = first_pointer(batch)
        hops = torch.full_like(batch.known_tokens, pointers.shape[1])  # a chain has no more
        if self.config.stop == "count":
            hops = batch.known_tokens
        reached = torch.arange(pointers.shape[1]).expand_as(pointers)
        for step in range(int(hops.max())):
            reached = torch.where(hops > step, pointers.gather(1, reached), reached)
        return reached

    def parse(self, text: str) -> Batch:
        """`0>3 1>1 2>0 3>1`: where each node points; with `stop=count`, `5: 0>3 ...`."""
        head, colon, rest = text.partition(":")
        counted = self.config.stop == "count"
        if counted and not (colon and is_whole(head.strip())):
            raise DataError("Expected a number of hops and pointers, such as 3: 0>1 1>2 2>0.")
        if colon and not counted:
            raise DataError("Expected pointers alone, such as 0>3 1>1 2>0 3>1; no number of hops.")
        pairs = [word.split(">") for word in (rest if counted else text).split()]
        if not pairs or not all(len(p) == 2 and all(map(is_whole, p)) for p in pairs):
            raise DataError("Expected pointers such as 0>3, separated by spaces.")
        found = {int(source): int(target) for source, target in pairs}
        n = len(found)
        check_size(n)
        if sorted(found) != list(range(n)) or len(pairs) != n or max(found.values()) >= n:
            raise DataError(f"Expected one pointer for each node 0 to {n - 1}, to one of them.")
        hops = int(head) if counted else 0
        if hops > self.config.test_hops:
            most = count_of(self.config.test_hops, "hops")
            raise DataError(f"Expected at most {most}, got {hops}.")
        pointers = torch.tensor([[found[node] for node in range(n)]])
        ends = follow(pointers.numpy(), n)[0]
        endless = np.flatnonzero(pointers.numpy()[0, ends] != ends)
        if endless.size and not counted:
            raise DataError(
                f"The pointers from node {endless[0]} lead into a circle; expected that they end "
                f"at a node that points at itself."
            )
        return Batch(
            tokens=torch.full_like(pointers, hops),
            answers=pointers,
            where=torch.ones_like(pointers, dtype=torch.bool),
            graph=pointer_graph(pointers),
            features=self.names_of(np.random.default_rng(0), (1, n)),
        )

    def text(self, example: Batch) -> str:
        head = f"{int(example.known_tokens[0, 0])}: " if self.config.stop == "count" else ""
        pointers = enumerate(first_pointer(example)[0].tolist())
        return head + " ".join(f"{source}>{target}" for source, target in pointers)

    def solve(self, example: Batch) -> Solution:
        return Solution(self.walk(example)[0].numpy())

    def show(self, example: Batch, answers: Answers, sure: Sure, *, check: bool = False) -> Answer:
        exact = self.walk(example)[0].numpy() if check else None
        return PointerAnswer(answers, exact, confidences=sure)


def first_pointer(batch: Batch) -> Int[Tensor, "b n"]:
    """Where each node points."""
    targets: Any = batch.known_graph.targets
    return targets[..., 1]
