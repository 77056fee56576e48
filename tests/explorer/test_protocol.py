"""Clients that are slow with their headers, on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from graph_machine.explorer import protocol
from graph_machine.explorer.protocol import PromptProtocol

ASK = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers when the whole body has come."""
    while (await receive()).get("more_body"):
        pass
    head = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    await send(head)
    await send({"type": "http.response.body", "body": b"ok"})


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


def talk(to: Talk) -> bytes:
    async def main() -> bytes:
        config = uvicorn.Config(app, lifespan="off", http=PromptProtocol, ws="none")
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


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.3)


@pytest.mark.parametrize("begun", [b"", b"GE", ASK], ids=["nothing", "a word", "no end"])
def test_slow_headers_are_given_up(begun: bytes) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(begun)
        return await reader.read()  # until the server hangs up

    assert talk(slow).startswith(b"HTTP/1.1 408 ")


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


def test_the_second_request_of_a_connection() -> None:
    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(ASK + b"\r\n" + ASK)
        return await reader.read()

    answer = talk(twice)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in answer


def test_a_body_may_take_longer() -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(ASK + b"Content-Length: 2\r\nConnection: close\r\n\r\n")
        await asyncio.sleep(0.8)
        writer.write(b"{}")
        return await reader.read()

    assert talk(late).startswith(b"HTTP/1.1 200 ")
