"""The playground: what it answers, what it refuses, and that nothing typed stays anywhere."""

from __future__ import annotations

import io
import json
import logging
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import redirect_stderr, redirect_stdout, suppress

import numpy as np
import pytest
from typer.testing import CliRunner

import textpriv
from textpriv.cli.app import app
from textpriv.errors import TextprivError
from textpriv.index import Index, Tree
from textpriv.statement import odds_in_words
from textpriv.vocabulary import Vocabulary
from textpriv.web.pages import asset

pytest.importorskip("starlette")
pytest.importorskip("httpx")

import uvicorn
from starlette.testclient import TestClient

from textpriv.amounts import amounts
from textpriv.web import guard
from textpriv.web.guard import Refusal
from textpriv.web.playground import Playground, Settings
from textpriv.web.server import application, bind, configuration

pytestmark = pytest.mark.usefixtures("without_torch")

PLAIN = "good bad fine film book song actor scene music story page letter number night week month".split()
SECRET = "zanzibar"
TEXT = f"A good film, {SECRET}, and 7 bad songs!\nA fine book."
HOME = "http://127.0.0.1:8765"
GOOD = {"text": TEXT, "epsilon": 2.0}
CLEAR = {200, 202, 400, 403, 404, 405, 408, 411, 413, 414, 415, 421, 422, 431, 501, 503, 505}


def small_index(metric="euclidean", **options) -> Index:
    vectors = np.random.default_rng(3).normal(size=(len(PLAIN), 6))
    return Index.build(Vocabulary(PLAIN, vectors), metric=metric, k=8, **options)


@pytest.fixture(scope="module")
def index() -> Index:
    return small_index()


@pytest.fixture(scope="module")
def playground(index):
    made = Playground(index)
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(playground):
    return TestClient(application(playground), base_url=HOME)


def asked(client, **changes):
    return client.post("/api/privatize", json={**GOOD, **changes})


def ready(client, path="/api/privatize", **body):
    """Ask until the mechanism is prepared."""
    end = time.monotonic() + 60
    while (answer := client.post(path, json=body)).status_code == 202:
        assert time.monotonic() < end
        time.sleep(0.02)
    return answer


# Answers


def test_a_text_comes_back_private_with_what_it_is_worth(client, index):
    answer = ready(client, **GOOD)
    assert answer.status_code == 200
    told = answer.json()
    drawn = [word for word, _, kind, _ in told["tokens"] if kind == "drawn"]
    assert set(drawn) <= set(PLAIN)
    assert len(drawn) == told["drawn"] == 11
    assert SECRET not in answer.text
    mechanism = textpriv.TEM(index, epsilon=2.0)
    statement = textpriv.Privatizer(mechanism).statement
    assert told["statement"] == statement.paragraph()
    assert told["proved"] is True
    assert told["worst_document"] == odds_in_words(statement.document_loss(11))
    assert len(told["odds"]) >= 2


def test_a_name_that_stays_is_shown_with_how_often_beside_the_verdict():
    words = [*PLAIN, "john", "asthma"]
    vectors = np.random.default_rng(3).normal(size=(len(words), 6))
    own = Playground(Index.build(Vocabulary(words, vectors), k=8))
    try:
        told = own.privatize("John has asthma. " + " ".join(PLAIN), Settings(60.0))
        mechanism = textpriv.TEM(own.index, epsilon=60.0)
        expected = {
            word: np.exp(mechanism.log_prob(word)[own.index.vocabulary.id(word)])
            for word, _ in told["stays"]
        }
        assert {"john", "asthma"} <= set(expected)
        assert dict(told["stays"]) == pytest.approx(expected)
        assert expected["john"] > 0.9
        assert [keep for _, keep in told["stays"]] == sorted(expected.values(), reverse=True)
        assert own.privatize("John", Settings(60.0, "madlib"))["stays"] is None
    finally:
        own.close()
    page = asset("playground.html")
    assert page.index('id="proved"') < page.index('id="stays"') < page.index('id="claim"')


def test_the_best_attacker_of_a_draw_is_the_exact_one(playground, index):
    settings, mechanism = Settings(0.5), textpriv.TEM(index, epsilon=0.5)
    prior = index.vocabulary.prior_weights("zipf")
    joint = prior[:, None] * np.exp([mechanism.log_prob(word) for word in range(len(PLAIN))])
    codes = np.array([0, 1, 6, 9, 5, 14, -1, -2], dtype=np.int32)
    outputs = np.array([0, 10, 6, 9, 5, 14, 7, -1], dtype=np.int32)
    right = joint.argmax(axis=0)[outputs[:7]] == codes[:7]
    common = set(np.argsort(-prior)[: len(PLAIN) // 4].tolist())
    content = np.array([word >= 0 and word not in common for word in codes[:7].tolist()])
    playground._guessed(settings, mechanism).result(60)
    told = playground._attacked(settings, mechanism, codes, outputs)
    assert 0 < right.sum() < 7
    assert f"names {right.sum()} of these 7 words right" in told
    assert f"and {(right & content).sum()} of the {content.sum()} that are not among" in told
    shown = re.findall("“(.+?)”", told)
    assert shown == [PLAIN[word] for word in dict.fromkeys(codes[:7][right & content].tolist())]


def test_what_the_attacker_gets_is_shown_with_the_draw_where_it_can_be_computed(client):
    ready(client, **GOOD)
    assert "names" in ready(client, **GOOD).json()["attacker"]
    assert "not known" in ready(client, **GOOD, mechanism="madlib").json()["attacker"]
    assert 'id="attacker"' in asset("playground.html")


def test_it_begins_with_the_middle_one_of_the_amounts(playground, index):
    assert playground.epsilon == amounts(index)[1].epsilon


def test_every_answer_says_that_a_draw_spends_epsilon_again(client):
    for _ in range(2):
        assert (
            "Every draw of the same text spends epsilon again"
            in ready(client, **GOOD).json()["again"]
        )


def test_two_draws_of_one_text_are_independent(client):
    texts = {ready(client, **GOOD).json()["text"] for _ in range(12)}
    # Eleven words from 16: twelve equal draws at epsilon 2 have a probability far below 1e-6.
    assert len(texts) > 1


def test_kinds_and_what_came_out_the_same_are_told_apart(playground):
    told = playground.privatize("good good good, good!", Settings(1000.0))
    assert [kind for _, _, kind, _ in told["tokens"]] == [
        "drawn",
        "drawn",
        "drawn",
        "kept: punctuation",
        "drawn",
        "kept: punctuation",
    ]
    assert [same for _, _, _, same in told["tokens"]] == [True, True, True, False, True, False]
    assert told["same"] == 4


def test_a_word_is_explained_by_its_law(client, index):
    answer = ready(client, "/api/word", word="Film", epsilon=2.0)
    told = answer.json()
    law = np.exp(textpriv.TEM(index, epsilon=2.0).log_prob("film"))
    assert told["word"] == "film"
    assert told["keep"] == pytest.approx(law[PLAIN.index("film")])
    for word, probability, distance in told["outputs"]:
        assert probability == pytest.approx(law[PLAIN.index(word)])
        assert distance == pytest.approx(index.distance(PLAIN.index("film"), PLAIN.index(word)))


def test_a_word_outside_the_vocabulary_is_not_quoted_back(client):
    answer = ready(client, "/api/word", word=SECRET, epsilon=2.0)
    assert answer.status_code == 404
    assert SECRET not in answer.text


def test_an_empty_text_is_answered(client):
    assert ready(client, text="", epsilon=1.0).json()["tokens"] == []


# Preparation


def test_too_many_preparations_are_refused(index, monkeypatch):
    go = threading.Event()
    made = Playground(index)
    monkeypatch.setattr(made, "_make", lambda settings: go.wait(30))
    for epsilon in range(1, 5):
        made.prepare(Settings(float(epsilon)))
    with pytest.raises(Refusal) as refused:
        made.prepare(Settings(9.0))
    assert refused.value.status == 503
    go.set()
    made.close()


def test_a_bounded_number_of_mechanisms_is_kept(index):
    made = Playground(index)
    for epsilon in np.linspace(1, 3, 40):
        assert made.privatize("good film", Settings(float(epsilon))) is not None
    assert len(made) <= 8
    made.close()


def test_the_same_settings_are_made_once(index, monkeypatch):
    made = Playground(index)
    count = []
    original = made._make
    monkeypatch.setattr(made, "_make", lambda settings: (count.append(1), original(settings))[1])
    for _ in range(5):
        made.privatize("good", Settings(1.5))
    assert count == [1]
    made.close()


def test_a_preparation_that_failed_is_tried_again(index, monkeypatch):
    made = Playground(index)
    original = made._make

    def fail(settings):
        raise TextprivError("not now")

    monkeypatch.setattr(made, "_make", fail)
    with pytest.raises(Refusal, match="not now") as refused:
        made.privatize("good", Settings(1.75))
    assert refused.value.status == 422
    monkeypatch.setattr(made, "_make", original)
    assert made.privatize("good", Settings(1.75)) is not None
    made.close()


def test_an_index_that_is_not_euclidean_offers_no_madlib():
    made = Playground(small_index("angular", hnsw=False))
    assert "madlib" not in made.mechanisms
    own = TestClient(application(made), base_url=HOME)
    assert asked(own, mechanism="madlib").status_code == 422
    assert "<option>madlib</option>" not in own.get("/").text
    made.close()


def test_stored_counts_are_offered_only_where_there_are_some(client, playground):
    assert playground.priors == ["zipf", "uniform"]
    assert asked(client, prior="counts").status_code == 422


# Levels of a tree


@pytest.fixture(scope="module")
def tree() -> Tree:
    vectors = np.random.default_rng(3).normal(size=(len(PLAIN), 6))
    groups = {"synonyms": 8, "kind": 3}
    return Tree.build(Vocabulary(PLAIN, vectors), "ward", heights="levels", groups=groups)


@pytest.fixture(scope="module")
def tree_client(tree):
    made = Playground(tree)
    yield TestClient(application(made), base_url=HOME)
    made.close()


def test_odds_of_levels_stand_in_place_of_epsilon(tree, tree_client):
    levels = {"synonyms": 3, "any": 3000}
    told = ready(
        tree_client, "/api/privatize", text=TEXT, levels=levels, mechanism="tree", prior="full"
    ).json()
    promised = textpriv.TreeTEM(tree, levels=levels)
    assert told["mechanism"] == repr(promised)
    assert told["claim"].startswith(promised.levels_in_words)
    assert told["statement"] == textpriv.Privatizer(promised).statement.paragraph()
    word = ready(tree_client, "/api/word", word="song", levels=levels, mechanism="tree").json()
    assert word["groups"] == [each.in_words("song") for each in promised.groups("song")[::-1]]
    assert word["keep"] == pytest.approx(np.exp(promised.log_prob("song"))[PLAIN.index("song")])


def test_odds_that_fall_or_name_no_level_are_refused_by_a_sentence(tree_client):
    for levels, said in (
        ({"any": 3, "kind": 30}, "odds must not fall"),
        ({"sort": 3, "any": 9}, "levels of the tree are synonyms, kind, any"),
        ({"kind": 9}, "the last must have odds"),
        ({"any": 1.0}, "must be above 1.001"),
    ):
        answer = ready(tree_client, text=TEXT, levels=levels, mechanism="tree")
        assert answer.status_code == 422
        assert said in answer.json()["error"]


def test_the_page_of_a_tree_asks_for_the_odds_of_each_level_and_no_other_page_does(
    tree_client, client
):
    page = tree_client.get("/").text
    for number, name in enumerate(("synonyms", "kind", "any"), start=1):
        assert f'<label for="level-{number}">{name}</label>' in page
        assert f'data-level="{name}"' in page
    assert 'class="level"' not in client.get("/").text


# Refusals


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"text": "a", "epsilon": ' + b"1" * 5000 + b"}",
        b'{"text": "a", "epsilon": NaN}',
        b'{"text": "a", "epsilon": Infinity}',
    ],
)
def test_what_is_no_good_json_is_refused(client, body):
    answer = client.post(
        "/api/privatize", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code in (400, 422)
    assert set(answer.json()) == {"error"}


def test_half_a_surrogate_pair_is_a_text_like_any_other(client):
    answer = client.post(
        "/api/privatize",
        content=b'{"text": "good \\ud800 film", "epsilon": 2}',
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 200
    assert answer.json()["drawn"] >= 2


def test_a_large_body_is_refused_before_it_is_read(client):
    answer = client.post(
        "/api/privatize",
        content=b" " * 10_000_000,
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 413


def test_a_large_body_without_a_length_is_cut_off(client):
    def pieces():
        for _ in range(1000):
            yield b" " * 10_000

    answer = client.post(
        "/api/privatize", content=pieces(), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "192.168.1.5",
        "",
        "[",
        "127.0.0.1:x",
    ],
)
def test_a_host_that_can_be_rebound_is_refused(client, host):
    answer = client.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert host not in answer.text or not host


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8765", "localhost:8765", "LOCALHOST", "[::1]:8765", "127.0.0.9"],
)
def test_a_loopback_host_is_answered(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200


def test_a_server_for_others_takes_addresses_but_no_foreign_names(playground):
    remote = TestClient(application(playground, remote=True), base_url=HOME)
    for host, status in (
        ("192.168.1.5:8765", 200),
        (socket.gethostname(), 200),
        ("evil.example", 421),
    ):
        assert remote.get("/", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:8765"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_sites_request_is_refused(client, headers):
    assert client.post("/api/privatize", json=GOOD, headers=headers).status_code == 403


def test_its_own_pages_request_is_answered(client):
    headers = {"origin": HOME, "sec-fetch-site": "same-origin"}
    assert client.post("/api/privatize", json=GOOD, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_what_a_form_of_another_site_could_send_is_refused(client, kind):
    answer = client.post("/api/privatize", content=json.dumps(GOOD), headers={"content-type": kind})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/privatize", 405),
        ("PUT", "/", 405),
        ("GET", "/../etc/passwd", 404),
        ("GET", "/docs", 404),
        ("OPTIONS", "/api/privatize", 405),
    ],
)
def test_other_addresses_and_methods_are_refused(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


def test_every_answer_forbids_storing_framing_and_guessing(client):
    answers = [
        client.get("/"),
        asked(client),
        client.get("/none"),
        client.get("/", headers={"host": "x"}),
    ]
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_the_page_may_run_its_script_and_talk_to_its_server_only(client):
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_a_failure_inside_is_told_without_a_traceback_or_the_text(playground, monkeypatch):
    def fail(*_):
        raise RuntimeError(SECRET)

    monkeypatch.setattr(playground, "privatize", fail)
    own = TestClient(application(playground), base_url=HOME)
    told = io.StringIO()
    with redirect_stderr(told):
        answer = asked(own)
    assert answer.status_code == 500
    assert SECRET not in answer.text + told.getvalue()
    assert "Traceback" not in told.getvalue()
    assert "RuntimeError" in told.getvalue()


def _malformed(rng: random.Random):
    """One request that no page of ours would send."""
    kinds = ["application/json", "application/json; charset=latin-1", "text/plain", "", "\x7f"]
    pool = [
        lambda: rng.randbytes(rng.randrange(200)),
        lambda: json.dumps(
            {**GOOD, "epsilon": rng.choice([None, "x", [], {}, -1, 0, 1e300])}
        ).encode(),
        lambda: json.dumps({"text": rng.choice([1, None, {}, []]), "epsilon": 1}).encode(),
        lambda: json.dumps(
            {
                **GOOD,
                rng.choice(["mechanism", "prior", "rate"]): rng.choice(
                    [1, [], {}, "\0", "x" * 999]
                ),
            }
        ).encode(),
        lambda: json.dumps(GOOD).encode()[: rng.randrange(40)],
        lambda: b'{"text":' * rng.randrange(1, 3000),
        lambda: b"{" + b'"a":1,' * rng.randrange(1, 300) + b'"b":2}',
    ]
    method = rng.choice(["POST"] * 6 + ["GET", "PUT", "DELETE", "PATCH", "TRACE", "FOO"])
    path = rng.choice(
        ["/api/privatize"] * 5
        + ["/api/word", "/api/none", "/", "/%00", "/%ff/..", "//", "/?a=" + "b" * 500]
    )
    headers = {"content-type": rng.choice(kinds[:1] * 6 + kinds)}
    if rng.random() < 0.1:
        headers["host"] = rng.choice(["x", "[::1", "a b", "127.0.0.1:99999999999999"])
    if rng.random() < 0.1:
        headers["origin"] = rng.choice(["null", "http://x", "\\"])
    if rng.random() < 0.05:
        headers["content-length"] = rng.choice(["-1", "abc", "9" * 30])
    return method, path, rng.choice(pool)(), headers


def test_a_thousand_malformed_requests_get_a_clear_status_and_no_traceback(playground, caplog):
    client = TestClient(application(playground), base_url=HOME, raise_server_exceptions=True)
    rng = random.Random(8)
    out, err = io.StringIO(), io.StringIO()
    statuses: dict[int, int] = {}
    with client, redirect_stdout(out), redirect_stderr(err), caplog.at_level(logging.DEBUG):
        for _ in range(1000):
            method, path, body, headers = _malformed(rng)
            answer = client.request(method, path, content=body, headers=headers)
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
            if answer.status_code >= 400:
                assert set(answer.json()) == {"error"}
            assert SECRET not in answer.text
    assert set(statuses) <= CLEAR
    assert len([status for status in statuses if status >= 400]) >= 6
    assert out.getvalue() + err.getvalue() == ""
    assert SECRET not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.fixture
def server(playground):
    """The address of a running server, made as the command makes it."""
    listening = bind("127.0.0.1", 0)
    running = uvicorn.Server(configuration(playground, remote=False))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield listening.getsockname()[:2]
    running.should_exit = True
    thread.join(10)
    listening.close()


def _post(
    host: str, body: bytes, *, path: str = "/api/privatize", length: int | None = None
) -> bytes:
    """A request as bytes, with a length that may be a lie."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _exchange(address, raw: bytes, hang_up: bool = False) -> bytes:
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(raw)
        if hang_up:
            # The server may have hung up already: what it answered can still be read.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_bytes_that_are_no_http_are_refused_and_the_server_lives_on(server, capfd):
    rng = random.Random(9)
    good = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    shapes = [
        lambda: rng.randbytes(300),
        lambda: good[: rng.randrange(1, len(good))],
        lambda: good.replace(b"HTTP/1.1", b"HTTP/9.9"),
        lambda: b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
        lambda: b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        lambda: _post("localhost", b"{", length=50),
        lambda: _post("localhost", b"zz\r\n").replace(
            b"Content-Length: 4", b"Transfer-Encoding: chunked"
        ),
        lambda: good.replace(b"Host: 127.0.0.1", b"Host: 127.0.0.1\r\nHost: evil.example"),
        lambda: good.replace(b"Host: 127.0.0.1\r\n", b""),
    ]
    for turn in range(180):
        try:
            answer = _exchange(server, shapes[turn % len(shapes)](), hang_up=True)
        except ConnectionError:
            continue  # it may hang up on what it will not read
        if answer:
            assert answer.startswith(b"HTTP/1.1 ")
            assert int(answer[9:12]) in CLEAR
        assert b"Traceback" not in answer
    assert _exchange(server, good).startswith(b"HTTP/1.1 200")
    assert "Traceback" not in "".join(capfd.readouterr())


def test_the_server_logs_nothing_of_a_text_and_names_no_software(server, capfd):
    answer = _exchange(
        server, _post("localhost", json.dumps(GOOD).encode(), path=f"/api/privatize?{SECRET}")
    )
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"\r\nserver:" not in answer.lower()
    assert "".join(capfd.readouterr()) == ""


def test_a_slow_request_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(guard, "_BODY_TIME", 0.2)
    with socket.create_connection(server, timeout=10) as connection:
        connection.sendall(_post("localhost", b"{", length=50))
        assert connection.recv(65536).startswith(b"HTTP/1.1 408")


# The address


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_that_others_can_reach_is_refused_without_the_flag(host):
    try:
        socket.getaddrinfo(host, 0)
    except OSError:
        pytest.skip("no such address family here")
    with pytest.raises(TextprivError, match="--allow-remote"):
        bind(host, 0)


def test_with_the_flag_it_is_taken():
    with bind("0.0.0.0", 0, allow_remote=True) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"


def test_a_taken_port_and_an_unknown_name_are_errors_that_say_what_to_do():
    with bind("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(TextprivError, match="--port"):
            bind("127.0.0.1", first.getsockname()[1])
    with pytest.raises(TextprivError, match=r"127\.0\.0\.1"):
        bind("no such host", 0)


def test_the_command_refuses_to_be_reached_by_others(index, tmp_path):
    small_index(hnsw=False).save(tmp_path / "a.idx")
    result = CliRunner().invoke(app, ["playground", str(tmp_path / "a.idx"), "--host", "0.0.0.0"])
    assert result.exit_code == 1
    assert "--allow-remote" in result.stderr


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    small_index(hnsw=False).save(tmp_path / "a.idx")
    code = "import textpriv.cli.app; textpriv.cli.app.main()"
    command = [sys.executable, "-c", code, "playground", str(tmp_path / "a.idx"), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        answer = b""
        for _ in range(100):
            try:
                answer = _exchange(
                    ("127.0.0.1", port), _post("localhost", json.dumps(GOOD).encode())
                )
                break
            except ConnectionError:
                time.sleep(0.2)
        process.send_signal(2)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert answer.startswith(b"HTTP/1.1 200")
    assert "Traceback" not in told
    assert SECRET not in told


# Speed


@pytest.mark.alone
@pytest.mark.real_data
def test_a_text_of_two_hundred_words_is_answered_within_a_fraction_of_a_second(real_data):
    vectors = next((real_data / "embeddings").glob("imdb*.bin.gz"), None)
    if vectors is None:
        pytest.skip("no IMDB vectors among the real data")
    vocabulary = Vocabulary.load(str(vectors), limit=5000)
    made = Playground(Index.build(vocabulary, k=64, hnsw=False))
    client = TestClient(application(made), base_url=HOME)
    words = [word for word in vocabulary.words if word.isalpha()]
    text = " ".join(random.Random(1).choices(words, k=200))
    times = []
    for _ in range(21):
        started = time.perf_counter()
        assert ready(client, text=text, epsilon=6.0).json()["drawn"] == 200
        times.append(time.perf_counter() - started)
    made.close()
    assert statistics.median(times) < 0.15
