"""The ledger: what is counted, what is refused, what a crash leaves, and what the file gives away."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import pickle
import random
import signal
import sqlite3
import stat
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from textpriv.bounds import factor_in_words
from textpriv.cli.app import app
from textpriv.composition import epsilon_of_zcdp
from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.engines.batch import named_error
from textpriv.errors import CorpusError, LedgerError, LimitError, TextprivError
from textpriv.index import Index
from textpriv.ledger import Charge, Document, Ledger, Shared, Terms
from textpriv.ledger import ledger as ledger_module
from textpriv.ledger.store import FORMAT
from textpriv.mechanisms import TEM, UNKNOWN
from textpriv.metrics import Mahalanobis
from textpriv.privatizer import Privatizer
from textpriv.randomness import Stream
from textpriv.tokenization.policy import TokenPolicy
from textpriv.vocabulary import Vocabulary

TERMS = Terms(settings=b"s" * 32, distance="euclidean", epsilon=2.0, word_loss=15.0)
SECRET = "zanzibar"


def _charge(name, content=b"words", tokens=10, author=None) -> Charge:
    return Charge(Document(name, author), content, tokens)


def _terms(**changes) -> Terms:
    return replace(TERMS, **changes)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Index:
    words = ["good", "bad", "film", "plot", "slow", "fine", "long", "dull"]
    vectors = np.random.default_rng(3).normal(size=(len(words), 4))
    folder = tmp_path_factory.mktemp("ledger") / "index"
    Index.build(Vocabulary(words, vectors)).save(folder)
    return Index.load(folder)


# The sums


def test_epsilons_of_a_documents_releases_add_up(path):
    ledger = Ledger(path)
    ledger.charge(TERMS, _charge("a"))
    ledger.charge(_terms(settings=b"other", epsilon=6.0), _charge("a"))
    ledger.charge(TERMS, _charge("b"))
    spent = ledger.spent(document="a")
    assert (spent.documents, spent.releases, spent.epsilon) == (1, 2, {"euclidean": 8.0})


def test_the_worst_case_of_an_author_is_words_times_word_loss_over_all_documents(path):
    ledger = Ledger(path)
    ledger.charge(TERMS, _charge("a", tokens=10, author="ann"))
    ledger.charge(_terms(word_loss=40.0), _charge("b", tokens=3, author="ann"))
    ledger.charge(TERMS, _charge("c", tokens=7, author="bob"))
    assert ledger.spent(author="ann").nats == 10 * 15 + 3 * 40
    assert ledger.totals().nats == 10 * 15 + 3 * 40 + 7 * 15
    assert ledger.totals().tokens == 20


def test_epsilons_under_two_distances_are_never_added(path):
    ledger = Ledger(path, document_limit=3)
    ledger.charge(TERMS, _charge("a"))
    ledger.charge(_terms(settings=b"other", distance="angular"), _charge("a"))
    assert ledger.spent(document="a").epsilon == {"euclidean": 2.0, "angular": 2.0}


def test_every_amount_is_rounded_up_by_itself_to_whole_millionths(path):
    half = 5e-7
    terms = _terms(epsilon=half, word_loss=half, word_rho=half)
    shared = (Shared(b"shift", "document", half, half),)
    ledger = Ledger(path)
    ledger.charge(terms, Charge(Document("a"), b"words", 1, half, half, shared))
    spent = ledger.spent(document="a")
    assert (spent.epsilon["euclidean"], spent.nats, spent.rho) == (1e-6, 3e-6, 3e-6)


def test_a_limit_between_two_millionths_is_the_lower_one(path):
    ledger = Ledger(path, document_nats_limit=1.5e-6)
    with pytest.raises(LimitError):
        ledger.charge(_terms(word_loss=2e-6), _charge("a", tokens=1))


def test_words_without_a_rho_of_their_own_have_half_the_square_of_their_loss(path):
    ledger = Ledger(path)
    ledger.charge(TERMS, _charge("a"))
    assert ledger.spent(document="a").rho == 10 * TERMS.word_loss**2 / 2


def test_nothing_is_spent_under_an_unknown_name(path):
    spent = Ledger(path).spent(author="nobody")
    assert spent.to_dict() == {
        "documents": 0,
        "releases": 0,
        "tokens": 0,
        "nats": 0.0,
        "epsilon": {},
        "rho": 0.0,
        "nats_with_delta": {"1e-06": 0.0},
    }


@given(
    amounts=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from([b"1", b"2"]),
            st.sampled_from([b"x", b"y"]),
            st.integers(0, 500),
        ),
        max_size=12,
    )
)
@settings(max_examples=20, deadline=None)
def test_the_sums_are_those_of_the_distinct_releases(amounts, tmp_path_factory):
    with Ledger(tmp_path_factory.mktemp("sums") / "ledger") as ledger:
        first: dict[tuple, int] = {}
        for name, fingerprint, content, tokens in amounts:
            terms = _terms(settings=fingerprint, epsilon=0.1, word_loss=0.7)
            release = ledger.charge(terms, _charge(name, content, tokens, author=name))
            assert release.charged == ((name, fingerprint, content) not in first)
            first.setdefault((name, fingerprint, content), tokens)
        for name in "abc":
            own = [tokens for key, tokens in first.items() if key[0] == name]
            spent = ledger.spent(author=name)
            assert spent == ledger.spent(document=name)
            assert (spent.releases, spent.tokens) == (len(own), sum(own))
            assert spent.nats == sum(own) * 7 / 10
            assert spent.epsilon == ({"euclidean": len(own) / 10} if own else {})


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"epsilon": float("inf")}, 1),
        ({"epsilon": float("nan")}, 1),
        ({"epsilon": 0.0}, 1),
        ({"epsilon": -1.0}, 1),
        ({"word_loss": float("inf")}, 1),
        ({"word_loss": 1e12}, 10**6),
        ({}, -1),
    ],
)
def test_an_amount_that_cannot_be_added_is_refused(path, changes, tokens):
    ledger = Ledger(path)
    with pytest.raises(LedgerError):
        ledger.charge(_terms(**changes), _charge("a", tokens=tokens))
    assert ledger.totals().releases == 0


# Identity


def test_the_same_release_gets_its_first_key_and_is_counted_once(path):
    first = Ledger(path).charge(TERMS, _charge("a"))
    again = Ledger(path).charge(TERMS, _charge("a"))
    assert first.charged
    assert not again.charged
    assert first.key == again.key
    assert Ledger(path).totals().releases == 1


@pytest.mark.parametrize(
    ("terms", "charge"),
    [
        (_terms(settings=b"other"), _charge("a")),
        (TERMS, _charge("a", content=b"other words")),
        (TERMS, _charge("b")),
        (TERMS, Charge(Document("a", part="second"), b"words", 10)),
    ],
    ids=["settings", "content", "name", "part"],
)
def test_whatever_differs_gets_a_key_of_its_own_and_is_counted(path, terms, charge):
    ledger = Ledger(path)
    first = ledger.charge(TERMS, _charge("a"))
    other = ledger.charge(terms, charge)
    assert other.charged
    assert other.key != first.key


def test_a_changed_text_adds_to_the_account_of_its_document(path):
    ledger = Ledger(path, document_limit=4)
    ledger.charge(TERMS, _charge("a", content=b"one"))
    ledger.charge(TERMS, _charge("a", content=b"two"))
    with pytest.raises(LimitError):
        ledger.charge(TERMS, _charge("a", content=b"three"))


def test_names_of_different_types_are_different_names(path):
    ledger = Ledger(path)
    for name in ("7", 7, b"7"):
        assert ledger.charge(TERMS, _charge(name, author=name)).charged
    assert ledger.totals().documents == 3
    assert ledger.spent(author=7).documents == 1


def test_a_document_and_an_author_of_one_name_are_kept_apart(path):
    ledger = Ledger(path)
    ledger.charge(TERMS, _charge("a", author="b"))
    assert ledger.spent(document="b").releases == ledger.spent(author="a").releases == 0


@pytest.mark.parametrize(("first", "author"), [("ann", "bob"), ("ann", None), (None, "ann")])
def test_a_document_cannot_change_its_author(path, first, author):
    ledger = Ledger(path)
    ledger.charge(TERMS, _charge("a", author=first))
    with pytest.raises(LedgerError, match="another author"):
        ledger.charge(_terms(settings=b"other"), _charge("a", author=author))
    assert ledger.totals().releases == 1


def test_one_document_twice_in_a_call_is_one_release(path):
    one, two = Ledger(path).charge_all(TERMS, [_charge("a"), _charge("a")])
    assert (one.charged, two.charged) == (True, False)
    assert one.key == two.key


# Limits


def test_a_document_limit_can_be_reached_and_not_passed(path):
    ledger = Ledger(path, document_limit=0.3)
    for step in range(3):
        ledger.charge(_terms(settings=bytes([step]), epsilon=0.1), _charge("a"))
    with pytest.raises(LimitError, match=r"limit of this document is 0\.3 .* spent 0\.3"):
        ledger.charge(_terms(settings=b"more", epsilon=1e-6), _charge("a"))
    assert ledger.spent(document="a").epsilon == {"euclidean": 0.3}


def test_a_document_limit_is_one_for_each_index_and_says_so(path):
    ledger = Ledger(path, document_limit=2)
    for number in range(20):
        ledger.charge(
            _terms(settings=bytes([number]), distance=f"euclidean {number}"), _charge("a")
        )
    assert sum(ledger.spent(document="a").epsilon.values()) == 40
    assert "per unit of distance under each index" in ledger.statement
    with pytest.raises(LimitError, match="per unit of distance under this index"):
        ledger.charge(_terms(settings=b"more", distance="euclidean 0"), _charge("a"))


def test_a_limit_in_nats_adds_up_a_documents_releases_under_all_indexes(path):
    ledger = Ledger(path, document_limit=2, document_nats_limit=450)
    for number in range(3):
        distance = f"euclidean {number}"
        ledger.charge(_terms(settings=bytes([number]), distance=distance), _charge("a"))
    with pytest.raises(LimitError, match="limit of this document is 450 nats under all indexes"):
        ledger.charge(_terms(settings=b"more", distance="euclidean 3"), _charge("a"))
    assert ledger.spent(document="a").nats == 450
    assert ledger.charge(_terms(settings=b"more"), _charge("b")).charged
    assert "at most 450 nats under all indexes together" in ledger.statement


@given(
    amounts=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), min_size=1, max_size=12)
)
@settings(max_examples=20, deadline=None)
def test_a_document_spends_at_most_its_limit_in_nats(amounts, tmp_path_factory):
    with Ledger(tmp_path_factory.mktemp("nats") / "ledger", document_nats_limit=100) as ledger:
        for number, (name, tokens) in enumerate(amounts):
            before = ledger.spent(document=name).nats
            terms = _terms(settings=bytes([number]), distance=f"index {number}")
            allowed = before + tokens * TERMS.word_loss <= 100
            try:
                assert ledger.charge(terms, _charge(name, tokens=tokens)).charged
            except LimitError:
                assert not allowed
            else:
                assert allowed
            assert ledger.spent(document=name).nats <= 100


def test_an_author_limit_counts_all_documents_of_the_author(path):
    ledger = Ledger(path, author_limit=300)
    ledger.charge_all(TERMS, [_charge("a", author="ann"), _charge("b", author="ann")])
    with pytest.raises(LimitError, match="author is 300 nats"):
        ledger.charge(TERMS, _charge("c", tokens=1, author="ann"))
    assert ledger.charge(TERMS, _charge("d", author="bob")).charged


def test_a_batch_over_the_limit_is_counted_not_at_all_and_names_the_place(path):
    ledger = Ledger(path, author_limit=300)
    batch = [_charge(name, author="ann") for name in "abc"]
    with pytest.raises(LimitError) as refusal:
        ledger.charge_all(TERMS, batch)
    assert refusal.value.position == 2
    with pytest.warns(DeprecationWarning, match="position"):
        assert refusal.value.place == 2
    assert ledger.totals().releases == 0


def test_a_counted_release_is_repeated_whatever_the_limit(path):
    first = Ledger(path).charge(TERMS, _charge("a", author="ann"))
    strict = Ledger(path, document_limit=0, author_limit=0)
    assert strict.charge(TERMS, _charge("a", author="ann")).key == first.key


@pytest.mark.parametrize("limit", ["author_limit", "author_rho_limit"])
def test_an_author_limit_needs_an_author(path, limit):
    with pytest.raises(LedgerError, match="Give its author"):
        Ledger(path, **{limit: 300}).charge(TERMS, _charge("a"))


def test_limits_in_rho_count_words_times_their_rho_over_documents_and_indexes(path):
    ledger = Ledger(path, document_rho_limit=50, author_rho_limit=60)
    terms = _terms(word_rho=2.5)
    ledger.charge_all(terms, [_charge("a", author="ann"), _charge("b", author="ann")])
    other = _terms(word_rho=2.5, settings=b"other", distance="another")
    with pytest.raises(LimitError, match="document is 50 rho under all indexes"):
        ledger.charge(other, _charge("a", tokens=11, author="ann"))
    with pytest.raises(LimitError, match="author is 60 rho"):
        ledger.charge(other, _charge("a", tokens=5, author="ann"))
    ledger.charge(other, _charge("a", tokens=4, author="ann"))
    spent = ledger.spent(author="ann")
    assert spent.rho == 24 * 2.5
    assert spent.nats_at(1e-6) == epsilon_of_zcdp(60.0, 1e-6) < spent.nats
    assert "at most 60 rho of zero-concentrated" in ledger.statement
    for rho in (50.0, 60.0):
        factor = factor_in_words(epsilon_of_zcdp(rho, 1e-6))
        assert f"at most {factor} times as likely" in ledger.statement


def test_no_two_collections_of_an_author_lose_more_than_their_rho_converts_to(index, path):
    """Against the exact delta of random pairs of two documents, drawn by two laws (mechanisms.md 10.2)."""
    rng = np.random.default_rng(4)
    laws = [TEM(index, epsilon=0.1), TEM(index, epsilon=0.2, prior="uniform")]
    tables = [
        np.exp([law.log_prob(word) for word in (*range(len(index)), UNKNOWN)]) for law in laws
    ]
    ledger = Ledger(path)
    for number, (law, tokens) in enumerate(zip(laws, (2, 1), strict=True)):
        terms = Terms.of(law, TokenPolicy())
        ledger.charge(terms, _charge(number, tokens=tokens, author="ann"))
    spent = ledger.spent(author="ann")
    for _ in range(200):
        first, second = (
            reduce(
                np.multiply.outer,
                [tables[law][word] for law, word in zip((0, 0, 1), words, strict=True)],
            ).ravel()
            for words in rng.integers(0, len(index) + 1, (2, 3))
        )
        for delta in (1e-9, 1e-4, 0.05):
            odds = np.exp(spent.nats_at(delta))
            assert np.maximum(first - odds * second, 0).sum() <= delta + 1e-12
    assert spent.nats_at(0.05) < spent.nats


def test_a_release_of_an_earlier_version_has_the_rho_of_its_nats(path):
    with Ledger(path) as ledger:
        kept = ledger.charge(TERMS, _charge("a", author="ann")).key
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE releases DROP COLUMN rho")
    with Ledger(path, author_rho_limit=10 * 15**2 / 2) as ledger:
        assert ledger.spent(author="ann").rho == 10 * 15**2 / 2
        assert ledger.charge(TERMS, _charge("a", author="ann")).key == kept
        with pytest.raises(LimitError, match="rho"):
            ledger.charge(TERMS, _charge("b", tokens=1, author="ann"))


def test_the_rho_of_a_release_of_an_earlier_version_is_rounded_up(path):
    with Ledger(path) as ledger:
        ledger.charge(_terms(word_loss=1e-6), _charge("a", tokens=1))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE releases DROP COLUMN rho")
    assert Ledger(path).spent(document="a").rho == 1e-6


@pytest.mark.parametrize("limit", [-1, float("nan"), float("inf")])
def test_a_limit_without_meaning_is_refused(path, limit):
    with pytest.raises(LedgerError, match="document_limit"):
        Ledger(path, document_limit=limit)


def test_the_statement_says_the_limits(path):
    assert "No limit" in Ledger(path).statement
    statement = Ledger(path, document_limit=12, author_limit=5000).statement
    assert "epsilon 12 per unit of distance under each index" in statement
    assert "5000 nats" in statement


# Processes, threads and crashes


def _fork(work, *arguments) -> int:
    """Start a process; it ends as soon as the work does, with exit code 0 if that ended well."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(*arguments)
            code = 0
        finally:
            os._exit(code)
    return child


def _ended_well(child: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


AUTHORS, ACCEPTED, ASKED, PROCESSES = 40, 250, 300, 8


def _write_releases(path: Path, journal: Path, worker: int) -> None:
    """Ask for this worker's share, noting every key as soon as it is there; a restarted worker goes on from its notes.

    Every author has more documents than the limit admits. One document in twenty is asked for by a second worker, too.
    """
    limit = ACCEPTED * TERMS.word_loss * 10
    done = {line.split()[0] for line in journal.read_text().splitlines()}
    order = random.Random(worker)
    share = [
        number
        for number in range(AUTHORS * ASKED)
        if number % PROCESSES == worker or (number % 20 == 0 and number % 7 == worker)
    ]
    todo = [number for number in share if str(number) not in done]
    notes = os.open(journal, os.O_WRONLY | os.O_APPEND)
    with Ledger(path, author_limit=limit) as ledger:
        while todo:
            size = order.randint(1, 16)
            batch, todo = todo[:size], todo[size:]
            try:
                releases = ledger.charge_all(TERMS, [_numbered(number) for number in batch])
                lines = [
                    f"{number} {release.key.hex()}\n"
                    for number, release in zip(batch, releases, strict=True)
                ]
            except LimitError:
                lines = []
                for number in batch:
                    try:
                        key = ledger.charge(TERMS, _numbered(number)).key.hex()
                    except LimitError:
                        key = "refused"
                    lines.append(f"{number} {key}\n")
            os.write(notes, "".join(lines).encode())


def _numbered(number: int) -> Charge:
    return _charge(number, content=b"%d" % number, author=number % AUTHORS)


def test_eight_processes_with_random_kills_lose_nothing_count_nothing_twice_and_pass_no_limit(
    tmp_path,
):
    path = tmp_path / "ledger"
    Ledger(path).close()
    journals = [tmp_path / f"journal-{worker}" for worker in range(PROCESSES)]
    for journal in journals:
        journal.touch()

    def start(worker: int) -> int:
        return _fork(_write_releases, path, journals[worker], worker)

    running = {start(worker): worker for worker in range(PROCESSES)}
    chance, kills = random.Random(5), 0
    next_kill = 0.0  # by progress, not by the clock, so that a fast machine is killed as often
    while running:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended:
            worker = running.pop(ended)
            if os.WIFSIGNALED(status):
                running[start(worker)] = worker
            else:
                assert os.waitstatus_to_exitcode(status) == 0
            continue
        time.sleep(chance.uniform(0.0, 0.01))
        noted = sum(journal.stat().st_size for journal in journals)
        if noted > next_kill:
            os.kill(chance.choice(list(running)), signal.SIGKILL)
            kills += 1
            next_kill = noted + chance.uniform(0, 25_000)  # of some 700,000 bytes
    assert kills >= 10

    notes: dict[int, set[str]] = {}
    for journal in journals:
        for line in journal.read_text().splitlines():
            number, key = line.split()
            notes.setdefault(int(number), set()).add(key)
    assert len(notes) == AUTHORS * ASKED  # everything was answered
    assert all(len(keys) == 1 for keys in notes.values())  # and the same way each time
    accepted = {number: keys.pop() for number, keys in notes.items() if keys != {"refused"}}
    per_author = Counter(number % AUTHORS for number in accepted)
    ledger = Ledger(path)
    for author in range(AUTHORS):
        spent = ledger.spent(author=author)
        # Full to the limit, neither over it nor under: no charge was lost and none counted twice.
        assert spent.releases == spent.documents == ACCEPTED
        assert spent.nats == ACCEPTED * TERMS.word_loss * 10
        assert per_author[author] == ACCEPTED
    for number, key in accepted.items():
        if number % 50 == 0:
            assert ledger.charge(TERMS, _numbered(number)).key.hex() == key
    assert ledger.totals().releases == AUTHORS * ACCEPTED == 10_000


def test_a_process_killed_before_the_end_of_its_transaction_has_counted_nothing(path):
    ledger = Ledger(path)

    def die() -> None:
        with ledger._transaction("BEGIN IMMEDIATE") as connection:
            entry = ledger._entry(TERMS, 2_000_000, _charge("a"))
            ledger._charge(connection, entry, {})
            os.kill(os.getpid(), signal.SIGKILL)

    _, status = os.waitpid(_fork(die), 0)
    assert os.WIFSIGNALED(status)
    assert ledger.totals().releases == 0
    assert ledger.charge(TERMS, _charge("a")).charged


def test_an_exception_inside_a_transaction_undoes_it(path, monkeypatch):
    ledger = Ledger(path)

    def interrupt(length: int) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger_module.os, "urandom", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.charge(TERMS, _charge("a"))
    monkeypatch.undo()
    assert ledger.totals().releases == 0


def test_a_charge_is_flushed_to_the_disk(path):
    ledger = Ledger(path)
    with ledger._transaction("BEGIN") as connection:
        full = 2
        assert connection.execute("PRAGMA synchronous").fetchone() == (full,)


def test_parent_and_child_share_no_connection_and_one_account(path):
    ledger = Ledger(path, document_limit=1000)
    ledger.charge(TERMS, _charge("before"))

    def work() -> None:
        assert ledger._connection is None
        for number in range(50):
            ledger.charge(TERMS, _charge(f"child {number}"))

    child = _fork(work)
    for number in range(50):
        ledger.charge(TERMS, _charge(f"parent {number}"))
    assert _ended_well(child)
    assert ledger.totals().documents == 101


def test_a_fork_waits_for_another_threads_transaction(path):
    ledger = Ledger(path)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger._transaction("BEGIN IMMEDIATE"):
            inside.set()
            leave.wait(10)

    with ThreadPoolExecutor(2) as pool:
        held = pool.submit(hold)
        assert inside.wait(10)
        threading.Timer(0.2, leave.set).start()
        child = _fork(ledger.charge, TERMS, _charge("a"))
        assert leave.is_set()
        held.result()
    assert _ended_well(child)
    assert ledger.totals().releases == 1


def test_threads_share_a_ledger(path):
    ledger = Ledger(path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: ledger.charge(TERMS, _charge(n % 20)), range(100)))
    assert ledger.totals().releases == 20


def test_many_processes_may_make_the_same_ledger_at_once(path):
    children = [_fork(lambda n: Ledger(path).charge(TERMS, _charge(n)), n) for n in range(8)]
    ended = [_ended_well(child) for child in children]
    assert all(ended)
    assert Ledger(path).totals().documents == 8
    assert sorted(os.listdir(path.parent))[0] == "ledger"  # no hidden rest


def test_a_ledger_travels_by_its_path_and_keeps_its_limits(path):
    ledger = Ledger(path, document_limit=2, document_nats_limit=300, author_limit=150)
    key = ledger.charge(TERMS, _charge("a", author="ann")).key
    copy = pickle.loads(pickle.dumps(ledger))
    assert copy.charge(TERMS, _charge("a", author="ann")).key == key
    assert (copy.document_limit, copy.document_nats_limit, copy.author_limit) == (2, 300, 150)


def test_a_held_ledger_is_waited_for_and_then_reported(path, monkeypatch):
    monkeypatch.setattr("textpriv.ledger.store._PATIENCE", 0.1)
    ledger = Ledger(path)
    ledger.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="another process"):
            ledger.charge(TERMS, _charge("a"))


# The file


def test_no_text_and_no_name_is_in_the_file(path):
    names = [f"{SECRET}-name", f"{SECRET}-author"]
    with Ledger(path, document_limit=5) as ledger:
        for content in (b"plain " + SECRET.encode(), SECRET.encode("utf-16")):
            ledger.charge(TERMS, Charge(Document(names[0], names[1]), content, 3))
        with pytest.raises(LimitError) as refusal:
            ledger.charge(TERMS, Charge(Document(*names), SECRET.encode(), 3))
        files = [p.read_bytes() for p in path.parent.iterdir()]
        assert len(files) == 3  # the log and the shared memory, too
    assert SECRET not in str(refusal.value)
    assert SECRET not in repr(Charge(Document(*names), SECRET.encode(), 3))
    for content in [*files, path.read_bytes()]:
        for form in (SECRET.encode(), SECRET.encode("utf-16-le"), SECRET.encode().hex().encode()):
            assert form not in content


def test_two_ledgers_hash_one_name_differently(tmp_path):
    rows = []
    for name in ("one", "two"):
        with Ledger(tmp_path / name) as ledger:
            ledger.charge(TERMS, _charge("a", author="ann"))
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as connection:
            rows += connection.execute("SELECT document, author, content, key FROM releases")
    assert all(left != right for left, right in zip(*rows, strict=True))


def test_only_the_owner_may_read_any_of_its_files(path):
    mask = os.umask(0)
    try:
        with Ledger(path) as ledger:
            ledger.charge(TERMS, _charge("a"))
            modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    finally:
        os.umask(mask)
    assert modes == {"ledger": 0o600, "ledger-wal": 0o600, "ledger-shm": 0o600}


def test_a_ledger_that_others_may_read_is_refused(path):
    Ledger(path).close()
    path.chmod(0o640)
    with pytest.raises(LedgerError, match="chmod 600"):
        Ledger(path)


@pytest.mark.parametrize("content", [b"", b"name,text\n1,zanzibar\n" * 99, b"SQLite format 3\0"])
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(LedgerError, match="no ledger") as refusal:
        Ledger(path)
    assert SECRET not in str(refusal.value)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_left_alone(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE releases (document)")
        connection.commit()
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["cut", "page"])
def test_a_damaged_ledger_is_refused(path, damage):
    with Ledger(path) as ledger:
        ledger.charge_all(TERMS, [_charge(number) for number in range(300)])
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    else:
        content[3 * 4096 : 4 * 4096] = os.urandom(4096)
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(path)


def test_a_ledger_without_its_tables_is_refused(path):
    Ledger(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE secret")
        connection.commit()
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(path)


def test_a_newer_format_is_refused(path):
    Ledger(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(LedgerError, match="Upgrade textpriv"):
        Ledger(path)


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("how", ["new", "copy"])
def test_a_ledger_that_is_replaced_while_in_use_is_refused(path, how, is_open):
    other = path.with_name("other")
    ledger = Ledger(path, document_limit=2)
    ledger.close()
    if how == "new":
        Ledger(other).close()
    else:
        other.write_bytes(path.read_bytes())
        other.chmod(0o600)
    ledger.charge(TERMS, _charge("a"))
    if not is_open:
        ledger.close()
    os.replace(other, path)
    with pytest.raises(LedgerError, match="was replaced by another file"):
        ledger.charge(_terms(settings=b"more"), _charge("a"))
    with pytest.raises(LedgerError, match="was replaced by another file"):
        ledger.spent(document="a")


def test_a_new_ledger_in_the_same_inode_is_told_by_its_secret(path):
    ledger = Ledger(path)
    ledger.close()
    Ledger(path.with_name("other")).close()
    path.write_bytes(path.with_name("other").read_bytes())
    for _ in range(2):
        with pytest.raises(LedgerError, match="was replaced by another file"):
            ledger.charge(TERMS, _charge("a"))


def test_a_ledger_that_was_removed_while_in_use_is_refused(path):
    ledger = Ledger(path)
    ledger.charge(TERMS, _charge("a"))
    path.unlink()
    with pytest.raises(LedgerError, match="cannot open the ledger"):
        ledger.charge(_terms(settings=b"more"), _charge("a"))
    assert not path.exists()


def test_a_ledger_of_the_version_before_still_opens_and_keeps_its_sums(path):
    """Format 1 as it was written before documents had a limit in nats."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            CREATE TABLE secret (value BLOB NOT NULL CHECK (length(value) = 32));
            CREATE TABLE releases (
                document BLOB NOT NULL, settings BLOB NOT NULL, content BLOB NOT NULL, author BLOB,
                distance TEXT NOT NULL, epsilon INTEGER NOT NULL CHECK (epsilon > 0),
                nats INTEGER NOT NULL CHECK (nats >= 0), tokens INTEGER NOT NULL CHECK (tokens >= 0),
                key BLOB NOT NULL CHECK (length(key) = 32),
                PRIMARY KEY (document, settings, content)
            ) WITHOUT ROWID;
            CREATE INDEX by_author ON releases (author, nats);
            PRAGMA application_id = 1953524839;
            PRAGMA user_version = 1;
            """
        )
        secret = bytes(range(32))
        name = hashlib.blake2b(b"sa", digest_size=16, key=secret, person=b"document").digest()
        row = (name, b"s", b"c", None, "euclidean", 2_000_000, 150_000_000, 10, bytes(32))
        connection.execute("INSERT INTO secret VALUES (?)", (secret,))
        connection.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    path.chmod(0o600)
    ledger = Ledger(path, document_limit=3, document_nats_limit=200)
    assert ledger.spent(document="a").nats == 150
    with pytest.raises(LimitError, match="nats under all indexes"):
        ledger.charge(_terms(distance="angular"), _charge("a"))
    with pytest.raises(LimitError, match="under this index"):
        ledger.charge(TERMS, _charge("a", tokens=1))


@pytest.mark.parametrize("damage", range(40))
def test_a_damaged_ledger_is_refused_in_one_sentence_or_gives_its_sums(path, damage):
    with Ledger(path) as ledger:
        ledger.charge_all(TERMS, [_charge(number, author="ann") for number in range(60)])
    content = bytearray(path.read_bytes())
    chance = random.Random(damage)
    for _ in range(1 + damage % 4):
        place = chance.randrange(100 if damage % 2 else len(content))
        content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    with contextlib.suppress(LedgerError), Ledger(path) as ledger:
        ledger.spent(author="ann")
        ledger.charge(_terms(settings=b"more"), _charge(0, author="ann"))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE secret SET value = 'zanzibar zanzibar zanzibar zanzi'",
        "PRAGMA ignore_check_constraints = 1; UPDATE releases SET nats = 'zanzibar'",
        "PRAGMA ignore_check_constraints = 1; UPDATE releases SET epsilon = x'00'",
        "UPDATE releases SET distance = x'ff'",
        "DROP TABLE releases",
        "ALTER TABLE releases RENAME COLUMN tokens TO zanzibar",
        "DELETE FROM secret",
    ],
)
def test_a_ledger_with_strange_values_is_refused(path, change):
    with Ledger(path) as ledger:
        ledger.charge(TERMS, _charge("a"))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(change)
        connection.commit()
    with pytest.raises(LedgerError, match="damaged") as refusal:
        Ledger(path)
    assert SECRET not in str(refusal.value)


def test_a_folder_where_a_ledger_should_be_is_refused(path):
    path.mkdir()
    with pytest.raises(LedgerError, match="is not a file"):
        Ledger(path)


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_cannot_be_written_is_reported(there):
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        path = Path(folder) / "ledger"
        if there:
            Ledger(path).close()
        os.chmod(folder, 0o555)

        def work() -> None:
            if os.geteuid() == 0:  # no folder is closed to root
                if there:
                    os.chown(path, 65534, -1)
                os.setuid(65534)
            with pytest.raises(LedgerError, match="writable" if there else "can write to"):
                Ledger(path).charge(TERMS, _charge("a"))

        child = _fork(work)
        assert _ended_well(child)
        assert os.listdir(folder) == (["ledger"] if there else [])


@pytest.mark.parametrize("name", ["missing/ledger", ""])
def test_a_place_where_no_ledger_can_be_is_reported(tmp_path, name):
    with pytest.raises(LedgerError):
        Ledger(tmp_path / name)


def test_a_name_with_special_characters_is_only_a_name(tmp_path):
    path = tmp_path / "a ?mode=memory&#%41 é"
    with Ledger(path) as ledger:
        ledger.charge(TERMS, _charge("a"))
    assert Ledger(path).totals().releases == 1
    assert [p.name for p in tmp_path.iterdir() if not p.name.endswith(("-wal", "-shm"))] == [
        path.name
    ]


def test_both_halves_of_the_secret_of_shared_draws_are_of_their_own(path):
    key = Ledger(path).scope_key
    assert len(key) == 32
    assert key[:16] != key[16:]


def test_the_mark_of_a_ledger_is_its_own_and_stays(tmp_path):
    with Ledger(tmp_path / "a") as first, Ledger(tmp_path / "b") as second:
        assert first.mark == Ledger(tmp_path / "a").mark != second.mark
        assert first._secret not in first.mark


# Terms


def test_the_terms_are_those_of_the_statement(index):
    mechanism = TEM(index, epsilon=6.0)
    figures = mechanism.statement.figures
    terms = Terms.of(mechanism, TokenPolicy())
    assert terms.epsilon == 6.0
    assert terms.word_loss == figures["worst_word_loss"] + figures["numerical_slack"]
    # A law whose loss moves within a range is rho = range^2 / 8 in zCDP (mechanisms.md 10.2).
    assert terms.word_rho == mechanism.statement.range_at(float("inf")) ** 2 / 8


def test_distances_by_two_matrices_are_two_units(index):
    size = index.vocabulary.vectors.shape[1]
    made = [
        Index.build(index.vocabulary, metric=Mahalanobis(np.diag(np.arange(first, first + size))))
        for first in (1.0, 2.0)
    ]
    first, second = (Terms.of(TEM(each, epsilon=6.0), TokenPolicy()).distance for each in made)
    assert first != second


def test_everything_that_decides_a_draw_changes_the_settings(index):
    words, vectors = index.vocabulary.words, np.array(index.vocabulary.vectors)
    moved = Index.build(Vocabulary(words, vectors * 2))
    fewer = Index.build(Vocabulary(words, vectors), k=4)
    angular = Index.build(Vocabulary(words, vectors), metric="angular")
    unbounded = Index.build(Vocabulary(words, vectors))
    unbounded.neighbours = replace(unbounded.neighbours, bands=None)
    counts = np.arange(1.0, len(words) + 1)
    policy = TokenPolicy()
    terms = [
        Terms.of(TEM(index, epsilon=6.0), policy),
        Terms.of(TEM(index, epsilon=6.0), TokenPolicy(number="mask")),
        Terms.of(TEM(index, epsilon=7.0), policy),
        Terms.of(TEM(index, epsilon=6.0, gamma=1.0), policy),
        Terms.of(TEM(index, epsilon=6.0), policy),
        Terms.of(TEM(index, epsilon=6.0, prior=counts), policy),
        Terms.of(TEM(index, epsilon=6.0, prior=counts[::-1]), policy),
        Terms.of(TEM(fewer, epsilon=6.0), policy),
        Terms.of(TEM(unbounded, epsilon=6.0), policy),
        Terms.of(TEM(moved, epsilon=6.0), policy),
        Terms.of(TEM(angular, epsilon=6.0), policy),
    ]
    assert len({each.settings for each in terms}) == len(terms)
    # The distance is another only where a unit of it is.
    assert len({each.distance for each in terms}) == 3
    assert len({each.distance for each in terms[:-2]}) == 1


def test_the_same_settings_are_recognised_in_another_process_and_after_saving(index):
    built = Index.build(Vocabulary(index.vocabulary.words, np.array(index.vocabulary.vectors)))
    policy = TokenPolicy()
    assert Terms.of(TEM(built, epsilon=6.0), policy) == Terms.of(TEM(index, epsilon=6), policy)


def test_a_rate_that_is_computed_is_recognised_by_its_value(index):
    mechanism = TEM(index, epsilon=6.0)
    before = Terms.of(mechanism, TokenPolicy())
    mechanism.t *= 1 - 1e-12
    assert Terms.of(mechanism, TokenPolicy()).settings != before.settings


def test_a_new_version_of_the_package_is_new_settings(index, monkeypatch):
    before = Terms.of(TEM(index, epsilon=6.0), TokenPolicy())
    monkeypatch.setattr("textpriv.__version__", "999")
    assert Terms.of(TEM(index, epsilon=6.0), TokenPolicy()).settings != before.settings


def test_a_mechanism_without_a_proved_guarantee_cannot_be_counted(index):
    class Unproved(TEM):
        @property
        def statement(self):
            return replace(super().statement, proved=False)

    with pytest.raises(LedgerError, match="proved"):
        Terms.of(Unproved(index, epsilon=6.0), TokenPolicy())


# The privatizer


class _Spied(TEM):
    """A mechanism that remembers how many documents it was asked to draw."""

    drawn = 0

    def sample_documents(self, ids, offsets, streams):
        self.drawn += len(streams)
        return super().sample_documents(ids, offsets, streams)


TEXT = "A good film, a slow plot: " * 20


def test_the_same_text_is_released_the_same_way_and_counted_once(index, path):
    one = Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path))
    two = Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path))
    assert one.privatize(TEXT, "a") == two.privatize(TEXT, "a")
    assert one.privatize(TEXT, "b") != two.privatize(TEXT, "a")
    assert Ledger(path).spent(document="a").epsilon.popitem()[1] == 1.0


def test_another_epsilon_is_another_release(index, path):
    ledger = Ledger(path)
    Privatizer(TEM(index, epsilon=1.0), ledger=ledger).privatize(TEXT, "a")
    Privatizer(TEM(index, epsilon=2.5), ledger=ledger).privatize(TEXT, "a")
    spent = ledger.spent(document="a")
    assert spent.releases == 2
    assert list(spent.epsilon.values()) == [3.5]


def test_one_changed_word_is_another_release_with_draws_of_its_own(index, path):
    private = Privatizer(TEM(index, epsilon=1e-6), ledger=Ledger(path))
    before = private.privatize(TEXT, "a")
    after = private.privatize(TEXT.replace("film", "plot", 1), "a")
    assert private.ledger.spent(document="a").releases == 2
    # At this epsilon the draws do not depend on the words, so equal draws would give equal texts.
    assert before != after


def test_what_reaches_no_draw_costs_nothing(index, path):
    private = Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path))
    before = private.privatize("Good film!", "a")
    assert private.privatize("GOOD  film?", "a") == before.replace("!", "?")
    assert private.privatize("...", "b") == "..."
    assert private.ledger.totals().releases == 1


def test_the_loss_counts_the_words_that_are_drawn(index, path):
    mechanism = TEM(index, epsilon=1.0)
    private = Privatizer(mechanism, TokenPolicy(number="mask"), ledger=Ledger(path))
    private.privatize("Good film, 17 bad plots.", Document("a", "ann"))
    spent = private.ledger.spent(author="ann")
    assert spent.tokens == 4
    assert spent.nats == pytest.approx(4 * mechanism.statement.figures["worst_word_loss"], rel=1e-5)


def test_nothing_is_drawn_after_a_refusal(index, path):
    mechanism = _Spied(index, epsilon=1.0)
    private = Privatizer(mechanism, ledger=Ledger(path, document_limit=1.5))
    keys = ["a", "b", "a", "c"]
    texts = ["good", "bad", "film", "plot"]  # the third is a second version of the first
    with pytest.raises(LimitError, match="document 2: the limit of this document"):
        list(private.pipe(texts, keys))
    assert mechanism.drawn == 0
    assert private.ledger.totals().releases == 0
    assert len(list(private.pipe(texts[:2], keys))) == 2
    assert mechanism.drawn == 2


def test_nothing_is_drawn_where_the_ledger_cannot_write(index, path, monkeypatch):
    mechanism = _Spied(index, epsilon=1.0)
    private = Privatizer(mechanism, ledger=Ledger(path))

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(private.ledger, "_charge", fail)
    with pytest.raises(LedgerError, match="disk is full"):
        private.privatize("good", "a")
    assert mechanism.drawn == 0


def test_a_refusal_counts_documents_from_the_first_batch_on(index, path):
    private = Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path, document_limit=1.5))
    texts, keys = ["good", "bad", "...", "film"], ["a", "b", "c", "a"]
    with pytest.raises(LimitError, match="document 3:"):
        list(private.pipe(texts, keys, batch_size=2))


@pytest.mark.parametrize("keys", [None, [Stream()], [None]])
def test_a_ledger_needs_a_name_for_every_document(index, path, keys):
    private = Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path))
    with pytest.raises(LedgerError, match="names of documents"):
        private.release(private.read("good"), keys)


@pytest.mark.parametrize("options", [{"seed": 1}, {"run_key": bytes(32)}])
def test_a_ledger_goes_with_no_other_source_of_randomness(index, path, options):
    with pytest.raises(TextprivError, match="no seed and no run_key"):
        Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path), **options)


def test_a_document_with_an_author_needs_a_ledger(index):
    with pytest.raises(TextprivError, match="pass ledger="):
        Privatizer(TEM(index, epsilon=1.0)).privatize("good", Document("a", "ann"))


def test_a_ready_stream_is_read_as_it_is(index, path):
    release = Ledger(path).charge(TERMS, _charge("a"))
    private = Privatizer(TEM(index, epsilon=1.0))
    one = private.release(private.read(TEXT), [release.stream()])
    two = private.release(private.read(TEXT), [Stream(release.key)])
    assert one[0].text == two[0].text


def test_the_release_says_that_it_is_counted_and_what_that_shows(index, path):
    private = Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path, document_limit=2))
    plain = Privatizer(TEM(index, epsilon=1.0)).statement
    added = set(private.statement.not_protected) - set(plain.not_protected)
    assert added == {"whether a document has changed since its last release under the same name"}
    assert "epsilon 2 per unit of distance" in private.statement.paragraph()


def test_a_privatizer_takes_its_ledger_to_other_processes(index, path):
    private = Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path))
    copy = pickle.loads(pickle.dumps(private))
    assert copy.privatize(TEXT, "a") == private.privatize(TEXT, "a")
    assert private.ledger.totals().releases == 1


# Files and the command


def _settings(index: Index, path: Path, **limits) -> PrivatizerSettings:
    return PrivatizerSettings(
        index=str(index.path), options={"epsilon": 1.0}, ledger=str(path), **limits
    )


def _corpus(path: Path, count: int = 12) -> Path:
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "by", "text"])
        rows.writerows([n, n % 3, f"good film {'slow ' * n}"] for n in range(count))
    return path


@pytest.mark.usefixtures("without_torch")
def test_a_corpus_is_counted_by_its_columns_and_repeated_for_nothing(index, path, tmp_path):
    source = _corpus(tmp_path / "in.csv")
    made = _settings(index, path)
    outputs = []
    for workers in (1, 2):
        target = tmp_path / f"out-{workers}.csv"
        privatize_corpus(
            source,
            target,
            made.build(),
            batch_size=5,
            workers=workers,
            settings=made,
            document_column="id",
            author_column="by",
        )
        outputs.append(target.read_bytes())
    assert outputs[0] == outputs[1]
    totals = Ledger(path).totals()
    assert (totals.documents, totals.releases) == (12, 12)
    assert Ledger(path).spent(author="1").tokens == sum(2 + n for n in range(12) if n % 3 == 1)


def test_a_refused_record_is_named_and_leaves_no_output(index, path, tmp_path):
    source = tmp_path / "in.jsonl"
    rows = [{"id": n % 4, "text": f"good {'slow ' * n}"} for n in range(6)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = _settings(index, path, document_limit=1.0)
    target = tmp_path / "out.jsonl"
    with pytest.raises(LimitError, match="record 5: the limit"):
        privatize_corpus(source, target, made.build(), batch_size=4, document_column="id")
    assert not target.exists()


def test_a_worker_that_is_refused_names_the_record(path):
    with pytest.raises(LimitError) as refusal:
        Ledger(path, document_limit=1).charge(TERMS, _charge("a"))
    error = pickle.loads(pickle.dumps(refusal.value))
    with pytest.raises(LimitError, match="record 8: the limit"):
        raise named_error(error, lambda row: f"record {row + 8}")


def test_a_record_without_a_name_is_refused(index, path, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": 1, "text": "good"}\n{"id": null, "text": "zanzibar"}\n')
    private = _settings(index, path).build()
    with pytest.raises(CorpusError, match="record 2") as refusal:
        privatize_corpus(source, tmp_path / "out.jsonl", private, document_column="id")
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "column", "match"),
    [
        ("in.csv", None, "go together"),
        ("in.csv", "no", "one column"),
        ("in.txt", "id", "text file"),
    ],
)
def test_a_ledger_needs_a_column_of_names(index, path, tmp_path, name, column, match):
    source = _corpus(tmp_path / name)
    private = _settings(index, path).build()
    with pytest.raises(CorpusError, match=match):
        privatize_corpus(source, tmp_path / f"out-{name}", private, document_column=column)


def _privatize(index: Index, tmp_path: Path, *options: str):
    source, target = _corpus(tmp_path / "in.csv"), tmp_path / "out.csv"
    given = ["--index", str(index.path), "-e", "1", *options]
    return CliRunner().invoke(app, ["privatize", str(source), str(target), *given])


def test_the_command_counts_and_refuses(index, path, tmp_path):
    account = ["--ledger", str(path), "--document", "id", "--author", "by"]
    assert _privatize(index, tmp_path, *account).exit_code == 0
    first = (tmp_path / "out.csv").read_bytes()
    account.append("--force")
    assert _privatize(index, tmp_path, *account, "--author-limit", "0").exit_code == 0
    assert (tmp_path / "out.csv").read_bytes() == first
    for limit in (
        ["--document-limit", "1.5"],
        ["--document-nats-limit", "1"],
        ["--author-rho-limit", "1"],
    ):
        refused = _privatize(index, tmp_path, *account, *limit, "--number", "mask")
        assert refused.exit_code == 1
        assert "the limit of this" in refused.stderr.replace("\n", " ")
    assert Ledger(path).totals().documents == 12


@pytest.mark.parametrize(
    "options",
    [
        ["--author-limit", "5"],
        ["--document-nats-limit", "5"],
        ["--ledger", "l", "--document", "id", "--author-rho-limit", "5"],
        ["--ledger", "l"],
        ["--ledger", "l", "--document", "id", "--author-limit", "5"],
        ["--ledger", "l", "--document", "id", "--seed", "1"],
    ],
)
def test_options_of_the_ledger_that_mean_nothing_are_usage_errors(index, tmp_path, options):
    assert _privatize(index, tmp_path, *options).exit_code == 2
    assert not (tmp_path / "out.csv").exists()
