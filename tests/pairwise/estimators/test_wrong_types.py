"""A setting of a wrong type is refused in words that name it, before anything is charged, by everything that is public."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re

import numpy as np
import pytest
from sklearn.base import clone

import pairwise
from pairwise import (
    SMLQ,
    DPPMetricLearner,
    Edges,
    Ftrl,
    Gradient,
    InputPerturbation,
    Matching,
    NodeDP,
    OffPair,
    OnPair,
    PairGraph,
    Pointwise,
    PrivacyBudget,
    PrivateAUCClassifier,
    PrivateLDA,
    PrivateMail,
    PrivateMetricLearner,
    PrivatePipeline,
    PrivateScorer,
    PrivateSearchCV,
    PublicOneHot,
    PublicScaler,
    Published,
    Pure,
    SGDOutput,
    Statistics,
    SubsetQuery,
    TrialCount,
    check_pipeline,
    get_loss,
    private_selection,
)
from pairwise.accounting.accountant import epsilon_of
from pairwise.accounting.events import gaussian_event
from pairwise.errors import PairwiseError
from pairwise.estimators.projection import PrivatePCA, PrivateRandomProjection
from pairwise.estimators.scores import private_accuracy_score, private_auc_score
from pairwise.pairs.losses import AUCLogistic

N = 40
X, Y = np.random.default_rng(0).normal(size=(N, 3)) * 0.3, np.arange(N) % 2
PAIRS = np.stack((np.arange(0, N, 2), np.arange(1, N, 2)), axis=1)
SIGNS = np.where(np.arange(len(PAIRS)) % 3, 1, -1)
WRONG = [None, "x", 3, [], object(), math.nan]
CLASSES = [0, 1]
LEARNER = PrivateAUCClassifier(classes=CLASSES)


class Ledger:
    """Enters whatever is charged, and allows all of it."""

    def __init__(self):
        self.labels = []

    def charge(self, event, label="", *, adjacency=None, unit=None):
        assert epsilon_of(event, 1e-6, adjacency) > 0
        self.labels.append(label)

    def __deepcopy__(self, memo):
        return self


def _fit(estimator):
    return estimator.fit(X, Y)


def _fit_and_use(estimator):
    return estimator.fit(X).transform(X)


ESTIMATORS = [
    (LEARNER, lambda each: each.fit(X, Y).predict(X)),
    (PrivateAUCClassifier(classes=CLASSES, mode="published", algorithm=SGDOutput()), _fit),
    (PrivateMetricLearner(classes=CLASSES), _fit),
    (PrivateLDA(classes=CLASSES), _fit),
    (PrivateMail(classes=CLASSES, labels="randomised"), _fit),
    (DPPMetricLearner(classes=CLASSES), _fit),
    (
        DPPMetricLearner(kappa=1, preprocessor=X, algorithm="edges"),
        lambda each: each.fit(PAIRS, SIGNS),
    ),
    (PrivatePCA(2), lambda each: each.fit(X)),
    (PrivateRandomProjection(2), lambda each: each.fit(X).release(X)),
    (PublicScaler(-1, 1), _fit_and_use),
    (PublicOneHot([0, 1], other="zeros"), _fit_and_use),
    (PrivateSearchCV(LEARNER, {"data_norm": [1.0]}), _fit),
]
NUMBERS = (
    *("data_norm", "epsilon", "random_state", "n_components", "kappa", "projection_state"),
    *("high", "missing"),
)
UNREAD = {(PrivateMetricLearner, "preprocessor")}  # by fit; pair_distance refuses it


def _cases():
    for estimator, use in ESTIMATORS:
        cls = type(estimator)
        for name, parameter in inspect.signature(cls).parameters.items():
            for number, wrong in enumerate(WRONG):
                optional = wrong is None and parameter.default is None
                if not (optional or (wrong == 3 and name in NUMBERS) or (cls, name) in UNREAD):
                    yield pytest.param(
                        estimator, use, name, wrong, id=f"{cls.__name__}-{name}-{number}"
                    )


@pytest.mark.filterwarnings("ignore::pairwise.UnsoundWarning")
@pytest.mark.parametrize(("estimator", "use", "name", "wrong"), list(_cases()))
def test_a_parameter_of_a_wrong_type_is_refused_in_words_before_the_charge(
    estimator, use, name, wrong
):
    ledger = Ledger()
    one = clone(estimator)
    if "budget" in one.get_params(deep=False):
        one.set_params(budget=ledger)
    with pytest.raises((PairwiseError, TypeError)) as caught:
        use(one.set_params(**{name: wrong}))
    if not isinstance(caught.value, PairwiseError):
        assert "Parameter grid" in str(caught.value)  # as scikit-learn says it
    assert ledger.labels == []


def test_every_estimator_is_among_those_whose_parameters_are_tried():
    public = {
        each
        for each in map(pairwise.__getattr__, pairwise.__all__)
        if isinstance(each, type) and hasattr(each, "get_params") and "fit" in dir(each)
    }
    assert public - {type(each) for each, _ in ESTIMATORS} == {PrivatePipeline}


def _fit_pairs(options):
    noise = "laplace" if isinstance(options, Pure) else None
    DPPMetricLearner(kappa=1, preprocessor=X, algorithm=options, noise=noise).fit(PAIRS, SIGNS)


def _fit_ranking(options):
    PrivateAUCClassifier(classes=CLASSES, algorithm=options).fit(X, Y)


def _fit_stream(options):
    PrivateAUCClassifier(classes=CLASSES, algorithm=options).partial_fit(X, Y)


def _fit_metric(options):
    PrivateMetricLearner(classes=CLASSES, algorithm=options).fit(X, Y)


def _fit_individuals(options):
    DPPMetricLearner(classes=CLASSES, algorithm=options).fit(X, Y)


OPTIONS = [
    *((each, _fit_ranking) for each in (Gradient(), Pointwise(), OffPair(), SGDOutput())),
    *((each, _fit_stream) for each in (OnPair(horizon=N), Ftrl(horizon=N))),
    *((each, _fit_metric) for each in (Gradient(), Matching(), Statistics())),
    (SMLQ(), lambda options: PrivateMail(classes=CLASSES, algorithm=options).fit(X, Y)),
    *((each, _fit_individuals) for each in (Matching(), InputPerturbation())),
    *((each, _fit_pairs) for each in (Edges(), Pure(), NodeDP(), Published())),
]


@pytest.mark.filterwarnings("ignore::pairwise.UnsoundWarning")
@pytest.mark.parametrize(
    ("options", "fit", "name", "wrong"),
    [
        pytest.param(options, fit, field.name, wrong, id=f"{options.name}-{field.name}-{number}")
        for options, fit in OPTIONS
        for field in dataclasses.fields(options)
        for number, wrong in enumerate(WRONG)
        if not (wrong is None and field.default is None)
        and not (wrong == 3 and not isinstance(field.default, bool | str))
    ],
)
def test_an_option_of_a_wrong_type_is_refused_in_words(options, fit, name, wrong):
    with pytest.raises(PairwiseError):
        fit(dataclasses.replace(options, **{name: wrong}))


def test_a_loss_whose_bounds_are_not_known_is_refused():
    class Steep(AUCLogistic):
        """Says of itself what it likes."""

        def lipschitz(self, R):
            return 1e-9

    with pytest.raises(PairwiseError, match="loss must be one of"):
        _fit_ranking(Gradient(loss=Steep()))
    assert get_loss(AUCLogistic()) == AUCLogistic()


SELECTION = {
    "trial": lambda setting, account: (0.0, setting),
    "candidates": [1, 2],
    "epsilon": 1.0,
    "delta": 1e-5,
    "count": None,
    "adjacency": "replace-one",
    "unit": "one record",
    "random_state": None,
}
SCORE = {"epsilon": 1.0, "delta": None, "random_state": None, "hardened": True}
QUERY = {"codebook": np.eye(6), "epsilon": 1.0, "size": 2, "inclusion": 0.9, "most": 3}
BUDGET = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "replace-one", "composition": "auto"}
CHARGE = {"event": gaussian_event(10.0), "adjacency": None, "unit": None}
FUNCTIONS = {
    "TrialCount": (TrialCount, {"mean": 10.0, "shape": 0.0}),
    "private_selection": (private_selection, SELECTION),
    "private_auc_score": (
        private_auc_score,
        {"y_true": Y, "y_score": X[:, 0], "positive": 1, **SCORE},
    ),
    "private_accuracy_score": (private_accuracy_score, {"y_true": Y, "y_pred": Y, **SCORE}),
    "PrivateScorer": (
        lambda **given: PrivateScorer(**given)(LEARNER.fit(X, Y), X, Y),
        {"metric": "auc", "epsilon": 1.0},
    ),
    "SubsetQuery": (lambda **given: SubsetQuery(**given).ask(np.ones(6)), QUERY),
    "PrivacyBudget": (PrivacyBudget, {**BUDGET, "unit": "one record", "path": None}),
    "charge": (lambda **given: PrivacyBudget(1.0).charge(**given), CHARGE),
    "PairGraph": (PairGraph, {"pairs": [[0, 1]], "n_nodes": None}),
    "get_loss": (get_loss, {"name": "auc-logistic"}),
    "check_pipeline": (
        check_pipeline,
        {"pipeline": PrivatePipeline([("learn", LEARNER)]), "public": ()},
    ),
}
# What is no mistake: numbers, names and empty lists where such are asked for, and None where it is the default.
RIGHT = {
    **dict.fromkeys(("epsilon", "mean", "shape", "random_state", "n_nodes", "positive"), (3,)),
    **dict.fromkeys(("most", "size"), (3, None)),
    **dict.fromkeys(("unit", "path", "candidates"), ("x",)),
    "pairs": ([],),
    "public": ([], "x"),
}


def _of_functions():
    for called, (function, settings) in FUNCTIONS.items():
        for name, usual in settings.items():
            right = (*RIGHT.get(name, ()), *((None,) if usual is None else ()))
            for number, wrong in enumerate(WRONG):
                if wrong not in right:
                    yield pytest.param(
                        function, settings, name, wrong, id=f"{called}-{name}-{number}"
                    )


@pytest.mark.parametrize(("function", "settings", "name", "wrong"), list(_of_functions()))
def test_an_argument_of_a_wrong_type_is_refused_in_words(function, settings, name, wrong):
    with pytest.raises(PairwiseError):
        function(**{**settings, name: wrong})


@pytest.mark.parametrize("wrong", ["x", 3, [], object(), math.nan, PrivacyBudget])
@pytest.mark.parametrize(
    "release",
    [
        lambda budget: PrivateLDA(classes=CLASSES, budget=budget).fit(X, Y),
        lambda budget: PrivatePCA(2, budget=budget).fit(X),
        lambda budget: private_auc_score(Y, X[:, 0], epsilon=1.0, budget=budget),
        lambda budget: private_accuracy_score(Y, Y, epsilon=1.0, budget=budget),
        lambda budget: private_selection(SELECTION["trial"], [1], epsilon=1.0, budget=budget),
        lambda budget: SubsetQuery(np.eye(6), budget=budget).ask(np.ones(6)),
        lambda budget: PrivateSearchCV(LEARNER, {}, budget=budget).fit(X, Y),
    ],
    ids=["fit", "pca", "auc", "accuracy", "selection", "query", "search"],
)
def test_what_keeps_no_account_is_no_budget(release, wrong):
    with pytest.raises(PairwiseError, match="budget must be a PrivacyBudget or None; found"):
        release(wrong)


# --------------------------------------------------------------------------------------------------------------------
# Lists of classes


WITH_CLASSES = [
    LEARNER,
    PrivateAUCClassifier(algorithm=OnPair(horizon=N)),
    PrivateMetricLearner(),
    PrivateLDA(),
    PrivateMail(),
    DPPMetricLearner(),
    DPPMetricLearner(algorithm=Matching(start_share=0)),
    DPPMetricLearner(algorithm="input-perturbation"),
    PrivateSearchCV(LEARNER, {"data_norm": [1.0]}),
]


def _with(estimator, classes, ledger):
    one = clone(estimator).set_params(budget=ledger)
    searched = isinstance(one, PrivateSearchCV)
    return one.set_params(**{"estimator__classes" if searched else "classes": classes})


@pytest.mark.parametrize("estimator", WITH_CLASSES, ids=lambda each: repr(each)[:40])
@pytest.mark.parametrize(
    "classes",
    [
        [0, None],
        [0, 0],
        [0],
        ["a", 1],
        ["0", "1"],
        [math.nan, 1],
        [5, 6],
        [0, 1, 1],
        [[0, 1]],
        [0, [1]],
        [0, object()],
        "ab",
        b"01",
        3,
        {0, 1},
        [],
        object(),
    ],
    ids=lambda each: re.sub(" at 0x[0-9a-f]+", "", repr(each)),  # the same in every process
)
def test_a_list_of_classes_that_is_none_is_refused_before_the_charge(estimator, classes):
    ledger = Ledger()
    one = _with(estimator, classes, ledger)
    with pytest.raises(PairwiseError, match="class"):
        (getattr(one, "partial_fit", None) or one.fit)(X, Y)
    assert ledger.labels == []


@pytest.mark.parametrize("estimator", WITH_CLASSES[:1] + WITH_CLASSES[-1:], ids=["auc", "search"])
def test_an_auc_of_three_declared_classes_is_refused_before_the_charge(estimator):
    ledger = Ledger()
    with pytest.raises(PairwiseError, match="found 3"):
        _with(estimator, [0, 1, 2], ledger).fit(X, Y)
    assert ledger.labels == []


@pytest.mark.parametrize("classes", [[0, 1], (1, 0), np.array([0.0, 1.0]), range(2), [False, True]])
@pytest.mark.parametrize("estimator", WITH_CLASSES, ids=lambda each: repr(each)[:40])
def test_classes_in_any_order_and_container_are_those_of_the_labels(estimator, classes):
    ledger = Ledger()
    assert _with(estimator, classes, ledger).fit(X, Y).statement_.proved
    assert len(ledger.labels) == 1
