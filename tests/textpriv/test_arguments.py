"""Numbers as arguments of the public interface: one of numpy is one, and what is none is refused in a sentence."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from echo import Echo

import textpriv
from textpriv.corpus import privatize_corpus
from textpriv.errors import TextprivError
from textpriv.guarantees.audit import audit
from textpriv.guarantees.documents import compare_documents
from textpriv.guarantees.epsilon import choose_epsilon

WORDS = [f"{first}{last}a" for first in "bdfgk" for last in "aeiou"]
SECRET = "the patient was admitted"

REAL = {
    "loss_at": lambda made, value: made.tem.statement.loss_at(value),
    "range_at": lambda made, value: made.tem.statement.range_at(value),
    "documents_within": lambda made, value: made.tem.statement.documents_within(3, value),
    "documents_within, delta": lambda made, value: made.tem.statement.documents_within(
        3, 1.0, value
    ),
    "DocumentPair.delta": lambda made, value: made.pair.delta(value),
    "DocumentPair.epsilon": lambda made, value: made.pair.epsilon(value),
    "compare_documents": lambda made, value: compare_documents(
        made.tem, [WORDS[0]], [WORDS[1]], grid=value
    ),
    "TEM": lambda made, value: textpriv.TEM(made.index, epsilon=value),
    "TEM, gamma": lambda made, value: textpriv.TEM(made.index, epsilon=2, gamma=value),
    "TEM, beta": lambda made, value: textpriv.TEM(
        made.index, epsilon=2, prior="uniform", beta=value
    ),
    "privatize": lambda made, value: (
        textpriv.privatize(WORDS[0], value, index=made.index) if value is not None else made.no()
    ),
    "choose_epsilon": lambda made, value: choose_epsilon(made.index, keep=value),
}
WHOLE = {
    "documents_within, words": lambda made, value: made.tem.statement.documents_within(value),
    "document_loss": lambda made, value: made.tem.statement.document_loss(value),
    "author_loss": lambda made, value: made.tem.statement.author_loss([value]),
    "pipe": lambda made, value: list(made.privatizer.pipe(WORDS, batch_size=value)),
    "explain": lambda made, value: made.tem.explain(WORDS[0], n=value),
    "Index, k": lambda made, value: textpriv.Index.build(made.vocabulary, k=value, hnsw=False),
    "Index, projection": lambda made, value: (
        textpriv.Index.build(made.vocabulary, projection=value, hnsw=False)
        if value is not None
        else made.no()
    ),
    "choose_epsilon, draws": lambda made, value: choose_epsilon(
        made.index, distinct=2, draws=value
    ),
    "corpus, batch_size": lambda made, value: made.corpus(batch_size=value),
    "corpus, part_records": lambda made, value: made.corpus(part_records=value),
    "corpus, max_text_bytes": lambda made, value: made.corpus(max_text_bytes=value),
    "corpus, workers": lambda made, value: made.corpus(workers=value),
}
NO_NUMBER = {
    "a truth value": True,
    "text": SECRET,
    "none": None,
    "a complex number": 1j,
    "a list": [1],
    "nan": math.nan,
    "-1": -1,
}
HUGE = {"huge": 10**400, "huge and below 0": -(10**400), "more digits than are printed": 10**5000}
MAY_BE_LEFT_OUT = {"TEM, gamma"}
MAY_BE_INFINITE = {"TEM, gamma"}


class Made:
    """What the calls need."""

    def __init__(self, folder) -> None:
        self._folder, self._made = folder, 0
        rng = np.random.default_rng(0)
        self.vocabulary = textpriv.Vocabulary(WORDS, rng.normal(size=(len(WORDS), 4)))
        self.index = textpriv.Index.build(self.vocabulary, hnsw=False)
        self.tem = textpriv.TEM(self.index, epsilon=2.0)
        self.privatizer = textpriv.Privatizer(self.tem)
        self.pair = compare_documents(self.tem, [WORDS[0]], [WORDS[1]])
        (folder / "in.txt").write_text("ba\n")

    def file(self, name: str):
        self._made += 1
        return self._folder / f"{self._made}-{name}"

    def corpus(self, **options: Any) -> None:
        privatize_corpus(self._folder / "in.txt", self.file("out.txt"), Echo(), **options)

    def no(self) -> None:
        raise TextprivError("none is the default here")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


@pytest.mark.parametrize("name", [*REAL, *WHOLE])
def test_what_is_no_number_is_refused_in_a_sentence_that_does_not_repeat_a_text(made, name):
    call: Callable[[Made, Any], Any] = (REAL | WHOLE)[name]
    given = NO_NUMBER | (HUGE if name not in MAY_BE_INFINITE else {})
    for what, value in given.items():
        if value is None and name in MAY_BE_LEFT_OUT:
            continue
        with pytest.raises(TextprivError) as refused:
            call(made, value)
        assert SECRET not in str(refused.value), what


@pytest.mark.parametrize("name", REAL)
def test_numbers_of_numpy_are_numbers(made, name):
    for value in (np.float64(0.5), np.float32(0.5)):
        REAL[name](made, value)


@pytest.mark.parametrize("name", sorted(set(WHOLE) - {"corpus, workers"}))
def test_whole_numbers_of_numpy_are_whole_numbers(made, name):
    for value in (np.int64(4), np.uint8(4)):
        WHOLE[name](made, value)
    for value in (np.float64(0.5), 2.5, Fraction(1, 2), Decimal(1)):
        with pytest.raises(TextprivError):
            WHOLE[name](made, value)


def test_fractions_and_decimals_are_what_they_are_as_floats(made):
    statement = made.tem.statement
    assert statement.loss_at(Fraction(1, 2)) == statement.loss_at(0.5)
    assert statement.loss_at(Decimal("0.5")) == statement.loss_at(0.5)
    assert statement.documents_within(np.int32(3), np.float32(0.5)) == (
        statement.documents_within(3, 0.5)
    )


def test_an_audit_refuses_what_is_asked_before_it_tries_anything():
    for epsilon in (0, -3, math.nan, math.inf, 10**400, True, SECRET):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(TextprivError, match="epsilon must be"):
                audit("textpriv.TEM.v1", epsilon=epsilon)
