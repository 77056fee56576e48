"""The explorer's server: static files and four questions. Loopback by default, no network needed.

A page on another site must not reach it: the Host header has to name this server (Starlette's
TrustedHostMiddleware; a foreign name that was pointed at 127.0.0.1 is refused), and so has the
Origin header if there is one.
"""

import asyncio
import ipaddress
import json
import socket
import threading
import webbrowser
from collections.abc import Callable
from typing import Any, TypeVar

from graph_machine.errors import ConfigError, GraphMachineError, MissingExtraError
from graph_machine.lab.explorer.export import STATIC
from graph_machine.lab.explorer.session import Session

try:
    import h11
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import FileResponse, JSONResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingExtraError(error.name or "starlette", "explorer", "The explorer") from None

MAX_BODY = 64 * 1024
BODY_SECONDS = 10.0  # a page on the same machine has sent its question at once
HEADER_SECONDS = 10.0  # likewise
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
Kind = TypeVar("Kind", str, int)


class BadRequest(Exception):
    """A question that cannot be answered; the text is for the reader of the page."""


def is_address(host: str) -> bool:
    """Whether a host, perhaps with a port, is an address and not a name."""
    bare = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def allowed_hosts(bound: str) -> list[str]:
    """Names under which a server bound to `bound` answers.

    A server that is reachable from outside answers under any address, which `refusal` checks:
    rebinding needs a name.
    """
    return [*LOOPBACK, f"[{bound}]" if ":" in bound else bound] if is_loopback(bound) else ["*"]


def refusal(bound: str, method: str, headers: Headers) -> str | None:
    """Why a request is refused, or None: what TrustedHostMiddleware does not look at."""
    if any(len(headers.getlist(name)) > 1 for name in ("host", "origin")):
        return "A request names its host and its origin once."
    host = headers.get("host", "")
    name = host.rpartition(":")[0] or host
    if not is_address(host) and name.lower() not in ("localhost", bound.lower()):
        return f"This server does not answer for the host '{host}'."
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return "Requests from other sites are refused."
    # A link from elsewhere to the page itself is fine, anything fetched by another site is not.
    is_link = headers.get("sec-fetch-mode") == "navigate" and method == "GET"
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link:
        return "Requests from other sites are refused."
    return None


class Guard:
    """ASGI middleware: refuses foreign origins, adds the headers of a closed page."""

    def __init__(self, app: ASGIApp, bound: str) -> None:
        self.app = app
        self.bound = bound

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_closed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        reason = refusal(self.bound, scope["method"], Headers(scope=scope))
        answer = self.app if reason is None else JSONResponse({"error": reason}, status_code=403)
        await answer(scope, receive, send_closed)


async def read_question(request: Request) -> dict[str, Any]:
    """The JSON object of a request, or one line about what is wrong with it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":
        raise BadRequest(f"The question should be application/json, got '{kind}'.")
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    raise BadRequest(f"The question is longer than {MAX_BODY} bytes.")
    except TimeoutError:
        raise BadRequest(f"The question took longer than {BODY_SECONDS:g} s to arrive.") from None
    except ClientDisconnect:
        raise BadRequest("The question broke off.") from None
    try:
        question = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("The question is not valid JSON.") from None
    if not isinstance(question, dict):
        raise BadRequest("The question should be a JSON object.")
    return question


def entry(question: dict[str, Any], name: str, kind: type[Kind]) -> Kind:
    """A field of a question, checked."""
    value = question.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = "a text" if kind is str else "a whole number"
        raise BadRequest(f"'{name}' should be {wanted}.")
    return value


def create_app(session: Session, bound: str = "127.0.0.1") -> Starlette:
    """The application; `bound` is the host that it is served on.

    >>> from graph_machine.lab.explorer.session import open_session
    >>> [route.path for route in create_app(open_session(["gm-4x4"])).routes][:2]
    ['/', '/static']
    """

    async def complain(request: Request, error: Exception) -> Response:
        # What was typed may hold characters that have no place in UTF-8.
        text = str(error).encode("utf-8", "replace").decode()
        # A question that was not read to its end leaves bytes on the way that answer nothing.
        return JSONResponse({"error": text}, status_code=400, headers={"Connection": "close"})

    def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    def describe(request: Request) -> Response:
        return JSONResponse(session.describe())

    def draw(request: Request) -> Response:
        return JSONResponse(session.draw())

    async def run(request: Request) -> Response:
        question = await read_question(request)
        return Response(await run_in_threadpool(session.run_pack, entry(question, "example", str)))

    async def node(request: Request) -> Response:
        question = await read_question(request)
        model, number = (entry(question, name, int) for name in ("model", "node"))
        example = entry(question, "example", str)
        return Response(await run_in_threadpool(session.nodes_pack, example, model, [number]))

    return Starlette(
        routes=[
            Route("/", page),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/api/session", describe),
            Route("/api/draw", draw),
            Route("/api/run", run, methods=["POST"]),
            Route("/api/node", node, methods=["POST"]),
        ],
        middleware=[
            Middleware(Guard, bound=bound),
            Middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts(bound)),
        ],
        exception_handlers={BadRequest: complain, GraphMachineError: complain},
    )


class PromptProtocol(H11Protocol):
    """HTTP with a time limit on request headers, which uvicorn has for idle connections only.

    A client that has not sent its whole headers in HEADER_SECONDS is cut off. The time runs from
    the connection, or from the first byte of a further request on it. Bodies have a limit of their
    own (`read_question`), the time between two requests has uvicorn's.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.trailing_data[0]:  # the beginning of the next request came with this one
            self._watch()

    def _watch(self) -> None:
        """Start the clock while headers are awaited, stop it when they have come."""
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            head = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(head)
            self.transport.close()


def bind(host: str, port: int) -> socket.socket:
    """The listening socket; a port in use or a host that is not ours is a one-line error."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port should be 0 to 65535, got {port}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]
        raise ConfigError(
            f"Cannot listen on {host} port {port} ({reason}); choose another with --host or --port."
        ) from None


def serve(
    session: Session,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    open_page: bool = True,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve a session on `host`:`port` until interrupted; port 0 takes a free one."""
    app = create_app(session, host)
    with bind(host, port) as listening:
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        shown = f"[{shown}]" if ":" in shown else shown
        url = f"http://{shown}:{listening.getsockname()[1]}/"
        announce(f"Explorer: {url} (end with Ctrl-C)")
        if not is_loopback(host):
            announce(f"Everyone who can reach {host} can use it.")
        if open_page:
            threading.Timer(0.5, webbrowser.open, [url]).start()
        config = uvicorn.Config(
            app, log_level="warning", lifespan="off", http=PromptProtocol, ws="none"
        )
        uvicorn.Server(config).run(sockets=[listening])
