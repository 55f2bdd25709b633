"""The kit that attacks mechanisms: it passes sound ones, and finds each broken one by the check that is made for it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from broken_mechanisms import DoubledRate, Exhaustive, OutsideTheVocabulary, Quiet, WithoutSelf

from textpriv import TEM
from textpriv.guarantees import audit as kit
from textpriv.guarantees.audit import audit
from textpriv.guarantees.certificate import _MOST, _search, certify
from textpriv.guarantees.significance import (
    LEVEL,
    excess_of,
    largest_ratios,
    ratio_bound,
    smallest_excess,
)
from textpriv.mechanisms import registry
from textpriv.mechanisms.base import UNKNOWN
from textpriv.mechanisms.near import Decay, NearTables
from textpriv.randomness import Stream


@cache
def audited(kind, **settings):
    return audit(kind, **settings)


def failed(report) -> set[str]:
    return {check.name for check in report.failures}


class MissedNeighbours(TEM):
    """Draws a tenth of all words as if it was as far as the last word of a short list."""

    def log_prob(self, word):
        if word == UNKNOWN:
            return super().log_prob(word)
        apart = self.distances(word)
        missed = (np.arange(len(apart)) % 10 == 3) & (np.arange(len(apart)) != word)
        apart = np.where(missed, max(apart.max(), 8.0 / self.epsilon), apart)
        score = np.log(self.measure.weights) - self.t * apart
        return score - np.logaddexp.reduce(score)


class ListAndBottom(TEM):
    """Gives words beyond its list of five the bottom score of a farther truncation."""

    def log_prob(self, word):
        if word == UNKNOWN:
            return super().log_prob(word)
        apart = self.distances(word)
        far = np.argsort(apart, kind="stable")[5:]
        apart[far] = max(self.gamma / 2, apart.max())
        score = -self.t * apart
        return score - np.logaddexp.reduce(score)


class SquaredDistance(TEM):
    """Uses what is no metric."""

    def distances(self, word):
        return 2 * self.epsilon * super().distances(word) ** 2


class OtherSampler(TEM):
    """Draws at another rate than its output distribution states."""

    def __init__(self, index, epsilon):
        super().__init__(index, epsilon)
        self.tables = NearTables(index, Decay.of(index, 1.2 * self.t, self.gamma), self.measure)


class Unnormalised(TEM):
    """A law that does not sum to one."""

    def log_prob(self, word):
        return super().log_prob(word) + 1e-6


class OwnLawForDuplicates(TEM):
    """Tells duplicates apart."""

    def log_prob(self, word):
        law = super().log_prob(word).copy()
        if word != UNKNOWN:
            law[word] += 1e-5
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


class Unproved(TEM):
    """Claims no proof."""

    @property
    def statement(self):
        return replace(super().statement, proved=False)


class WithADelta(TEM):
    """States a bound that does not grow with the distance."""

    @property
    def statement(self):
        return replace(super().statement, delta=0.5, by_distance=False)


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
        if word != UNKNOWN:
            return super().log_prob(word)
        law = np.full(len(self.index), -np.inf)
        law[0] = 0.0
        return law

    def sample_documents(self, ids, offsets, streams):
        return np.where(ids == UNKNOWN, 0, super().sample_documents(ids, offsets, streams))


class UnknownIsOneWordInSecret(TEM):
    """Gives every unknown word one output, and states another law."""

    def sample_documents(self, ids, offsets, streams):
        return np.where(ids == UNKNOWN, 0, super().sample_documents(ids, offsets, streams))


class UnknownIsOneWordOfMadlib(Exhaustive):
    """The same without a law."""

    def sample_documents(self, ids, offsets, streams):
        return np.where(ids == UNKNOWN, 0, super().sample_documents(ids, offsets, streams))


def positions(offsets):
    """The position of every token in its document."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


class OneInThreeHundred(TEM):
    """Releases one token in three hundred as it is."""

    def sample_documents(self, ids, offsets, streams):
        out = super().sample_documents(ids, offsets, streams)
        return np.where((positions(offsets) % 300 == 299) & (ids != UNKNOWN), ids, out)


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


# The check that finds each, and the vocabulary on which it does.
BROKEN = {
    DoubledRate: ("ratio", "line"),
    WithoutSelf: ("ratio", "line"),
    MissedNeighbours: ("ratio", "line"),
    ListAndBottom: ("ratio", "ties and duplicates"),
    SquaredDistance: ("ratio", "line"),
    OtherSampler: ("sampler", "a hub and a ring"),
    Quiet: ("draws", "line"),
    Unnormalised: ("distribution", "line"),
    OwnLawForDuplicates: ("ratio", "ties and duplicates"),
    Remembering: ("independence", "clusters"),
    Overclaiming: ("statement", "line"),
    ClaimsTooSmallALoss: ("worst loss", "line"),
    Unproved: ("statement", "line"),
    WithADelta: ("statement", "line"),
    OneStreamForAll: ("documents", "clusters"),
    FreshRandomness: ("documents", "clusters"),
    TheSameRandomness: ("streams", "clusters"),
    UnknownIsOneWord: ("worst loss", "line"),
    UnknownIsOneWordInSecret: ("sampler", "line"),
    UnknownIsOneWordOfMadlib: ("worst loss", "line"),
    OneInThreeHundred: ("release", "a crowd and one outside"),
    ThirdDocument: ("documents", "clusters"),
    LongDocuments: ("long document", "clusters"),
    OutsideTheVocabulary: ("made", "line"),
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_mechanism_fails_the_check_made_for_it(kind, monkeypatch):
    check, vocabulary = BROKEN[kind]
    tried = [each for each in kit._vocabularies() if each[0] == vocabulary]
    monkeypatch.setattr(kit, "_vocabularies", lambda: tried)
    assert check in failed(audit(kind))


@pytest.mark.parametrize("kind", [OneInThreeHundred, LongDocuments])
def test_a_small_leak_is_caught_by_its_own_check_alone(kind):
    assert failed(audit(kind)) == {BROKEN[kind][0]}


@pytest.mark.parametrize("name", sorted(registry.get_all()))
def test_every_registered_mechanism_withstands_the_kit(name):
    report = audited(name)
    assert report.passed, str(report)


@pytest.mark.parametrize("settings", [{"epsilon": 0.1}, {"prior": "uniform"}, {"gamma": 0.8}])
def test_tem_withstands_the_kit_with_other_settings(settings):
    assert audit("textpriv.TEM.v1", **settings).passed


def test_a_mechanism_that_cannot_be_made_fails():
    report = audit("textpriv.TEM.v1", gamma=-1.0)
    assert failed(report) == {"made"}
    assert "gamma" in report.failures[0].detail


def test_a_report_says_what_failed_and_what_it_could_not_have_seen():
    report = audited(Unproved)
    assert "statement (line): it states no proved guarantee" in str(report)
    told = json.loads(json.dumps(report.to_dict()))
    assert (told["passed"], len(told["checks"])) == (False, len(report.checks))
    said = " ".join(audited("textpriv.TEM.v1").unseen)
    assert "calls of more than 300 documents, or after 70,000 tokens" in said
    odds = int(re.search(r"fewer than 1 draw in ([\d,]+) released", said)[1].replace(",", ""))
    assert 200 < odds < 5_000


# The search for pairs


@pytest.fixture(scope="module")
def large(index_of, clustered_points):
    """2,000 words in 40 clusters, a few of them far out."""
    points = clustered_points(40, 50, 4, 2.0)
    points[::97] *= 3
    return index_of(points, k=32)


def test_a_search_comes_near_the_exact_constant_and_never_above(large):
    mechanism = TEM(large, 3.0)
    exact = certify(mechanism).rho
    found, (first, second), pairs = _search(mechanism, _MOST)
    assert 0.9 * exact <= found <= exact * (1 + 1e-9)
    assert 200 * 199 // 2 < pairs <= 240 * 239 // 2
    loss = (mechanism.log_prob(first) - mechanism.log_prob(second)).max()
    assert loss / large.distance(first, second) == pytest.approx(found, rel=1e-9)


def test_a_search_of_a_small_vocabulary_meets_every_pair(index_of, tied_points):
    for points in (tied_points(60), np.arange(1.0), np.arange(2.0)):
        mechanism = TEM(index_of(points, k=6), 2.0)
        found, _, pairs = _search(mechanism, _MOST)
        assert found == pytest.approx(certify(mechanism).rho, rel=1e-9)
        assert pairs == len(points) * (len(points) - 1) // 2


# Instruments


def test_an_output_that_only_one_word_has_tells_it_for_sure():
    law, other = np.log([0.5, 0.5, 1e-300]), np.array([0.0, -np.inf, -np.inf])
    assert largest_ratios(law, other[None])[0] == np.inf
    assert largest_ratios(other, law[None])[0] == pytest.approx(np.log(2))
    assert largest_ratios(np.array([np.nan, 0.0]), np.zeros((1, 2)))[0] == np.inf


@pytest.mark.parametrize("true", [0.0, 1.0, 3.0])
def test_a_bound_from_counts_stays_below_the_truth_and_comes_near(true):
    rng = np.random.default_rng(int(true))
    share = 1 / (1 + np.exp(true))
    bounds = []
    for _ in range(200):
        first = rng.multinomial(20_000, [1 - share, share])
        second = rng.multinomial(20_000, [share, 1 - share])
        bounds.append(ratio_bound(first, second, np.array([-1.0, 1.0]), LEVEL))
    assert max(bounds) <= true  # two hundred bounds at 1e-9 each
    assert np.median(bounds) >= true - 0.3


@pytest.mark.parametrize("stays", [0.01, 0.3])
def test_the_smallest_excess_that_is_promised_is_seen_and_a_third_is_not(stays):
    leak = smallest_excess(100_000, stays)

    def seen(share):
        count = round(100_000 * (stays + share * (1 - stays)))
        return excess_of(count, 100_000, stays) <= LEVEL

    assert (seen(leak), seen(leak / 3), seen(0.0)) == (True, False, False)
