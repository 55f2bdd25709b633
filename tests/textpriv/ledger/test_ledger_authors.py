"""Measurements of whole records in the ledger: one rho for every author, in the account of their releases."""

from __future__ import annotations

import math
import os

import pytest
from small_synthesis import public, transcript

from textpriv.errors import LedgerError, LimitError, TextprivError
from textpriv.ledger import Charge, DocumentName, Ledger, Terms
from textpriv.randomness import identity_bytes
from textpriv.synthesis.release import Measurement
from textpriv.synthesis.sums import Sums

WORDS = Terms(b"settings", "euclidean", epsilon=1.0, word_loss=2.0, word_rho=1.0)
ANN, BOB = identity_bytes("ann"), identity_bytes("bob")


def text(author):
    return Charge(DocumentName("letter", author), b"words", tokens=2)


def test_a_measurement_counts_its_rho_for_every_author(path):
    ledger = Ledger(path)
    ledger.charge_authors([ANN, BOB], 0.5)
    ledger.charge_authors([ANN], 0.25)
    assert [ledger.spent(author=name).rho for name in ("ann", "bob", "eve")] == [0.75, 0.5, 0.0]


def test_no_number_of_nats_bounds_a_measurement(path):
    ledger = Ledger(path)
    ledger.charge(WORDS, text("ann"))
    ledger.charge_authors([ANN], 0.5)
    assert ledger.spent(author="ann").nats == math.inf
    assert ledger.spent(document="letter").nats == 4.0
    with pytest.raises(LedgerError, match="author_rho_limit"):
        Ledger(path, author_limit=1e9).charge_authors([BOB], 0.5)
    with pytest.raises(LimitError):
        Ledger(path, author_limit=1e9).charge(WORDS, Charge(DocumentName("b", "ann"), b"", 1))


def test_an_author_limit_can_be_reached_and_not_passed(path):
    ledger = Ledger(path, author_rho_limit=3)
    ledger.charge(WORDS, text("ann"))
    ledger.charge_authors([ANN], 1.0)
    with pytest.raises(LimitError):
        ledger.charge_authors([ANN], 1e-6)
    with pytest.raises(LimitError):
        ledger.charge(WORDS, Charge(DocumentName("other", "ann"), b"words", tokens=1))
    assert ledger.spent(author="ann").rho == 3.0


def test_a_measurement_over_a_limit_counts_for_nobody(path):
    ledger = Ledger(path, author_rho_limit=1)
    ledger.charge_authors([ANN], 0.75)
    with pytest.raises(LimitError, match="1 of 2 authors") as refused:
        ledger.charge_authors([BOB, ANN], 0.5)
    assert "ann" not in str(refused.value)
    assert ledger.spent(author="bob").rho == 0.0


def test_authors_who_change_together_lose_the_square(path):
    ledger = Ledger(path)
    ledger.charge_authors([ANN, BOB], 0.5)
    ledger.charge_authors([ANN], 0.25)
    assert ledger.spent().rho == 4 * 0.5 + 0.25


def test_processes_at_once_never_pass_a_limit_together(path):
    ledger, children = Ledger(path, author_rho_limit=3), []
    for _ in range(6):
        if not (child := os.fork()):
            try:
                ledger.charge_authors([ANN, BOB], 1.0)
                os._exit(0)
            except LimitError:
                os._exit(1)
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(ended) == [0, 0, 0, 1, 1, 1]
    assert ledger.spent(author="bob").rho == 3.0


# A measurement that is charged


def sums(authors, bound=2):
    side = public()
    made = Sums(side.space(("",), bound))
    made.add(side.encoder.encode(["the film was good"] * len(authors)), None, authors)
    return made


@pytest.mark.parametrize("way", ["topics", "noisy"])
def test_authors_are_charged_before_noise_is_drawn(path, way):
    Ledger(path).charge_authors([ANN], 5.0)
    given = sums(["bob", "ann"])
    release = Measurement(given.space, 1.0, 1e-6, ledger=Ledger(path, author_rho_limit=5))
    with transcript() as drawn, pytest.raises(LimitError):
        getattr(release, way)(given)
    assert drawn == []


def test_every_author_is_charged_once_for_both_readings(path):
    first, second = sums(["ann", "bob", "ann"]), sums(["bob", "ann"])
    release = Measurement(first.space, 1.0, 1e-6, ledger=Ledger(path))
    release.topics(first)
    release.noisy(second)
    rho = math.ceil(release.author_rho * 1e6) / 1e6
    assert [Ledger(path).spent(author=name).rho for name in ("ann", "bob")] == [rho, rho]


def test_an_author_who_comes_between_readings_is_refused(path):
    release = Measurement(sums(["ann"]).space, 1.0, 1e-6, ledger=Ledger(path))
    release.topics(sums(["ann"]))
    with pytest.raises(TextprivError, match="changed while they were read"):
        release.noisy(sums(["ann", "bob"]))


def test_the_rho_covers_other_records_in_place_of_all(path):
    given = sums(["ann"])
    release = Measurement(given.space, 1.0, 1e-6, ledger=Ledger(path))
    with transcript() as drawn:
        release.topics(given)
        release.noisy(given)
    # Entries are from 0 up, so other records move the sums by root 2 times their bound.
    plans = [each.plan for each in drawn]
    moved = sum((math.sqrt(2) * plan.sensitivity / plan.sigma) ** 2 / 2 for plan in plans)
    assert len(plans) == 2
    assert moved <= release.author_rho <= 1.01 * moved


def test_authors_of_packed_sums_are_those_that_were_added():
    packed = sums(["ann", 7, b"ann"])
    merged = packed.empty()
    merged.merge_packed(packed.packed())
    assert merged.authors == {identity_bytes(each) for each in ("ann", "7", b"ann")}


def test_a_ledger_needs_the_authors_of_records(path):
    with pytest.raises(TextprivError, match="counts authors"):
        Measurement(public().space(("",)), 1.0, 1e-6, ledger=Ledger(path))
