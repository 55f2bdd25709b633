"""Options of an algorithm: objects, names, scikit-learn's searches, and the flat parameters of before."""

from __future__ import annotations

import inspect
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import pairwise
from pairwise import (
    DPPMetricLearner,
    Edges,
    Gradient,
    Matching,
    OnPair,
    PrivateAUCClassifier,
    PrivateLDA,
    PrivateMail,
    PrivateMetricLearner,
    PublicScaler,
    Published,
    Statistics,
)
from pairwise.errors import PairwiseError

X = np.random.default_rng(1).normal(size=(24, 2)) * 0.3
Y = np.arange(24) % 2
CHOOSERS = (PrivateAUCClassifier, PrivateMetricLearner, DPPMetricLearner, PrivateMail)


def auc(**settings):
    return PrivateAUCClassifier(classes=[0, 1], random_state=0, **settings)


@pytest.mark.parametrize("cls", [*CHOOSERS, PrivateLDA])
def test_no_constructor_has_more_than_a_dozen_parameters(cls):
    assert len(inspect.signature(cls).parameters) <= 12
    assert set(cls().get_params(deep=False)) == set(inspect.signature(cls).parameters)


@pytest.mark.parametrize("cls", CHOOSERS)
def test_a_name_means_the_options_at_their_defaults(cls):
    for name, options in cls._algorithms.items():
        assert name in (options.name, "auto")
        assert options == type(options)(**({"strong": False} if name.endswith("pairc") else {}))
        assert getattr(pairwise, type(options).__name__) is type(options)


def test_an_option_passed_flat_works_like_the_option_object_and_warns():
    with pytest.warns(DeprecationWarning, match=r"write algorithm=Gradient\(steps=...\)"):
        flat = auc(steps=3)
    assert flat.algorithm == Gradient(steps=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        chosen = auc(algorithm=Gradient(steps=3))
    assert np.array_equal(flat.fit(X, Y).coef_, chosen.fit(X, Y).coef_)
    assert not np.array_equal(auc(algorithm=Gradient(steps=4)).fit(X, Y).coef_, chosen.coef_)


def test_a_mode_of_before_is_told_as_the_algorithm_that_it_is_now():
    with pytest.warns(DeprecationWarning, match="write algorithm='published'"):
        DPPMetricLearner(mode="published")


def test_a_flat_option_beside_another_option_object_is_refused():
    with pytest.raises(PairwiseError, match="differ from the parameters steps"):
        auc(algorithm=Gradient(steps=3), steps=4)
    with pytest.warns(DeprecationWarning, match="deprecated"):
        assert auc(algorithm=Gradient(steps=3), steps=3).algorithm == Gradient(steps=3)


def test_an_unknown_parameter_and_the_options_of_another_estimator_are_refused():
    with pytest.raises(TypeError, match="has no parameter 'stpes'"):
        auc(stpes=3)
    with pytest.raises(PairwiseError, match="algorithm must be one of gradient"):
        auc(algorithm=Matching()).fit(X, Y)
    with pytest.raises(ValueError, match="Invalid parameter 'horizon' for algorithm 'pointwise'"):
        auc().set_params(algorithm__horizon=3)


def test_searches_set_options_by_name_also_where_the_algorithm_is_a_name():
    grid = {"algorithm__steps": [2, 3], "epsilon": [4.0]}
    search = GridSearchCV(auc(), grid, cv=2, scoring="roc_auc").fit(X, Y)
    assert search.best_params_["algorithm__steps"] in (2, 3)
    piped = make_pipeline(PublicScaler(-1, 1, (-1, 1)), auc(algorithm=Gradient(rate=0.1)))
    name = "privateaucclassifier__algorithm__"
    assert clone(piped).set_params(**{f"{name}steps": 5}).get_params()[f"{name}rate"] == 0.1


def test_options_are_never_changed_in_place():
    options = OnPair(horizon=5)
    first, second = auc(algorithm=options), clone(auc(algorithm=options))
    first.set_params(algorithm__horizon=6)
    assert second.algorithm.horizon == options.horizon == 5
    with pytest.raises(AttributeError):
        options.horizon = 7


@pytest.mark.parametrize(
    "estimator",
    [
        auc(algorithm=Gradient(steps=3)),
        PrivateMetricLearner(algorithm=Statistics()),
        DPPMetricLearner(algorithm=Matching(n_steps=2)),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_dict_unchanged,
    ],
    ids=lambda c: c.__name__,
)
def test_an_estimator_with_an_option_object_keeps_the_rules_of_scikit_learn(estimator, check):
    check(type(estimator).__name__, estimator)


def test_flat_options_are_still_read_and_set_as_attributes():
    model = auc(algorithm=Gradient(steps=3))
    with pytest.warns(DeprecationWarning, match="algorithm.steps"):
        assert model.steps == 3
    model.steps = 4
    assert model.algorithm.steps == 4
    assert model.set_params(steps=5).algorithm.steps == 5


@pytest.mark.parametrize("name", ["edges", "published"])
def test_published_mode_is_an_alias_of_the_published_algorithm(name):
    with pytest.warns(DeprecationWarning, match="deprecated"):
        learner = DPPMetricLearner(algorithm=name, mode="published", variant="duchi")
    assert learner.algorithm == Published(variant="duchi")
    assert learner.mode == "published"
    assert DPPMetricLearner().set_params(mode="published").mode == "published"
    with pytest.raises(PairwiseError, match="algorithm was set"):
        DPPMetricLearner(algorithm="matching", mode="published")


def test_an_estimator_pickled_with_flat_options_loads_with_its_options():
    model = auc().fit(X, Y)
    state = {**model.__getstate__(), "algorithm": "gradient", "steps": 7, "alpha": None}
    old = PrivateAUCClassifier.__new__(PrivateAUCClassifier)
    old.__setstate__(state)
    assert old.algorithm == Gradient(steps=7)
    assert np.array_equal(old.decision_function(X), model.decision_function(X))
    dpp = DPPMetricLearner.__new__(DPPMetricLearner)
    dpp.__setstate__(
        {**DPPMetricLearner(kappa=2).__getstate__(), "mode": "published", "n_steps": 3}
    )
    assert dpp.algorithm == Published(n_steps=3)
    assert pickle.loads(pickle.dumps(dpp)).algorithm == dpp.algorithm
    assert DPPMetricLearner(algorithm=Edges(n_steps=2)).mode == "sound"
