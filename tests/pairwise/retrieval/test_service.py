"""The server and its client: what is on the wire, and what is refused."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwise import PrivacyBudget, SubsetQuery
from pairwise.errors import BudgetExceededError, InvalidParameterError, ServiceError
from pairwise.retrieval import service
from pairwise.retrieval.service import (
    Catalogue,
    Refusal,
    RetrievalClient,
    RetrievalServer,
    _pack,
    _unpack,
)

RECORDS = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
CODEBOOK = RECORDS[:20]


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue(RECORDS, CODEBOOK, ids=np.arange(200) + 1000)


@pytest.fixture(scope="module")
def server(catalogue):
    with RetrievalServer(catalogue) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ask(server, method, path, body=None):
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, response.read()


def test_server_binds_to_loopback_unless_told_otherwise(server):
    assert server.address[0] == "127.0.0.1"


def test_search_returns_the_records_nearest_to_each_cell(catalogue):
    for cell in (0, 7):
        apart = ((RECORDS - CODEBOOK[cell]) ** 2).sum(axis=1)
        assert set(catalogue.search([cell], 5)) == set(np.argsort(apart)[:5])


def test_client_that_asks_for_all_cells_finds_its_true_neighbours(server):
    codebook = RetrievalClient(*server.address).codebook()
    np.testing.assert_array_equal(codebook, CODEBOOK)
    query = SubsetQuery(codebook, epsilon=1.0, size=20)
    x = np.random.default_rng(1).normal(size=4)
    ids, values = RetrievalClient(*server.address, query).search(x, k=5, count=200)
    true = np.argsort(((RECORDS - x) ** 2).sum(axis=1))[:5]
    assert ids.tolist() == (true + 1000).tolist()
    np.testing.assert_array_equal(values, RECORDS[true])


def test_wire_carries_the_subset_and_nothing_of_the_feature(server, monkeypatch):
    sent = []
    whole = http.client.HTTPConnection.request

    def request(self, method, url, body=None, headers=None, **rest):
        sent.append(body)
        return whole(self, method, url, body, headers or {}, **rest)

    monkeypatch.setattr(http.client.HTTPConnection, "request", request)
    query = SubsetQuery(CODEBOOK, epsilon=1.0, size=3)
    RetrievalClient(*server.address, query).search(RECORDS[3] + 0.1, k=2, count=4)
    (body,) = sent
    content = json.loads(body)
    assert set(content) == {"cells", "count"}
    assert content["cells"] == sorted(set(content["cells"]))
    assert len(content["cells"]) == 3


def test_spent_budget_stops_the_client_before_anything_is_sent(server, monkeypatch):
    with PrivacyBudget(1.0, 0.0, unit="all queries of one client") as budget:
        query = SubsetQuery(CODEBOOK, epsilon=1.0, budget=budget)
        client = RetrievalClient(*server.address, query)
        client.search(RECORDS[0], k=1)
        monkeypatch.setattr(client, "_ask", lambda *_: pytest.fail("sent"))
        with pytest.raises(BudgetExceededError):
            client.search(RECORDS[0], k=1)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"no json", 400),
        (b'{"cells": [1]}', 400),
        (b'{"cells": [1, 1], "count": 2}', 400),
        (b'{"cells": [true], "count": 2}', 400),
        (b'{"cells": [1], "count": 0}', 400),
        (b'{"cells": [], "count": 2}', 422),
        (b'{"cells": [20], "count": 2}', 422),
        (b"x" * 70_000, 413),
    ],
)
def test_bad_search_is_refused_with_its_own_status(server, body, status):
    found, content = ask(server, "POST", "/search", body)
    assert found == status
    assert set(json.loads(content)) == {"error"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/x", 404), ("GET", "/search", 405), ("POST", "/codebook", 405), ("PUT", "/x", 405)],
)
def test_other_paths_and_methods_are_refused(server, method, path, status):
    assert ask(server, method, path, b"{}")[0] == status


def test_refusal_and_log_repeat_nothing_of_the_request(server, capfd):
    status, content = ask(server, "POST", "/search", b'{"secret": "Mr Smith"}')
    assert status == 400
    assert b"Smith" not in content
    ask(server, "GET", "/Smith")
    shown = capfd.readouterr()
    assert shown.out == shown.err == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each), max_leaves=5
)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["cells", "count", "more"]), JSON) | JSON)
def test_any_json_is_answered_or_refused(content):
    server = object.__new__(RetrievalServer)
    server.catalogue = Catalogue(RECORDS[:5], CODEBOOK[:3])
    with contextlib.suppress(Refusal):
        _unpack(server.answer(json.dumps(content).encode()))


@pytest.mark.parametrize("content", [b"", b"\x01", _pack(np.arange(1), np.full((1, 1), np.inf))])
def test_answer_that_is_no_table_is_refused(content):
    with pytest.raises(ServiceError):
        _unpack(content)


def test_silent_server_is_named():
    with pytest.raises(ServiceError, match="did not answer"):
        RetrievalClient("127.0.0.1", 9).codebook()


def test_request_that_comes_byte_by_byte_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(service, "_DEADLINE", 0.5)
    with socket.create_connection(server.address, timeout=10) as slow:
        begin = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() < begin + 8:
                slow.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() < begin + 6


def test_answer_beyond_the_limit_is_refused(server, monkeypatch):
    monkeypatch.setattr(service, "_LARGEST_TABLE", 100 * 24)
    body = b'{"cells": [%s], "count": %d}'
    assert ask(server, "POST", "/search", body % (b"0", 100))[0] == 200
    status, content = ask(server, "POST", "/search", body % (b"0, 1, 2, 3, 4, 5", 100))
    assert (status, set(json.loads(content))) == (413, {"error"})


def test_more_clients_than_allowed_are_refused_until_one_leaves(catalogue, monkeypatch):
    monkeypatch.setattr(service, "_CLIENTS", 2)
    with RetrievalServer(catalogue) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        waiting = [socket.create_connection(server.address, timeout=10) for _ in range(2)]
        time.sleep(0.3)
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(server, "GET", "/codebook")
        for each in waiting:
            each.close()
        time.sleep(0.3)
        assert ask(server, "GET", "/codebook")[0] == 200
        server.shutdown()


@pytest.mark.parametrize(
    ("records", "codebook", "ids"),
    [
        (np.ones(3), CODEBOOK, None),
        (RECORDS, CODEBOOK[:, :2], None),
        (np.full((3, 4), np.nan), CODEBOOK, None),
        (RECORDS, CODEBOOK, [1, 2]),
    ],
)
def test_catalogue_of_nonsense_is_refused(records, codebook, ids):
    with pytest.raises(InvalidParameterError):
        Catalogue(records, codebook, ids)
