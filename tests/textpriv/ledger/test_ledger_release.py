"""Releases under a ledger: what they cost, what repeats them, and what stops them."""

from __future__ import annotations

import csv
import datetime
import pickle
import re
import sqlite3
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

from textpriv import TEM
from textpriv.cli.app import app
from textpriv.errors import LedgerError, LimitError, TextprivError
from textpriv.index import Index
from textpriv.ledger import Charge, DocumentName, Ledger, Terms, settings_fingerprint
from textpriv.mechanisms.base import UNKNOWN
from textpriv.privatizer import Privatizer
from textpriv.randomness import Stream
from textpriv.settings import PrivatizerSettings
from textpriv.spans.detectors import RegexDetector
from textpriv.spans.mechanisms.dates import DateShift
from textpriv.spans.policy import SpanPolicy
from textpriv.statement import epsilon_of_zcdp
from textpriv.tokenization.policy import TokenPolicy
from textpriv.vocabulary import Vocabulary

TEXT = "A good film, a slow plot: " * 20


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Index:
    words = ["good", "bad", "film", "plot", "slow", "fine", "long", "dull"]
    vectors = np.random.default_rng(3).normal(size=(len(words), 4))
    folder = tmp_path_factory.mktemp("ledger") / "index"
    Index.build(Vocabulary(words, vectors), "euclidean").save(folder)
    return Index.load(folder)


@pytest.fixture(scope="module")
def moved(index) -> Index:
    """The same words with other vectors."""
    vectors = np.random.default_rng(4).normal(size=index.vocabulary.vectors.shape)
    return Index.build(Vocabulary(index.vocabulary.words, vectors), "euclidean")


class Spied(TEM):
    """A mechanism that counts the documents that it was asked to draw."""

    drawn = 0

    def sample_documents(self, ids, offsets, streams):
        self.drawn += len(streams)
        return super().sample_documents(ids, offsets, streams)


# Terms


def test_the_terms_are_those_of_the_statement(index):
    statement = TEM(index, epsilon=6.0).statement
    terms = Terms.of(TEM(index, epsilon=6.0), b"")
    assert terms.epsilon == 6.0
    assert terms.word_loss >= statement.figures["worst_word_loss"]
    # A loss that moves within a range is rho = range^2 / 8 in zCDP (Cesar and Rogers 2021).
    assert terms.word_rho == statement.range_at(float("inf")) ** 2 / 8


def test_everything_that_decides_a_draw_changes_the_settings(index, moved, monkeypatch):
    counts = np.arange(1.0, len(index) + 1)
    policy = TokenPolicy()
    tem = partial(TEM, index)
    settings = [
        settings_fingerprint(tem(epsilon=6.0), policy),
        settings_fingerprint(tem(epsilon=6.0), TokenPolicy(number="mask")),
        settings_fingerprint(tem(epsilon=6.0), policy, language="de"),
        settings_fingerprint(tem(epsilon=7.0), policy),
        settings_fingerprint(tem(epsilon=6.0, gamma=1.0), policy),
        settings_fingerprint(tem(epsilon=6.0, prior=counts), policy),
        settings_fingerprint(tem(epsilon=6.0, prior=counts[::-1]), policy),
        settings_fingerprint(TEM(moved, epsilon=6.0), policy),
    ]
    monkeypatch.setattr("textpriv.__version__", "999")
    settings.append(settings_fingerprint(tem(epsilon=6.0), policy))
    assert len(set(settings)) == len(settings)


def test_the_distance_is_another_only_with_other_vectors(index, moved):
    laws = [TEM(index, epsilon=6.0), TEM(index, epsilon=7.0, gamma=1.0), TEM(moved, epsilon=6.0)]
    first, second, third = (Terms.of(law, b"").distance for law in laws)
    assert first == second != third


def test_settings_are_recognised_in_another_process_and_after_saving(index):
    built = Index.build(
        Vocabulary(index.vocabulary.words, np.array(index.vocabulary.vectors)), "euclidean"
    )
    here, there = (
        (Terms.of(law, b""), settings_fingerprint(law, TokenPolicy()))
        for law in (TEM(built, epsilon=6.0), TEM(index, epsilon=6))
    )
    assert here == there


def test_a_mechanism_without_a_proved_guarantee_cannot_be_counted(index):
    class Unproved(TEM):
        @property
        def statement(self):
            return replace(super().statement, proved=False)

    with pytest.raises(LedgerError, match="proved"):
        Terms.of(Unproved(index, epsilon=6.0), b"")


def test_no_two_collections_lose_more_than_their_rho_converts_to(index, path):
    """Against the exact delta of random pairs of two documents of an author, drawn by two mechanisms."""
    rng = np.random.default_rng(4)
    laws = [TEM(index, epsilon=0.1), TEM(index, epsilon=0.2, prior="uniform")]
    ids = (*range(len(index)), UNKNOWN)
    tables = [np.exp([law.log_prob(word) for word in ids]) for law in laws]
    ledger = Ledger(path)
    for name, (law, tokens) in enumerate(zip(laws, (2, 1), strict=True)):
        charge = Charge(DocumentName(name, "ann"), b"words", tokens)
        ledger.charge(Terms.of(law, b"%d" % name), charge)
    spent = ledger.spent(author="ann")
    for _ in range(200):
        first, second = (
            np.einsum("i,j,k->ijk", tables[0][a], tables[0][b], tables[1][c]).ravel()
            for a, b, c in rng.integers(0, len(ids), (2, 3))
        )
        for delta in (1e-9, 1e-4, 0.05):
            odds = np.exp(min(spent.nats, epsilon_of_zcdp(spent.rho, delta)))
            assert np.maximum(first - odds * second, 0).sum() <= delta + 1e-12
    assert epsilon_of_zcdp(spent.rho, 0.05) < spent.nats


# Texts


def test_the_same_text_is_released_the_same_way_and_counted_once(index, path):
    one, two = (Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path)) for _ in range(2))
    assert one.privatize(TEXT, "a") == two.privatize(TEXT, "a")
    assert one.privatize(TEXT, "b") != two.privatize(TEXT, "a")
    copy = pickle.loads(pickle.dumps(one))
    assert copy.privatize(TEXT, "a") == one.privatize(TEXT, "a")
    assert list(Ledger(path).spent(document="a").epsilon.values()) == [1.0]


def test_another_epsilon_or_word_is_another_release_with_its_own_draws(index, path):
    ledger = Ledger(path)
    private = Privatizer(TEM(index, epsilon=1e-6), ledger=ledger)
    before = private.privatize(TEXT, "a")
    # At this epsilon the draws hardly depend on the words, so equal streams would give equal texts.
    assert private.privatize(TEXT.replace("film", "plot", 1), "a") != before
    Privatizer(TEM(index, epsilon=2.5), ledger=ledger).privatize(TEXT, "a")
    assert ledger.spent(document="a").releases == 3


def test_the_loss_counts_the_words_that_are_drawn(index, path):
    mechanism = TEM(index, epsilon=1.0)
    private = Privatizer(mechanism, TokenPolicy(number="mask"), ledger=Ledger(path))
    private.privatize("Good film, 17 bad plots.", DocumentName("a", "ann"))
    assert private.privatize("...", "b") == "..."  # nothing is drawn
    spent = private.ledger.spent()
    assert (spent.releases, spent.tokens) == (1, 4)
    assert spent.nats == pytest.approx(4 * mechanism.statement.figures["worst_word_loss"], rel=1e-5)


def test_nothing_is_drawn_after_a_refusal(index, path, monkeypatch):
    mechanism = Spied(index, epsilon=1.0)
    private = Privatizer(mechanism, ledger=Ledger(path, document_limit=1.5))
    texts, keys = ["good", "bad", "film", "plot"], ["a", "b", "a", "c"]
    with pytest.raises(LimitError, match="document 2: the limit of this document"):
        list(private.pipe(texts, keys))
    assert (mechanism.drawn, private.ledger.spent().releases) == (0, 0)

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(private.ledger, "_charge", fail)
    with pytest.raises(LedgerError, match="disk is full"):
        private.privatize("good", "d")
    assert mechanism.drawn == 0


@pytest.mark.parametrize("keys", [None, [Stream()], [None]])
def test_a_ledger_needs_a_name_for_every_document(index, path, keys):
    private = Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path))
    with pytest.raises(LedgerError, match="names of documents"):
        list(private.pipe(["good"], keys))


@pytest.mark.parametrize("options", [{"seed": 1}, {"run_key": bytes(32)}])
def test_a_ledger_goes_with_no_other_source_of_randomness(index, path, options):
    with pytest.raises(TextprivError, match="ledger"):
        Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path), **options)


@pytest.mark.parametrize("wrong", [{"options": {"epsilon": -1.0}}, {"detect": ["no such"]}])
def test_settings_that_are_refused_make_no_ledger(index, path, wrong):
    settings = PrivatizerSettings(**{"options": {"epsilon": 1.0}, "spans": "chat", **wrong})
    with pytest.raises(TextprivError):
        replace(settings, ledger=str(path)).build(index)
    assert not path.exists()


def test_the_statement_says_what_is_counted_and_what_that_shows(index, path):
    private = Privatizer(TEM(index, epsilon=1.0), ledger=Ledger(path, document_limit=2))
    plain = Privatizer(TEM(index, epsilon=1.0)).statement
    added = set(private.statement.not_protected) - set(plain.not_protected)
    assert added == {"whether a document has changed since its last release under the same name"}
    assert "epsilon 2 per unit of distance" in " ".join(str(private.statement).split())


def test_a_persons_dates_cost_once_even_if_chosen_by_an_earlier_release(three_points, path):
    """The last date follows from the first release, under a ledger that is opened again."""
    law = DateShift(0.01, kind="DATE")
    detector = RegexDetector({"DATE": r"\d{4}-\d\d-\d\d"})

    def release(name, day, author="ann"):
        ledger = Ledger(path, author_limit=1.5 * law.claim().largest)
        made = Privatizer(
            TEM(three_points, epsilon=0.8),
            spans=SpanPolicy({"DATE": law}),
            detector=detector,
            ledger=ledger,
        )
        text = made.privatize(f"{day} {day}", DocumentName(name, author))
        moved = datetime.date.fromisoformat(re.findall(r"\d{4}-\d\d-\d\d", text)[0])
        return moved, ledger.spent(author=author).nats

    first = datetime.date(2020, 2, 28)
    out, nats = release("one", first)
    assert nats == pytest.approx(law.claim().largest, abs=1e-5)
    second = first + datetime.timedelta(out.day)
    later, again = release("two", second)
    assert (later - second, again) == (out - first, nats)
    _, of_bob = release("three", first, "bob")
    assert of_bob == nats


# Files


def corpus(path, count=12):
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "by", "text"])
        rows.writerows([n, n % 3, f"good film {'slow ' * n}"] for n in range(count))
    return path


def privatize(index, tmp_path, *options):
    source, target = corpus(tmp_path / "in.csv"), tmp_path / "out.csv"
    given = ["--index", str(index.path), "-e", "1", *options]
    return CliRunner().invoke(app, ["privatize", str(source), str(target), *given])


def test_the_command_counts_by_columns_repeats_for_nothing_and_refuses(index, path, tmp_path):
    account = ["--ledger", str(path), "--document", "id", "--author", "by"]
    assert privatize(index, tmp_path, *account).exit_code == 0
    first = (tmp_path / "out.csv").read_bytes()
    assert Ledger(path).spent(author="1").tokens == sum(2 + n for n in range(12) if n % 3 == 1)
    account.append("--force")
    assert privatize(index, tmp_path, *account, "--author-limit", "0").exit_code == 0
    assert (tmp_path / "out.csv").read_bytes() == first
    for limit in (["--document-limit", "1.5"], ["--author-rho-limit", "1"]):
        refused = privatize(index, tmp_path, *account, *limit, "--number", "mask")
        assert refused.exit_code == 1
        assert "the limit of this" in refused.stderr.replace("\n", " ")
    assert Ledger(path).spent().releases == 12


@pytest.mark.parametrize(
    "options",
    [
        ["--author-limit", "5"],
        ["--ledger", "l"],
        ["--ledger", "l", "--document", "id", "--author-limit", "5"],
        ["--ledger", "l", "--document", "id", "--seed", "1"],
    ],
)
def test_options_of_the_ledger_that_mean_nothing_are_usage_errors(index, tmp_path, options):
    assert privatize(index, tmp_path, *options).exit_code == 2
    assert not (tmp_path / "out.csv").exists()
