"""Patients' dates move together, names stay consistent, and a second release repeats the first: through whole releases."""

from __future__ import annotations

import datetime
import re

import numpy as np
import pytest

from textpriv.errors import TextprivError
from textpriv.guarantees.significance import LEVEL
from textpriv.ledger import Document, Ledger
from textpriv.mechanisms import TEM
from textpriv.privatizer import Privatizer
from textpriv.spans.detectors import RegexDetector
from textpriv.spans.laws.date_shift import DateShift
from textpriv.spans.laws.surrogates import Surrogate
from textpriv.spans.policy import SpanPolicy

RUN_KEY = b"K" * 32
DETECTOR = RegexDetector({"DATE": r"\d{4}-\d\d-\d\d", "PERSON": r"\b[A-Z][a-z]+\b"})
POLICY = SpanPolicy(
    {
        "DATE": DateShift(0.01, kind="DATE"),
        "PERSON": Surrogate(
            [f"N{i:05}" for i in range(99_999)], consistent="person", kind="PERSON"
        ),
    }
)
NOTES = {
    ("visit 1", "ann"): "Smith w1 2020-02-28 w0",
    ("visit 2", "ann"): "w0 2020-03-01 Jones 2021-03-01 w2 Smith",
    ("visit 1", "bob"): "Smith 2020-02-28 w1",
}


def release(mechanism, notes, batch_size=10, **account):
    made = Privatizer(
        mechanism, spans=POLICY, detector=DETECTOR, **(account or {"run_key": RUN_KEY})
    )
    keys = [Document(f"{author} {name}", author) for name, author in notes]
    texts = list(made.pipe(notes.values(), keys, batch_size=batch_size))
    return dict(zip(notes, texts, strict=True))


def shifts(private, notes):
    """By how many days each date moved, by author."""
    moved: dict[str, list[int]] = {}
    for key, text in notes.items():
        pairs = zip(
            *(re.findall(r"\d{4}-\d\d-\d\d", each) for each in (private[key], text)), strict=True
        )
        for new, old in pairs:
            days = datetime.date.fromisoformat(new) - datetime.date.fromisoformat(old)
            moved.setdefault(key[1], []).append(days.days)
    return moved


@pytest.fixture(scope="module")
def mechanism(three_points):
    return TEM(three_points, epsilon=0.8)


def test_a_patients_dates_keep_their_intervals_across_documents_batches_and_runs(mechanism):
    private = release(mechanism, NOTES)
    moved = shifts(private, NOTES)
    assert len(set(moved["ann"])) == 1
    assert moved["ann"][0] != moved["bob"][0]
    assert release(mechanism, NOTES, batch_size=1) == private
    assert release(mechanism, dict(reversed(NOTES.items()))) == private


def test_a_changed_note_is_moved_by_the_same_days(mechanism):
    changed = {("visit 3", "ann"): "w1 2024-12-31", ("visit 1", "ann"): "Jones 2020-02-28 w1 w1"}
    before = shifts(release(mechanism, NOTES), NOTES)["ann"][0]
    assert shifts(release(mechanism, changed), changed) == {"ann": [before, before]}


def test_names_are_consistent_within_a_patient_and_not_between_two(mechanism):
    private = release(mechanism, NOTES)
    (first,), (jones, second), (of_bob,) = (re.findall(r"N\d{5}", private[key]) for key in NOTES)
    assert first == second != jones
    assert of_bob != first


def test_a_ledger_repeats_a_release_and_moves_all_dates_of_a_patient_alike(mechanism, tmp_path):
    with Ledger(tmp_path / "ledger") as ledger:
        first = release(mechanism, NOTES, ledger=ledger)
    with Ledger(tmp_path / "ledger") as ledger:
        assert release(mechanism, NOTES, ledger=ledger) == first
    moved = shifts(first, NOTES)
    assert len(set(moved["ann"])) == 1
    assert moved != shifts(release(mechanism, NOTES), NOTES)


def test_shifts_of_patients_in_a_release_are_independent(mechanism):
    """Neighbours' shifts agree in sign as often as a fair coin, but once in a thousand million."""
    from scipy.stats import binom

    notes = {("visit", f"p{i}"): "2020-02-28" for i in range(800)}
    moved = np.array([days for (days,) in shifts(release(mechanism, notes), notes).values()])
    left, right = moved[::2], moved[1::2]
    agree = int(((left > 0) == (right > 0)).sum())
    # P(N > 0) is below 1/2 by P(N = 0) / 2.
    zero = (1 - np.exp(-0.01)) / (1 + np.exp(-0.01))
    positive = (1 - zero) / 2
    expected = positive**2 + (1 - positive) ** 2
    assert min(binom.cdf(agree, 400, expected), binom.sf(agree - 1, 400, expected)) > LEVEL
    assert len(set(moved.tolist())) > 100


def test_a_note_without_its_patient_is_refused(mechanism):
    made = Privatizer(mechanism, spans=POLICY, detector=DETECTOR, run_key=RUN_KEY)
    with pytest.raises(TextprivError, match="author"):
        made.privatize("Smith 2020-02-28", key="visit 1")


def test_two_kinds_of_one_law_move_independently_so_that_their_losses_add_up(mechanism):
    law = DateShift(0.01)
    detector = RegexDetector({"DATE": r"\d{4}-\d\d-\d\d", "BIRTH": r"(?<=born )\d{4}-\d\d-\d\d"})
    notes = {("visit", "ann"): "born 1980-02-28 w0 2020-02-28"}

    def moved(**labels):
        policy = SpanPolicy({"BIRTH": law, "DATE": law}, labels=labels)
        made = Privatizer(mechanism, spans=policy, detector=detector, run_key=RUN_KEY)
        texts = made.pipe(notes.values(), [Document("visit", "ann")])
        return shifts(dict(zip(notes, texts, strict=True)), notes)["ann"]

    assert len(set(moved())) == 2
    assert len(set(moved(BIRTH="DATE"))) == 1
