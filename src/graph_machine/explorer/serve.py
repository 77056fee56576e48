"""The explorer's server: static files and four questions. Loopback by default, no network needed.

A page on another site must not be able to ask: the Host header has to name this server (a foreign
name that was pointed at 127.0.0.1 is refused), and so has the Origin header where there is one.
"""

import asyncio
import ipaddress
import json
import re
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph_machine.errors import ConfigError, GraphMachineError, MissingExtraError
from graph_machine.explorer.session import Session

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

STATIC = Path(__file__).parent / "static"
MAX_BODY = 64 * 1024
BODY_SECONDS = 10.0  # a page on the same machine has sent its question at once
# The whole header: a name or an address in brackets, and perhaps a port.
HOST = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z_.-]+))(?::(?P<port>[0-9]{1,5}))?"
)
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
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


class BadRequest(Exception):
    """What was asked cannot be answered; the text is for the reader of the page."""


def host_name(header: str) -> str | None:
    """`[::1]:8765` -> `::1`, `localhost:8765` -> `localhost`; None for what is no host and port."""
    match = HOST.fullmatch(header)
    if match is None or not 0 < int(match["port"] or 80) <= 65535:
        return None
    if match["six"] is not None and not is_address(match["six"]):
        return None
    return (match["six"] or match["name"]).lower()


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def allows(bound: str, header: str | None) -> bool:
    """Whether a Host header may be answered by a server bound to `bound`.

    Loopback names always; the bound name itself; and plain addresses where the user chose to be
    reachable from outside. Rebinding needs a name, so names are never taken on trust.
    """
    if not header:
        return False
    name = host_name(header)
    if name is None:
        return False
    if is_loopback(name) or name == bound.lower():
        return True
    return is_address(name) and not is_loopback(bound)


def refusal(bound: str, method: str, headers: dict[str, str]) -> str | None:
    """Why a request is refused, or None."""
    host = headers.get("host")
    if not allows(bound, host):
        return f"This server does not answer for the host '{host or ''}'."
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return "Requests from other sites are refused."
    site = headers.get("sec-fetch-site")
    # A link from elsewhere to the page itself is fine, anything fetched by another site is not.
    is_link = headers.get("sec-fetch-mode") == "navigate" and method == "GET"
    if site in ("cross-site", "same-site") and not is_link:
        return "Requests from other sites are refused."
    return None


class Guard:
    """ASGI middleware: refuses foreign hosts and origins, adds the headers of a closed page."""

    def __init__(self, app: Any, bound: str) -> None:
        self.app = app
        self.bound = bound

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        pairs = [
            (key.decode("latin-1"), value.decode("latin-1")) for key, value in scope["headers"]
        ]
        names = [key for key, _ in pairs if key in ("host", "origin")]
        if len(names) > len(set(names)):
            reason: str | None = "A request names its host and its origin once."
        else:
            reason = refusal(self.bound, scope["method"], dict(pairs))

        async def send_closed(message: Any) -> None:
            if message["type"] == "http.response.start":
                extra = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        if reason is None:
            await self.app(scope, receive, send_closed)
            return
        body = json.dumps({"error": reason}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send_closed({"type": "http.response.start", "status": 403, "headers": headers})
        await send_closed({"type": "http.response.body", "body": body})


async def read_question(request: "Request") -> dict[str, Any]:
    """The JSON object of a request, or one clear line about what is wrong with it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":
        raise BadRequest(f"The question should be application/json, got '{kind}'.")
    from starlette.requests import ClientDisconnect

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


def entry(question: dict[str, Any], name: str, kind: type) -> Any:
    """A field of a question, checked."""
    value = question.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = "a text" if kind is str else "a whole number"
        raise BadRequest(f"'{name}' should be {wanted}.")
    return value


def create_app(session: Session, bound: str = "127.0.0.1") -> "FastAPI":
    """The FastAPI application; `bound` is the host that it is served on.

    >>> from graph_machine.explorer.session import open_session
    >>> create_app(open_session(["gm-4x4"])).title
    'Graph Machine explorer'
    """
    try:
        from fastapi import FastAPI, Request, Response
        from fastapi.concurrency import run_in_threadpool
        from fastapi.responses import JSONResponse
    except ImportError:
        raise MissingExtraError("fastapi", "explorer", "The explorer") from None

    # No /docs page: it would load its scripts from elsewhere.
    app = FastAPI(title="Graph Machine explorer", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, bound=bound)

    files = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES}

    async def complain(request: Request, error: Exception) -> Response:
        # What was typed may hold characters that have no place in UTF-8.
        text = str(error).encode("utf-8", "replace").decode()
        # A question that was not read to its end leaves bytes on the way that answer nothing.
        return JSONResponse({"error": text}, status_code=400, headers={"Connection": "close"})

    app.add_exception_handler(BadRequest, complain)
    app.add_exception_handler(GraphMachineError, complain)

    async def binary(answer: Callable[..., bytes], *given: Any) -> Response:
        data = await run_in_threadpool(answer, *given)
        return Response(data, media_type="application/octet-stream")

    @app.get("/")
    def page() -> Response:
        return static("index.html")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        # A look into a list of names, not into the file system: any other text is just not in it.
        path = files.get(name)
        if path is None:
            return JSONResponse({"error": "There is no such file."}, status_code=404)
        return Response(path.read_bytes(), media_type=TYPES[path.suffix])

    @app.get("/api/session")
    def describe() -> Response:
        return JSONResponse(session.describe())

    @app.get("/api/draw")
    def draw() -> Response:
        return JSONResponse(session.draw())

    @app.post("/api/run")
    async def run(request: Request) -> Response:
        question = await read_question(request)
        return await binary(session.run_pack, entry(question, "puzzle", str))

    @app.post("/api/cell")
    async def cell(request: Request) -> Response:
        question = await read_question(request)
        numbers = [entry(question, name, int) for name in ("model", "cell")]
        return await binary(session.cell_pack, entry(question, "puzzle", str), *numbers)

    return app


def bind(host: str, port: int) -> socket.socket:
    """The listening socket; a port in use or a host that is not ours is one clear error."""
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
    try:
        import uvicorn
    except ImportError:
        raise MissingExtraError("uvicorn", "explorer", "The explorer") from None
    from graph_machine.explorer.protocol import PromptProtocol

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
