"""One privatizer with spans gives the same bytes from several threads, from a copy, and whatever was read before."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from textpriv.ledger import Document
from textpriv.mechanisms import TEM
from textpriv.privatizer import CHANGED, Privatizer
from textpriv.spans.detectors import RegexDetector
from textpriv.spans.laws.date_shift import DateShift
from textpriv.spans.laws.numbers import Number
from textpriv.spans.laws.surrogates import Surrogate
from textpriv.spans.policy import SpanPolicy

DETECTOR = RegexDetector(
    {"DATE": r"\d{4}-\d\d-\d\d", "PERSON": r"\b[A-Z][a-z]+\b", "NUMBER": r"\b\d\b"}
)
POLICY = SpanPolicy(
    {
        "DATE": DateShift(0.01, kind="DATE"),
        "PERSON": Surrogate([f"N{i}" for i in range(999)], consistent="person", kind="PERSON"),
        "NUMBER": Number(1.0, low=0, high=9, kind="NUMBER"),
    }
)
NOTES = [
    (Document(f"d{i}", f"p{i % 3}"), f"Smith w1 2020-02-{1 + i % 28:02} w0 {i % 9}")
    for i in range(200)
]


def made(three_points, **secret):
    mechanism = TEM(three_points, epsilon=0.8)
    return Privatizer(
        mechanism, spans=POLICY, detector=DETECTOR, **(secret or {"run_key": b"K" * 32})
    )


@pytest.fixture(scope="module")
def expected(three_points):
    keys, texts = zip(*NOTES, strict=True)
    return list(made(three_points).pipe(texts, keys))


def test_threads_that_share_a_privatizer_release_what_one_does(three_points, expected):
    shared = made(three_points)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda note: shared.privatize(note[1], note[0]), NOTES))
    assert done == expected


def test_a_copy_in_another_process_releases_the_same(three_points):
    keys, texts = zip(*NOTES[:20], strict=True)
    seeded = made(three_points, seed=1)
    copy = pickle.loads(pickle.dumps(seeded))
    assert list(copy.pipe(texts, keys, batch_size=3)) == list(seeded.pipe(texts, keys))


def test_a_span_by_itself_under_a_key_is_that_of_its_document_and_the_statement_says_so(
    three_points,
):
    fresh = Privatizer(TEM(three_points, epsilon=0.8), spans=POLICY, detector=DETECTOR)
    surface = fresh.privatize_span("Smith", "PERSON", NOTES[0][0])
    assert CHANGED in fresh.statement.not_protected
    assert fresh.privatize(NOTES[0][1], NOTES[0][0]).split()[0] == surface
    assert fresh.privatize_span("Smith", "PERSON", NOTES[3][0]) == surface
