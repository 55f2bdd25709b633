"""Private retrieval between two processes: a small HTTP server of public records, and the client that asks it.

Here live the wire format, the limits and the refusals. What a query reveals is decided by ``pairwise.retrieval.subset``: the
server is trusted with nothing, since it sees random subsets only. It keeps no log of queries, and binds to the
loopback address unless told otherwise. There is no encryption and no authentication: put a proxy in front of it
before it faces a network.

The wire. ``GET /codebook`` returns the public codebook. ``POST /search`` with ``{"cells": [3, 17], "count": 8}``
returns the records nearest to each cell. Both answer with one table: two little-endian uint32 (rows m, columns d), m
int64 ids, m x d float32 values, row by row. A refusal is a JSON object with ``error``, and nothing of the request in
it.

=====  =======================================================================
code   meaning
=====  =======================================================================
200    a table
400    not JSON, not the two fields, not whole numbers, cells repeated
404    no such path
405    another method
408    the request did not arrive in time
411    no length, or a length that is no number
413    the body, or the answer, would be larger than the limit
422    a cell outside the codebook, or no cell at all
431    headers too large
503    too many connections at once
=====  =======================================================================
"""

from __future__ import annotations

import http.client
import json
import math
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.errors import InvalidParameterError, ServiceError

if TYPE_CHECKING:
    from pairwise.retrieval.subset import SubsetQuery

__all__ = [
    "Catalogue",
    "Refusal",
    "RetrievalClient",
    "RetrievalServer",
    "pack_table",
    "unpack_table",
]

_HEAD = struct.Struct("<II")
_REASONS = {
    400: "the body must be a JSON object with the fields cells (different whole numbers) and count (at least 1)",
    404: "no such path; there are GET /codebook and POST /search",
    405: "this method is not served; there are GET /codebook and POST /search",
    408: "the request did not arrive in time",
    411: "a Content-Length is needed",
    413: "the request or its answer would be larger than this server's limit",
    414: "the request line is too long",
    422: "cells must hold at least one cell of the codebook and none outside it",
    431: "the headers are too large",
    503: "too many connections; try again later",
    505: "HTTP/1.0 and HTTP/1.1 are served",
}


class Refusal(Exception):
    """A request that the server does not answer, with its HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(_REASONS[status])
        self.status = status


def pack_table(ids: NDArray[np.int64], values: NDArray[np.float32]) -> bytes:
    """Return a table as bytes: rows, columns, ids, values."""
    return b"".join(
        (
            _HEAD.pack(len(ids), values.shape[1]),
            np.ascontiguousarray(ids, dtype="<i8").tobytes(),
            np.ascontiguousarray(values, dtype="<f4").tobytes(),
        )
    )


def unpack_table(content: bytes) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
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
    """The server's records and its public codebook, with the search between them by hnswlib.

    Parameters
    ----------
    records : (n, d) array-like
        What is searched. The answers hold the values themselves, so that the client can rank them.
    codebook : (C, d) array-like
        Public.
    ids : (n,) int array-like, optional
        Names of the records; default 0..n-1.
    """

    def __init__(
        self, records: ArrayLike, codebook: ArrayLike, ids: ArrayLike | None = None
    ) -> None:
        try:
            import hnswlib
        except ModuleNotFoundError:
            raise ServiceError(
                "the server's search needs hnswlib, which is not installed: pip install 'textpriv[hnsw]' (a C++ compiler "
                "builds it). Clients do without it."
            ) from None

        self.records = np.ascontiguousarray(records, dtype=np.float32)
        self.codebook = np.ascontiguousarray(codebook, dtype=np.float32)
        if self.records.ndim != 2 or len(self.records) == 0:
            raise InvalidParameterError(
                f"records must be a table of at least one row; found shape {self.records.shape}."
            )
        if self.codebook.ndim != 2 or self.codebook.shape[1:] != self.records.shape[1:]:
            raise InvalidParameterError(
                "codebook must have as many columns as the records; found shapes "
                f"{self.codebook.shape} and {self.records.shape}."
            )
        if not (np.isfinite(self.records).all() and np.isfinite(self.codebook).all()):
            raise InvalidParameterError(
                "records and codebook must be finite; found NaN or infinity."
            )
        n, d = self.records.shape
        self.ids = np.arange(n) if ids is None else np.asarray(ids, dtype=np.int64)
        if self.ids.shape != (n,):
            raise InvalidParameterError(
                f"ids must name each of the {n} records; found {self.ids.shape}."
            )
        self._index = hnswlib.Index(space="l2", dim=d)
        self._index.init_index(max_elements=n, M=16, ef_construction=200, random_seed=0)
        self._index.add_items(self.records, np.arange(n), num_threads=1)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.records)

    def search(self, cells: ArrayLike, count: int) -> NDArray[np.int64]:
        """Return the rows of the ``count`` records nearest to each cell, each row once, in increasing order.

        Parameters
        ----------
        cells : (m,) int array-like
        count : int
            Cut to n.
        """
        k = min(int(count), len(self.records))
        wanted = self.codebook[np.asarray(cells, dtype=np.int64)]
        with self._lock:  # ef belongs to the index, so two requests must not set it at once
            self._index.set_ef(max(64, 2 * k))
            rows, _ = self._index.knn_query(wanted, k=k, num_threads=1)
        return np.unique(rows.astype(np.int64))


class _Handler(BaseHTTPRequestHandler):
    # One request for each connection: nothing of one can be taken for the next.
    protocol_version = "HTTP/1.0"
    server_version = "pairwise"
    sys_version = ""
    # One segment for head and body: two would wait for the client's delayed acknowledgement, 40 ms.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: RetrievalServer

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.timeout_s)

    def do_GET(self) -> None:
        if self.path == "/codebook":
            codebook = self.server.catalogue.codebook
            self._send(
                200, "application/octet-stream", pack_table(np.arange(len(codebook)), codebook)
            )
        else:
            self._refuse(405 if self.path == "/search" else 404)

    def do_POST(self) -> None:
        try:
            if self.path != "/search":
                raise Refusal(405 if self.path == "/codebook" else 404)
            answer = self.server.answer(self._body())
        except Refusal as refusal:
            self._refuse(refusal.status)
        except TimeoutError:
            self._refuse(408)
        else:
            self._send(200, "application/octet-stream", answer)

    def _body(self) -> bytes:
        stated = self.headers.get("Content-Length", "")
        if not (stated.isascii() and stated.isdigit()):
            raise Refusal(411)
        # Compared as text first: a number of a million digits is not worth reading.
        if len(stated) > 12 or int(stated) > self.server.max_request_bytes:
            raise Refusal(413)
        content = self.rfile.read(int(stated))
        if len(content) != int(stated):
            raise Refusal(400)
        return content

    def _refuse(self, status: int) -> None:
        reason = _REASONS.get(status, "the request was not understood")
        self._send(status, "application/json", json.dumps({"error": reason}).encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse without the page of the base class, which repeats parts of the request."""
        del message, explain
        if not hasattr(self, "request_version") or not self.request_version:
            self.request_version = "HTTP/1.0"
        # The base class answers 501 to a method that it does not know.
        self._refuse(405 if code == 501 else int(code))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a query is nobody's business, also in a log."""


class RetrievalServer(ThreadingHTTPServer):
    """An HTTP server of one catalogue; the head of this module says what it answers and refuses.

    Parameters
    ----------
    catalogue : Catalogue
    host : str, default="127.0.0.1"
        Loopback. Anything else opens it to a network, without encryption.
    port : int, default=0
        0 takes a free one; ``address`` tells which.
    max_request_bytes : int, default=65536
    max_records : int, default=100_000
        Largest ``cells`` times ``count`` that is searched for.
    max_connections : int, default=32
        More are answered 503.
    timeout_s : float, default=10
        After so many silent seconds a connection is closed.

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

    def __init__(
        self,
        catalogue: Catalogue,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        max_request_bytes: int = 65536,
        max_records: int = 100_000,
        max_connections: int = 32,
        timeout_s: float = 10.0,
    ) -> None:
        if min(max_request_bytes, max_records, max_connections) < 1 or not 0 < timeout_s < math.inf:
            raise InvalidParameterError("every limit of the server must be positive and finite.")
        self.catalogue = catalogue
        self.max_request_bytes = int(max_request_bytes)
        self.max_records = int(max_records)
        self.timeout_s = float(timeout_s)
        self._slots = threading.BoundedSemaphore(int(max_connections))
        super().__init__((host, int(port)), _Handler)

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
        if len(cells) * min(count, len(self.catalogue)) > self.max_records:
            raise Refusal(413)
        rows = self.catalogue.search(cells, min(count, len(self.catalogue)))
        return pack_table(self.catalogue.ids[rows], self.catalogue.records[rows])

    # -- connections

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread of its own, up to a limit."""
        if not self._slots.acquire(blocking=False):
            try:
                content = json.dumps({"error": _REASONS[503]}).encode()
                head = f"HTTP/1.0 503 Service Unavailable\r\nContent-Length: {len(content)}\r\n\r\n"
                request.settimeout(1.0)
                request.sendall(head.encode() + content)
            except OSError:
                pass
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection, and free its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: the base class prints a traceback with the client's address."""


class RetrievalClient:
    """Ask a ``RetrievalServer`` for the neighbours of a private feature.

    The server sees a random subset of cells and the time; the feature, its cell and the ranking stay here.

    Parameters
    ----------
    query : SubsetQuery, optional
        The mechanism, over this server's codebook; needed by ``search``. Without it the client can still fetch the
        codebook, to make one.
    host, port
        Of the server.
    timeout_s : float, default=10
    max_response_bytes : int, default=64 MiB
        A longer answer is refused unread.

    Raises
    ------
    ServiceError
        By every method, for a refusal, silence or nonsense of the server.
    """

    def __init__(
        self,
        host: str,
        port: int,
        query: SubsetQuery | None = None,
        *,
        timeout_s: float = 10.0,
        max_response_bytes: int = 1 << 26,
    ) -> None:
        self.query = query
        self._address = (host, int(port))
        self._timeout = float(timeout_s)
        self._limit = int(max_response_bytes)

    def codebook(self) -> NDArray[np.float64]:
        """Return the server's codebook, shape (C, d)."""
        ids, values = unpack_table(self._ask("GET", "/codebook", None))
        if not np.array_equal(ids, np.arange(len(ids))):
            raise ServiceError("the server's codebook does not number its cells 0..C-1.")
        return values.astype(np.float64)

    def fetch(self, cells: ArrayLike, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return ids (m,) and values (m, d) of the records near some cells. Reveals these cells: see ``search``."""
        request = {"cells": [int(cell) for cell in np.asarray(cells)], "count": int(count)}
        return unpack_table(self._ask("POST", "/search", json.dumps(request).encode()))

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
        ids, values = self.fetch(self.query.ask(x), count)
        if len(ids) and values.shape[1] != self.query.codebook.shape[1]:
            raise ServiceError(
                "the server's records have another number of columns than the codebook."
            )
        best = self.query.rerank(x, values, k)
        return ids[best], values[best]

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        connection = http.client.HTTPConnection(*self._address, timeout=self._timeout)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read(self._limit + 1)
            status = response.status
        except (OSError, http.client.HTTPException) as error:
            raise ServiceError(
                f"the server at {self._address[0]}:{self._address[1]} did not answer ({type(error).__name__}). "
                "Check that it runs."
            ) from None
        finally:
            connection.close()
        if len(content) > self._limit:
            raise ServiceError(
                f"the server's answer is longer than {self._limit} bytes. Ask for fewer records, "
                "or raise max_response_bytes."
            )
        if status != 200:
            reason = _REASONS.get(status, "no reason given")
            raise ServiceError(f"the server refused the request with status {status}: {reason}.")
        return content
