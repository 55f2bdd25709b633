"""The web server of the playground: its page, its requests, and the address it listens on."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from textpriv.errors import TextprivError, how_to_install
from textpriv.index.index import Index
from textpriv.web.guard import Guard, Refusal
from textpriv.web.pages import SAMPLE, asset, content_policy, fill
from textpriv.web.playground import AGAIN, LONGEST, Playground, Settings

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["application", "bind", "serve"]

_LARGEST = 8 * LONGEST  # bytes of a request: a character may be escaped
_CONNECTIONS = 32


def application(playground: Playground, *, remote: bool = False) -> Guard:
    """Return the web application.

    Parameters
    ----------
    playground : Playground
    remote : bool
        Whether others than this computer may ask: their Host headers are then let through, too.
    """
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import HTMLResponse, JSONResponse
    from starlette.routing import Route

    page, policy = _page(playground)

    async def home(request: Request) -> Response:
        return HTMLResponse(page, headers={"content-security-policy": policy})

    def answering(
        work: Callable[[str, Settings], dict[str, Any]], field: str
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            given = _parse(await request.body(), field)
            answer = await asyncio.to_thread(work, given[field], Settings.read(given))
            return JSONResponse(answer)

        return endpoint

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        reasons = {404: "there is no such page.", 405: "this address does not take that method."}
        return JSONResponse(
            {"error": reasons.get(error.status_code, "this could not be answered.")},
            error.status_code,
            headers=dict(error.headers or {}),
        )

    inner: Starlette = Starlette(
        routes=[
            Route("/", home, methods=["GET"]),
            Route("/api/privatize", answering(playground.privatize, "text"), methods=["POST"]),
            Route("/api/word", answering(playground.explain, "word"), methods=["POST"]),
        ],
        exception_handlers={HTTPException: refused, Refusal: _refuse},
    )
    return Guard(inner, largest=_LARGEST, remote=remote)


def _page(playground: Playground) -> tuple[str, str]:
    """Return the page and the policy that forbids it to load anything else."""
    script = asset("playground.js")
    policy = content_policy(script, connect="'self'") + "; frame-ancestors 'none'"
    page = fill(
        "playground.html",
        script=script,
        index=playground.index,
        mechanisms=playground.mechanisms,
        longest=LONGEST,
        again=AGAIN,
        sample=SAMPLE,
        epsilon=playground.epsilon,
        lowest=playground.epsilon / 16,
        highest=playground.epsilon * 64,
    )
    return page, policy


async def _refuse(request: Request, error: Exception) -> Response:
    from starlette.responses import JSONResponse

    assert isinstance(error, Refusal)
    return JSONResponse({"error": str(error)}, error.status)


_FIELDS = {"text", "word", "epsilon", "mechanism"}


def _parse(body: bytes, field: str) -> dict[str, Any]:
    """Read a request's JSON object, and check the one text in it."""
    try:
        given = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Refusal(400, "the request is not JSON in UTF-8.") from None
    if not isinstance(given, dict):
        raise Refusal(422, "the request must be a JSON object.")
    if set(given) - _FIELDS:
        raise Refusal(422, f"unknown field; known are: {', '.join(sorted(_FIELDS))}.")
    text = given.get(field)
    if not isinstance(text, str):
        raise Refusal(422, f"{field} is missing or no text.")
    if len(text) > LONGEST:
        raise Refusal(413, f"a text holds at most {LONGEST:,} characters here.")
    return given


def bind(host: str, port: int, *, allow_remote: bool = False) -> socket.socket:
    """Open the socket to listen on.

    Raises
    ------
    TextprivError
        For an address that others can reach, unless that is allowed, and for one that is taken.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise TextprivError(
            f"{host!r} is not an address of this computer. Use 127.0.0.1, the default."
        ) from None
    family, kind, protocol, _, address = addresses[0]
    if not allow_remote and not ipaddress.ip_address(str(address[0])).is_loopback:
        raise TextprivError(
            f"Other computers can reach {host}, and typed text would travel unencrypted. Use 127.0.0.1, or pass "
            "--allow-remote."
        )
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise TextprivError(
            f"Cannot listen on {host} port {port}: {error.strerror or error}. Choose another --port, or 0 for any."
        ) from None
    return listening


def configuration(playground: Playground, *, remote: bool) -> Any:
    """How uvicorn serves the application: nothing is logged, and what is not needed is off."""
    import uvicorn

    return uvicorn.Config(
        application(playground, remote=remote),
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


def serve(
    index: Index,
    *,
    epsilon: float | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    allow_remote: bool = False,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the playground until interrupted.

    Parameters
    ----------
    index : Index
    epsilon : float, optional
        With which the page begins.
    host : str
    port : int
        0 takes any that is free.
    allow_remote : bool
        Let other computers in. There is no password, and no encryption.
    on_ready : callable, optional
        Called with the address of the page.

    Raises
    ------
    TextprivError
        If the web packages are missing, or the address is taken.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError:
        raise TextprivError(
            f"The playground needs Starlette and uvicorn. Run: {how_to_install('playground')}"
        ) from None
    with bind(host, port, allow_remote=allow_remote) as listening:
        playground = Playground(index, epsilon)
        config = configuration(playground, remote=allow_remote)
        name, number = listening.getsockname()[:2]
        shown = f"[{name}]" if ":" in name else name
        if on_ready is not None:
            on_ready(f"http://{shown}:{number}/")
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            pass  # the way to end it
        finally:
            playground.close()
