"""A few texts are drawn round by round, and more by kernels: the same words, wherever the kernels take over."""

from __future__ import annotations

import numpy as np
import pytest

from textpriv.mechanisms import TEM, sampling, tem_sampler
from textpriv.randomness import Stream

PRIORS = {
    "uniform": "uniform",
    "zipf": "zipf",
    "steep": np.random.default_rng(3).permutation(np.logspace(0, 9, 60)),
}


def drawn(index, prior, t, rounds: int, ids, offsets) -> tuple[list[int], int]:
    """Outputs where so many rounds are drawn one by one, and how many of them are left."""
    mechanism = TEM(index, t, PRIORS[prior])
    mechanism._sampler._rounds = rounds
    mechanism._sampler.tables.mode[::9] = 2  # some words are drawn from full rows
    streams = [Stream(bytes([number]) * 32) for number in range(len(offsets) - 1)]
    outputs = mechanism.sample_documents(ids, offsets, streams)
    return outputs.tolist(), mechanism._sampler._rounds


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("k", [2, 8, 60])
@pytest.mark.parametrize("t", [0.02, 2.0, 40.0])
def test_rounds_one_by_one_draw_what_the_kernels_draw(index_of, tied_points, prior, k, t):
    index = index_of(tied_points(60), k=k)
    ids = np.random.default_rng(5).integers(-1, 60, 700).astype(np.int32)
    offsets = np.array([0, 300, 300, 601, 700])
    by_kernels, none_left = drawn(index, prior, t, -1, ids, offsets)
    one_by_one, left = drawn(index, prior, t, 10**6, ids, offsets)
    assert none_left == -1 < left
    assert one_by_one == by_kernels


@pytest.mark.parametrize("metric", ["angular", "manhattan", "chebyshev", "unit_euclidean"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_they_do_so_under_every_metric_and_precision(index_of, metric, dtype):
    points = np.random.default_rng(6).normal(size=(300, 21)).astype(dtype)
    index = index_of(points, k=4, metric=metric)
    ids = np.random.default_rng(7).integers(-1, 60, 200).astype(np.int32)
    offsets = np.array([0, 200])
    by_kernels = drawn_zipf(index, -1, ids, offsets)
    assert drawn_zipf(index, 10**6, ids, offsets) == by_kernels


def drawn_zipf(index, rounds, ids, offsets) -> list[int]:
    return drawn(index, "zipf", 6.0 / index.reference_distance, rounds, ids, offsets)[0]


@pytest.mark.parametrize("spare", [0, 8])
@pytest.mark.parametrize("rounds", [700, 760, 1000])
def test_the_kernels_take_over_in_the_middle_of_a_document(
    index_of, tied_points, monkeypatch, rounds, spare
):
    monkeypatch.setattr(tem_sampler, "_SPARE", spare)  # random words run out often, or never
    index = index_of(tied_points(60), k=2)
    ids = np.random.default_rng(8).integers(-1, 60, 700).astype(np.int32)
    offsets = np.array([0, 50, 650, 700])
    by_kernels, _ = drawn(index, "steep", 3.0, -1, ids, offsets)
    found, left = drawn(index, "steep", 3.0, rounds, ids, offsets)
    assert left < 0
    assert found == by_kernels


def test_as_many_random_words_are_read_as_the_kernels_read(index_of, tied_points):
    index = index_of(tied_points(60), k=4)
    ids, ends = np.arange(60, dtype=np.int32), []
    for rounds in (-1, 10**6):
        mechanism, stream = TEM(index, 1.0), Stream(b"s" * 32)
        mechanism._sampler._rounds = rounds
        mechanism.sample(ids, stream)
        ends.append(stream.words(2).tolist())
    assert ends[0] == ends[1]


def test_many_tokens_are_drawn_by_the_kernels_at_once(index_of, tied_points, monkeypatch):
    monkeypatch.setattr(tem_sampler, "_ready", set())
    mechanism = TEM(index_of(tied_points(60), k=4), 1.0)
    mechanism.sample(np.zeros(60, dtype=np.int32), Stream())
    assert "_state" not in vars(mechanism._sampler)
    mechanism.sample(np.zeros(tem_sampler.FEW_ROUNDS, dtype=np.int32), Stream())
    assert "_state" in vars(mechanism._sampler)


def test_a_process_that_has_run_the_kernels_begins_with_them(index_of, tied_points, monkeypatch):
    monkeypatch.setattr(tem_sampler, "_ready", set())
    index = index_of(tied_points(60), k=4)
    first = TEM(index, 1.0)
    first.sample([0], Stream())
    assert "_state" not in vars(first._sampler)
    first.compile()
    second = TEM(index, 1.0)
    second.sample([0], Stream())
    assert "_state" in vars(second._sampler)


def test_what_is_compiled_ahead_is_used_from_the_first_token_on(index_of, tied_points):
    mechanism = TEM(index_of(tied_points(60), k=4), 1.0)
    mechanism.compile()
    assert "_state" in vars(mechanism._sampler)
    before = mechanism._sampler._rounds
    mechanism.sample([0], Stream())
    assert mechanism._sampler._rounds == before


def test_a_reader_begins_no_round_that_its_words_may_not_suffice_for():
    reader = tem_sampler._Reader(np.arange(sampling.ROOM + 1, dtype=np.uint64), 0, 1)
    reader.begin()
    assert reader.take() == 0
    reader.begin()
    reader.take()
    with pytest.raises(tem_sampler._OutOfWords):
        reader.begin()
