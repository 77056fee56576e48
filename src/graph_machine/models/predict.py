"""Answers from a model: batched, without gradients, from text or tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.errors import DataError

if TYPE_CHECKING:
    from graph_machine.models.graph_machine import GraphMachine


@dataclass(frozen=True)
class Prediction:
    """Per node: the answer (an output index) and its probability."""

    answers: Int[np.ndarray, "b n"]
    confidences: Float[np.ndarray, "b n"]
    texts: list[str] | None  # answers as text, where the spec has characters for them


def encode(inputs: Sequence[str] | np.ndarray | Tensor, spec: InputSpec) -> Int[Tensor, "b n"]:
    """Tokens from texts by the spec's alphabet; arrays pass through."""
    if isinstance(inputs, Tensor):
        return inputs.long()
    if isinstance(inputs, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(inputs)).long()
    if spec.alphabet is None:
        raise DataError("predict: this model reads tokens, its spec has no alphabet for text.")
    if isinstance(inputs, str):
        inputs = [inputs]
    # 0 is the common other spelling of a blank.
    table = {character: index for index, character in enumerate(spec.alphabet)} | {"0": 0}
    rows = []
    for number, text in enumerate(inputs):
        if spec.num_nodes is not None and len(text) != spec.num_nodes:
            raise DataError(
                f"Input {number + 1} should have {spec.num_nodes} characters, got {len(text)}."
            )
        bad = [character for character in text.upper() if character not in table]
        if bad:
            raise DataError(
                f"Input {number + 1} has the character '{bad[0]}'; allowed: {spec.alphabet}"
            )
        rows.append([table[character] for character in text.upper()])
    return torch.tensor(rows)


@torch.no_grad()
def predict(
    model: "GraphMachine", inputs: Sequence[str] | np.ndarray | Tensor, *, batch_size: int = 256
) -> Prediction:
    """Most likely answer and its probability at every node."""
    if len(inputs) == 0:
        raise DataError("predict: there are no inputs.")
    tokens = encode(inputs, model.spec)
    low, high = (int(t) for t in torch.aminmax(tokens))
    if low < 0 or high >= model.spec.num_tokens:
        raise DataError(
            f"predict: tokens should lie in 0 to {model.spec.num_tokens - 1}, "
            f"got {low if low < 0 else high}."
        )
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        answers, confidences = [], []
        for part in tokens.split(batch_size):
            weights = model(part.to(device)).logits.float().softmax(dim=-1)
            best = weights.max(dim=-1)
            answers.append(best.indices.cpu())
            confidences.append(best.values.cpu())
    finally:
        model.train(was_training)
    found = torch.cat(answers).numpy()
    texts = None
    if model.spec.answers is not None:
        characters = np.array(list(model.spec.answers))
        texts = ["".join(row) for row in characters[found]]
    return Prediction(found, torch.cat(confidences).numpy(), texts)
