"""Predictions of a model: batched, without gradients, from text or tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from graph_machine.config import InputSpec
from graph_machine.config.model import MOST_ROUNDS
from graph_machine.errors import ConfigError, DataError, GraphError, ShapeError
from graph_machine.graphs import InputGraph

if TYPE_CHECKING:
    from graph_machine.models.graph_machine import GraphMachine

# A file from elsewhere may not keep the machine busy for hours; a caller may ask for more.
MOST_FROM_FILE = 1_000


def check_count(name: str, value: Any, least: int, most: int = MOST_ROUNDS) -> None:
    """Raise ConfigError for an invalid number."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ConfigError(f"{name} should be a whole number, got {value!r}.")
    if value < least:
        raise ConfigError(f"{name} should be at least {least}, got {value}.")
    if value > most:
        raise ConfigError(f"{name} should be at most {most:,}, got {value:,}.")


@dataclass(frozen=True)
class Rounds:
    """At most `most` rounds (None: as in the model's config).

    With `until_stable`, an example stops when its answer has not changed for that many rounds.
    """

    most: int | None = None
    until_stable: int | None = None

    def __post_init__(self) -> None:
        if self.until_stable is not None:
            check_count("until_stable", self.until_stable, 1)

    def check(self, model: "GraphMachine") -> int:
        """The largest number of rounds for this model; an error if it has no core."""
        if self.until_stable is not None and model.core is None:
            raise ConfigError("until_stable: this model has no recurrent core to repeat.")
        if self.until_stable is not None and model.spec.output_kind == "numbers":
            raise ConfigError(
                "until_stable needs answers that are classes; this model's are numbers."
            )
        return model.check_rounds(self.most)


AS_TRAINED = Rounds()


@torch.no_grad()
def answer(
    model: "GraphMachine", rounds: Rounds, inputs: dict[str, Any]
) -> tuple[Float[Tensor, "b q o"], Int[Tensor, "b"]]:
    """Outputs of a batch, and the number of rounds that each example took."""
    if rounds.until_stable is not None:
        return _until_stable(model, rounds.check(model), rounds.until_stable, inputs)
    outputs = model(**inputs, rounds=rounds.most).logits
    most = model.config.rounds if rounds.most is None else rounds.most
    return outputs, torch.full((len(outputs),), most, device=outputs.device)


def _until_stable(
    model: "GraphMachine", most: int, patience: int, inputs: dict[str, Any]
) -> tuple[Float[Tensor, "b q o"], Int[Tensor, "b"]]:
    """Rounds continue with the examples whose answers still change."""
    each = model.iterate(**inputs)
    new = next(each)
    outputs, before = new.clone(), new.argmax(dim=-1)
    asked = asked_places(model.spec, inputs, new.shape[1])
    left = torch.arange(len(new), device=new.device)  # numbers of the examples still at work
    used = torch.full_like(left, most)
    stays = torch.zeros_like(left)
    rows = None
    for number in range(2, most + 1):
        new = each.send(rows)
        outputs[left] = new
        now = new.argmax(dim=-1)
        same = now == before if asked is None else (now == before) | ~asked[left]
        stays = torch.where(same.all(dim=1), stays + 1, 0)
        before, rows = now, None
        going = stays < patience
        if not bool(going.all()):
            used[left[~going]] = number
            rows = going.nonzero().flatten()
            left, stays, before = left[rows], stays[rows], before[rows]
        if len(left) == 0:
            break
    return outputs, used


def asked_places(
    spec: InputSpec, inputs: dict[str, Any], places: int
) -> Bool[Tensor, "b q"] | None:
    """Which outputs are part of the answer: not padding or given values. None: all."""
    mask, tokens, kept = inputs.get("node_mask"), inputs.get("tokens"), spec.given_answers()
    found = None
    if mask is not None and spec.output not in ("graph", "pair"):
        each = (places - spec.graph_choices) // mask.shape[1]  # edge slots: k per node
        found = mask.repeat_interleave(each, dim=1)
        found = torch.nn.functional.pad(found, (0, spec.graph_choices), value=True)
    if kept is not None and tokens is not None:
        question = torch.tensor(kept, device=tokens.device)[tokens] < 0
        found = question if found is None else found & question
    return found


@torch.no_grad()
def after_rounds(
    model: "GraphMachine", numbers: Sequence[int], inputs: dict[str, Any]
) -> Iterator[Float[Tensor, "b q o"]]:
    """Outputs after each of several numbers of rounds, ascending, in one pass."""
    for number in numbers:
        model.check_rounds(number)
    wanted = set(numbers)
    for number, outputs in enumerate(islice(model.iterate(**inputs), max(numbers)), start=1):
        if number in wanted:
            yield outputs


NO_INPUTS = "predict: there are no inputs."


@dataclass(frozen=True)
class Prediction:
    """Per place (usually a node): the answer, an output index, and its probability.

    In regression, answers are numbers (b, q, o) and confidences are NaN.

    >>> from graph_machine import open_model
    >>> found = open_model("gm-4x4").model.predict(["..3...4..4...2.."])
    >>> found.answers.shape, found.confidences.shape  # b q
    ((1, 16), (1, 16))
    """

    answers: Shaped[np.ndarray, "b q *o"]
    confidences: Float[np.ndarray, "b q"]
    texts: list[str] | None  # answers as text, if the spec has characters for them
    rounds: Int[np.ndarray, "b"] | None = None  # rounds of a recurrent core behind each answer
    tries: Int[np.ndarray, "b"] | None = None  # forms that were tried for each, if several may be


def encode(inputs: Sequence[str], spec: InputSpec) -> Int[Tensor, "b n"]:
    """Tokens of texts, by the spec's alphabet."""
    if len(inputs) == 0:
        raise DataError(NO_INPUTS)
    if not isinstance(inputs, str) and not all(isinstance(text, str) for text in inputs):
        raise DataError(
            f"predict: inputs should be texts or a tensor of tokens (b, n), got a "
            f"{type(inputs).__name__} of {type(inputs[0]).__name__}; write torch.tensor(inputs)."
        )
    if spec.alphabet is None:
        raise DataError("predict: pass tokens, because this model's spec has no alphabet for text.")
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
    model: "GraphMachine",
    inputs: Sequence[str] | np.ndarray | Tensor | None,
    graph: InputGraph | None = None,
    node_mask: Tensor | np.ndarray | None = None,
    features: Tensor | np.ndarray | None = None,
    pairs: Tensor | np.ndarray | None = None,
    *,
    batch_size: int = 256,
    rounds: int | None = None,
    until_stable: int | None = None,
) -> Prediction:
    """The most likely answer and its probability at every place; given values are kept.

    `inputs` are texts or tokens (b, n), `node_mask` is (b, n), `features` are (b, n, f) and are
    converted to the model's dtype. A graph (n, k) is used for every example. `pairs` (b, q, 2) are
    the queried nodes, if answers are about pairs.

    A recurrent core runs `rounds` times; with `until_stable`, an example stops when its answer has
    not changed for that many rounds.

    >>> from graph_machine import open_model
    >>> predict(open_model("gm-4x4").model, ["..3...4..4...2.."]).texts
    ['4132234114233214']
    """
    spec, device = model.spec, next(model.parameters()).device
    if inputs is not None and not isinstance(inputs, Tensor | np.ndarray):
        inputs = encode(inputs, spec)
    parts = _checked(
        model, graph, tokens=inputs, node_mask=node_mask, features=features, pairs=pairs
    )
    given = parts["features"] if inputs is None else parts["tokens"]
    if batch_size < 1:
        raise DataError(f"predict: batch_size should be at least 1, got {batch_size}.")
    how = Rounds(rounds, until_stable)
    was_training = model.training
    model.eval()
    found: list[Prediction] = []
    try:
        for start in range(0, len(given), batch_size):
            rows = slice(start, start + batch_size)
            batch = {n: None if p is None else p[rows].to(device) for n, p in parts.items()}
            outputs, taken = answer(model, how, batch)
            rounds_taken = None if model.core is None else taken
            found.append(prediction(outputs, rounds_taken, batch["tokens"], spec))
    finally:
        model.train(was_training)
    used = [part.rounds for part in found if part.rounds is not None]
    return Prediction(
        np.concatenate([part.answers for part in found]),
        np.concatenate([part.confidences for part in found]),
        None if spec.answers is None else [text for part in found for text in part.texts or ()],
        np.concatenate(used) if used else None,
    )


def _checked(model: "GraphMachine", graph: InputGraph | None, **given: Any) -> dict[str, Any]:
    """The inputs of the model as tensors, checked before the first batch."""
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            given[name] = torch.from_numpy(np.ascontiguousarray(value))
        elif value is not None and not isinstance(value, Tensor):
            raise ShapeError(f"predict: {name} should be a tensor, got {type(value).__name__}.")
    tokens, mask, features, pairs = given.values()
    first = features if tokens is None else tokens
    if first is None or len(first) == 0:
        raise DataError(NO_INPUTS)
    if tokens is not None:
        if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
            raise DataError(f"predict: tokens should be whole numbers, got {tokens.dtype}.")
        tokens = given["tokens"] = tokens.long()
        low, high = (int(t) for t in torch.aminmax(tokens))
        most = model.spec.num_tokens
        if most is not None and not 0 <= low <= high < most:
            raise DataError(
                f"predict: tokens should lie in 0 to {most - 1}, got {low if low < 0 else high}."
            )
    if features is not None and features.ndim != 3:
        raise ShapeError(f"predict: features should be (b, n, f), got {tuple(features.shape)}.")
    shape = model.check_inputs(tokens, features, pairs)
    if features is not None:
        if features.shape[:2] != shape:
            raise ShapeError(
                f"predict: features should be for (b, n) = {shape}, got {tuple(features.shape)}."
            )
        given["features"] = _read_features(model, "features", features)
    if mask is not None:
        if mask.dtype != torch.bool or mask.shape != shape:
            raise ShapeError(
                f"predict: node_mask should be bool (b, n) = {shape}, got {mask.dtype} "
                f"{tuple(mask.shape)}."
            )
        if len(empty := (~mask.any(dim=1)).nonzero()):
            raise DataError(f"predict: node_mask removes all nodes of example {int(empty[0])}.")
    if pairs is not None:
        fits = pairs.ndim == 3 and (len(pairs), pairs.shape[2]) == (shape[0], 2)
        if pairs.is_floating_point() or not fits:
            raise ShapeError(
                f"predict: pairs should be whole numbers ({shape[0]}, q, 2), got {pairs.dtype} "
                f"{tuple(pairs.shape)}."
            )
        if pairs.numel() and not 0 <= int(pairs.min()) <= int(pairs.max()) < shape[1]:
            raise DataError(f"predict: pairs should hold node ids, 0 to {shape[1] - 1}.")
    return given | {"graph": None if graph is None else _read_graph(model, graph, shape)}


def prediction(
    outputs: Float[Tensor, "b q o"], rounds: Tensor | None, tokens: Tensor | None, spec: InputSpec
) -> Prediction:
    """Answers, confidences and texts (if the spec has characters); given values are kept."""
    outputs = outputs.float()
    if spec.output_kind == "numbers":
        found, sure = outputs.cpu(), torch.full(outputs.shape[:2], float("nan"))
    else:
        best = outputs.softmax(dim=-1).max(dim=-1)
        found, sure = best.indices.cpu(), best.values.cpu()
    kept = spec.given_answers()
    if kept is not None and tokens is not None:
        fixed = torch.tensor(kept)[tokens.cpu()]
        found, sure = torch.where(fixed < 0, found, fixed), sure.masked_fill(fixed >= 0, 1.0)
    texts = None
    if spec.answers is not None:
        characters = np.array(list(spec.answers))
        texts = ["".join(row) for row in characters[found.numpy()]]
    taken = None if rounds is None else rounds.cpu().numpy()
    return Prediction(found.numpy(), sure.numpy(), texts, taken)


def _read_features(model: "GraphMachine", name: str, features: Tensor) -> Tensor:
    """Features in the model's own dtype; float64 from numpy is converted."""
    own = features.to(next(model.parameters()).dtype)
    if not bool(torch.isfinite(own).all()):
        where = tuple((~torch.isfinite(own)).nonzero()[0].tolist())
        raise DataError(f"predict: {name} are not finite at {where} as {own.dtype}.")
    return own


def _read_graph(model: "GraphMachine", graph: InputGraph, shape: tuple[int, int]) -> InputGraph:
    """Check a graph for these nodes: one per example, or one for all."""
    if not isinstance(graph, InputGraph):
        raise GraphError(f"predict: graph should be an InputGraph, got {type(graph).__name__}.")
    b, n = shape
    *batch, nodes, _ = graph.check().targets.shape
    if nodes != n or batch not in ([], [1], [b]):
        raise ShapeError(
            f"predict: the graph should be for (b, n) = {shape}, got "
            f"{tuple(graph.targets.shape)} (b, n, k)."
        )
    if graph.features is not None:
        features = _read_features(model, "the graph's edge features", graph.features)
        graph = InputGraph(graph.targets, graph.categories, graph.num_categories, features)
    return graph.expand(b) if batch == [1] else graph
