"""Faults that were reported and mended: each test failed before."""

from __future__ import annotations

import inspect
import re
import warnings

import numpy as np
import pytest
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils._repr_html.estimator import estimator_html_repr

import pairwise
from pairwise import (
    DPPMetricLearner,
    Edges,
    PrivacyBudget,
    PrivateAUCClassifier,
    PrivateMetricLearner,
    PrivateSearchCV,
    PublicScaler,
    SGDOutput,
    SubsetQuery,
    UnsoundWarning,
)
from pairwise.errors import InvalidPairsError, PairwiseError

pytestmark = pytest.mark.filterwarnings("ignore::textpriv.statement.UnsoundWarning")

INFINITE = float("inf")


def table(n: int = 200, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(n, d)) / 3
    return X, (X[:, 0] > 0).astype(int)


def edges_of(settings: dict, kappa: int | None = None, **options) -> DPPMetricLearner:
    """Return a learner of pairs with options."""
    return DPPMetricLearner(kappa=Edges(kappa, **options), **settings)


# -- 1. a public topology


def test_public_topology_refuses_points():
    # Individuals would be told apart by their features, so that kappa and the noise would depend on private values.
    pairs = np.random.default_rng(0).normal(size=(50, 2, 4))
    learner = edges_of({"epsilon": 1.0, "delta": 1e-5}, topology="public")
    with pytest.raises(InvalidPairsError):
        learner.fit(pairs, np.tile([1, -1], 25))


def test_public_topology_reads_kappa_from_indices_alone():
    X = np.random.default_rng(0).normal(size=(100, 4))
    pairs = np.array([[2 * i, 2 * i + 1] for i in range(40)] + [[80, 81], [81, 82], [82, 80]])
    scales = []
    for points in (X, np.zeros_like(X)):
        settings = {"epsilon": 1.0, "delta": 1e-5, "preprocessor": points, "random_state": 0}
        learner = edges_of(settings, topology="public")
        learner.fit(pairs, np.where(np.arange(len(pairs)) % 2, 1, -1))
        scales.append((learner.kappa_, learner.noise_scale_))
    assert scales[0] == scales[1]
    assert scales[0][0] == 2


# -- 2. refusals and warnings


@pytest.mark.parametrize("change", ["repeated pair", "self pair"])
def test_private_topology_accepts_every_list(change):
    X = np.random.default_rng(0).normal(size=(60, 3))
    pairs = np.arange(60).reshape(-1, 2)
    pairs[1] = pairs[0] if change == "repeated pair" else [4, 4]
    settings = {"epsilon": 1.0, "delta": 1e-5, "preprocessor": X, "random_state": 0}
    edges_of(settings, kappa=2).fit(pairs, np.tile([1, -1], 15))


def test_huge_records_are_clipped_in_silence_and_keep_their_direction():
    X, y = table(d=8)
    X[0] = 1.5e308
    model = PrivateAUCClassifier(epsilon=INFINITE, classes=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(X, y)
    from pairwise.pairs.clipping import clip_records

    with np.errstate(all="raise"):
        clipped = clip_records(X[:1], 1.0)[0]
    assert np.linalg.norm(clipped) == pytest.approx(1.0, rel=2e-6)
    assert np.ptp(clipped) == 0


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("algorithm", ["auto", "gradient", "statistics", "offpairstrc", "ftrl"])
def test_no_record_makes_a_fit_warn(algorithm):
    X, y = table(n=60)
    for odd in (1.5e308, -1.5e308, 5e-324, 0.0):
        X[0] = odd
        model = PrivateAUCClassifier(
            epsilon=1.0, delta=1e-5, algorithm=algorithm, classes=[0, 1], random_state=0
        )
        model.fit(X, y)


def test_statement_names_what_a_fit_refuses():
    X, y = table()
    model = PrivateAUCClassifier(epsilon=1.0, classes=[0, 1]).fit(X, y)
    assert "missing or infinite values" in " ".join(model.statement_.not_protected)


# -- 3. what is printed


def test_preprocessor_of_a_fitted_metric_is_not_printed():
    X, y = table()
    secret = np.array([[77.625, 78.125, 79.375]])
    metric = PrivateMetricLearner(epsilon=1.0, preprocessor=secret, classes=[0, 1]).fit(X, y)
    pipeline = make_pipeline(PublicScaler(-2, 2, (-1.0, 1.0)), metric)
    for shown in (repr(pipeline), estimator_html_repr(pipeline), repr(metric)):
        assert "77.625" not in shown


# -- 6. the only fit, and scaling


def test_statement_says_that_it_is_the_only_fit_and_that_nothing_was_scaled():
    X, y = table()
    model = PrivateAUCClassifier(epsilon=1.0, classes=[0, 1]).fit(X, y)
    text = str(model.statement_)
    assert "the only fit on these people" in text
    assert "not scaled, filled or selected by anything learned from itself" in text
    with PrivacyBudget(2.0) as budget:
        model = model.set_params(budget=budget).fit(X, y)
    assert "charged to the same budget" in str(model.statement_)


def test_clones_fitted_again_without_a_budget_warn_once():
    X, y = table()
    model = PrivateAUCClassifier(epsilon=1.0, delta=1e-5, classes=[0, 1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(model, X, y, cv=4)
    assert [each.category for each in caught if "without a budget" in str(each.message)] == [
        UnsoundWarning
    ]


def test_clones_that_share_a_budget_do_not_warn():
    X, y = table()
    with PrivacyBudget(9.0) as budget, warnings.catch_warnings():
        warnings.simplefilter("error")
        # Seeded: by chance, one fit in fifty on so few records warns that they are long.
        model = PrivateAUCClassifier(
            epsilon=1.0, delta=1e-5, classes=[0, 1], budget=budget, random_state=0
        )
        cross_val_score(model, X, y, cv=KFold(3))


# -- 7. contexts of errors


def chain(error: BaseException | None) -> str:
    text = ""
    while error is not None:
        text += repr(error)
        error = error.__cause__ or error.__context__
    return text


@pytest.mark.parametrize(
    "call",
    [
        lambda X, y: PrivateAUCClassifier(epsilon=1.0).fit(X, y),
        lambda X, y: PrivateMetricLearner(epsilon=1.0).fit(X, y),
        lambda X, y: PublicScaler(0, 1).fit_transform(X),
        lambda X, y: SubsetQuery(np.eye(3), epsilon=1.0).ask(X[0]),
        lambda X, y: PrivateMetricLearner(epsilon=1.0).fit(*table()).pair_distance(X[None, :2]),
    ],
)
def test_text_in_a_table_is_in_no_error_of_the_chain(call):
    X = np.array([["0.1", "Mr Secret", "0.2"]] * 6, dtype=object)
    with pytest.raises((PairwiseError, TypeError, ValueError)) as caught:
        call(X, np.array([0, 1] * 3))
    assert "Secret" not in chain(caught.value)


@pytest.mark.parametrize("absent", [None, float("nan")])
@pytest.mark.parametrize("as_array", [False, True])
def test_missing_label_among_text_is_called_a_missing_label(absent, as_array):
    X, _ = table(n=40)
    y = ["no", "yes"] * 19 + ["no", absent]
    learner = PrivateAUCClassifier(epsilon=1.0, classes=["no", "yes"])
    with pytest.raises(PairwiseError, match="label; found missing ones"):
        learner.fit(X, np.array(y, dtype=object) if as_array else y)


def test_missing_number_as_label_is_called_a_missing_label():
    X, y = table(n=40)
    with pytest.raises(PairwiseError, match="label; found missing ones"):
        PrivateAUCClassifier(epsilon=1.0, classes=[0, 1]).fit(X, np.where(y, np.nan, 0.0))


def test_missing_label_of_pandas_is_called_a_missing_label():
    pandas = pytest.importorskip("pandas")
    X, _ = table(n=40)
    y = pandas.Series(["no", "yes"] * 19 + ["no", None], dtype="string")
    with pytest.raises(PairwiseError, match="label; found missing ones"):
        PrivateAUCClassifier(epsilon=1.0, classes=["no", "yes"]).fit(X, y)


def test_search_calls_a_missing_label_a_missing_label():
    X, _ = table(n=40)
    y = np.array(["no", "yes"] * 19 + ["no", None], dtype=object)
    learner = PrivateAUCClassifier(epsilon=1.0)
    with pytest.raises(PairwiseError, match="label; found missing ones"):
        PrivateSearchCV(learner, {"data_norm": [1.0, 2.0]}, epsilon=1.0).fit(X, y)


def test_infinite_label_is_not_answered_by_a_scaler():
    X, y = table(n=40)
    with pytest.raises(PairwiseError, match="y contains infinity") as caught:
        PrivateAUCClassifier(epsilon=1.0, classes=[0, 1]).fit(X, np.where(y, np.inf, 0.0))
    assert "PublicScaler" not in str(caught.value)


def test_moments_with_small_weight_on_sums_have_the_sharp_sensitivity():
    from pairwise.algorithms.moments import moment_sensitivity

    for weights in ((0.1, 0.8, 0.6), (0.3, 0.7, 0.65)):
        w1, _, w3 = np.array(weights) / np.linalg.norm(weights)
        assert w1**2 < w3**2 / 2
        worst = 0.0
        # Two classes with orthogonal records, and one class at every angle of unit records.
        for s in np.linspace(-1, 1, 2001):
            worst = max(worst, 2 * w1**2 * (1 - s) + 2 * w3**2 * (1 - s * s))
        worst = np.sqrt(max(2.0, worst))
        assert worst <= moment_sensitivity(weights) <= worst * (1 + 1e-6)


# -- 8. mutants that lived


def test_hinge_of_sgd_pays_for_the_expansion_of_its_steps():
    X, y = table(n=100)
    options = SGDOutput(loss="hinge", steps=200, rate=0.01)
    model = PrivateAUCClassifier(
        epsilon=1.0, delta=1e-5, algorithm=options, classes=[0, 1], random_state=0
    ).fit(X, y)
    # 200 steps with 10 blocks a pass; the gradient of one pair of unit records moves by at most 2. The recursion
    # u <- sqrt(u² + 1) without any record involved is a lower bound of what must be paid.
    T, change = 200, 2.0
    u, total = 0.0, 0.0
    for _ in range(T):
        total += u
        u = np.sqrt(u * u + 1)
    assert model.sensitivity() >= min(0.01 * change * total / T, 2 * 20.0) * 0.99


def test_smooth_loss_pays_for_the_expansion_of_steps_that_are_too_long():
    X, y = table(n=100)
    fits = [
        PrivateAUCClassifier(
            epsilon=1.0,
            delta=1e-5,
            algorithm=SGDOutput(steps=50, rate=rate, radius=1e6),
            classes=[0, 1],
            random_state=0,
        ).fit(X, y)
        for rate in (0.5, 0.501)  # 2/L is a half
    ]
    assert fits[1].sensitivity() > 1.2 * fits[0].sensitivity()


# -- 9. defaults and scaling


def test_epsilon_has_no_default():
    for name in pairwise.__all__:
        code = getattr(getattr(pairwise, name), "__init__", None)
        if not inspect.isfunction(code):
            continue
        parameters = inspect.signature(code).parameters
        if "epsilon" in parameters and name != "PublicFeatures":  # whose epsilon is the learner's
            assert parameters["epsilon"].default is inspect.Parameter.empty, name


def test_records_far_beyond_data_norm_are_warned_of_by_a_private_count():
    X, y = table(n=800)
    with pytest.warns(UserWarning, match="PublicScaler"):
        PrivateAUCClassifier(epsilon=1.0, delta=1e-5, classes=[0, 1]).fit(100 * X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrivateAUCClassifier(epsilon=1.0, delta=1e-5, classes=[0, 1]).fit(X, y)


def test_predict_proba_is_absent_and_says_why():
    X, y = table()
    model = PrivateAUCClassifier(epsilon=1.0, classes=[0, 1]).fit(X, y)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match=re.escape("decision_function")):
        model.predict_proba(X)
