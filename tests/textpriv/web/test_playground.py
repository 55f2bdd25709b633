"""The playground: what it answers, what it refuses, and that nothing typed stays anywhere."""

from __future__ import annotations

import io
import json
import logging
import random
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import redirect_stderr, redirect_stdout, suppress

import numpy as np
import pytest

import textpriv
from textpriv.errors import TextprivError
from textpriv.index import Index, Tree
from textpriv.statement import odds_in_words
from textpriv.vocabulary import Vocabulary

pytest.importorskip("starlette")
pytest.importorskip("httpx")

import uvicorn
from starlette.testclient import TestClient

from textpriv.web import server as web_server
from textpriv.web.playground import LONGEST, Playground, Settings
from textpriv.web.server import application, bind, configuration

PLAIN = "good bad fine film book song actor scene music john page letter cancer night week month".split()
SECRET = "zanzibar"
TEXT = f"A good film, {SECRET}, and 7 bad songs!\nA fine book."
HOME = "http://127.0.0.1:8765"
GOOD = {"text": TEXT, "epsilon": 2.0}
CLEAR = {200, 400, 403, 404, 405, 408, 411, 413, 414, 415, 422, 431, 501, 503, 505}
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def index() -> Index:
    vectors = np.random.default_rng(3).normal(size=(len(PLAIN), 6))
    return Index.build(Vocabulary(PLAIN, vectors), "euclidean", k=8)


@pytest.fixture(scope="module")
def playground(index):
    made = Playground(index)
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(playground):
    return TestClient(application(playground), base_url=HOME)


# Answers


def test_a_text_comes_back_private_with_what_it_is_worth(client, index):
    answer = client.post("/api/privatize", json=GOOD)
    told = answer.json()
    drawn = [word for word, _, kind in told["tokens"] if kind in ("drawn", "same")]
    assert {*drawn} <= {*PLAIN}
    assert len(drawn) == told["drawn"] == 11
    assert SECRET not in answer.text
    statement = textpriv.Privatizer(textpriv.TEM(index, epsilon=2.0)).statement
    assert told["not_protected"] == list(statement.not_protected)
    assert told["typical"] == statement.typical_odds
    assert told["worst_document"] == odds_in_words(statement.documents_within(11).total)
    assert told["proved"] is True


def test_two_draws_of_one_text_are_independent(client):
    words = " ".join(PLAIN)
    texts = {
        str(client.post("/api/privatize", json={"text": words, "epsilon": 2}).json()["tokens"])
        for _ in range(12)
    }
    assert len(texts) > 1  # equal draws of 16 words have a probability far below 1e-6


def test_names_that_stay_come_first_with_how_often(playground, index):
    told = playground.privatize("John has cancer. " + " ".join(PLAIN), Settings(60.0))
    mechanism = textpriv.TEM(index, epsilon=60.0)
    shown = dict(told["stays"])
    assert {"john", "cancer"} <= {*shown}
    for word, keep in shown.items():
        number = index.vocabulary.id(word)
        assert keep == pytest.approx(np.exp(mechanism.log_prob(word)[number]))
    madlib = playground.privatize("John", Settings(60.0, "madlib"))
    assert madlib["stays"] is None
    assert "not known" in madlib["attacker"]


def test_the_attacker_of_a_draw_is_the_exact_one(playground, index):
    settings, mechanism = Settings(0.5), textpriv.TEM(index, epsilon=0.5)
    prior = index.vocabulary.prior_weights("zipf")
    joint = prior[:, None] * np.exp([mechanism.log_prob(word) for word in range(len(PLAIN))])
    codes = np.array([0, 1, 6, 9, 5, 14, -1, -2], dtype=np.int32)
    outputs = np.array([0, 10, 6, 9, 5, 14, 7, -1], dtype=np.int32)
    right = joint.argmax(axis=0)[outputs[:7]] == codes[:7]
    content = (codes[:7] >= 0) & index.vocabulary.is_content[codes[:7]]
    playground._guessed(settings).result(60)
    told = playground._attacked(settings, codes, outputs)
    assert 0 < right.sum() < 7
    assert f"recovers {right.sum()} of these 7 words" in told
    assert f"Of the {content.sum()} content words these are {(right & content).sum()}" in told
    named = [PLAIN[word] for word in dict.fromkeys(codes[:7][right & content].tolist())]
    assert re.findall("“(.+?)”", told) == named


def test_a_word_is_explained_and_an_unknown_one_not_quoted(client, index):
    told = client.post("/api/word", json={"word": "Film", "epsilon": 2.0}).json()
    mechanism = textpriv.TEM(index, epsilon=2.0)
    assert told["word"] == "film"
    assert [tuple(each) for each in told["outputs"]] == mechanism.explain("film", n=10)
    unknown = client.post("/api/word", json={"word": SECRET, "epsilon": 2.0})
    assert (unknown.status_code, SECRET in unknown.text) == (404, False)


def test_it_begins_with_a_given_epsilon_or_one_by_the_distances(playground, index):
    assert playground.epsilon == float(f"{10 / index.reference_distance:.4g}")
    own = Playground(index, 7.5)
    assert own.epsilon == 7.5
    own.close()


def test_a_bounded_number_of_mechanisms_is_kept(index):
    made = Playground(index)
    for epsilon in np.linspace(1, 3, 40):
        made.privatize("good film", Settings(float(epsilon)))
    assert made.prepare.cache_info().currsize <= 8
    made.close()


def test_a_tree_offers_its_own_mechanism_with_the_groups_of_a_word(index):
    made = Playground(Tree.build(index.vocabulary, groups={"kind": 4}))
    assert made.mechanisms == ["tree"]
    assert made.privatize(TEXT, Settings(2.0, "tree"))["drawn"] == 11
    assert len(made.explain("song", Settings(2.0, "tree"))["groups"]) == 2
    made.close()


# Refusals


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": "a"}, 422),
        ({"epsilon": 1}, 422),
        ({"text": ["a"], "epsilon": 1}, 422),
        ({"text": "a", "epsilon": 0}, 422),
        ({"text": "a", "epsilon": 10**400}, 422),
        ({"text": "a", "epsilon": 1, "mechanism": SECRET}, 422),
        ({"text": "a" * (LONGEST + 1), "epsilon": 1}, 413),
        ([], 422),
    ],
)
def test_a_bad_request_gets_a_reason_that_quotes_nothing(client, body, status):
    answer = client.post("/api/privatize", json=body)
    assert answer.status_code == status
    assert {*answer.json()} == {"error"}
    assert SECRET not in answer.text


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"[" * 100_000, b'{"text": "a", "epsilon": NaN}', b'{"a":' * 99]
)
def test_bad_json_is_refused(client, body):
    assert client.post("/api/privatize", content=body, headers=JSON).status_code in (400, 422)


def test_a_large_body_is_refused_with_and_without_its_length(client):
    pieces = (b" " * 10_000 for _ in range(1000))
    for body in (b" " * 10_000_000, pieces):
        assert client.post("/api/privatize", content=body, headers=JSON).status_code == 413


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8765", 200),
        ("localhost", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("192.168.1.5", 400),
        ("", 400),
        ("[", 400),
    ],
)
def test_only_a_loopback_host_is_answered(client, host, status):
    assert client.get("/", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": HOME, "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_only_its_own_pages_request_is_answered(client, headers, status):
    given = {**JSON, **headers}
    answer = client.post("/api/privatize", content=json.dumps(GOOD), headers=given)
    assert answer.status_code == status


def test_every_answer_forbids_storing_framing_and_foreign_scripts(client):
    for answer in (client.get("/"), client.get("/none"), client.get("/", headers={"host": "x"})):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
    page = client.get("/")
    assert "reveals more" in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_a_failure_inside_shows_no_text_and_no_traceback(playground, monkeypatch):
    def fail(*_):
        raise RuntimeError(SECRET)

    monkeypatch.setattr(playground, "privatize", fail)
    told = io.StringIO()
    with redirect_stderr(told):
        answer = TestClient(application(playground), base_url=HOME).post(
            "/api/privatize", json=GOOD
        )
    assert answer.status_code == 500
    assert SECRET not in answer.text + told.getvalue()
    assert "Traceback" not in told.getvalue()


def _malformed(rng: random.Random):
    """One request that no page of ours would send."""
    wrong = rng.choice([None, "x", [], {}, -1, 0, 1e300])
    body = rng.choice(
        [
            rng.randbytes(rng.randrange(200)),
            json.dumps({**GOOD, "epsilon": wrong}).encode(),
            json.dumps({**GOOD, "mechanism": rng.choice([1, [], {}, "\0", "x" * 999])}).encode(),
            json.dumps(GOOD).encode()[: rng.randrange(40)],
            b'{"text":' * rng.randrange(1, 3000),
        ]
    )
    path = rng.choice(["/api/privatize"] * 5 + ["/api/word", "/", "/%00", "/%ff/..", "/?a=b"])
    headers = {"content-type": rng.choice(["application/json"] * 6 + ["text/plain", "\x7f"])}
    if rng.random() < 0.2:
        name, values = rng.choice([("host", ["x", "[::1"]), ("content-length", ["-1", "9" * 30])])
        headers[name] = rng.choice(values)
    return rng.choice(["POST"] * 6 + ["GET", "PUT", "FOO"]), path, body, headers


def test_malformed_requests_get_a_clear_status_and_leave_no_trace(playground, caplog):
    client = TestClient(application(playground), base_url=HOME, raise_server_exceptions=True)
    rng, out = random.Random(8), io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), caplog.at_level(logging.DEBUG):
        for _ in range(500):
            method, path, body, headers = _malformed(rng)
            answer = client.request(method, path, content=body, headers=headers)
            assert answer.status_code in CLEAR
            assert SECRET not in answer.text
    assert out.getvalue() == ""
    assert SECRET not in caplog.text


# The server


@pytest.fixture
def server(playground):
    """The address of a running server, made as the command makes it."""
    listening = bind(0)
    running = uvicorn.Server(configuration(playground))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield listening.getsockname()[:2]
    running.should_exit = True
    thread.join(10)
    listening.close()


def _post(body: bytes, length: int | None = None) -> bytes:
    """A request as bytes, with a length that may be a lie, and a secret in its address."""
    head = (
        f"POST /api/privatize?{SECRET} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _exchange(address, raw: bytes, hang_up: bool = False) -> bytes:
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(raw)
        if hang_up:
            with suppress(OSError):  # it may have hung up already
                connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_server_survives_bad_bytes_and_logs_nothing(server, capfd):
    good = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    for raw in (
        random.Random(9).randbytes(300),
        good.replace(b"HTTP/1.1", b"HTTP/9.9"),
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
        _post(b"{", length=50),
        good.replace(b"Host: 127.0.0.1", b"Host: 127.0.0.1\r\nHost: evil.example"),
    ):
        with suppress(ConnectionError):
            answer = _exchange(server, raw, hang_up=True)
            assert not answer or int(answer[9:12]) in CLEAR
    answer = _exchange(server, _post(json.dumps(GOOD).encode()))
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"\r\nserver:" not in answer.lower()
    assert "".join(capfd.readouterr()) == ""


def test_a_slow_request_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(web_server, "_BODY_TIME", 0.2)
    with socket.create_connection(server, timeout=10) as connection:
        connection.sendall(_post(b"{", length=50))
        assert connection.recv(65536).startswith(b"HTTP/1.1 408")


def test_only_this_computer_reaches_the_page_and_a_taken_port_says_what_to_do():
    with bind(0) as first:
        assert first.getsockname()[0] == "127.0.0.1"
        with pytest.raises(TextprivError, match="--port"):
            bind(first.getsockname()[1])


def test_the_command_serves_until_it_is_interrupted(index, tmp_path):
    index.save(tmp_path / "a.idx")
    command = [sys.executable, "-m", "textpriv", "playground", "--index", str(tmp_path / "a.idx")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--port", "0"], **pipes) as process:
        port = int(process.stdout.readline().split("127.0.0.1:")[1].split("/")[0])
        answer = b""
        for _ in range(100):
            with suppress(ConnectionError):  # the address is printed before the server listens
                answer = answer or _exchange(("127.0.0.1", port), _post(json.dumps(GOOD).encode()))
            time.sleep(0 if answer else 0.2)
        process.send_signal(2)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, answer[:12]) == (0, b"HTTP/1.1 200")
    assert SECRET not in told
    assert "Traceback" not in told
