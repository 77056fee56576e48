"""Answers from texts and arrays."""

from typing import Any

import numpy as np
import pytest
import torch

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError, DataError, GraphError, ShapeError
from graph_machine.graphs import graph_from_edge_index
from graph_machine.lab.config import PointersConfig
from graph_machine.lab.tasks.base import make_task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.models import GraphMachine, predict
from support.recordings import board_spec

SPEC = board_spec(3)
TEXTS = ["..1.2.3..", "123......", "........."]
TOKENS = np.array([[".123".index(c) for c in text] for text in TEXTS])


@pytest.fixture(scope="module")
def model() -> GraphMachine:
    torch.manual_seed(0)
    return GraphMachine(ModelConfig(d_node=8, num_layers=2, num_edges=5), SPEC)


def test_texts_arrays_and_tensors_agree(model: GraphMachine) -> None:
    answer = model.predict(TEXTS)
    assert answer.answers.shape == answer.confidences.shape == (3, 9)
    assert answer.texts is not None
    assert [len(t) for t in answer.texts] == [9, 9, 9]
    assert answer.texts == ["".join("123"[i] for i in row) for row in answer.answers]
    assert ((answer.confidences > 1 / 3) & (answer.confidences <= 1)).all()
    for other in (TOKENS, TOKENS.astype(np.int8), torch.from_numpy(TOKENS)):
        assert (model.predict(other).answers == answer.answers).all()
    assert (predict(model, TEXTS, batch_size=2).answers == answer.answers).all()
    assert (model.predict("..1.2.3..").answers == answer.answers[:1]).all()
    assert (model.predict([t.replace(".", "0") for t in TEXTS]).answers == answer.answers).all()


def test_the_mode_of_the_model_is_kept(model: GraphMachine) -> None:
    model.train()
    model.predict(TEXTS)
    assert model.training
    with pytest.raises(DataError):
        model.predict(["x" * 9])
    assert model.training
    model.eval()


def test_no_characters_for_answers(model: GraphMachine) -> None:
    bare = GraphMachine(model.config, SPEC.replace(alphabet=None, answers=None))
    assert bare.predict(TOKENS).texts is None
    with pytest.raises(DataError, match="alphabet"):
        bare.predict(TEXTS)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["........", "."], "Input 1 should have 9 characters, got 8"),
        (["." * 9, "." * 8 + "x"], "Input 2 has the character 'X'; allowed: .123"),
        (["." * 8 + "4"], "Input 1 has the character '4'"),
    ],
)
def test_bad_texts(model: GraphMachine, texts: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        model.predict(texts)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        (np.zeros((2, 8), int), ShapeError, r"should be \(b, n\) = \(any, 9\), got \(2, 8\)"),
        (np.zeros(9, int), ShapeError, r"tokens should be \(b, n\), got \(9,\)"),
        ([], DataError, "no inputs"),
        (np.zeros((0, 9), int), DataError, "no inputs"),
        (TOKENS.tolist(), DataError, "got a list of list"),
        (torch.full((1, 9), 0.7), DataError, "float32"),
        (np.full((1, 9), 4), DataError, "tokens should lie in 0 to 3, got 4"),
        (np.full((1, 9), -1), DataError, "tokens should lie in 0 to 3, got -1"),
    ],
)
def test_bad_arrays(
    model: GraphMachine, tokens: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        model.predict(tokens)  # type: ignore[arg-type]


def test_givens_are_kept(model: GraphMachine) -> None:
    """A token that has an answer's character stands for it, whatever the model would say."""
    found = model.predict(TEXTS)
    assert found.texts is not None
    for text, answer, sure in zip(TEXTS, found.texts, found.confidences, strict=True):
        assert all(a == t for a, t in zip(answer, text, strict=True) if t != ".")
        assert all(c == 1 for c, t in zip(sure, text, strict=True) if t != ".")
    raw = model(torch.from_numpy(TOKENS)).logits.argmax(dim=-1).numpy()
    assert (found.answers == raw)[TOKENS == 0].all()
    assert (found.answers != raw).any(), "the test needs a model that would change a given"
    free = SPEC.replace(keeps_givens=False)
    assert free.given_answers() is None


def test_rotary_positions_can_be_kept_out_of_referral() -> None:
    spec = InputSpec(
        num_tokens=5, num_outputs=4, num_nodes=16, grid=(4, 4), graph="grid", num_edge_categories=6
    )
    config = ModelConfig(num_layers=1, position="rotary", rotary_referral=False)
    layer: Any = GraphMachine(config, spec).stack.layers[0]
    assert layer.edge[0].referral.rotary is None
    assert layer.node[0].attention.rotary is not None


def test_graphs_that_are_given_one_by_one_and_padded_together() -> None:
    task = make_task(PointersConfig(nodes=9, train_hops=2, test_hops=4, name_width=0))
    torch.manual_seed(0)
    model = GraphMachine(ModelConfig(num_layers=1, d_node=8, num_heads=2), task.spec)
    examples = [task.parse(text) for text in ("0>1 1>2 2>2", "0>0 1>3 2>0 3>2 4>1")]
    whole = Batch.join(examples)
    inputs = (whole.tokens, whole.graph, whole.node_mask)
    found, again = model.predict(*inputs), model.predict(*inputs, batch_size=1)
    assert np.array_equal(found.answers, again.answers)
    for row, one in enumerate(examples):
        alone = model.predict(one.tokens, one.graph)
        n = one.num_nodes
        assert np.array_equal(found.answers[row, :n], alone.answers[0])
        np.testing.assert_allclose(found.confidences[row, :n], alone.confidences[0], rtol=1e-5)
    with pytest.raises(ShapeError, match="graphs"):
        model.predict(whole.tokens)


FEATURED = InputSpec(
    num_tokens=None, node_features=2, num_outputs=3, num_edge_categories=3, edge_features=1
)
PATH = torch.tensor([[0, 1, 2], [1, 2, 3]])


@pytest.fixture(scope="module")
def reader() -> GraphMachine:
    """Reads features of nodes and edges."""
    torch.manual_seed(0)
    return GraphMachine(ModelConfig(d_node=8, num_layers=1, num_heads=2, num_edges=3), FEATURED)


def given(**changes: Any) -> dict[str, Any]:
    graph = graph_from_edge_index(
        PATH, num_nodes=4, num_edges=3, edge_features=changes.pop("edge_features", torch.ones(3, 1))
    )
    if "targets" in changes:
        graph.targets[0, 1] = changes.pop("targets")
    if "rows" in changes:
        graph = graph.expand(changes.pop("rows"))
    features = torch.linspace(-1, 1, 24).reshape(3, 4, 2)
    return {"inputs": None, "graph": graph, "features": features} | changes


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"targets": 7}, GraphError, "targets should be -1 to 3, got -1 to 7"),
        ({"targets": -5}, GraphError, "targets should be -1 to 3, got -5 to 3"),
        ({"rows": 2}, ShapeError, r"graph should be for \(b, n\) = \(3, 4\), got \(2, 4, 3\)"),
        ({"graph": PATH}, GraphError, "graph should be an InputGraph, got Tensor"),
        ({"node_mask": torch.ones(2, 4).bool()}, ShapeError, r"node_mask should be bool \(b, n\)"),
        ({"node_mask": torch.ones(3, 4)}, ShapeError, r"node_mask .* got torch.float32 \(3, 4\)"),
        (
            {"node_mask": torch.tensor([[True] * 4, [False] * 4, [True] * 4])},
            DataError,
            "node_mask removes all nodes of example 1",
        ),
        ({"features": torch.ones(3, 4, 2) / 0}, DataError, r"features are not finite at \(0, 0, 0"),
        ({"features": torch.ones(3, 4)}, ShapeError, r"features should be \(b, n, f\), got \(3, 4"),
        ({"features": [[[1.0, 2.0]]]}, ShapeError, "features should be a tensor, got list"),
    ],
)
def test_bad_graphs_masks_and_features(
    reader: GraphMachine, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        reader.predict(**given(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("unchecked")
def test_features_of_other_kinds_are_converted(reader: GraphMachine) -> None:
    found = reader.predict(**given())
    assert found.answers.shape == (3, 4)
    features = given()["features"]
    for other in (features.double(), features.numpy(), features.double().numpy()):
        again = reader.predict(**given(features=other, edge_features=torch.ones(3, 1).double()))
        assert np.array_equal(again.answers, found.answers)
    mask = np.ones((3, 4), dtype=bool)
    # One graph for all examples, in several batches.
    alone = reader.predict(**given(rows=1, node_mask=mask), batch_size=2)
    assert np.array_equal(alone.answers, found.answers)


@pytest.mark.usefixtures("unchecked")
def test_features_beside_tokens_belong_to_the_same_nodes() -> None:
    spec = FEATURED.replace(num_tokens=4, edge_features=0)
    model = GraphMachine(ModelConfig(d_node=8, num_layers=1, num_heads=2, num_edges=3), spec)
    graph = graph_from_edge_index(PATH, num_nodes=4, num_edges=3)
    with pytest.raises(ShapeError, match=r"features should be for \(b, n\) = \(2, 4\), got \(3,"):
        model.predict(torch.zeros(2, 4).long(), graph, features=torch.ones(3, 4, 2))
    other = graph_from_edge_index(
        PATH, num_nodes=4, num_edges=3, edge_types=torch.zeros(3).long(), num_types=3
    )
    with pytest.raises(ConfigError, match="5 edge categories"):
        model.predict(torch.zeros(2, 4).long(), other, features=torch.ones(2, 4, 2))


@pytest.mark.usefixtures("unchecked")
def test_tokens_that_are_not_whole_numbers(model: GraphMachine) -> None:
    with pytest.raises(ShapeError, match="float32"):
        model(torch.zeros(1, 9))  # type: ignore[arg-type]
