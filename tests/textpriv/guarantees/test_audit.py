"""The test kit: every registered mechanism withstands it, and each kind of broken one fails the check made for it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from catalogue import REGISTRY

from textpriv.errors import MechanismError
from textpriv.guarantees.audit import AuditReport, audit, audit_registered
from textpriv.guarantees.certificate import certify
from textpriv.guarantees.pair_search import search
from textpriv.guarantees.significance import (
    LEVEL,
    excess_of,
    largest_ratios,
    ratio_bound,
    smallest_excess,
)
from textpriv.mechanisms import TEM, UNKNOWN, Madlib, registry
from textpriv.randomness import Stream

REGISTERED = sorted(registry.get_all())


def failed(report: AuditReport) -> set[str]:
    return {check.name for check in report.failures}


@cache
def audited(kind: str | type, **options) -> AuditReport:
    """The report on a mechanism, which several tests read."""
    return audit(kind, **options)


# What is registered


@pytest.mark.parametrize("name", REGISTERED)
def test_every_registered_mechanism_withstands_the_kit(name):
    report = audited(name, epsilon=2.0, quick=True)
    assert report.passed, str(report)


# The vocabularies are scaled to epsilon, so each epsilon meets each kind of setting once.


@pytest.mark.parametrize("settings", [{"search": "exact"}, {"projection": 1}], ids=str)
def test_madlib_withstands_the_kit_with_other_settings(settings):
    report = audit("textpriv.Madlib.v1", **settings)
    assert report.passed, str(report)


def test_the_shipped_mechanisms_are_among_those_that_are_tried():
    assert {"textpriv.TEM.v1", "textpriv.Madlib.v1"} <= set(REGISTERED)


def test_a_broken_mechanism_that_is_registered_is_found(monkeypatch):
    class Broken(TEM):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            self.t *= 2

    @registry.register("tests.Broken.v1")
    def configure(epsilon):
        return lambda index: Broken(index, epsilon)

    # The reports on the others are those of the tests above.
    monkeypatch.setitem(audit_registered.__globals__, "audit", audited)
    try:
        reports = audit_registered()
    finally:
        del REGISTRY["textpriv", "mechanisms", "tests.Broken.v1"]
    assert [name for name, report in reports.items() if not report.passed] == ["tests.Broken.v1"]
    assert "tests.Broken.v1" not in registry.get_all()


# What is broken


class DoubledRate(TEM):
    """Forgets that the normaliser costs as much as the numerator."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.t *= 2


class WithoutSelf(TEM):
    """Leaves the word out of its own list."""

    def log_prob(self, word):
        law = super().log_prob(word).copy()
        if self.resolve(word) != UNKNOWN:
            law[self.index.representatives[self.resolve(word)]] = -np.inf
        return law - np.logaddexp.reduce(law)

    def sample_documents(self, ids, offsets, streams):
        out = super().sample_documents(ids, offsets, streams)
        while (same := out == self.index.representatives[ids]).any():
            out[same] = super().sample_documents(ids, offsets, streams)[same]
        return out


class OtherSampler(TEM):
    """Draws at another rate than its law states."""

    def __init__(self, index, epsilon):
        super().__init__(index, epsilon)
        self._sampler = TEM(index, 1.2 * epsilon)._sampler


class Exhaustive(Madlib):
    """Compares with every word, which takes less than half the time of the default search where they are few."""

    def __init__(self, *given, **options):
        super().__init__(*given, search="exact", **options)


class Quiet(Exhaustive):
    """Noise four times too small."""

    def sample_documents(self, ids, offsets, streams):
        claimed, self.epsilon = self.epsilon, 4 * self.epsilon
        try:
            return super().sample_documents(ids, offsets, streams)
        finally:
            self.epsilon = claimed


class Unnormalised(TEM):
    """A law that does not sum to one."""

    def log_prob(self, word):
        return super().log_prob(word) + 1e-6


class OwnLawForDuplicates(TEM):
    """Tells duplicates apart."""

    def log_prob(self, word):
        law = super().log_prob(word).copy()
        number = self.resolve(word)
        if number != UNKNOWN:
            law[number] += 1e-5
        return law - np.logaddexp.reduce(law)


class Remembering(Exhaustive):
    """Repeats its previous output now and then: a word's draws depend on the words around it."""

    def sample_documents(self, ids, offsets, streams):
        out = super().sample_documents(ids, offsets, streams)
        out[4::5] = out[3:-1:5]
        return out


class Overclaiming(TEM):
    """Ignores the epsilon that was asked."""

    def __init__(self, index, epsilon):
        super().__init__(index, 2 * epsilon)


class ClaimsTooSmallALoss(TEM):
    """States a worst loss that words far apart exceed."""

    @property
    def statement(self):
        stated = super().statement
        return replace(stated, figures={**stated.figures, "worst_word_loss": 0.1})


class TrustsAnyLists(TEM):
    """Claims a proof over approximate lists."""

    @property
    def statement(self):
        return replace(super().statement, proved=True)


class Unproved(TEM):
    """Claims no proof over exact lists."""

    @property
    def statement(self):
        return replace(super().statement, proved=False)


# Seven that leak only in how documents, streams and unknown words are handled.


class OneStreamForAll(TEM):
    """Draws all documents of a call from the first one's stream."""

    def sample_documents(self, ids, offsets, streams):
        return super().sample_documents(ids, np.array([0, len(ids)]), streams[:1])


class FreshRandomness(TEM):
    """Ignores the document's stream, so that a resumed run draws a document twice."""

    def sample_documents(self, ids, offsets, streams):
        return super().sample_documents(ids, offsets, [Stream() for _ in streams])


class TheSameRandomness(TEM):
    """Draws every document from one and the same stream."""

    def sample_documents(self, ids, offsets, streams):
        return super().sample_documents(ids, offsets, [Stream(bytes(32)) for _ in streams])


class UnknownIsOneWord(TEM):
    """Gives every unknown word one output, and says so in its law."""

    def log_prob(self, word):
        if self.resolve(word) != UNKNOWN:
            return super().log_prob(word)
        law = np.full(len(self.index), -np.inf)
        law[0] = 0.0
        return law

    def sample_documents(self, ids, offsets, streams):
        return np.where(ids == UNKNOWN, 0, super().sample_documents(ids, offsets, streams))


def positions(offsets):
    """The position of every token in its document."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


class OneInThreeHundred(TEM):
    """Releases one token in three hundred as it is."""

    def sample_documents(self, ids, offsets, streams):
        out = super().sample_documents(ids, offsets, streams)
        raw = (positions(offsets) % 300 == 299) & (ids != UNKNOWN)
        return np.where(raw, ids, out)


class ThirdDocument(TEM):
    """Releases the third document of a call as it is."""

    def sample_documents(self, ids, offsets, streams):
        out = super().sample_documents(ids, offsets, streams)
        if len(offsets) > 3:
            third = slice(offsets[2], offsets[3])
            out[third] = np.where(ids[third] == UNKNOWN, out[third], ids[third])
        return out


class LongDocuments(TEM):
    """Releases a tenth of what comes after 50,000 tokens of a document."""

    def sample_documents(self, ids, offsets, streams):
        out = super().sample_documents(ids, offsets, streams)
        at = positions(offsets)
        return np.where((at > 50_000) & (at % 10 == 0) & (ids != UNKNOWN), ids, out)


SEVEN = [
    (OneStreamForAll, {"documents"}),
    (FreshRandomness, {"documents"}),
    (TheSameRandomness, {"streams"}),
    (UnknownIsOneWord, {"unknown words"}),
    (OneInThreeHundred, {"release"}),
    (ThirdDocument, {"documents"}),
    (LongDocuments, {"long document"}),
]


@pytest.mark.parametrize(
    ("kind", "checks"), SEVEN, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_leak_in_documents_streams_or_unknown_words_is_caught_by_name(kind, checks):
    assert checks <= failed(audited(kind))


@pytest.mark.parametrize("kind", [OneInThreeHundred, LongDocuments])
def test_a_small_leak_is_caught_by_its_own_check_alone(kind):
    assert failed(audited(kind)) == dict(SEVEN)[kind]


def test_an_unknown_word_that_is_not_drawn_from_its_law_is_caught():
    class Constant(TEM):
        def sample_documents(self, ids, offsets, streams):
            return np.where(ids == UNKNOWN, 0, super().sample_documents(ids, offsets, streams))

    assert "sampler" in failed(audit(Constant))


def test_a_madlib_that_gives_every_unknown_word_one_output_is_caught():
    class Fixed(Exhaustive):
        def sample_documents(self, ids, offsets, streams):
            return np.where(ids == UNKNOWN, 0, super().sample_documents(ids, offsets, streams))

    assert "unknown words" in failed(audit(Fixed))


def test_a_report_says_what_it_could_not_have_seen():
    said = " ".join(audited("textpriv.TEM.v1", epsilon=2.0, quick=True).unseen)
    assert "calls of more than 300 documents, or after 70,000 tokens" in said
    odds = int(re.search(r"fewer than 1 draw in ([\d,]+) released", said)[1].replace(",", ""))
    assert 300 < odds < 5_000


@pytest.mark.parametrize("stays", [0.01, 0.3])
def test_the_smallest_excess_that_is_promised_is_seen_and_a_third_of_it_is_not(stays):
    draws = np.full(100_000, stays)
    leak = smallest_excess(draws)

    def seen(share):
        return excess_of(round(len(draws) * (stays + share * (1 - stays))), draws) <= LEVEL

    assert seen(leak)
    assert not seen(leak / 3)
    assert not seen(0.0)


@pytest.mark.parametrize(
    ("kind", "checks"),
    [
        (DoubledRate, {"ratio"}),
        (WithoutSelf, {"ratio", "worst loss"}),
        (OtherSampler, {"sampler"}),
        (Quiet, {"draws"}),
        (Unnormalised, {"law"}),
        (OwnLawForDuplicates, {"ratio"}),
        (Remembering, {"independence"}),
        (Overclaiming, {"statement"}),
        (ClaimsTooSmallALoss, {"worst loss"}),
        (TrustsAnyLists, {"approximate lists"}),
        (Unproved, {"statement"}),
    ],
)
def test_a_broken_mechanism_fails_the_check_that_is_made_for_it(kind, checks):
    report = audited(kind)
    assert not report.passed
    assert checks <= failed(report)


def test_a_mechanism_left_whole_by_a_subclass_passes():
    class Whole(TEM):
        pass

    assert audit(Whole).passed


def test_a_mechanism_that_cannot_be_made_fails():
    report = audit("textpriv.TEM.v1", gamma=-1.0)
    assert failed(report) == {"made"}
    assert "gamma" in report.failures[0].detail


def test_an_unknown_name_is_refused():
    with pytest.raises(Exception, match=r"nothing\.v1"):
        audit("nothing.v1")


def test_a_verdict_is_the_same_in_every_run():
    assert audit(OtherSampler) == audited(OtherSampler)


# The report


def test_a_report_says_what_was_withstood():
    report = audit(TEM, prior="zipf")
    assert str(report) == (
        f"TEM with prior='zipf' withstood {len(report.checks)} checks at epsilon 2."
    )


def test_a_report_lists_what_failed():
    report = audited(Unproved)
    assert str(report).startswith("Unproved FAILED 5 of ")
    assert "statement (line): it states no proved guarantee" in str(report)


def test_a_report_is_plain_json():
    report = audited(DoubledRate)
    told = json.loads(json.dumps(report.to_dict()))
    assert told["passed"] is False
    assert len(told["checks"]) == len(report.checks)


# The search for pairs


@pytest.fixture(scope="module")
def large(index_of, clustered_points):
    """2,000 words in 40 clusters, a few of them far out."""
    points = clustered_points(40, 50, 4, 2.0)
    points[::97] *= 3
    return index_of(points, k=32)


@pytest.mark.parametrize("prior", ["uniform", "zipf"])
def test_a_search_comes_near_the_exact_constant_and_never_above(large, prior):
    mechanism = TEM(large, 3.0, prior)
    exact = certify(mechanism).rho
    found, pairs = search(mechanism)
    assert 0.97 * exact <= found.value <= exact * (1 + 1e-9)
    assert pairs == 240 * 239 // 2


def test_the_pair_of_a_search_attains_its_constant(large):
    mechanism = TEM(large, 3.0)
    found, _ = search(mechanism, laws=60)
    first, second = found.pair
    loss = (mechanism.log_prob(first) - mechanism.log_prob(second)).max()
    assert loss / large.distance(first, second) == pytest.approx(found.value, rel=1e-9)


def test_a_search_of_a_small_vocabulary_meets_every_pair(index_of, tied_points):
    mechanism = TEM(index_of(tied_points(60), k=6), 2.0)
    found, _ = search(mechanism)
    assert found.value == pytest.approx(certify(mechanism).rho, rel=1e-9)


@pytest.mark.parametrize("size", [1, 2])
def test_a_search_of_one_or_two_words_ends(index_of, size):
    found, pairs = search(TEM(index_of(np.arange(float(size))), 2.0))
    assert pairs == size - 1
    assert (found.value > 0) == (size == 2)


def test_a_search_needs_a_law(three_points):
    with pytest.raises(MechanismError, match="no closed output law"):
        search(Madlib(three_points, 1.0))


def test_an_audit_searches_the_index_it_is_given(large):
    assert [c.passed for c in audit(TEM, index=large).checks if c.name == "search"] == [True]
    assert "search" in failed(audit(DoubledRate, prior="uniform", gamma=1.0, index=large))


# Instruments


def test_an_output_that_only_one_word_has_tells_it_for_sure():
    law, other = np.log([0.5, 0.5, 1e-300]), np.array([0.0, -np.inf, -np.inf])
    assert largest_ratios(law, other[None])[0] == np.inf
    assert largest_ratios(other, law[None])[0] == pytest.approx(np.log(2))
    assert largest_ratios(np.array([np.nan, 0.0]), np.zeros((1, 2)))[0] == np.inf


@pytest.mark.parametrize("true", [0.0, 1.0, 3.0])
def test_a_bound_from_counts_stays_below_the_truth_and_comes_near(true):
    rng = np.random.default_rng(int(true))
    odds = np.exp(true)
    share = 1 / (1 + odds)
    bounds = []
    for _ in range(200):
        first = rng.multinomial(20_000, [1 - share, share])
        second = rng.multinomial(20_000, [share, 1 - share])
        bounds.append(ratio_bound(first, second, np.array([-1.0, 1.0]), LEVEL))
    # Two hundred bounds at 1e-9 each.
    assert max(bounds) <= true
    assert np.median(bounds) >= true - 0.3


def test_a_bound_pools_outputs_that_lean_the_same_way():
    # No single output is drawn more than twice, and yet the two samples lie apart.
    first, second = np.repeat([2, 0], 500), np.repeat([0, 2], 500)
    lean = np.linspace(-1, 1, 1000)
    assert ratio_bound(first, second, lean, 1e-3) > 3
    assert ratio_bound(first, second, np.zeros(1000), 1e-3) < 0
