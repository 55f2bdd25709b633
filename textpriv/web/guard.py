"""What a local web server refuses before anything looks at a request, and how it says so.

It knows requests and nothing of what is asked; what they are answered with stands in ``web.server``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["Guard", "Refusal"]

_BODY_TIME = 10.0  # seconds for a request to arrive

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Refusal(Exception):
    """A request that is not answered: a status and a reason, which never quotes what was sent."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Guard:
    """Let through only what a page of this server may ask, and turn every failure into a short answer.

    *Host.* A name that someone else can point at this computer is refused (DNS rebinding): only loopback names pass, and for
    a server that others may reach also addresses written as numbers and this computer's name.

    *Origin.* A request that another site's page makes is refused (cross-site request forgery); so is one that a form could
    make, since a body must be declared as JSON.

    *Size and time.* A body is read up to a limit of bytes and of seconds, before anything looks at it.

    Parameters
    ----------
    inner : ASGI application
    largest : int
        Bytes of a request.
    remote : bool
        Whether others than this computer may ask.
    """

    def __init__(self, inner: Any, *, largest: int, remote: bool = False) -> None:
        self.inner = inner
        self.largest = largest
        self.names = {"localhost"} | ({socket.gethostname().lower()} if remote else set())
        self.remote = remote

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request, as ASGI asks for."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.inner(scope, receive, send)
            return
        started = False

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
            await send(message)

        try:
            self._check(scope)
            body = b""
            if scope["method"] == "POST":
                body = await asyncio.wait_for(self._read(receive), _BODY_TIME)
            await self.inner(scope, _replay(body, receive), sending)
        except Refusal as refusal:
            await self._answer(scope, receive, sending, refusal.status, str(refusal))
        except asyncio.TimeoutError:
            await self._answer(scope, receive, sending, 408, "the request took too long to arrive.")
        except Exception as error:
            # Neither message nor traceback: they might hold what was typed.
            print(f"playground: {type(error).__name__} in an answer", file=sys.stderr)
            if not started:
                await self._answer(scope, receive, sending, 500, "this could not be answered.")

    def _check(self, scope: _Scope) -> None:
        values: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts = values.get("host", [])
        if len(hosts) != 1 or not self._known(hosts[0]):
            raise Refusal(
                421, "this server answers to the address it was started with, and to no other name."
            )
        for origin in values.get("origin", []):
            if origin.lower() != f"http://{hosts[0].lower()}":
                raise Refusal(403, "requests from other sites are not answered.")
        # A link on another site may lead here, and then the page is all it gets.
        link = scope["method"] == "GET" and values.get("sec-fetch-mode") == ["navigate"]
        if values.get("sec-fetch-site", ["none"])[0] not in ("same-origin", "none") and not link:
            raise Refusal(403, "requests from other sites are not answered.")
        if scope["method"] == "POST":
            kind = values.get("content-type", [""])[0].split(";")[0].strip().lower()
            if kind != "application/json":
                raise Refusal(415, "send JSON, with Content-Type: application/json.")
            length = values.get("content-length", ["0"])[0]
            if not length.isascii() or not length.isdigit():
                raise Refusal(400, "Content-Length is no number.")
            if len(length) > 12 or int(length) > self.largest:
                raise Refusal(413, f"a request holds at most {self.largest:,} bytes.")

    def _known(self, host: str) -> bool:
        name = host.strip().lower()
        if name.startswith("["):
            name, _, port = name[1:].partition("]")
            port = port.removeprefix(":")
        else:
            name, _, port = name.partition(":")
        if port and not (port.isascii() and port.isdigit()):
            return False
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self.remote

    async def _read(self, receive: _Receive) -> bytes:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refusal(400, "the request ended early.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.largest:
                raise Refusal(413, f"a request holds at most {self.largest:,} bytes.")
            if not message.get("more_body", False):
                return b"".join(parts)

    async def _answer(
        self, scope: _Scope, receive: _Receive, send: _Send, status: int, reason: str
    ) -> None:
        from starlette.responses import JSONResponse

        await JSONResponse({"error": reason}, status)(scope, receive, send)


_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


def _replay(body: bytes, receive: _Receive) -> _Receive:
    given = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
