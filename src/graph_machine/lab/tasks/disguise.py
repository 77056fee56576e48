"""The same examples in another form: digits under other names, boards with moved cells.

A task whose examples stay what they are under such changes can be retried in another form. A
model answers differently then, and an answer that obeys the task's rules is right either way.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8, UInt64
from torch import Tensor

from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.rows import mix, stream, stream_key


class Disguise(NamedTuple):
    """Examples in another form, and how outputs for them are read.

    >>> import torch
    >>> tokens = torch.tensor([[0, 2]])  # b n: mirrored below, with the digits 1 and 2 exchanged
    >>> mirrored = Batch(torch.tensor([[1, 0]]), tokens, tokens == 0)
    >>> change = Disguise(mirrored, places=torch.tensor([[1, 0]]), labels=torch.tensor([[1, 0]]))
    >>> change.undo(torch.tensor([[[0.0, 0.1], [0.2, 0.3]]]))  # b q o
    tensor([[[0.3000, 0.2000],
             [0.1000, 0.0000]]])
    """

    batch: Batch
    places: Int[Tensor, "b q"]  # for each place, the old place that moved there
    labels: Int[Tensor, "b o"] | None = None  # for each old output, what it is called now

    def undo(self, outputs: Float[Tensor, "b q o"]) -> Float[Tensor, "b q o"]:
        """Outputs for the examples as they were, from outputs for the disguised ones."""
        if self.labels is not None:
            labels = self.labels.to(outputs.device).unsqueeze(1).expand_as(outputs)
            outputs = outputs.gather(-1, labels)
        back = self.places.to(outputs.device).argsort(dim=1).unsqueeze(-1)
        return outputs.gather(1, back.expand_as(outputs))


def symmetries(side: int) -> Int[np.ndarray, "8 n"]:
    """The rotations and reflections of a square: for each new cell, the old cell that moves there.

    The first one leaves everything where it is.
    """
    cells = np.arange(side * side).reshape(side, side)
    turned = [np.rot90(board, turns) for board in (cells, cells.T) for turns in range(4)]
    return np.stack([board.reshape(-1) for board in turned])


def symmetry_keys(
    boards: UInt8[np.ndarray, "b n"], name: Callable[[np.ndarray], np.ndarray] | None = None
) -> UInt64[np.ndarray, "b"]:
    """64 bits of each board that stay as it is turned or mirrored; `name` relabels what is on it.

    >>> boards = np.array([[1, 2, 3, 4], [3, 1, 4, 2], [1, 3, 2, 4]], dtype=np.uint8)  # 2x2 each
    >>> len(set(symmetry_keys(boards).tolist()))
    1
    """
    weights = stream(stream_key("layout"), boards.shape[1]) | np.uint64(1)
    keys = []
    for cells in symmetries(round(boards.shape[1] ** 0.5)):
        named = boards[:, cells] if name is None else name(boards[:, cells])
        marks = mix(named.astype(np.uint64) + np.uint64(1))
        keys.append(mix((marks * weights).sum(axis=1, dtype=np.uint64)))
    return np.min(keys, axis=0)
