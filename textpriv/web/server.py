"""The web server of the playground: its page, its requests, and what it refuses before anything looks at a request."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from textpriv.errors import TextprivError, needs
from textpriv.index.index import Index
from textpriv.web.pages import SAMPLE, asset, content_policy, fill
from textpriv.web.playground import AGAIN, LONGEST, BadRequest, Playground, Settings

_HOST = "127.0.0.1"
_LARGEST = 8 * LONGEST  # bytes of a request: a character may be escaped
_BODY_TIME = 10.0  # seconds for a request to arrive
_CONNECTIONS = 32
_FIELDS = {"text", "word", "epsilon", "mechanism"}
_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Application:
    """The page and its two requests, as an ASGI application that refuses all else.

    *Host.* A name that someone else can point at this computer is refused (DNS rebinding): only loopback names pass.

    *Origin.* A request that another site's page makes is refused (cross-site request forgery); so is one that a form could
    make, since a body must be declared as JSON.

    *Size and time.* A body is read up to a limit of bytes and of seconds, before anything looks at it.
    """

    def __init__(self, playground: Playground) -> None:
        self._answers = {
            "/api/privatize": ("text", playground.privatize),
            "/api/word": ("word", playground.explain),
        }
        script = asset("playground.js")
        policy = content_policy(script, connect="'self'") + "; frame-ancestors 'none'"
        self._policy = (b"content-security-policy", policy.encode())
        self._page = fill(
            "playground.html",
            script=script,
            playground=playground,
            longest=LONGEST,
            again=AGAIN,
            sample=SAMPLE,
        )

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request, as ASGI asks for."""
        status, headers, is_page = 200, list(_HEADERS), False
        try:
            _check(scope)
            if is_page := (scope["method"], scope["path"]) == ("GET", "/"):
                content = self._page
            else:
                content = json.dumps(await self._answer(scope, receive))
        except BadRequest as refusal:
            status, content = refusal.status, json.dumps({"error": str(refusal)})
        except Exception as error:
            # Neither message nor traceback: they might hold what was typed.
            print(f"playground: {type(error).__name__} in an answer", file=sys.stderr)
            status, content = 500, json.dumps({"error": "this could not be answered."})
        kind = b"text/html; charset=utf-8" if is_page else b"application/json"
        headers += [(b"content-type", kind), *([self._policy] if is_page else [])]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content.encode()})

    async def _answer(self, scope: _Scope, receive: _Receive) -> dict[str, Any]:
        if scope["path"] not in self._answers:
            raise BadRequest(404, "there is no such page.")
        if scope["method"] != "POST":
            raise BadRequest(405, "this address does not take that method.")
        try:
            body = await asyncio.wait_for(_read(receive), _BODY_TIME)
        except asyncio.TimeoutError:
            raise BadRequest(408, "the request took too long to arrive.") from None
        field, work = self._answers[scope["path"]]
        given = _parse(body, field)
        return await asyncio.to_thread(work, given[field], Settings.read(given))


def _check(scope: _Scope) -> None:
    values: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    hosts = values.get("host", [])
    if len(hosts) != 1 or not _is_loopback(hosts[0].strip().lower()):
        raise BadRequest(421, "this server answers to names of this computer alone.")
    for origin in values.get("origin", []):
        if origin.lower() != f"http://{hosts[0].lower()}":
            raise BadRequest(403, "requests from other sites are not answered.")
    # A link on another site may lead here, and then the page is all it gets.
    link = scope["method"] == "GET" and values.get("sec-fetch-mode") == ["navigate"]
    if values.get("sec-fetch-site", ["none"])[0] not in ("same-origin", "none") and not link:
        raise BadRequest(403, "requests from other sites are not answered.")
    if scope["method"] == "POST":
        kind = values.get("content-type", [""])[0].split(";")[0].strip().lower()
        if kind != "application/json":
            raise BadRequest(415, "send JSON, with Content-Type: application/json.")


def _is_loopback(host: str) -> bool:
    """Whether a Host header is a loopback name or address, with a port or without."""
    name, separator, port = host.rpartition(":")
    if not separator or host.endswith("]"):
        name, port = host, "0"
    if not (port.isascii() and port.isdigit()):
        return False
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


async def _read(receive: _Receive) -> bytes:
    """Read a body up to the largest size."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest(400, "the request ended early.")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > _LARGEST:
            raise BadRequest(413, f"a request holds at most {_LARGEST:,} bytes.")
        more = message.get("more_body", False)
    return b"".join(parts)


def _parse(body: bytes, field: str) -> dict[str, Any]:
    try:
        given = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise BadRequest(400, "the request is not JSON in UTF-8.") from None
    if not isinstance(given, dict) or set(given) - _FIELDS:
        raise BadRequest(422, f"send a JSON object with fields of: {', '.join(sorted(_FIELDS))}.")
    text = given.get(field)
    if not isinstance(text, str):
        raise BadRequest(422, f"{field} is missing or no text.")
    if len(text) > LONGEST:
        raise BadRequest(413, f"a text holds at most {LONGEST:,} characters here.")
    return given


def bind(port: int) -> socket.socket:
    """Open the socket to listen on, which only this computer can reach.

    Raises
    ------
    TextprivError
        For a port that is taken.
    """
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, port))
    except OSError as error:
        listening.close()
        raise TextprivError(
            f"Cannot listen on port {port}: {error.strerror}. Choose another --port, or 0 for any."
        ) from None
    return listening


def configuration(playground: Playground) -> Any:
    """How uvicorn serves the application: nothing is logged, and what is not needed is off."""
    return needs("uvicorn", "playground").Config(
        Application(playground),
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="critical",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=16 * 1024,
    )


def serve(index: Index, epsilon: float | None = None, port: int = 8765) -> None:
    """Serve the playground until interrupted.

    Parameters
    ----------
    index : Index
    epsilon : float, optional
        With which the page begins.
    port : int
        0 takes any that is free.

    Raises
    ------
    TextprivError
        If the web packages are missing, or the port is taken.
    """
    uvicorn = needs("uvicorn", "playground")
    with bind(port) as listening:
        playground = Playground(index, epsilon)
        print(
            f"Playground: http://{_HOST}:{listening.getsockname()[1]}/ (Ctrl-C ends it)", flush=True
        )
        try:
            uvicorn.Server(configuration(playground)).run(sockets=[listening])
        except KeyboardInterrupt:
            pass  # the way to end it
        finally:
            playground.close()
