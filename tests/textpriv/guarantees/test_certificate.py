"""Certificates: true claims stand, broken mechanisms are caught with a witness, and records are bound to what they say."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from textpriv import TEM, Index, Madlib, Vocabulary, certify
from textpriv.cli.app import app
from textpriv.errors import MechanismError
from textpriv.guarantees.certificate import Certificate
from textpriv.index.neighbours import Neighbourhoods
from textpriv.metrics import CallableMetric
from textpriv.vocabulary.vocabulary import read_only

ignore_unsound = pytest.mark.filterwarnings("ignore::textpriv.statement.UnsoundWarning")


@pytest.fixture(scope="module")
def points(clustered_points):
    """120 words in the plane, six of them duplicates."""
    table = clustered_points(12, 10, 2, 2.0)
    table[60:66] = table[0]
    return table


@pytest.fixture
def index(index_of, points):
    """A fresh index, so that no record of another test is met."""
    return index_of(points, k=16)


@pytest.fixture
def saved(index, tmp_path) -> Path:
    index.save(tmp_path / "small.idx")
    return tmp_path / "small.idx"


def true_loss(mechanism, pair) -> float:
    """Largest log-ratio of the ordered pair, from the laws."""
    first, second = (mechanism.index.vocabulary.id(word) for word in pair)
    ours, theirs = mechanism.log_prob(first), mechanism.log_prob(second)
    possible = ours > -np.inf
    return float((ours[possible] - theirs[possible]).max())


def assert_caught(mechanism, certificate) -> None:
    """The certificate refutes the claim, and its witness does by itself."""
    assert not certificate.holds
    assert certificate.rho > mechanism.epsilon
    loss = true_loss(mechanism, certificate.worst_pair)
    assert loss > mechanism.epsilon * certificate.distance * (1 + 1e-6)
    assert loss == pytest.approx(certificate.rho * certificate.distance, rel=1e-6)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# True claims


@pytest.mark.parametrize("words", [1, 2])
def test_a_vocabulary_of_one_or_two_words_has_a_certificate(index_of, words):
    found = certify(TEM(index_of(np.arange(float(words))), 1.0))
    assert found.holds
    assert found.pairs == words - 1
    assert (found.rho > 0) == (words == 2)


def test_a_metric_of_the_user_is_certified_by_all_triples_of_a_small_vocabulary(index_of, points):
    def taxi(a, b):
        return np.abs(a[:, None] - b[None]).sum(axis=2)

    own = index_of(points, k=16, metric=CallableMetric(taxi, "taxi"))
    plain = index_of(points, k=16, metric="manhattan")
    found, expected = certify(TEM(own, 2.0)), certify(TEM(plain, 2.0))
    assert found.holds
    assert found.rho == pytest.approx(expected.rho, rel=1e-9)


def test_only_a_mechanism_can_be_certified():
    with pytest.raises(MechanismError, match="certify needs a mechanism"):
        certify("TEM")


# Broken mechanisms


class WrongBottom(TEM):
    """Truncation with the bottom scored ln(|W| / |L|) in place of ln|W outside L|."""

    def log_prob(self, word):
        apart = self.distances(self.resolve(word))
        listed = apart <= self.gamma
        size, inside = len(apart), int(listed.sum())
        score = -self.t * np.where(listed, apart, self.gamma)
        if inside < size:
            score[~listed] += math.log(size / inside) - math.log(size - inside)
        return score - np.logaddexp.reduce(score)


class WithoutSelf(TEM):
    """The word left out of its own list: it never stays."""

    def log_prob(self, word):
        law = super().log_prob(word).copy()
        law[self.index.representatives[self.resolve(word)]] = -np.inf
        return law - np.logaddexp.reduce(law)


class SelfAtTheEdge(TEM):
    """The word left out of its own list, and drawn as one of the rest."""

    def log_prob(self, word):
        number = self.resolve(word)
        score = np.log(self.measure.weights) - self.t * np.minimum(
            self.distances(number), self.gamma
        )
        score[self.index.representatives[number]] -= self.t * self.gamma
        return score - np.logaddexp.reduce(score)


class NotANumber(TEM):
    """A law with a hole."""

    def log_prob(self, word):
        law = super().log_prob(word).copy()
        if word == 5:
            law[7] = np.nan
        return law


class Quiet(Madlib):
    """Noise four times too small for the claim."""

    def sample_documents(self, ids, offsets, streams):
        claimed, self.epsilon = self.epsilon, 4 * self.epsilon
        try:
            return super().sample_documents(ids, offsets, streams)
        finally:
            self.epsilon = claimed


def test_a_wrong_bottom_score_is_caught(index):
    mechanism = WrongBottom(index, 3.0, "uniform", gamma=0.8)
    assert_caught(mechanism, certify(mechanism))


def test_a_wrong_bottom_score_is_caught_in_a_large_vocabulary(index_of, clustered_points):
    mechanism = WrongBottom(
        index_of(clustered_points(40, 50, 3, 3.0), k=32), 3.0, "uniform", gamma=0.8
    )
    found = certify(mechanism)
    assert not found.exact
    assert_caught(mechanism, found)


def test_a_word_left_out_of_its_own_list_is_caught(index):
    mechanism = SelfAtTheEdge(index, 3.0, "uniform", gamma=3.0)
    assert_caught(mechanism, certify(mechanism))


def test_a_word_that_never_stays_is_told_apart_for_sure(index):
    mechanism = WithoutSelf(index, 3.0)
    found = certify(mechanism)
    assert (found.holds, found.rho) == (False, math.inf)
    assert true_loss(mechanism, found.worst_pair) == math.inf


def test_a_law_that_is_no_number_does_not_hold(index):
    assert not certify(NotANumber(index, 3.0)).holds


def lists_of(ids, distances) -> Neighbourhoods:
    """Lists in the form that an index has, for which everything is compiled already."""
    return Neighbourhoods(*(read_only(np.ascontiguousarray(each)) for each in (ids, distances)))


@pytest.fixture
def missing(index_of, points):
    """Lists of 16 in which every tenth word misses its third nearest neighbour."""
    index = index_of(points, k=17)
    kept = np.tile(np.arange(16), (len(index), 1))
    kept[::10, 3:] += 1
    index.neighbours = lists_of(
        np.take_along_axis(index.neighbours.ids, kept, axis=1),
        np.take_along_axis(index.neighbours.distances, kept, axis=1),
    )
    index.backend, index.recall = "hnsw", 1 - 0.1 / 16
    return index


@ignore_unsound
def test_lists_that_miss_neighbours_are_caught(missing):
    mechanism = TEM(missing, 6.0, "uniform")
    found = certify(mechanism)
    assert_caught(mechanism, found)
    assert any("approximate" in note for note in found.notes)


@ignore_unsound
def test_the_lists_of_the_approximate_search_are_caught(index_of, clustered_points):
    index = index_of(clustered_points(60, 60, 8, 30.0), k=60, backend="hnsw")
    assert index.recall < 1
    mechanism = TEM(index, 1.0, "uniform")
    assert_caught(mechanism, certify(mechanism))


@ignore_unsound
def test_approximate_lists_never_hold_even_where_none_is_missed(index_of):
    index = index_of(np.arange(8.0), k=8, backend="hnsw")
    assert index.recall == 1
    assert not certify(TEM(index, 1.0)).holds


def test_the_cosine_distance_is_caught(index_of, monkeypatch):
    def cosine(a, b):
        left, right = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
        return np.maximum(1 - left @ right.T, 0)

    monkeypatch.setattr("textpriv.index.building.check_metric", lambda *given, **options: None)
    angles = np.linspace(0, np.pi, 60)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    index = index_of(circle, k=60, metric=CallableMetric(cosine, "cosine"))
    mechanism = TEM(index, 4.0, "uniform")
    assert_caught(mechanism, certify(mechanism))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("rho", [1.9999999999, 2.0000000001, 2 / 3, 1.23456789012])
def test_a_lower_bound_is_printed_rounded_down_and_an_exact_constant_rounded_up(index, exact, rho):
    found = replace(certify(TEM(index, 3.0)), rho=rho, rho_with_rounding=rho, exact=exact)
    relation, printed = found.in_words(rho).rpartition(" ")[::2]
    assert relation == ("" if exact else "at least")
    assert rho <= float(printed) if exact else float(printed) <= rho
    assert float(printed) == pytest.approx(rho, rel=1e-8)
    assert f" is {'exactly ' if exact else ''}{found.in_words(rho, 6)} over " in found.paragraph()
    assert found._repr_html_().count(f">{found.in_words(rho)}<") == 2


# What is looked at besides the law


class ReturnsItsInput(TEM):
    """States a law and draws nothing."""

    def sample_documents(self, ids, offsets, streams):
        return np.maximum(ids, 0)


def test_a_sampler_that_returns_its_input_is_not_certified(index):
    found = certify(ReturnsItsInput(index, 3.0))
    assert not found.holds
    assert "does not draw from the stated law" in found.paragraph()


def test_an_index_with_a_wrong_list_is_not_certified(index_of, points):
    index = index_of(points, k=17)
    ids, distances = index.neighbours.ids.copy(), index.neighbours.distances.copy()
    kept = np.r_[:3, 4:17]  # the third nearest neighbour of every word is missed
    index.neighbours = lists_of(ids[:, kept], distances[:, kept])
    found = certify(TEM(index, 3.0))
    assert not found.holds
    assert "nearest list" in found.paragraph()


def test_a_list_with_wrong_distances_is_not_certified(index_of, points):
    index = index_of(points, k=17)
    index.neighbours = lists_of(index.neighbours.ids, index.neighbours.distances * 1.001)
    assert not certify(TEM(index, 3.0)).holds


def test_a_certificate_says_what_was_looked_at(index):
    found = certify(TEM(index, 3.0))
    assert "draws each of 8 words and of an unknown one fit their laws" in found.paragraph()
    assert "nearest lists of 32 words agree" in found.paragraph()
    assert Certificate.from_dict(json.loads(found.to_json())).observed == found.observed


# Mechanisms without a law


def test_madlib_is_bounded_by_samples_and_says_so(index_of, points):
    found = certify(Madlib(index_of(points, k=16, hnsw=True), 3.0))
    assert (found.holds, found.exact, found.confidence) == (True, False, 0.999)
    assert 0.5 < found.rho <= 3.0
    assert "Monte Carlo" in found.method
    assert "cannot establish" in found.notes[0]


def test_a_madlib_with_too_little_noise_is_refuted(index_of, points):
    found = certify(Quiet(index_of(points, k=16, hnsw=True), 3.0))
    assert not found.holds
    assert found.rho > 6.0


def test_a_bound_from_samples_is_the_same_in_every_run(index_of, points):
    index = index_of(points[:40], k=16, hnsw=True)
    assert certify(Madlib(index, 3.0)).rho == certify(Madlib(index, 3.0)).rho


# Records


@pytest.fixture
def counted(monkeypatch):
    """How often a constant was computed."""
    from textpriv.guarantees import certificate

    calls = []
    real = certificate.tight_constants

    def count(*given, **options):
        calls.append(1)
        return real(*given, **options)

    monkeypatch.setattr(certificate, "tight_constants", count)
    return calls


def test_a_certificate_is_kept_with_the_folder_and_reused(saved, counted):
    first = certify(TEM(Index.load(saved), 3.0))
    again = certify(TEM(Index.load(saved), 3.0), reuse=True)
    assert again == first
    assert len(counted) == 1


def test_a_certificate_is_computed_anew_unless_asked_otherwise(saved, counted):
    certify(TEM(Index.load(saved), 3.0))
    certify(TEM(Index.load(saved), 3.0))
    assert len(counted) == 2


def test_a_certificate_serves_no_other_vectors_and_no_other_metric(index_of, points, counted):
    vectors = points.copy()
    vectors[3] += 1e-9
    bindings = [
        certify(TEM(made, 3.0)).binding
        for made in (
            index_of(points, k=16),
            index_of(vectors, k=16),
            index_of(points, k=16, metric="manhattan"),
        )
    ]
    assert bindings[0] != bindings[1]
    assert bindings[0] != bindings[2]


def test_a_certificate_serves_no_changed_class(saved, counted):
    certify(TEM(Index.load(saved), 3.0))
    assert not certify(WithoutSelf(Index.load(saved), 3.0), reuse=True).holds


def test_equal_priors_in_different_form_share_a_certificate(saved, counted):
    index = Index.load(saved)
    counts = np.arange(1.0, 121.0)
    certify(TEM(index, 3.0, counts))
    certify(TEM(index, 3.0, dict(zip(index.vocabulary.words, counts, strict=True))), reuse=True)
    assert len(counted) == 1


def records_of(folder: Path) -> list[Path]:
    return sorted((folder / "records").glob("*.json"))


def flipped(entry):
    entry["content"]["holds"] = False


def other_binding(entry):
    entry["binding"]["settings"]["epsilon"] = 4.0


def without_content(entry):
    del entry["content"]


@pytest.mark.parametrize("harm", [flipped, other_binding, without_content])
def test_a_record_that_was_altered_is_ignored_loudly(saved, counted, harm):
    certify(TEM(Index.load(saved), 3.0))
    (record,) = records_of(saved)
    entry = json.loads(record.read_text())
    harm(entry)
    record.write_text(json.dumps(entry))
    with pytest.warns(UserWarning, match="does not match what it is bound to"):
        found = certify(TEM(Index.load(saved), 3.0), reuse=True)
    assert found.holds
    assert len(counted) == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_a_record_that_is_none_is_ignored_loudly(saved, counted, content):
    certify(TEM(Index.load(saved), 3.0))
    (record,) = records_of(saved)
    record.write_bytes(content)
    with pytest.warns(UserWarning, match="does not match"):
        certify(TEM(Index.load(saved), 3.0), reuse=True)
    assert len(counted) == 2


def test_a_record_under_the_name_of_another_is_ignored_loudly(saved):
    certify(TEM(Index.load(saved), 3.0))
    (first,) = records_of(saved)
    content = first.read_text()
    first.unlink()
    certify(TEM(Index.load(saved), 4.0))
    (second,) = records_of(saved)
    second.write_text(content)
    with pytest.warns(UserWarning, match="does not match"):
        found = certify(TEM(Index.load(saved), 4.0), reuse=True)
    assert found.epsilon == 4.0


def test_records_travel_with_a_saved_index(index, tmp_path, counted):
    first = certify(TEM(index, 3.0))
    index.save(tmp_path / "a.idx")
    Index.load(tmp_path / "a.idx").save(tmp_path / "b.idx")
    assert certify(TEM(Index.load(tmp_path / "b.idx"), 3.0), reuse=True) == first
    assert len(counted) == 1


HARM = {
    "a rate above epsilon": lambda record: record.update(t=3.1),
    "a rate below half": lambda record: record.update(t=1.4),
    "a rate that is none": lambda record: record.update(t=None),
    "no rate": lambda record: record.pop("t"),
    "a constant above epsilon": lambda record: record.update(rho_with_rounding=3.1),
    "no constant": lambda record: record.pop("rho_with_rounding"),
}


def test_a_folder_that_cannot_be_written_serves_all_the_same(saved, monkeypatch):
    def refuse(*given, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("textpriv.index.index.Path.mkdir", refuse)
    index = Index.load(saved)
    first = certify(TEM(index, 3.0))
    assert records_of(saved) == []
    assert certify(TEM(index, 3.0), reuse=True) == first


def test_a_metric_of_the_user_is_never_taken_from_a_record(index_of, points, monkeypatch):
    # Two metrics of one name have one record.
    def taxi(a, b):
        return np.abs(a[:, None] - b[None]).sum(axis=2)

    mechanism = TEM(index_of(points[:40], k=16, metric=CallableMetric(taxi, "own")), 2.0)
    first = certify(mechanism)
    monkeypatch.setattr(mechanism.index, "find_record", None)
    assert certify(mechanism, reuse=True).rho == first.rho


# The certificate itself


def test_a_certificate_survives_json(index):
    found = certify(TEM(index, 3.0))
    assert Certificate.from_dict(json.loads(found.to_json())) == found


def test_an_infinite_constant_survives_strict_json(index):
    def strict(name):
        raise ValueError(name)

    found = certify(WithoutSelf(index, 3.0))
    plain = json.loads(found.to_json(), parse_constant=strict)
    assert plain["rho"] is None
    assert Certificate.from_dict(plain) == found


def test_progress_is_told_by_stage(index):
    told = []
    certify(TEM(index, 3.0), progress=lambda *at: told.append(at))
    assert [stage for stage, done, all_ in told if done == all_] == [
        "normalisers",
        "pairs of words",
    ]


def test_a_certificate_reads_as_plain_words(three_points):
    mechanism = TEM(three_points, 2.0, "uniform", gamma=2.0)
    paragraph = certify(mechanism).paragraph()
    assert paragraph.startswith(
        "The claim holds: TEM(epsilon=2, prior='uniform', gamma=2, t=1) claims 2 per unit of distance, and its constant "
        "is exactly 1.08404 over 3 pairs of words (closed form over all pairs, float64). The worst pair is 'w2' and "
        "'w1', at distance 2. "
    )


def test_a_refuted_claim_reads_as_a_warning(index):
    assert certify(WithoutSelf(index, 3.0)).paragraph().startswith("THE CLAIM DOES NOT HOLD: ")


# The command


def test_the_command_ends_with_0_and_shows_the_certificate(saved):
    result = run("certify", saved, "--epsilon", 3)
    assert result.exit_code == 0, result.stderr
    expected = certify(TEM(Index.load(saved), 3.0))
    assert result.stdout.startswith("THE CLAIM HOLDS")
    for part in (
        expected.in_words(expected.rho),
        *expected.worst_pair,
        "closed form",
        "6,441 pairs",
    ):
        assert part in result.stdout


def test_the_command_prints_json(saved):
    result = run("certify", saved, "--epsilon", 3, "--prior", "uniform", "--gamma", 0.9, "--json")
    told = Certificate.from_dict(json.loads(result.stdout))
    expected = certify(TEM(Index.load(saved), 3.0, "uniform", gamma=0.9))
    assert (told.rho, told.binding) == (expected.rho, expected.binding)


def test_the_command_reuses_a_certificate(saved, counted):
    for _ in range(2):
        assert run("certify", saved, "--epsilon", 3, "--reuse").exit_code == 0
    assert len(counted) == 1


def test_the_command_bounds_madlib(saved):
    result = run("certify", saved, "--epsilon", 3, "--mechanism", "madlib", "--search", "exact")
    assert result.exit_code == 0, result.stderr
    assert "at least" in result.stdout
    assert "Monte Carlo" in result.stdout


@ignore_unsound
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_command_ends_with_1_over_approximate_lists(missing, tmp_path, options):
    missing.save(tmp_path / "a.idx")
    result = run("certify", tmp_path / "a.idx", "--epsilon", 6, "--prior", "uniform", *options)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert ('"holds": false' if options else "THE CLAIM DOES NOT HOLD") in result.stdout


def test_the_command_refuses_options_of_another_mechanism(saved):
    assert run("certify", saved, "--epsilon", 3, "--search", "exact").exit_code == 2


def test_the_command_names_a_folder_that_is_none(tmp_path):
    result = run("certify", tmp_path / "none.idx", "--epsilon", 3)
    assert result.exit_code == 2  # 1 would be a refutation
    assert result.stderr.startswith("error: ")


# Real vectors


@pytest.mark.real_data
@pytest.mark.parametrize("prior", ["uniform", "zipf"])
def test_eight_thousand_real_words_are_certified_in_seconds(real_data, prior):
    source = real_data / "embeddings" / "glove-6B-8k.50d.txt.gz"
    vocabulary = Vocabulary.load(source, limit=8_000)
    mechanism = TEM(Index.build(vocabulary, k=8, hnsw=False), 6.0, prior)
    started = time.process_time()
    found = certify(mechanism)
    # Time of two processors, which is what counts on a machine that others use.
    assert time.process_time() - started < 2 * 10
    assert len(vocabulary) == 8_000
    assert found.holds
    assert found.pairs == 8_000 * 7_999 // 2
    assert 3.0 <= found.rho <= 6.0
