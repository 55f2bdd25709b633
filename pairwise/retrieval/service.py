"""Private retrieval between two processes: a small HTTP server of public records, and the client that asks it.

The server is trusted with nothing, since it sees random subsets only. It keeps no log of queries and binds to the
loopback address unless told otherwise. It has no encryption and no authentication: put a proxy in front of it before it
faces a network.

``GET /codebook`` returns the public codebook. ``POST /search`` with ``{"cells": [3, 17], "count": 8}`` returns the
records nearest to each cell. Both answer with one table: two little-endian uint32 (rows m, columns d), m int64 ids, m x
d float32 values, row by row. A refusal is a JSON object with ``error``, and nothing of the request in it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.errors import InvalidParameterError, ServiceError, check_whole
from pairwise.retrieval.subset import nearest

if TYPE_CHECKING:
    from pairwise.retrieval.subset import SubsetQuery

_HEAD = struct.Struct("<II")
_LARGEST_REQUEST, _LARGEST_ANSWER, _TIMEOUT = 1 << 16, 1 << 26, 10.0
# Of a server: bytes of the answer to one search, requests at a time, and seconds from the first byte to the last.
_LARGEST_TABLE, _CLIENTS, _DEADLINE = 1 << 22, 16, 30.0
_REASONS = {
    400: "the body must be a JSON object with the fields cells (different whole numbers) and count (at least 1)",
    404: "no such path; there are GET /codebook and POST /search",
    405: "this method is not served; there are GET /codebook and POST /search",
    408: "the request did not arrive in time",
    411: "a Content-Length is needed",
    413: "the request or its answer is larger than this server's limit; ask for fewer cells or records",
    422: "cells must hold at least one cell of the codebook and none outside it",
}


class Refusal(Exception):
    """A request that the server does not answer, with its HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(_REASONS[status])
        self.status = status


def _pack(ids: NDArray[np.int64], values: NDArray[np.float32]) -> bytes:
    """Return a table as bytes: rows, columns, ids, values."""
    head = _HEAD.pack(len(ids), values.shape[1])
    return head + ids.astype("<i8").tobytes() + values.astype("<f4").tobytes()


def _unpack(content: bytes) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return ids, shape (m,), and values, shape (m, d), of a table; raises ServiceError for anything else."""
    if len(content) >= _HEAD.size:
        rows, columns = _HEAD.unpack_from(content)
        split = _HEAD.size + 8 * rows
        if len(content) == split + 4 * rows * columns:
            ids = np.frombuffer(content, dtype="<i8", count=rows, offset=_HEAD.size)
            values = np.frombuffer(content, dtype="<f4", offset=split).reshape(rows, columns)
            if np.isfinite(values).all():
                return ids.astype(np.int64), values.astype(np.float32)
    raise ServiceError(
        "the server's answer is not a table of finite numbers. Check its address and version."
    )


class Catalogue:
    """The server's records and its public codebook, with the records nearest to each cell.

    Parameters
    ----------
    records : (n, d) array-like
        What is searched. The answers hold the values themselves, so that the client can rank them.
    codebook : (C, d) array-like
        Public.
    ids : (n,) int array-like, optional
        Names of the records; default 0..n-1.
    most : int, default=256
        Records of each cell that may be asked for.
    """

    def __init__(
        self,
        records: ArrayLike,
        codebook: ArrayLike,
        ids: ArrayLike | None = None,
        most: int = 256,
    ) -> None:
        self.records = np.ascontiguousarray(records, dtype=np.float32)
        self.codebook = np.ascontiguousarray(codebook, dtype=np.float32)
        check_whole("most", most)
        tables = (self.records, self.codebook)
        if any(t.ndim != 2 or not len(t) or not np.isfinite(t).all() for t in tables):
            raise InvalidParameterError(
                "records and codebook must be tables of finite numbers with at least one row."
            )
        if self.codebook.shape[1] != self.records.shape[1]:
            raise InvalidParameterError("codebook must have as many columns as the records.")
        n = len(self.records)
        self.ids = np.arange(n) if ids is None else np.asarray(ids, dtype=np.int64)
        if self.ids.shape != (n,):
            raise InvalidParameterError(
                f"ids must name each of the {n} records; found {self.ids.shape}."
            )
        self._near = nearest(self.codebook, self.records, int(most))

    def search(self, cells: ArrayLike, count: int) -> NDArray[np.int64]:
        """Return the rows of the ``count`` records nearest to each cell, each row once, in increasing order."""
        return np.unique(self._near[np.asarray(cells, dtype=np.int64), : int(count)])


class _Handler(BaseHTTPRequestHandler):
    # One request for each connection: nothing of one can be taken for the next.
    protocol_version = "HTTP/1.0"
    server_version = "pairwise"
    sys_version = ""
    timeout = _TIMEOUT
    server: RetrievalServer

    def setup(self) -> None:
        super().setup()
        # The timeout is for one read or write: bytes that come one by one would hold the thread for ever.
        self._end = threading.Timer(_DEADLINE, self._cut)
        self._end.daemon = True
        self._end.start()

    def finish(self) -> None:
        self._end.cancel()
        super().finish()

    def _cut(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        codebook = self.server.catalogue.codebook
        self._serve("/codebook", lambda: _pack(np.arange(len(codebook)), codebook))

    def do_POST(self) -> None:
        self._serve("/search", lambda: self.server.answer(self._body()))

    def _serve(self, path: str, answer: Callable[[], bytes]) -> None:
        """Send the answer to a request for ``path``, or refuse one for another."""
        try:
            if self.path != path:
                raise Refusal(405 if self.path in ("/codebook", "/search") else 404)
            content = answer()
        except Refusal as refusal:
            self.send_error(refusal.status)
        except TimeoutError:
            self.send_error(408)
        else:
            self._send(200, "application/octet-stream", content)

    def _body(self) -> bytes:
        stated = self.headers.get("Content-Length", "")
        if not (stated.isascii() and stated.isdigit()):
            raise Refusal(411)
        # Compared as text first: a number of a million digits is not worth reading.
        if len(stated) > 12 or int(stated) > _LARGEST_REQUEST:
            raise Refusal(413)
        content = self.rfile.read(int(stated))
        if len(content) != int(stated):
            raise Refusal(400)
        return content

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse without the page of the base class, which repeats parts of the request."""
        if not getattr(self, "request_version", ""):
            self.request_version = "HTTP/1.0"
        # The base class answers 501 to a method that it does not know.
        code = 405 if code == 501 else int(code)
        reason = _REASONS.get(code, "the request was not understood")
        self._send(code, "application/json", json.dumps({"error": reason}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a query is nobody's business."""


class RetrievalServer(ThreadingHTTPServer):
    """An HTTP server of one catalogue.

    It serves 16 requests at a time, each for 30 seconds at most and with an answer of 4 MiB at most. What is more is refused
    or cut off.

    Parameters
    ----------
    catalogue : Catalogue
    host : str, default="127.0.0.1"
        Loopback. Anything else opens it to a network, without encryption.
    port : int, default=0
        0 takes a free one; ``address`` tells which.

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise.retrieval.service import Catalogue, RetrievalServer
    >>> with RetrievalServer(Catalogue(np.eye(4), np.eye(4))) as server:
    ...     server.address[0]
    '127.0.0.1'
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, catalogue: Catalogue, host: str = "127.0.0.1", port: int = 0) -> None:
        self.catalogue = catalogue
        self._free = threading.BoundedSemaphore(_CLIENTS)
        super().__init__((host, int(port)), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a request in a thread of its own, or close it where too many are served."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.socket.getsockname()[:2]
        return str(host), int(port)

    def answer(self, body: bytes) -> bytes:
        """Return the table for the body of a search, or raise ``Refusal``."""
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            raise Refusal(400) from None
        if not isinstance(request, dict) or set(request) != {"cells", "count"}:
            raise Refusal(400)
        cells, count = request["cells"], request["count"]
        # type() and not isinstance(): true and false are whole numbers to Python.
        if type(count) is not int or count < 1 or not isinstance(cells, list):
            raise Refusal(400)
        if any(type(cell) is not int for cell in cells) or len(set(cells)) != len(cells):
            raise Refusal(400)
        if not cells or min(cells) < 0 or max(cells) >= len(self.catalogue.codebook):
            raise Refusal(422)
        rows = self.catalogue.search(cells, min(count, len(self.catalogue.ids)))
        columns = self.catalogue.records.shape[1]
        if len(rows) * (8 + 4 * columns) > _LARGEST_TABLE:
            raise Refusal(413)
        return _pack(self.catalogue.ids[rows], self.catalogue.records[rows])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: the base class prints a traceback with the client's address."""


class RetrievalClient:
    """Ask a ``RetrievalServer`` for the neighbours of a private feature.

    The server sees a random subset of cells and the time; the feature, its cell and the ranking stay here. Every method
    raises ``ServiceError`` for a refusal, silence or nonsense of the server.

    Parameters
    ----------
    host, port
        Of the server.
    query : SubsetQuery, optional
        The mechanism, over this server's codebook; needed by ``search``. Without it the client can still fetch the
        codebook, to make one.
    """

    def __init__(self, host: str, port: int, query: SubsetQuery | None = None) -> None:
        self.query = query
        self._address = (host, int(port))

    def codebook(self) -> NDArray[np.float64]:
        """Return the server's codebook, shape (C, d)."""
        _, values = _unpack(self._ask("GET", "/codebook", None))
        return values.astype(np.float64)

    def search(
        self, x: ArrayLike, k: int, count: int = 8
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return ids (k,) and values (k, d) of the best records found for a private feature, nearest first.

        Parameters
        ----------
        x : (d,) array-like
            Never leaves this process.
        k : int
            Results wanted; fewer where the server returned fewer.
        count : int, default=8
            Records to fetch for each cell; public.

        Raises
        ------
        BudgetExceededError
            If the client's budget is used up; nothing is sent.
        """
        if self.query is None:
            raise InvalidParameterError("search needs a SubsetQuery; give one to RetrievalClient.")
        request = {"cells": [int(cell) for cell in self.query.ask(x)], "count": int(count)}
        ids, values = _unpack(self._ask("POST", "/search", json.dumps(request).encode()))
        if len(ids) and values.shape[1] != self.query.codebook.shape[1]:
            raise ServiceError(
                "the server's records have another number of columns than the codebook."
            )
        best = self.query.rerank(x, values, k)
        return ids[best], values[best]

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        connection = http.client.HTTPConnection(*self._address, timeout=_TIMEOUT)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content, status = response.read(_LARGEST_ANSWER + 1), response.status
        except (OSError, http.client.HTTPException) as error:
            problem = f"did not answer ({type(error).__name__}). Check that it runs."
        else:
            if status == 200 and len(content) <= _LARGEST_ANSWER:
                return content
            problem = f"refused the request with status {status}: {_REASONS.get(status, '')}."
        finally:
            connection.close()
        raise ServiceError(f"the server at {self._address[0]}:{self._address[1]} {problem}")
