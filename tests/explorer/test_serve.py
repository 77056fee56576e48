"""The server: what it answers, and whom it refuses. None of it shows a traceback."""

import asyncio
import json
import socket
from typing import Any

import pytest
from fastapi.testclient import TestClient

from graph_machine.errors import ConfigError
from graph_machine.explorer import serve
from graph_machine.explorer.pack import unpack
from graph_machine.explorer.serve import allows, bind, create_app, host_name
from support.explorer import EASY

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client(handmade_session) -> TestClient:
    return TestClient(create_app(handmade_session), base_url="http://127.0.0.1:8765")


def test_page_and_files(client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "https://" not in page.text
    script = client.get("/static/main.js")
    assert script.headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "path",
    [
        "/static/" + "a" * 5000 + ".js",
        "/static/%00.js",
        "/static/no.js",
        "/static/..%2fserve.py",
        "/static/%2e%2e/serve.py",
        "/docs",
        "/etc",
    ],
    ids=lambda path: path[:20],
)
def test_no_other_file_is_given_away(client, path) -> None:
    assert client.get(path).status_code == 404


def test_questions_and_answers(client) -> None:
    session = client.get("/api/session").json()
    assert session["layout"]["cells"] == 16
    header, _ = unpack(client.post("/api/run", json={"puzzle": EASY}).content)
    assert header["puzzle"] == EASY
    question = {"puzzle": EASY, "model": 0, "cell": 3}
    header, arrays = unpack(client.post("/api/cell", json=question).content)
    assert header == {"model": 0, "cell": 3}
    assert arrays["layers.5.edge.0.address_outs"].shape == (8, 16)
    assert len(client.get("/api/draw").json()["puzzle"]) == 16


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 60_000, "not valid JSON"),
        (b"[]", "JSON object"),
        (b"{}", "'puzzle' should be a text"),
        (b'{"puzzle": 3}', "'puzzle' should be a text"),
        (b'{"puzzle": null}', "'puzzle' should be a text"),
        (b'{"puzzle": "hello"}', "Board of 5 cells"),
        (b'{"puzzle": "\\ud800..............."}', "symbol"),
        (b'{"puzzle": "' + b"." * 70_000 + b'"}', "longer than"),
    ],
    ids=lambda value: value[:12].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_garbage_gets_a_message(client, body, message) -> None:
    answer = client.post("/api/run", content=body, headers=JSON)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


@pytest.mark.parametrize("wrong", [{"cell": "a"}, {"cell": True}, {"cell": 999}, {"model": 1.5}])
def test_garbage_cells_get_a_message(client, wrong) -> None:
    answer = client.post("/api/cell", json={"puzzle": EASY, "model": 0, "cell": 0} | wrong)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_forms_are_refused(client) -> None:
    """Another site can send forms without asking, JSON it cannot."""
    answer = client.post("/api/run", content=json.dumps({"puzzle": EASY}),
                         headers={"content-type": "text/plain"})  # fmt: skip
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "",
        "127.0.0.1.evil.example",
        "[::1].evil.example",
        "[::1]evil.example:8765",
        "[::1]:evil.example",
        "[127.0.0.1.evil.example]",
        "127.0.0.1:evil.example",
        "127.0.0.1:8765:evil.example",
        "127.0.0.1:",
        "127.0.0.1:99999",
        "localhost:8765@evil.example",
        "evil.example/127.0.0.1",
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/session"])
def test_foreign_hosts_are_refused(client, path, host) -> None:
    answer = client.get(path, headers={"host": host})
    assert answer.status_code == 403
    assert "models" not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    ],
)
def test_other_sites_are_refused(client, headers) -> None:
    assert client.get("/api/session", headers=headers).status_code == 403
    assert client.post("/api/run", json={"puzzle": EASY}, headers=headers).status_code == 403


def test_the_page_itself_and_links_to_it_are_welcome(client) -> None:
    own = {"origin": "http://127.0.0.1:8765", "sec-fetch-site": "same-origin"}
    assert client.post("/api/run", json={"puzzle": EASY}, headers=own).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200


@pytest.mark.parametrize(
    ("bound", "header", "expected"),
    [
        ("127.0.0.1", "localhost:8765", True),
        ("127.0.0.1", "[::1]:8765", True),
        ("127.0.0.1", "192.168.0.7", False),
        ("127.0.0.1", None, False),
        ("0.0.0.0", "192.168.0.7:8765", True),
        ("0.0.0.0", "evil.example", False),
        ("box.lan", "BOX.lan:8765", True),
    ],
)
def test_which_hosts_are_answered(bound, header, expected) -> None:
    assert allows(bound, header) is expected


def test_a_request_names_its_host_once(client) -> None:
    headers = [("host", "evil.example"), ("host", "127.0.0.1:8765")]
    assert client.get("/", headers=headers).status_code == 403


async def ask(app: Any, messages: list[dict[str, Any]], wait: float = 0) -> list[dict[str, Any]]:
    """Put a question to the application as a server does: message by message."""
    headers = [(b"host", b"127.0.0.1:8765"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/api/run", "headers": headers,
             "query_string": b"", "http_version": "1.1", "scheme": "http"}  # fmt: skip
    left, answer = list(messages), []

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.sleep(wait)
        return left.pop(0)

    async def send(message: dict[str, Any]) -> None:
        answer.append(message)

    await app(scope, receive, send)
    return answer


PART = {"type": "http.request", "body": b'{"puzzle"', "more_body": True}


def test_clients_that_go_away(handmade_session) -> None:
    """No error reaches the server, which would print it with its traceback."""
    answer = asyncio.run(ask(create_app(handmade_session), [PART, {"type": "http.disconnect"}]))
    assert answer[0]["status"] == 400


def test_slow_questions_are_given_up(handmade_session, monkeypatch) -> None:
    monkeypatch.setattr(serve, "BODY_SECONDS", 0.05)
    answer = asyncio.run(ask(create_app(handmade_session), [PART], wait=60))
    assert answer[0]["status"] == 400
    assert b"took longer than 0.05 s" in answer[1]["body"]
    assert (b"connection", b"close") in answer[0]["headers"]


def test_host_names() -> None:
    assert [host_name(h) for h in ("[::1]:1", "[::1]", "A:80", "b")] == ["::1", "::1", "a", "b"]


def test_a_port_in_use_is_one_clear_line() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match=r"Cannot listen on 127\.0\.0\.1 port"),
    ):
        bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigError, match="0 to 65535, got 99999"):
        bind("127.0.0.1", 99_999)
    with pytest.raises(ConfigError, match="Cannot listen"):
        bind("no.such.host.invalid", 0)
