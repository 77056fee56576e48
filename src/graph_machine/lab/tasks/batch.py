"""Examples as tensors: inputs of a model, the right answers, and the places that count."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped, UInt8
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.errors import DataError
from graph_machine.graphs import InputGraph, batch_graphs

PER_EXAMPLE = ("tokens", "answers", "where", "node_mask", "features", "pairs")
PER_PAIR = ("answers", "where", "pairs")  # where answers are about pairs of nodes


@dataclass(frozen=True)
class Batch:
    """Examples with n nodes each, padded where they differ. Metrics are also reported by `groups`.

    `answers` and `where` have an entry per place of the model's outputs: a node (q = n), an edge
    slot (q = n k), the graph (q = 1) or one of the `pairs`, see `InputSpec`.
    Answers that are numbers are (b, q, o).

    >>> tokens = torch.tensor([[1, 0, 2], [0, 0, 1]])  # b n
    >>> batch = Batch(tokens, answers=tokens.roll(1, dims=1), where=tokens == 0)
    >>> len(batch), batch[:1].where
    (2, tensor([[False,  True, False]]))
    """

    tokens: Int[Tensor, "b n"] | None
    answers: Shaped[Tensor, "b q *o"]  # output indices, or numbers; any value where not `where`
    where: Bool[Tensor, "b q"]  # the places that count: blanks, in Sudoku
    groups: dict[str, Shaped[np.ndarray, "b"]] = field(default_factory=dict)
    graph: InputGraph | None = None  # None: the graph of the task's spec
    node_mask: Bool[Tensor, "b n"] | None = None  # False at padding
    features: Float[Tensor, "b n f"] | None = None  # of nodes, where the spec says so
    pairs: Int[Tensor, "b q 2"] | None = None  # nodes that are asked about, where the spec says so

    def __len__(self) -> int:
        return len(self.where)

    @property
    def num_nodes(self) -> int:
        """n: nodes of the largest example, to which the others are padded."""
        given = self.features if self.tokens is None else self.tokens
        assert given is not None
        return given.shape[1]

    @property
    def known_tokens(self) -> Int[Tensor, "b n"]:
        """`tokens`, of a task that has some."""
        assert self.tokens is not None
        return self.tokens

    @property
    def known_graph(self) -> InputGraph:
        """`graph`, of a task whose examples bring their own."""
        assert self.graph is not None
        return self.graph

    @property
    def cells(self) -> UInt8[np.ndarray, "b n"]:
        """The tokens of boards."""
        return self.known_tokens.cpu().numpy().astype(np.uint8)

    @property
    def inputs(self) -> dict[str, Any]:
        """The arguments of a model."""
        names = ("tokens", "graph", "node_mask", "features", "pairs")
        return {name: getattr(self, name) for name in names}

    def _each(self, change: Callable[[Tensor], Tensor], **others: Any) -> "Batch":
        found = {name: getattr(self, name) for name in PER_EXAMPLE}
        changed = {name: None if t is None else change(t) for name, t in found.items()}
        return replace(self, **changed, **others)

    def __getitem__(self, rows: slice | list[int]) -> "Batch":
        """Some examples."""
        return self._each(
            lambda tensor: tensor[rows],
            groups={name: values[rows] for name, values in self.groups.items()},
            graph=None if self.graph is None else self.graph[rows],
        )

    def unpadded(self) -> "Iterator[Batch]":
        """Examples of one size: the whole batch, or each example alone where some are padded."""
        if self.node_mask is None:
            yield self
            return
        n = self.num_nodes
        for row, own in enumerate(self.node_mask.sum(dim=1).tolist()):
            one = replace(self[[row]], node_mask=None)
            graph = None if one.graph is None else _single_graphs(self[[row]])[0].expand(1)

            def cut(tensor: Tensor, own: int = own) -> Tensor:
                places = tensor.shape[1]  # n, n k, or 1 of a whole graph
                return tensor[:, : places // n * own] if places % n == 0 else tensor

            kept = {} if self.pairs is None else {name: getattr(one, name) for name in PER_PAIR}
            yield replace(one._each(cut, graph=graph), **kept)

    def to(self, device: torch.device) -> "Batch":
        """The same examples on `device`."""
        graph = None if self.graph is None else self.graph.to(device)
        return self._each(lambda tensor: tensor.to(device), graph=graph)

    @staticmethod
    def join(parts: "Sequence[Batch]") -> "Batch":
        """Several batches as one. If they have graphs, these are padded to the largest."""
        if not parts:
            raise DataError("There are no examples.")
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        groups = {name: np.concatenate([p.groups[name] for p in parts]) for name in first.groups}
        graph, mask = first.graph, None
        if graph is not None:
            singles = [single for part in parts for single in _single_graphs(part)]
            graph, mask = batch_graphs(singles)
        found: dict[str, Any] = {}
        for name in PER_EXAMPLE:
            values = [getattr(part, name) for part in parts]
            found[name] = None if values[0] is None else _padded(values)
        if mask is not None and not bool(mask.all()):
            found["node_mask"] = mask if found["node_mask"] is None else found["node_mask"]
        return Batch(**found, groups=groups, graph=graph)


Batches = Iterator[Batch]


def check_batch(batch: object, spec: InputSpec, where: str) -> None:
    """A batch has what its task's spec says; looks at values, so it is for the first one only."""
    if not isinstance(batch, Batch):
        raise DataError(f"{where} should give a Batch, got {type(batch).__name__}.")
    tokens, answers, asked = batch.tokens, batch.answers, batch.where
    if asked.dtype != torch.bool or asked.shape != answers.shape[:2]:
        raise DataError(
            f"{where}: 'where' should be bool {tuple(answers.shape[:2])} as the answers are, got "
            f"{asked.dtype} {tuple(asked.shape)}."
        )
    ranges = [("tokens", tokens, spec.num_tokens)]
    if spec.output_kind == "classes":
        most = None if spec.output in ("slot", "pointer") else spec.num_outputs
        ranges.append(("answers", answers[asked], most))
    for name, values, count in ranges:
        if values is None or not values.numel():
            continue
        if values.is_floating_point() or values.dtype == torch.bool:
            raise DataError(f"{where}: {name} should be whole numbers, got {values.dtype}.")
        low, high = int(values.min()), int(values.max())
        if low < 0 or (count is not None and high >= count):
            end = "on" if count is None else f"to {count - 1}, as the spec says"
            raise DataError(f"{where}: {name} should be from 0 {end}, got {low} to {high}.")


def _single_graphs(batch: Batch) -> list[InputGraph]:
    whole = batch.known_graph.expand(len(batch))
    sizes = [whole.targets.shape[1]] * len(batch)
    if batch.node_mask is not None:
        sizes = batch.node_mask.sum(dim=1).tolist()
    return [
        InputGraph(one.targets[:n], one.categories[:n], one.num_categories,
                   None if one.features is None else one.features[:n])
        for n, one in zip(sizes, (whole[i] for i in range(len(batch))), strict=True)
    ]  # fmt: skip


def _padded(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the first axis; the second is padded with zeros to the longest."""
    longest = max(t.shape[1] for t in tensors)
    shapes = [(len(t), longest - t.shape[1], *t.shape[2:]) for t in tensors]
    return torch.cat([torch.cat([t, t.new_zeros(s)], dim=1) for t, s in zip(tensors, shapes)])


assert {item.name for item in fields(Batch)} == {*PER_EXAMPLE, "groups", "graph"}
