"""What the explorer's tests share: a hand-built GM, whose edges are known, and small models."""

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn

from graph_machine.lab.explorer.serve import serve
from graph_machine.lab.explorer.session import Session
from graph_machine.models import GraphMachine
from graph_machine.models.handmade import handmade_gm
from support.explorer import session_of, small_model


@pytest.fixture
def make_model() -> Callable[..., GraphMachine]:
    return small_model


@pytest.fixture(scope="session")
def handmade_session() -> Session:
    return session_of(handmade_gm((2, 2)))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint folder with the notes that training leaves in it."""
    task = {"name": "sudoku", "box": "2x2", "clues_extra": 2}
    return small_model().save_pretrained(tmp_path / "gm", task=task, condition="gm")


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[[Session], str]]:
    """Serve a session as the command does; returns its URL."""
    servers: list[uvicorn.Server] = []
    threads: list[threading.Thread] = []
    patch = pytest.MonkeyPatch()

    class Kept(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            servers.append(self)

    patch.setattr(uvicorn, "Server", Kept)

    def begin(session: Session) -> str:
        # The solver may have to be compiled first; no page should wait for that.
        session.run_pack(session.examples.listed[0].key)
        said: list[str] = []
        ready = threading.Event()

        def announce(line: str) -> None:
            said.append(line)
            ready.set()

        def work() -> None:
            serve(session, port=0, open_page=False, announce=announce)

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        assert ready.wait(30)
        found = re.search(r"http://\S+", said[0])
        assert found is not None
        return found[0]

    yield begin
    for server in servers:
        server.should_exit = True
    for thread in threads:
        thread.join(10)
    patch.undo()


@pytest.fixture
def open_page(browser) -> Iterator[Callable]:
    """Open a URL and wait for the first drawing. Errors and requests to elsewhere fail the test."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(60_000)
    problems: list[str] = []

    def visit(url: str):
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: check(request.url, url))
        page.goto(url)
        page.wait_for_selector("#panels[data-draws]", state="attached")
        page.wait_for_selector("body:not(.is-busy)")
        return page

    def check(asked: str, url: str) -> None:
        if not asked.startswith(("data:", "blob:", url.partition("#")[0])):
            problems.append(f"asked for {asked}")

    yield visit
    context.close()
    assert problems == []
