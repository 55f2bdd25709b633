"""The web server of the playground: its page, its requests, and what it refuses before anything looks at a request."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from textpriv.errors import TextprivError
from textpriv.index.index import Index
from textpriv.web.pages import SAMPLE, asset, content_policy, fill
from textpriv.web.playground import LONGEST, Playground, Settings

_HOST = "127.0.0.1"
_LARGEST = 8 * LONGEST  # bytes of a request: a character may be escaped
_BODY_TIME = 10.0  # seconds for a request to arrive
_CONNECTIONS = 32
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def application(playground: Playground) -> Starlette:
    """Return the page and its two requests, as an ASGI application that refuses all else.

    *Host.* A name that someone else can point at this computer is refused (DNS rebinding): only its own names pass.

    *Origin.* A request that another site's page makes is refused (cross-site request forgery); so is one that a form could
    make, since a body must be declared as JSON.

    *Size and time.* A body is read up to a limit of bytes and of seconds, before anything looks at it.
    """
    script = asset("playground.js")
    policy = content_policy(script, connect="'self'") + "; frame-ancestors 'none'"
    content = {"script": script, "playground": playground, "longest": LONGEST, "sample": SAMPLE}
    page = fill("playground.html", **content)
    shown = HTMLResponse(page, headers={"content-security-policy": policy})
    privatize = partial(_answer, "text", playground.privatize)
    explain = partial(_answer, "word", playground.explain)
    made = Starlette(
        routes=[
            Route("/", shown, methods=["GET"]),
            Route("/api/privatize", privatize, methods=["POST"]),
            Route("/api/word", explain, methods=["POST"]),
        ],
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=_guarded),
            Middleware(TrustedHostMiddleware, allowed_hosts=[_HOST, "localhost"]),
        ],
        exception_handlers={HTTPException: _refused},
    )
    made.router.redirect_slashes = False
    return made


async def _guarded(request: Request, proceed: RequestResponseEndpoint) -> Response:
    """Refuse what another site may have sent; give every answer the headers above, and no text to a failure."""
    try:
        _check(request)
        response = await proceed(request)
    except HTTPException as refusal:
        response = _refused(request, refusal)
    except Exception as error:
        # Neither message nor traceback: they might hold what was typed.
        print(f"playground: {type(error).__name__} in an answer", file=sys.stderr)
        response = JSONResponse({"error": "this could not be answered."}, 500)
    response.headers.update(_HEADERS)
    return response


def _refused(_: Request, refusal: Any) -> Response:
    return JSONResponse({"error": refusal.detail}, refusal.status_code)


def _check(request: Request) -> None:
    headers = request.headers
    foreign = {*headers.getlist("origin")} - {f"http://{headers.get('host')}"}
    site = headers.get("sec-fetch-site", "none")
    # A link on another site may lead here, and then the page is all it gets.
    link = request.method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    if foreign or (site not in ("same-origin", "none") and not link):
        raise HTTPException(403, "requests from other sites are not answered.")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and kind != "application/json":
        raise HTTPException(415, "send JSON, with Content-Type: application/json.")


async def _answer(
    field: str, work: Callable[[str, Settings], dict[str, Any]], request: Request
) -> Response:
    """Answer a JSON object by its text in a field; it is read up to the largest size and time."""
    body = b""
    try:
        with anyio.fail_after(_BODY_TIME):
            async for part in request.stream():
                body += part
                if len(body) > _LARGEST:
                    raise HTTPException(413, f"a request holds at most {_LARGEST:,} bytes.")
        given = json.loads(body)
    except TimeoutError:
        raise HTTPException(408, "the request took too long to arrive.") from None
    except ClientDisconnect:
        raise HTTPException(400, "the request ended early.") from None
    except (ValueError, RecursionError):
        raise HTTPException(400, "the request is not JSON in UTF-8.") from None
    if not isinstance(given, dict) or not isinstance(given.get(field), str):
        raise HTTPException(422, f"send a JSON object with a text as {field}.")
    if len(given[field]) > LONGEST:
        raise HTTPException(413, f"a text holds at most {LONGEST:,} characters here.")
    return JSONResponse(await run_in_threadpool(work, given[field], Settings.read(given)))


def bind(port: int) -> socket.socket:
    """Open the socket to listen on, which only this computer can reach; a TextprivError for a port that is taken."""
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        raise TextprivError(
            f"Cannot listen on port {port}: {error.strerror}. Choose another --port, or 0 for any."
        ) from None


def configuration(playground: Playground) -> uvicorn.Config:
    """How uvicorn serves the application: nothing is logged, and what is not needed is off."""
    return uvicorn.Config(
        application(playground),
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
    """Serve the playground until interrupted. It begins with an epsilon; port 0 takes any that is free."""
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
