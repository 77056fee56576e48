"""The server: what it answers, and whom it refuses. None of it shows a traceback."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient
from uvicorn.server import ServerState

from graph_machine.errors import ConfigError
from graph_machine.lab.explorer import serve
from graph_machine.lab.explorer.forward import unpack
from graph_machine.lab.explorer.serve import PromptProtocol, bind, create_app
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
    assert session["layout"]["nodes"] == 16
    header, _ = unpack(client.post("/api/run", json={"example": EASY}).content)
    assert header["example"] == EASY
    question = {"example": EASY, "model": 0, "node": 3}
    header, arrays = unpack(client.post("/api/node", json=question).content)
    assert header == {"model": 0, "nodes": [3]}
    assert arrays["layers.5.edge.0.address_outs"].shape == (1, 8, 16)
    assert len(client.get("/api/draw").json()["example"]) == 16


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 60_000, "not valid JSON"),
        (b"[]", "JSON object"),
        (b"{}", "'example' should be a text"),
        (b'{"example": 3}', "'example' should be a text"),
        (b'{"example": null}', "'example' should be a text"),
        (b'{"example": "hello"}', "Board of 5 cells"),
        (b'{"example": "\\ud800..............."}', "UTF-8"),
        (b'{"example": "' + b"." * 70_000 + b'"}', "longer than"),
    ],
    ids=lambda value: value[:12].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_garbage_gets_a_message(client, body, message) -> None:
    answer = client.post("/api/run", content=body, headers=JSON)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


@pytest.mark.parametrize("wrong", [{"node": "a"}, {"node": True}, {"node": 999}, {"model": 1.5}])
def test_garbage_cells_get_a_message(client, wrong) -> None:
    answer = client.post("/api/node", json={"example": EASY, "model": 0, "node": 0} | wrong)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_forms_are_refused(client) -> None:
    """Another site can send forms without asking, JSON it cannot."""
    answer = client.post("/api/run", content=json.dumps({"example": EASY}),
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
        "localhost:8765@evil.example",
        "evil.example/127.0.0.1",
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/session"])
def test_foreign_hosts_are_refused(client, path, host) -> None:
    answer = client.get(path, headers={"host": host})
    assert answer.status_code in (400, 403)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
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
    assert client.post("/api/run", json={"example": EASY}, headers=headers).status_code == 403


def test_the_page_itself_and_links_to_it_are_welcome(client) -> None:
    own = {"origin": "http://127.0.0.1:8765", "sec-fetch-site": "same-origin"}
    assert client.post("/api/run", json={"example": EASY}, headers=own).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200


@pytest.mark.parametrize(
    ("bound", "header", "expected"),
    [
        ("127.0.0.1", "localhost:8765", True),
        ("127.0.0.1", "[::1]:8765", True),
        ("127.0.0.1", "192.168.0.7", False),
        ("0.0.0.0", "192.168.0.7:8765", True),
        ("0.0.0.0", "[fe80::7]:8765", True),
        ("0.0.0.0", "localhost", True),
        ("0.0.0.0", "evil.example", False),
        ("box.lan", "BOX.lan:8765", True),
    ],
)
def test_which_hosts_are_answered(handmade_session, bound, header, expected) -> None:
    answer = TestClient(create_app(handmade_session, bound)).get("/", headers={"host": header})
    assert (answer.status_code == 200) is expected


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


PART = {"type": "http.request", "body": b'{"example"', "more_body": True}


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


def test_a_port_in_use_is_one_clear_line() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match=r"127\.0\.0\.1"),
    ):
        bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigError, match="99999"):
        bind("127.0.0.1", 99_999)
    with pytest.raises(ConfigError, match="Cannot listen"):
        bind("no.such.host.invalid", 0)


# Clients that are slow with their headers, on real sockets.

ASK = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def plain_app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers when the whole body has come."""
    while (await receive()).get("more_body"):
        pass
    head = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    await send(head)
    await send({"type": "http.response.body", "body": b"ok"})


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


def talk(to: Talk) -> bytes:
    async def main() -> bytes:
        config = uvicorn.Config(plain_app, lifespan="off", http=PromptProtocol, ws="none")
        state = ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: PromptProtocol(config, state, {}), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                return await asyncio.wait_for(to(reader, writer), 30)
            finally:
                writer.close()
                await writer.wait_closed()

    return asyncio.run(main())


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "HEADER_SECONDS", 0.3)


@pytest.mark.parametrize("begun", [b"", b"GE", ASK], ids=["nothing", "a word", "no end"])
@pytest.mark.usefixtures("hurry")
def test_slow_headers_are_given_up(begun: bytes) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(begun)
        return await reader.read()  # until the server hangs up

    assert talk(slow).startswith(b"HTTP/1.1 408 ")


@pytest.mark.usefixtures("hurry")
def test_drops_do_not_put_off_the_end() -> None:
    async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        answer = asyncio.ensure_future(reader.read())
        for byte in ASK * 20:
            if answer.done():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)
        return await answer

    assert talk(dripping).startswith(b"HTTP/1.1 408 ")


@pytest.mark.usefixtures("hurry")
def test_the_second_request_of_a_connection() -> None:
    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(ASK + b"\r\n" + ASK)
        return await reader.read()

    answer = talk(twice)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in answer


@pytest.mark.usefixtures("hurry")
def test_a_body_may_take_longer() -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(ASK + b"Content-Length: 2\r\nConnection: close\r\n\r\n")
        await asyncio.sleep(0.8)
        writer.write(b"{}")
        return await reader.read()

    assert talk(late).startswith(b"HTTP/1.1 200 ")
