"""Passes over all pairs: several computations that share theirs find what each finds alone, and none waits for ever."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest

from textpriv import TEM, BalancedTEM, SmoothedTEM, certify
from textpriv.mechanisms.calibration import pair_sweep as passes
from textpriv.mechanisms.calibration.pair_sweep import sweep, together
from textpriv.metrics import get_metric

POINTS = np.random.default_rng(2).normal(size=(600, 4))
METRIC = get_metric("euclidean")


@pytest.fixture
def index(index_of, clustered_points):
    return index_of(clustered_points(12, 15, 8, 1.0))


def total(power: float, precision: type = np.float64, metric=METRIC) -> float:
    """Sum of a power of all distances; overwrites the blocks that it is given."""
    found, guard = [0.0], threading.Lock()

    def visit(rows, columns, distances):
        distances **= power
        with guard:
            found[0] += float(distances.sum(dtype=np.float64))

    sweep(POINTS, metric, visit, precision=precision)
    return found[0]


@pytest.fixture
def counted(monkeypatch):
    """The number of requests that every pass has served."""
    served, run = [], passes._run

    def counting(requests, kept=None):
        served.append(len(requests))
        run(requests, kept)

    monkeypatch.setattr(passes, "_run", counting)
    return served


@pytest.mark.parametrize("metric", ["euclidean", "angular", "manhattan"])
def test_visitors_that_share_a_pass_see_what_each_sees_alone(counted, metric):
    chosen = get_metric(metric)
    tasks = [partial(total, power, metric=chosen) for power in (1.0, 2.0, 0.5)]
    alone = [task() for task in tasks]
    assert together(tasks) == pytest.approx(alone, rel=1e-13)
    assert counted == [1, 1, 1, 3]


def test_a_pass_serves_one_precision(counted):
    tasks = [partial(total, 1.0), partial(total, 1.0, np.float32), partial(total, 2.0)]
    together(tasks)
    assert sorted(counted) == [1, 2]


def test_tasks_that_take_different_numbers_of_passes_all_end(counted):
    def some(number):
        return [total(1.0) for _ in range(number)]

    found = together([partial(some, number) for number in (0, 1, 3, 5)])
    assert [len(sums) for sums in found] == [0, 1, 3, 5]
    assert counted == [3, 2, 2, 1, 1]


def test_an_error_of_a_task_leaves_the_others_to_end_and_is_raised(counted):
    ended = []

    def fails():
        total(1.0)
        raise ValueError("of its own")

    def works():
        ended.append(total(1.0) + total(2.0))

    with pytest.raises(ValueError, match="of its own"):
        together([works, fails, works])
    assert len(ended) == 2
    assert counted == [3, 2]


def test_an_error_in_a_pass_reaches_all_that_share_it():
    def broken(rows, columns, distances):
        raise ZeroDivisionError("in a visit")

    with pytest.raises(ZeroDivisionError, match="in a visit"):
        together([partial(sweep, POINTS, METRIC, broken), partial(total, 1.0)])


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
@pytest.mark.parametrize("memory", [1e5, 1e7])
def test_distances_that_are_kept_are_made_once_and_the_same(monkeypatch, metric, memory):
    made, chosen = [], get_metric(metric)
    complete, pairwise = passes._complete, passes.pairwise_distances
    monkeypatch.setattr(passes, "_complete", lambda *a: made.append(1) or complete(*a))
    monkeypatch.setattr(passes, "pairwise_distances", lambda *a: made.append(1) or pairwise(*a))

    def some(number):
        return [total(2.0, np.float32, chosen) for _ in range(number)]

    alone = some(1)[0]
    blocks = len(made)
    found = together([partial(some, 1), partial(some, 3)], memory=memory)
    assert [len(made)] == [blocks * (2 if memory == 1e7 else 4)]
    assert np.concatenate(found) == pytest.approx(alone, rel=1e-6)


def test_nothing_to_do_is_done():
    assert together([]) == []


def test_every_visitor_is_told_its_progress():
    told = [[], []]
    tasks = [
        partial(sweep, POINTS, METRIC, lambda *block: None, lambda *at, to=to: to.append(at))
        for to in told
    ]
    together(tasks)
    assert told[0] == told[1]
    assert told[0][-1][0] == told[0][-1][1]


def test_laws_that_are_settled_and_certified_together_are_those_settled_alone(index):
    makers = [
        partial(TEM, epsilon=2.0, rate="calibrated"),
        partial(TEM, epsilon=3.0, rate="best"),
        partial(SmoothedTEM, epsilon=2.0, share=0.8),
        partial(BalancedTEM, epsilon=2.0),
    ]
    alone = [certify(make(index)) for make in makers]
    index._records._contents.clear()
    made = together([partial(make, index) for make in makers])
    found = together([partial(certify, mechanism) for mechanism in made])
    for one, other in zip(alone, found, strict=True):
        assert other.rho == pytest.approx(one.rho, rel=1e-9)
        assert other.holds
        assert other.mechanism == one.mechanism
