"""Models whose given edges stay: the page tells made, given and empty edges apart."""

from pathlib import Path

import numpy as np
import pytest

from graph_machine.lab.config import AlgorithmsConfig, RelationsConfig
from graph_machine.lab.explorer.examples import LiveModel, bytes_of_source, seen_slots
from graph_machine.lab.explorer.export import export_page
from graph_machine.lab.explorer.forward import unpack
from graph_machine.lab.explorer.session import Session, open_session
from graph_machine.lab.records.recorder import record
from graph_machine.models import GraphMachine
from support.browser import browser_marks, label, until
from support.explorer import EASY, SMALL, graph_session, session_of, small_model

STAY = {"given_edges": "always", "empty_edge": True, "edge_values": True}


def sudoku() -> Session:
    return session_of(small_model(**STAY))


def paths() -> Session:
    return graph_session(AlgorithmsConfig(algorithm="paths", train_nodes=8), **STAY)


def model_of(session: Session) -> GraphMachine:
    (subject,) = session.subjects
    assert isinstance(subject, LiveModel)
    return subject.model


@pytest.mark.parametrize("make", [sudoku, paths])
def test_the_page_is_given_the_edges_that_stay(make) -> None:
    session = make()
    key = session.examples.listed[0].key
    about = session.describe()["models"][0]
    assert (about["stays"], about["slots"]) == (["given", "empty"], 8)
    forward = session.run(key).forwards[0]
    edges = unpack(session.run_pack(key))[0]["models"][0]["edges"]
    assert edges["hasEmpty"]
    assert np.array_equal(edges["targets"], forward.edges.targets)
    stay = len(edges["targets"][0]) + 1
    assert forward.of_node(0)["layers.0.edge.0.e1_weights"].shape == (8, stay)
    assert forward.of_node(0)["layers.1.edge.0.e1_weights"].shape == (8, 8 + stay)
    first = session_of(small_model()).run_pack(EASY)
    assert unpack(first)[0]["models"][0]["edges"] is None


def test_recordings_keep_pairs_and_weights_of_edges(tmp_path: Path) -> None:
    """Of what an example was made of, nothing is lost: its text is the same."""
    configs = (RelationsConfig(), AlgorithmsConfig(algorithm="paths", train_nodes=8))
    for config in configs:
        session = graph_session(config, **STAY)
        example = session.examples.listed[0]
        made = record(model_of(session), example.batch, task=session.task)
        again = open_session([made.save(tmp_path / "a.rec.safetensors")])
        assert [one.key for one in again.examples.listed] == [example.key]
        header = unpack(again.run_pack(example.key))[0]
        assert header["layout"] == unpack(session.run_pack(example.key))[0]["layout"]
        assert header["models"][0]["verdict"]


@browser_marks[0]
@browser_marks[1]
@pytest.mark.parametrize("make", [sudoku, paths])
def test_kinds_of_edges_in_the_browser(make, open_page, tmp_path: Path) -> None:
    session, path = make(), tmp_path / "page.html"
    export_page(session, path)
    forward = session.run(session.examples.listed[0].key).forwards[0]
    cell = session.describe()["start"]
    targets = [target for target in forward.edges.targets[cell].tolist() if target >= 0]
    page = open_page(f"{path.as_uri()}#l=0")
    # Edges in: before the first referral there are none but those that stay.
    faces = page.locator(".sublayer.edge .row").first.locator(".face")
    words = [face.get_attribute("aria-label") for face in faces.all()]
    assert [word.endswith("absent") for word in words] == [True] * 8 + [False] * 2
    assert "l0 given" in words[8]
    assert "l0 empty" in words[9]
    assert page.locator(".kinds").first.inner_text().split() == ["made", "given", "empty"]
    for layer in (0, 1):
        page.locator("#layer").fill(str(layer))
        weights = forward.of_node(cell)[f"layers.{layer}.edge.0.e1_weights"][0].astype(float)
        kind = forward.edges.kind(int(weights.argmax()) + 8 * (layer == 0))
        until(page, lambda kind=kind: ("most on e" in label(page, ".bar-chart >> .."))
              == (kind in ("made", "empty")))  # fmt: skip
    # The board of given edges names them all.
    page.locator(".stays-given .face").first.click()
    facts = page.locator(".inspector .facts")
    until(page, lambda: "given edges" in facts.inner_text())
    named = page.locator(".inspector dt", has_text="given edges").locator("xpath=following::dd[1]")
    assert len(named.inner_text().split(", ")) == len(targets)
    assert "stay" in page.locator("#inspector").inner_text()
    # A new edge of layer 0 was made of edges that stay; there is no way down from them.
    page.locator("#layer").fill("0")
    until(page, lambda: "l=0" in page.url)
    page.locator(".new-edges .face").first.click()
    page.wait_for_selector(".part-end")
    assert page.locator(".parts button").count() == 0
    parts = page.locator(".part-name").all_inner_texts()
    assert parts
    assert all("'s given " in part or part.endswith("'s empty") for part in parts)
    assert page.locator(".slots .board-name").all_inner_texts() == ["given", "empty"]
    page.locator("#layer").fill("1")
    page.locator(".new-edges .face").nth(1).click()
    until(page, lambda: page.locator(".slots figure").count() == 10)


def test_large_examples_count_edges_that_stay() -> None:
    session = paths()
    example, model = session.examples.listed[0], model_of(session)
    assert example.batch.graph is not None
    assert seen_slots(model, example.batch) == 8 + example.batch.graph.num_edges + 1
    config, seen = SMALL.replace(num_edges=8), seen_slots(model, example.batch)
    held = bytes_of_source(config, example.nodes, 1, seen)
    assert session.run(example.key).forwards[0].num_bytes <= 1.5 * example.nodes * held[0]
