"""The retrieval server and its client: what is answered, what is refused, and what is kept of a query (nothing)."""

from __future__ import annotations

import http.client
import json
import socket
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwise import PrivacyBudget, SubsetQuery
from pairwise.errors import BudgetExceededError, InvalidParameterError, ServiceError
from pairwise.retrieval.evaluation import nearest
from pairwise.retrieval.service import (
    Catalogue,
    Refusal,
    RetrievalClient,
    RetrievalServer,
    pack_table,
    unpack_table,
)

CELLS, COLUMNS = 12, 5
PATIENCE = 60  # seconds a test waits: its claim is not about time, and a busy machine is slow


@pytest.fixture(scope="module")
def catalogue():
    r = np.random.default_rng(0)
    return Catalogue(
        r.normal(size=(300, COLUMNS)), r.normal(size=(CELLS, COLUMNS)), ids=np.arange(300) + 1000
    )


def _serve(server):
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


@pytest.fixture(scope="module")
def server(catalogue):
    with RetrievalServer(
        catalogue, timeout_s=2.0, max_request_bytes=4096, max_records=400
    ) as server:
        _serve(server)
        yield server
        server.shutdown()


def _ask(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(*server.address, timeout=PATIENCE)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _raw(server, content, half_close=True):
    """Send bytes as they are; return what came back."""
    with socket.create_connection(server.address, timeout=PATIENCE) as connection:
        try:
            connection.sendall(content)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
        except OSError:  # the server may close while we still send
            return b""
        return b"".join(parts)


def _search(**content):
    return json.dumps(content).encode()


def _alive(server):
    status, body = _ask(server, "POST", "/search", _search(cells=[0], count=1))
    return status == 200 and len(unpack_table(body)[0]) == 1


# -- answers


def test_the_server_binds_to_loopback_unless_told_otherwise(catalogue):
    with RetrievalServer(catalogue) as server:
        assert server.address[0] == "127.0.0.1"


def test_the_codebook_comes_back_as_it_is(server, catalogue):
    received = RetrievalClient(*server.address).codebook()
    np.testing.assert_array_equal(received, catalogue.codebook.astype(np.float64))


def test_a_search_returns_the_records_nearest_to_each_cell(server, catalogue):
    ids, values = RetrievalClient(*server.address).fetch([2, 7], 6)
    rows = np.unique(nearest(catalogue.codebook[[2, 7]], catalogue.records, 6))
    assert list(ids) == list(catalogue.ids[rows])
    np.testing.assert_array_equal(values, catalogue.records[rows])


def test_a_client_that_asks_for_all_cells_finds_its_true_neighbours(server, catalogue):
    query = SubsetQuery(catalogue.codebook, epsilon=1.0, size=CELLS)
    x = catalogue.records[17] + 0.01
    ids, values = RetrievalClient(*server.address, query).search(x, k=1, count=30)
    assert ids[0] == catalogue.ids[17]
    assert values.shape == (1, COLUMNS)


def test_the_wire_carries_the_random_subset_and_nothing_of_the_feature(catalogue, monkeypatch):
    sent = []
    answer = RetrievalServer.answer

    def spy(self, body):
        sent.append(json.loads(body))
        return answer(self, body)

    monkeypatch.setattr(RetrievalServer, "answer", spy)
    with RetrievalServer(catalogue) as server:
        _serve(server)
        query = SubsetQuery(catalogue.codebook, epsilon=2.0, size=3)
        RetrievalClient(*server.address, query).search(np.zeros(COLUMNS), k=2, count=4)
        server.shutdown()
    assert list(sent[0]) == ["cells", "count"]
    assert len(sent[0]["cells"]) == 3


def test_a_spent_budget_stops_the_client_before_anything_is_sent(catalogue):
    with PrivacyBudget(1.0, 0.0, unit="all queries of one client") as budget:
        query = SubsetQuery(catalogue.codebook, epsilon=1.0, budget=budget)
        # Nobody listens at this address: a request would be a ServiceError.
        client = RetrievalClient("127.0.0.1", 9, query)
        with pytest.raises(ServiceError):
            client.search(np.zeros(COLUMNS), k=1)
        with pytest.raises(BudgetExceededError):
            client.search(np.zeros(COLUMNS), k=1)


# -- refusals


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[1]", 400),
        (b"null", 400),
        (_search(cells=[1]), 400),
        (_search(count=1), 400),
        (_search(cells=[1], count=1, more=1), 400),
        (_search(cells="1", count=1), 400),
        (_search(cells=[1.0], count=1), 400),
        (_search(cells=[True], count=1), 400),
        (_search(cells=[None], count=1), 400),
        (_search(cells=[1, 1], count=1), 400),
        (_search(cells=[1], count=0), 400),
        (_search(cells=[1], count=-5), 400),
        (_search(cells=[1], count=True), 400),
        (_search(cells=[1], count="8"), 400),
        (b'{"cells": [NaN], "count": 1}', 400),
        (b'{"cells": [1e999], "count": 1}', 400),
        (b"[" * 3000, 400),
        (b'{"cells": [' + b"9" * 4000 + b'], "count": 1}', 422),
        (_search(cells=[], count=1), 422),
        (_search(cells=[-1], count=1), 422),
        (_search(cells=[CELLS], count=1), 422),
        (_search(cells=[0, 10**30], count=1), 422),
        (_search(cells=list(range(CELLS)), count=200), 413),
        (b" " * 5000, 413),
    ],
)
def test_a_bad_search_is_refused_with_its_own_status(server, body, status):
    got, content = _ask(server, "POST", "/search", body)
    assert got == status
    assert set(json.loads(content)) == {"error"}
    assert _alive(server)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("POST", "/nothing", 404),
        ("GET", "/search", 405),
        ("POST", "/codebook", 405),
        ("DELETE", "/search", 405),
        ("BREW", "/search", 405),
        ("HEAD", "/codebook", 405),
    ],
)
def test_another_path_or_method_is_refused(server, method, path, status):
    assert _ask(server, method, path)[0] == status


@pytest.mark.parametrize(
    ("length", "status"),
    [(b"", 411), (b"-1", 411), (b"ten", 411), (b"+5", 411), (b"1e3", 411), (b"9" * 40, 413)],
)
def test_a_length_that_is_no_length_is_refused(server, length, status):
    head = b"POST /search HTTP/1.1\r\nContent-Length: " + length + b"\r\n\r\n"
    assert _raw(server, head).split(b" ")[1] == str(status).encode()


def test_a_body_without_a_stated_length_is_refused_unread(server):
    head = b"POST /search HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b" 411 " in _raw(server, head + b"5\r\nhello\r\n0\r\n\r\n")


def test_a_request_that_never_ends_is_closed_with_408(catalogue):
    with RetrievalServer(catalogue, timeout_s=0.2) as server:
        _serve(server)
        head = b"POST /search HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"
        assert b" 408 " in _raw(server, head, half_close=False)
        server.shutdown()


def test_headers_that_are_too_large_are_refused(server):
    many = b"".join(b"x%d: y\r\n" % i for i in range(200))
    assert b" 431 " in _raw(server, b"GET /codebook HTTP/1.1\r\n" + many + b"\r\n")
    assert b" 414 " in _raw(server, b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n")


def test_more_connections_than_slots_are_answered_503_and_slots_come_back(catalogue):
    with RetrievalServer(catalogue, max_connections=2, timeout_s=1.0) as server:
        _serve(server)
        idle = [socket.create_connection(server.address, timeout=PATIENCE) for _ in range(2)]
        statuses = set()
        for _ in range(50):  # the two must first have been accepted
            try:
                statuses.add(_ask(server, "GET", "/codebook")[0])
            except OSError:
                continue
            if 503 in statuses:
                break
        assert 503 in statuses
        for connection in idle:
            connection.close()
        for _ in range(200):
            try:
                status = _ask(server, "GET", "/codebook")[0]
            except OSError:
                continue
            if status == 200:
                break
        else:
            pytest.fail("no slot was freed")
        server.shutdown()


def test_a_refusal_repeats_nothing_of_the_request(server):
    answer = _raw(server, b"SECRETWORD /SECRETPATH HTTP/9.9\r\n\r\n")
    answer += _raw(server, b"SECRETWORD SECRETPATH\r\n\r\n")
    answer += _raw(server, b"SECRETWORD /SECRETPATH HTTP/1.1\r\nSECRETHEADER\r\n\r\n")
    assert answer
    assert b"SECRET" not in answer


def test_the_server_survives_a_thousand_random_payloads(server, capfd):
    r = np.random.default_rng(0)
    for i in range(1000):
        content = r.bytes(int(r.integers(1, 400)))
        if i % 2:
            # Past the head, so that the bytes reach the reader of bodies.
            content = (
                b"POST /search HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(content) + content
            )
        answer = _raw(server, content)
        assert not answer.startswith(b"HTTP/1.0 2")
        if i % 2:
            assert answer.startswith(b"HTTP/1.0 4")
    assert _alive(server)
    assert capfd.readouterr() == ("", "")


def test_nothing_of_a_query_is_logged(server, capfd):
    assert _alive(server)
    assert _ask(server, "POST", "/search", b"nonsense")[0] == 400
    assert capfd.readouterr() == ("", "")


@settings(deadline=None, max_examples=300)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["cells", "count", "x"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_any_json_is_answered_or_refused(server, content):
    status, ids = 200, ()
    try:
        ids, _ = unpack_table(server.answer(json.dumps(content).encode()))
    except Refusal as refusal:
        status = refusal.status
    assert len(ids) >= 1 if status == 200 else status in (400, 413, 422)


# -- a client among bad servers


def _answering(content):
    """The address of a server that answers one request with fixed bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run():
        connection, _ = listener.accept()
        with connection, listener:
            connection.recv(65536)
            connection.sendall(content)

    threading.Thread(target=run, daemon=True).start()
    return listener.getsockname()[:2]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n" + b"\x01" * 30,
        b"HTTP/1.0 200 OK\r\n\r\n" + pack_table(np.arange(2), np.full((2, 3), np.nan, np.float32)),
        b"HTTP/1.0 200 OK\r\n\r\n" + pack_table(np.array([5]), np.ones((1, 3), np.float32)),
        b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 10_000,
        b"HTTP/1.0 500 Oh\r\n\r\n",
    ],
)
def test_a_client_refuses_an_answer_that_is_none(content):
    with pytest.raises(ServiceError):
        RetrievalClient(*_answering(content), max_response_bytes=5000).codebook()


def test_a_client_names_the_status_of_a_refusal(server):
    with pytest.raises(ServiceError, match="422"):
        RetrievalClient(*server.address).fetch([99], 1)


def test_a_search_without_a_mechanism_is_refused():
    with pytest.raises(InvalidParameterError, match="SubsetQuery"):
        RetrievalClient("127.0.0.1", 9).search(np.zeros(2), 1)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 20), st.integers(0, 5), st.integers(0, 10**6))
def test_a_table_survives_the_wire(rows, columns, seed):
    r = np.random.default_rng(seed)
    ids = r.integers(-(2**62), 2**62, size=rows)
    values = r.normal(size=(rows, columns)).astype(np.float32)
    back = unpack_table(pack_table(ids, values))
    np.testing.assert_array_equal(back[0], ids)
    np.testing.assert_array_equal(back[1], values)


@pytest.mark.parametrize(
    ("records", "codebook", "ids"),
    [
        (np.empty((0, 2)), np.eye(2), None),
        (np.eye(2), np.eye(3), None),
        (np.full((2, 2), np.nan), np.eye(2), None),
        (np.eye(2), np.eye(2), [1]),
    ],
)
def test_a_catalogue_of_nonsense_is_refused(records, codebook, ids):
    with pytest.raises(InvalidParameterError):
        Catalogue(records, codebook, ids)
