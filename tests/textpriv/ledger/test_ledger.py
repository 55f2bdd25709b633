"""The account: sums, identities, limits and draws that releases share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textpriv.errors import LedgerError, LimitError
from textpriv.ledger import Charge, DocumentName, Ledger, Shared, Spent, Terms

TERMS = Terms(settings=b"s" * 32, distance="euclidean", epsilon=2.0, word_loss=15.0)
CHEAP = Terms(b"settings", "euclidean", epsilon=1.0, word_loss=2.0, word_rho=1.0)
SHIFT = Shared(b"shift", "person", 10.0, 50.0)
OTHER = Shared(b"other", "person", 3.0, 4.5)
OWN = Shared(b"shift", "document", 7.0, 24.5)


def charge(name, author=None, content=b"words", tokens=10, shared=()):
    return Charge(DocumentName(name, author), content, tokens, shared=tuple(shared))


@pytest.fixture
def ledger(path):
    return Ledger(path)


# Sums


def test_epsilons_of_a_documents_releases_add_up(ledger):
    ledger.charge(TERMS, charge("a"))
    ledger.charge(replace(TERMS, settings=b"other", epsilon=6.0), charge("a"))
    ledger.charge(TERMS, charge("b"))
    spent = ledger.spent(document="a")
    assert (spent.documents, spent.releases, spent.epsilon) == (1, 2, {"euclidean": 8.0})


def test_epsilons_under_two_distances_are_never_added(path):
    ledger = Ledger(path, document_limit=3)
    ledger.charge(TERMS, charge("a"))
    ledger.charge(replace(TERMS, settings=b"other", distance="manhattan"), charge("a"))
    assert ledger.spent(document="a").epsilon == {"euclidean": 2.0, "manhattan": 2.0}


def test_words_without_a_rho_have_half_the_square_of_their_loss(ledger):
    ledger.charge(TERMS, charge("a"))
    assert ledger.spent(document="a").rho == 10 * 15**2 / 2


def test_every_amount_is_rounded_up_to_whole_millionths(ledger):
    half = 5e-7
    terms = replace(TERMS, epsilon=half, word_loss=half, word_rho=half)
    shared = (Shared(b"shift", "document", half, half),)
    ledger.charge(terms, Charge(DocumentName("a"), b"words", 1, half, half, shared))
    spent = ledger.spent(document="a")
    assert (spent.epsilon["euclidean"], spent.nats, spent.rho) == (1e-6, 3e-6, 3e-6)


def test_nothing_is_spent_under_an_unknown_name(ledger):
    assert ledger.spent(author="nobody") == Spent(0, 0, 0, 0.0, {})


RELEASES = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["p", "q"]), st.sampled_from([b"1", b"2"]),
              st.integers(0, 9), st.sets(st.sampled_from([SHIFT, OTHER, OWN]))),
    max_size=8,
)  # fmt: skip


@given(RELEASES)
@settings(max_examples=40, deadline=None)
def test_accounts_are_sums_of_distinct_releases_and_draws(tmp_path_factory, given):
    ledger = Ledger(tmp_path_factory.mktemp("sums") / "ledger")
    counted: dict[tuple[str, bytes], int] = {}
    draws = set()
    for name, author, content, tokens, shared in given:
        document = author + name
        release = ledger.charge(CHEAP, charge(document, author, content, tokens, shared))
        assert release.charged == ((document, content) not in counted)
        if release.charged:
            counted[document, content] = tokens
            scopes = {"document": document, "person": author}
            draws |= {(document, each, scopes[each.scope]) for each in shared}

    def sums(prefix):
        own = {(each, whose) for document, each, whose in draws if document.startswith(prefix)}
        tokens = sum(n for (name, _), n in counted.items() if name.startswith(prefix))
        nats = 2 * tokens + sum(each.nats for each, _ in own)
        return nats, tokens + sum(each.rho for each, _ in own)

    for author in "pq":
        spent = ledger.spent(author=author)
        assert (spent.nats, spent.rho) == sums(author)
        for document in (author + "a", author + "b"):
            spent = ledger.spent(document=document)
            assert (spent.nats, spent.rho) == sums(document)
    assert (ledger.spent().nats, ledger.spent().rho) == sums("")


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"epsilon": float("nan")}, 1),
        ({"epsilon": 0.0}, 1),
        ({"word_loss": float("inf")}, 1),
        ({"word_loss": 1e13}, 10**6),
        ({}, -1),
    ],
)
def test_an_amount_that_cannot_be_added_is_refused(ledger, changes, tokens):
    with pytest.raises(LedgerError):
        ledger.charge(replace(TERMS, **changes), charge("a", tokens=tokens))
    assert ledger.spent().releases == 0


# Identity


def test_the_same_release_gets_its_first_key_and_is_counted_once(path):
    first = Ledger(path).charge(TERMS, charge("a"))
    again, twice = Ledger(path).charge_all(TERMS, [charge("a"), charge("a")])
    assert (first.charged, again.charged, twice.charged) == (True, False, False)
    assert first.key == again.key == twice.key
    assert Ledger(path).spent().releases == 1


def test_whatever_differs_gets_a_key_of_its_own_and_is_counted(ledger):
    releases = [
        ledger.charge(TERMS, charge("a")),
        ledger.charge(replace(TERMS, settings=b"other"), charge("a")),
        ledger.charge(TERMS, charge("a", content=b"other words")),
        ledger.charge(TERMS, charge("b")),
        ledger.charge(TERMS, Charge(DocumentName("a", part="second"), b"words", 10)),
    ]
    assert all(each.charged for each in releases)
    assert len({each.key for each in releases}) == len(releases)


def test_names_of_different_types_are_different_names(ledger):
    for name in ("7", 7, b"7"):
        assert ledger.charge(TERMS, charge(name, author=name)).charged
    assert ledger.spent().documents == 3
    assert ledger.spent(author=7).documents == 1
    assert ledger.spent(document="author").releases == 0


@pytest.mark.parametrize(("first", "author"), [("ann", "bob"), ("ann", None), (None, "ann")])
def test_a_document_cannot_change_its_author(ledger, first, author):
    ledger.charge(TERMS, charge("a", first))
    with pytest.raises(LedgerError, match="another author"):
        ledger.charge(replace(TERMS, settings=b"other"), charge("a", author))
    assert ledger.spent().releases == 1


# Limits


def test_a_document_limit_can_be_reached_and_not_passed(path):
    ledger = Ledger(path, document_limit=4)
    ledger.charge(TERMS, charge("a", content=b"one"))
    ledger.charge(TERMS, charge("a", content=b"two"))
    with pytest.raises(LimitError, match="under this index"):
        ledger.charge(TERMS, charge("a", content=b"three"))
    assert not ledger.charge(TERMS, charge("a", content=b"two")).charged


def test_a_limit_in_nats_adds_up_all_versions_and_indexes(path):
    ledger = Ledger(path, document_nats_limit=300)
    ledger.charge(TERMS, charge("a"))
    ledger.charge(replace(TERMS, distance="manhattan"), charge("a", content=b"two"))
    with pytest.raises(LimitError, match="nats under all indexes"):
        ledger.charge(TERMS, charge("a", content=b"three", tokens=1))


@pytest.mark.parametrize("whose", ["document", "author"])
def test_a_limit_in_nats_counts_a_new_shared_draw(path, whose):
    draw = {"document": OWN, "author": SHIFT}[whose]
    limit = {"document": "document_nats_limit", "author": "author_limit"}[whose]
    ledger = Ledger(path, **{limit: 20 + draw.nats / 2})  # enough for the words alone
    with pytest.raises(LimitError, match=f"limit of this {whose}"):
        ledger.charge(CHEAP, charge("a", "ann", shared=[draw]))
    assert ledger.spent().releases == 0


def test_a_limit_in_rho_adds_up_all_versions_and_draws(path):
    ledger = Ledger(path, document_rho_limit=10 + 10 + 24.5)
    ledger.charge(CHEAP, charge("a", shared=[OWN]))
    ledger.charge(CHEAP, charge("a", content=b"two", shared=[OWN]))
    with pytest.raises(LimitError, match="rho"):
        ledger.charge(CHEAP, charge("a", content=b"three", tokens=1))


@pytest.mark.parametrize("limit", ["author_limit", "author_rho_limit"])
def test_an_author_limit_counts_all_documents_and_a_draw_once(path, limit):
    of = {"author_limit": 20 + 20 + 10, "author_rho_limit": 10 + 10 + 50}
    ledger = Ledger(path, **{limit: of[limit]})
    both = [charge("a", "ann", shared=[SHIFT]), charge("b", "ann", shared=[SHIFT])]
    ledger.charge_all(CHEAP, both)
    with pytest.raises(LimitError, match="limit of this author"):
        ledger.charge(CHEAP, charge("c", "ann", tokens=1))
    ledger.charge(CHEAP, charge("d", "bob"))
    with pytest.raises(LedgerError, match="names none"):
        ledger.charge(CHEAP, charge("e"))


def test_a_limit_between_two_millionths_is_the_lower_one(path):
    ledger = Ledger(path, document_nats_limit=1.5e-6)
    with pytest.raises(LimitError):
        ledger.charge(replace(TERMS, word_loss=2e-6), charge("a", tokens=1))


def test_a_batch_over_the_limit_counts_nothing_and_names_the_place(path):
    ledger = Ledger(path, document_limit=2)
    with pytest.raises(LimitError) as refusal:
        ledger.charge_all(TERMS, [charge("a"), charge("b"), charge("a", content=b"two")])
    assert refusal.value.position == 2
    assert ledger.spent().releases == 0


def test_a_shared_draw_of_nobody_is_refused(ledger):
    with pytest.raises(LedgerError, match="author"):
        ledger.charge(CHEAP, charge("a", shared=[SHIFT]))
    ledger.charge(CHEAP, charge("a", shared=[OWN]))
    assert ledger.spent(document="a").nats == 27


def test_draws_of_a_person_and_a_document_of_one_name_are_two(ledger):
    ledger.charge(CHEAP, charge("ann", "ann", shared=[SHIFT, OWN]))
    assert ledger.spent(author="ann").nats == 20 + 10 + 7


@pytest.mark.parametrize("limit", [-1, float("nan"), float("inf")])
def test_a_limit_without_meaning_is_refused(path, limit):
    with pytest.raises(LedgerError, match="document_limit"):
        Ledger(path, document_limit=limit)


def test_the_statement_says_the_limits(path):
    assert "No limit" in Ledger(path).statement
    given = {"document_limit": 12, "author_limit": 5000, "author_rho_limit": 1 / 3}
    statement = Ledger(path, **given).statement
    assert "epsilon 12 per unit of distance under each index" in statement
    assert "5000 nats" in statement
    assert "each author at most 0.333334 rho" in statement
