"""The page in a real browser, on graphs, mazes and sequences."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from graph_machine.lab.config import AlgorithmsConfig, MazeConfig, PointersConfig, RecallConfig
from graph_machine.lab.explorer.export import export_page
from support.browser import browser_marks, click_node, label, message, until
from support.explorer import graph_session

pytestmark = browser_marks


@pytest.fixture(scope="module")
def pointers(start) -> str:
    """A small GM on graphs that are no board."""
    return start(graph_session(PointersConfig(nodes=12, train_hops=2, test_hops=4)))


def test_a_graph_is_drawn_as_nodes_and_links(pointers, open_page) -> None:
    page = open_page(pointers)
    assert "answers right" in page.locator(".verdict").inner_text()
    assert "source n1" in label(page, "canvas.example")  # n0 is an end, and asked nothing
    places = page.request.get(f"{pointers}api/session").json()["layout"]["places"]
    click_node(page, *places[5])
    until(page, lambda: "source n5" in label(page, "canvas.example"))
    until(page, lambda: "of n5: most at n" in label(page, ".new-edges .face"))
    page.locator("canvas.example").press("ArrowRight")
    until(page, lambda: "source n5" not in label(page, "canvas.example"))


def test_follow_a_referral_on_a_graph(pointers, open_page) -> None:
    page = open_page(f"{pointers}#c=n3&l=1")
    until(page, lambda: "source n3" in label(page, "canvas.example"))
    page.locator(".new-edges .face").nth(2).click()
    page.wait_for_selector(".parts button")
    assert "l1 n3 e2" in page.locator(".crumbs").inner_text()
    page.locator(".parts button").first.click()
    until(page, lambda: "l0 n" in page.locator(".crumbs").inner_text())
    until(page, lambda: "input edges" in page.locator("#inspector").inner_text())
    until(page, lambda: "&t=" in page.url)


def test_graphs_of_other_sizes_from_the_list(start, open_page, tmp_path: Path) -> None:
    url = start(graph_session(AlgorithmsConfig(algorithm="paths", train_nodes=8)))
    page = open_page(url)
    page.locator("#examples").select_option("3")
    page.wait_for_selector("body:not(.is-busy)")
    assert message(page) == "" or "Forward pass" in message(page)
    page.locator("#example-text").fill("0 0-1:0.5 1-2 2-3:0.25")
    page.locator("#run").click()
    until(page, lambda: page.locator("#example-text").input_value().startswith("0 0-1:0.5 1-2:1"))
    until(page, lambda: "of 4 answers right" in page.locator(".verdict").inner_text())
    saved = tmp_path / "graph.html"
    export_page(graph_session(PointersConfig(nodes=8, train_hops=2, test_hops=4)), saved)
    page = open_page(saved.as_uri())
    assert "source n1" in label(page, "canvas.example")
    page.locator("#edges").select_option("all")
    until(page, lambda: page.locator(".row-mode").first.inner_text() == "of all nodes")


def test_a_large_maze_has_solid_walls(start, open_page) -> None:
    page = open_page(start(graph_session(MazeConfig(side=15, mazes=20))))
    text = page.locator("#example-text").input_value()
    box = page.locator("canvas.example").bounding_box()
    assert box["width"] / 15 > 20  # pixels of a cell
    picture = Image.open(io.BytesIO(page.locator("canvas.example").screenshot())).convert("RGB")
    pixels, step = np.asarray(picture), picture.width / 15

    def middle(cell: int) -> tuple[int, ...]:
        row, col = divmod(cell, 15)
        return tuple(pixels[int((row + 0.3) * step), int((col + 0.3) * step)])

    walls = {middle(cell) for cell in range(225) if text[cell] == "#"}
    assert len(walls) == 1
    assert walls.isdisjoint({middle(cell) for cell in range(225) if text[cell] == "."})
    assert "wall" in page.locator("#key").inner_text()
    for width in (1440, 1280, 1000, 400):  # nothing lies upon each other
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        bar = page.locator(".layer-bar").bounding_box()
        inspector = page.locator("#inspector").bounding_box()
        if width >= 1200:  # narrower pages have the inspector as a drawer
            assert bar["x"] + bar["width"] <= inspector["x"]


def test_factors_of_a_sequence_leave_the_future_out(start, open_page) -> None:
    """The first place sees itself alone, whatever scores there are for the others."""
    session = graph_session(RecallConfig(length=24, keys=6, values=10, pairs=4, test_pairs=4))
    page = open_page(f"{start(session)}#c=n0")
    until(page, lambda: "source n0" in label(page, "canvas.example"))
    rows = page.locator(".row", has_text="n2 node factor").locator(".face")
    for face in rows.all():
        assert face.get_attribute("aria-label").endswith("most at n0, 1.00")


@pytest.mark.parametrize("nodes", [12, 32])
def test_no_answer_lies_on_a_node(start, open_page, nodes: int) -> None:
    page = open_page(start(graph_session(PointersConfig(nodes=nodes, train_hops=4, test_hops=8))))
    for example in ("0", "3", "7"):
        page.locator("#examples").select_option(example)
        page.wait_for_selector("body:not(.is-busy)")
        assert page.locator("canvas.example").get_attribute("data-overlaps") == "0"
    box = page.locator("#examples").bounding_box()
    assert box["width"] > 200  # the menu shows its labels


def test_whose_edges_are_shown(start, open_page) -> None:
    """What the page says of slot 1 is what the record holds: of n3, to n3, and of all nodes."""
    session = graph_session(PointersConfig(nodes=12, train_hops=2, test_hops=4))
    new = session.run(session.examples.listed[0].key).forwards[0]
    made = new.arrays["layers.1.edge.0.address_outs"][:, 1].astype(np.float64)  # n n
    page = open_page(f"{start(session)}#c=n3&l=1")
    board = ".new-edges .figure:nth-child(2) .face"
    for mode, values in (("out", made[3]), ("in", made[:, 3]), ("all", made.mean(axis=0))):
        page.locator("#edges").select_option(mode)
        most = f"most at n{values.argmax()},"
        until(page, lambda wanted=most: wanted in label(page, board))
        told = float(label(page, board).rpartition(" ")[2])
        assert abs(told - values.max()) < 0.006
    assert page.locator(".new-edges .row-mode").inner_text() == "of all nodes"
    until(page, lambda: "edges=all" in page.url)
    again = open_page(page.url)
    assert again.locator("#edges").input_value() == "all"
    again.keyboard.press("e")
    until(again, lambda: again.locator("#edges").input_value() == "out")


def test_the_node_under_the_pointer_stands_out(pointers, open_page) -> None:
    page = open_page(f"{pointers}#c=n3&l=1")
    x, y = page.request.get(f"{pointers}api/session").json()["layout"]["places"][5]
    for selector in ("canvas.example", ".new-edges canvas.board"):
        canvas = page.locator(selector).first
        canvas.scroll_into_view_if_needed()
        plain = canvas.screenshot()
        side = canvas.bounding_box()["width"]
        canvas.hover(position={"x": side * (0.08 + 0.84 * x), "y": side * (0.08 + 0.84 * y)})
        until(page, lambda: "n5: " in page.locator(".tooltip").inner_text())
        page.evaluate("document.querySelector('.tooltip').style.visibility = 'hidden'")
        assert canvas.screenshot() != plain
        page.mouse.move(2, 2)
        until(page, lambda c=canvas, was=plain: c.screenshot() == was)
        page.evaluate("document.querySelector('.tooltip').style.visibility = ''")
