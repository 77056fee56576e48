"""The server: what it answers, and whom it refuses. None of it shows a traceback."""

import asyncio
import json
import re
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


def test_no_other_file_is_given_away(client) -> None:
    names = ("a" * 5000 + ".js", "%00.js", "no.js", "..%2fserve.py", "%2e%2e/serve.py")
    for path in (*(f"/static/{name}" for name in names), "/docs", "/etc"):
        assert client.get(path).status_code == 404, path[:20]


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
        *((body, "not valid JSON") for body in (b"", b"{", b"\xff\xfe", b"[" * 60_000)),
        (b"[]", "JSON object"),
        *((body, "'example'") for body in (b"{}", b'{"example": 3}', b'{"example": null}')),
        (b'{"example": "hello"}', "5 cells"),
        (b'{"example": "\\ud800..............."}', "UTF-8"),
        (b'{"example": "' + b"." * 70_000 + b'"}', "longer than"),
    ],
    ids=lambda value: value[:12].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_garbage_gets_a_message(client, body, message) -> None:
    answer = client.post("/api/run", content=body, headers=JSON)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_garbage_cells_and_forms_get_a_message(client) -> None:
    """Another site can send forms without asking, JSON it cannot."""
    good = {"example": EASY, "model": 0, "node": 0}
    wrong = [good | part for part in ({"node": "a"}, {"node": True}, {"node": 999}, {"model": 1.5})]
    answers = [client.post("/api/node", json=question) for question in wrong]
    form = {"content-type": "text/plain"}
    answers.append(client.post("/api/run", content=json.dumps({"example": EASY}), headers=form))
    for answer in answers:
        assert answer.status_code == 400
        assert answer.json()["error"]


HOSTS = """evil.example evil.example:8765 127.0.0.1.evil.example [::1].evil.example
[::1]evil.example:8765 [::1]:evil.example [127.0.0.1.evil.example] 127.0.0.1:evil.example
127.0.0.1:8765:evil.example localhost:8765@evil.example evil.example/127.0.0.1"""


@pytest.mark.parametrize("host", ["", *HOSTS.split()])
def test_foreign_hosts_are_refused(client, host) -> None:
    for path in ("/", "/api/session"):
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
    twice = [("host", "evil.example"), ("host", "127.0.0.1:8765")]
    assert client.get("/", headers=twice).status_code == 403


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


def test_clients_that_go_away_or_are_slow(handmade_session, monkeypatch) -> None:
    """No error reaches the server, which would print it with its traceback."""
    app = create_app(handmade_session)
    assert asyncio.run(ask(app, [PART, {"type": "http.disconnect"}]))[0]["status"] == 400
    monkeypatch.setattr(serve, "BODY_SECONDS", 0.05)
    answer = asyncio.run(ask(app, [PART], wait=60))
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


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    answer = asyncio.ensure_future(reader.read())
    for byte in ASK * 20:
        if answer.done():
            break
        writer.write(bytes([byte]))
        await asyncio.sleep(0.05)
    return await answer


def written(*parts: bytes, pause: float = 0.8) -> Talk:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for number, part in enumerate(parts):
            await asyncio.sleep(pause * bool(number))
            writer.write(part)
        return await reader.read()  # until the server hangs up

    return slow


@pytest.mark.parametrize(
    ("to", "codes"),
    [
        (written(b""), [408]),
        (written(b"GE"), [408]),
        (written(ASK), [408]),
        (dripping, [408]),  # drops do not put off the end
        (written(ASK + b"\r\n" + ASK), [200, 408]),  # the second request of a connection
        # A body may take longer.
        (written(ASK + b"Content-Length: 2\r\nConnection: close\r\n\r\n", b"{}"), [200]),
    ],
    ids=["nothing", "a word", "no end", "drops", "second", "body"],
)
def test_slow_headers_are_given_up(to: Talk, codes: list[int], monkeypatch) -> None:
    monkeypatch.setattr(serve, "HEADER_SECONDS", 0.3)
    assert [int(code) for code in re.findall(rb"HTTP/1\.1 (\d+) ", talk(to))] == codes
