"""No private row leaves with what was learned from it: not in the object, its pickle, its text or its HTML form.

Every row of the tables here holds values that nothing else produces, and every estimator of the package is fitted on them.
What is searched is the whole graph of objects that a fitted estimator reaches, not a list of attributes.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import pickle
import pkgutil
import types
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

import pairwise
from pairwise import (
    DPPMetricLearner,
    Ftrl,
    OnPair,
    PrivateAUCClassifier,
    PrivateLDA,
    PrivateMail,
    PrivateMetricLearner,
    PublicScaler,
    Published,
)
from pairwise.estimators.projection import PrivatePCA, PrivateRandomProjection

N = 24
# Inside every ball, so that no clipping changes them; no two values are alike and none is a round number.
X = np.random.default_rng(20).normal(size=(N, 3)) * 0.05 + 0.0123456789
y = np.arange(N) % 2
PAIRS = np.stack((np.arange(0, N, 2), np.arange(1, N, 2)), axis=1)
SIGNS = np.where(np.arange(len(PAIRS)) % 3, 1, -1)


def _reader(table):
    return lambda index: table[index]


ONLINE_ALGORITHMS = ("onpairstrc", "onpairc", "ftrl")
ALGORITHMS = ("gradient", *ONLINE_ALGORITHMS, "offpairstrc", "offpairc", "sgd-output", "statistics")
FITS = [
    *(
        (PrivateAUCClassifier(algorithm=a, classes=[0, 1]), X, y)
        for a in (*ALGORITHMS, "pointwise")
    ),
    *((PrivateMetricLearner(algorithm=a, classes=[0, 1]), X, y) for a in (*ALGORITHMS, "matching")),
    (PrivateLDA(classes=[0, 1]), X, y),
    (PrivateMail(classes=[0, 1]), X, y),
    (PrivateMail(classes=[0, 1], mode="published"), X, y),
    (PrivatePCA(n_components=2), X, None),
    (PrivateRandomProjection(n_components=2), X, None),
    (PublicScaler(-1.0, 1.0), X, None),
    *(
        (DPPMetricLearner(algorithm=a, classes=[0, 1]), X, y)
        for a in ("matching", "input-perturbation")
    ),
    *(
        (DPPMetricLearner(algorithm=a, kappa=1, preprocessor=X), PAIRS, SIGNS)
        for a in ("edges", "pure", "node-dp")
    ),
    (DPPMetricLearner(kappa=1), X[PAIRS], SIGNS),
    (DPPMetricLearner(kappa=1, preprocessor=_reader(X)), PAIRS, SIGNS),
    (DPPMetricLearner(kappa=1, algorithm=Published(n_steps=1), preprocessor=X), PAIRS, SIGNS),
]


def _name(fit):
    return (
        f"{type(fit[0]).__name__}-{getattr(fit[0], 'algorithm', '')}-{getattr(fit[0], 'mode', '')}"
    )


def _fitted(estimator, data, target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(estimator).fit(data, target)


def _reached(start):
    """All objects that can be reached from one, but not through modules, classes or running frames."""
    seen, waiting = {id(start): start}, [start]
    while waiting:
        found = waiting.pop()
        more = gc.get_referents(found)
        if isinstance(found, np.ndarray) and found.base is not None:
            more.append(found.base)
        for each in more:
            if (
                not isinstance(each, type | types.ModuleType | types.FrameType)
                and id(each) not in seen
            ):
                # A function brings its globals along, which are not what an estimator holds.
                if isinstance(found, types.FunctionType) and each is found.__globals__:
                    continue
                seen[id(each)] = each
                waiting.append(each)
    return list(seen.values())


def _row_held_by(start):
    """The first object with a private value in it, or None."""
    marked = set(X.ravel().tolist())
    for each in _reached(start):
        if isinstance(each, np.ndarray) and each.dtype == np.float64:
            if np.isin(each, X).any():
                return each
        elif isinstance(each, float) and each in marked:
            return each
    return None


def _row_in_bytes(data):
    # In either byte order: arrays are pickled as they lie in memory, single floats the other way round.
    return any(np.array(v, order).tobytes() in data for v in X.ravel() for order in ("<f8", ">f8"))


def _row_in_text(text):
    # numpy prints eight digits, Python seventeen; six are enough to know one of these numbers by.
    return any(f"{abs(value):.8f}"[:8] in text for value in X.ravel())


every_fit = pytest.mark.parametrize("fit", FITS, ids=_name)


@every_fit
def test_a_fitted_estimator_holds_no_private_row_in_anything_that_it_reaches(fit):
    assert _row_held_by(_fitted(*fit)) is None


@every_fit
def test_the_pickle_of_a_fitted_estimator_holds_no_private_row(fit):
    assert not _row_in_bytes(pickle.dumps(_fitted(*fit)))


@every_fit
def test_neither_the_text_nor_the_html_of_a_fitted_estimator_shows_a_private_row(fit):
    fitted = _fitted(*fit)
    assert not _row_in_text(repr(fitted) + str(fitted))
    assert not _row_in_text(fitted._repr_html_())


@pytest.mark.parametrize("cls", [PrivateAUCClassifier, PrivateMetricLearner])
@pytest.mark.parametrize("options", [OnPair(), OnPair(strong=False), Ftrl()])
def test_a_stream_needs_its_rows_while_it_is_open_and_pickles_none(cls, options):
    options = replace(options, horizon=2 * N, track_regret=True)
    stream = cls(algorithm=options, classes=[0, 1])
    stream.partial_fit(X, y)
    assert _row_held_by(stream) is not None  # so the search would see one
    assert not _row_in_bytes(pickle.dumps(stream))
    assert not _row_in_text(repr(stream) + stream._repr_html_())


def test_these_searches_would_see_a_row():
    learner = DPPMetricLearner(kappa=1, preprocessor=X)
    assert _row_held_by(learner) is not None
    assert _row_held_by({"deep": [_reader(X)]}) is not None
    assert _row_in_bytes(pickle.dumps(learner))
    assert _row_in_text(repr(X))
    assert _row_in_text(BaseEstimator.__repr__(learner))


def test_every_estimator_of_the_package_is_among_those_searched():
    found = set()
    for module in pkgutil.iter_modules(pairwise.__path__):
        members = vars(importlib.import_module(f"pairwise.{module.name}")).values()
        found |= {
            each
            for each in members
            if inspect.isclass(each)
            and issubclass(each, BaseEstimator)
            and each.__module__.startswith("pairwise.")
            and "fit" in vars(each)
        }
    assert found - {type(estimator) for estimator, _, _ in FITS} == set()
