"""The learners as scikit-learn estimators: what they learn, what they say, and what leaves with them."""

from __future__ import annotations

import copy
import math
import os
import pickle
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils._repr_html.estimator import estimator_html_repr
from sklearn.utils.estimator_checks import parametrize_with_checks

import pairwise
from pairwise import (
    DPPMetricLearner,
    Edges,
    Ftrl,
    Gradient,
    OnPair,
    PrivacyBudget,
    PrivateAUCClassifier,
    PrivateMetricLearner,
    PublicScaler,
)
from pairwise.accounting.accountant import epsilon_of
from pairwise.errors import InvalidPairsError, InvalidParameterError
from pairwise.estimators.rankings import ALGORITHMS

pytestmark = pytest.mark.filterwarnings("ignore::textpriv.statement.UnsoundWarning")


def table(n: int = 400, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, d)) / 4
    X[:, 0] += 0.5 * (y - 0.5)
    return X, y


def pairs_of(m: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs that are similar where their first features have one sign."""
    points = np.random.default_rng(seed).normal(size=(m, 2, 3)) / 4
    return points, np.where(points[:, 0, 0] * points[:, 1, 0] > 0, 1, -1)


def auc(epsilon: float = 1.0, **settings) -> PrivateAUCClassifier:
    return PrivateAUCClassifier(epsilon, 1e-5, **{"classes": [0, 1], **settings})


# -- scikit-learn


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [
        PrivateAUCClassifier(math.inf, random_state=0),
        PrivateMetricLearner(math.inf, random_state=0),
    ]
)
def test_scikit_learn_accepts_the_learner(estimator, check):
    check(estimator)


def test_package_imports_without_torch_and_numba():
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'numba'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "import numpy as np\n"
        "from pairwise import *\n"
        "X = np.random.default_rng(0).normal(size=(100, 2)); y = (X[:, 0] > 0).astype(int)\n"
        "PrivateAUCClassifier(1.0, 1e-5, classes=[0, 1]).fit(X, y).predict(X)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_dir_shows_the_public_names_and_nothing_else():
    assert dir(pairwise) == pairwise.__all__
    assert {"Pointwise", "Statistics"} <= set(pairwise.__all__)


def test_constructors_have_at_most_eight_settings():
    import inspect

    for name in pairwise.__all__:
        made = getattr(pairwise, name)
        if inspect.isfunction(made.__init__) and "Statement" not in name:
            assert len(inspect.signature(made.__init__).parameters) - 1 <= 8, name


# -- rankings


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ranking_without_noise_finds_the_feature(algorithm):
    X, y = table()
    model = auc(math.inf, algorithm=algorithm).fit(X, y)
    assert model.score(X, y) > 0.75
    assert model.statement_.epsilon == math.inf
    assert "not private" in str(model.statement_)


def test_more_records_than_rounding_covers_are_proved_in_real_numbers():
    for n, arithmetic in ((90_000, "exact"), (90_001, "real")):
        model = auc(algorithm="statistics").fit(*table(n, 1))
        assert model.statement_.arithmetic == arithmetic


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_record_raises_where_numpy_is_set_to_raise(algorithm):
    # An error or a warning by one record's digits would tell of it.
    X, y = table(60)
    X[0], X[1], X[2] = 1e-300, 1e300, 5e-324
    with np.errstate(all="raise"):
        auc(algorithm=algorithm, random_state=0).fit(X, y)


def test_no_pair_raises_where_numpy_is_set_to_raise():
    pairs, y = pairs_of(20)
    pairs[0] *= 1e-200
    with np.errstate(all="raise"):
        DPPMetricLearner(1.0, 1e-3, 2, random_state=0).fit(pairs, y)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_statement_and_event_cost_what_was_asked(algorithm):
    X, y = table()
    model = auc(algorithm=algorithm).fit(X, y)
    assert (model.statement_.epsilon, model.statement_.delta) == (1.0, 1e-5)
    assert model.statement_.proved
    assert epsilon_of(model.privacy_event_, 1e-5) <= 1.0 * (1 + 1e-6)
    assert model.sensitivity() > 0


@pytest.mark.parametrize("algorithm", ["auto", "gradient", "statistics", "offpairstrc"])
def test_linear_model_is_its_coefficients_and_intercept(algorithm):
    X, y = table()
    model = auc(20.0, algorithm=algorithm, random_state=0).fit(X + 0.2, y)
    near = model.centre_ + 1e-3 * X  # records that no clipping shortens
    scores = near @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(scores, model.decision_function(near), atol=1e-9)


def test_default_ranking_is_useful_at_epsilon_one():
    X, y = table(2000)
    assert auc(random_state=0).fit(X, y).score(X, y) > 0.8


def test_threshold_is_paid_for_or_predict_refuses():
    X, y = table(1000)
    model = auc(random_state=0).fit(X, y)
    assert (model.predict(X) == y).mean() > 0.75
    free = auc(threshold_share=0.0).fit(X, y)
    with pytest.raises(InvalidParameterError, match="threshold_share=0"):
        free.predict(X)
    assert free.decision_function(X).shape == (1000,)


def test_declared_classes_hide_which_of_them_occur():
    X, _ = table(60)
    model = auc().fit(X, np.zeros(60, int))
    assert not any("class labels" in each for each in model.statement_.not_protected)
    with pytest.raises(InvalidParameterError, match="two classes"):
        auc(classes=None).fit(X, np.zeros(60, int))
    read = auc(classes=None).fit(*table(60))
    assert "the set of class labels" in read.statement_.not_protected


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 0.0},
        {"delta": 0.5},
        {"data_norm": math.inf},
        {"data_norm": -1.0},
        {"threshold_share": 1.0},
        {"algorithm": "newton"},
        {"algorithm": Edges(1)},
        {"algorithm": Gradient(loss="square")},
        {"algorithm": Gradient(steps=0)},
        {"algorithm": OnPair(alpha=0.0)},
        {"classes": [0, 0]},
        {"classes": [0, 1, 2]},
        {"classes": [0, "one"]},
        {"random_state": "seed"},
    ],
)
def test_settings_without_meaning_are_refused_before_any_charge(settings):
    X, y = table(60)
    with PrivacyBudget(9.0) as budget:
        model = auc(budget=budget).set_params(**settings)
        with pytest.raises((InvalidParameterError, ValueError)):
            model.fit(X, y)
        assert not budget.charges


def test_sample_weights_and_sparse_tables_are_refused():
    from scipy.sparse import csr_matrix

    X, y = table(60)
    with pytest.raises(InvalidParameterError, match="sample_weight"):
        auc().fit(X, y, sample_weight=np.ones(60))
    with pytest.raises(TypeError, match="dense"):
        auc().fit(csr_matrix(X), y)


# -- what leaves with a fitted learner


def test_seed_proves_nothing_and_does_not_travel():
    X, y = table(60)
    model = auc(random_state=7).fit(X, y)
    assert not model.statement_.proved
    assert "protects nobody" in str(model.statement_)
    assert pickle.loads(pickle.dumps(model)).random_state is None
    assert copy.deepcopy(model).random_state is None


def test_preprocessor_does_not_travel_with_a_fitted_metric():
    X, y = table(60)
    metric = PrivateMetricLearner(1.0, 1e-5, preprocessor=X, classes=[0, 1]).fit(X, y)
    index = np.array([[0, 1], [2, 2]])
    apart = metric.pair_distance(index)
    np.testing.assert_allclose(apart, metric.pair_distance(X[index]))
    assert apart[1] == 0
    kept = pickle.loads(pickle.dumps(metric))
    with pytest.raises(InvalidPairsError, match="does not carry"):
        kept.pair_distance(index)
    np.testing.assert_allclose(kept.set_params(preprocessor=X).pair_distance(index), apart)
    assert clone(metric).preprocessor is not None


def test_failed_fit_leaves_the_model_as_it_was():
    X, y = table(60)
    model = auc(random_state=0).fit(X, y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full_like(X, np.nan), y)
    assert vars(model) == before


def test_randomness_and_two_fits_differ():
    X, y = table(60)
    one, two = auc().fit(X, y), auc().fit(X, y)
    assert not np.array_equal(one.coef_, two.coef_)
    same = [auc(random_state=1).fit(X, y).coef_ for _ in range(2)]
    np.testing.assert_array_equal(*same)


# -- streams


@pytest.mark.parametrize("options", [OnPair(horizon=60), Ftrl(horizon=60)])
def test_stream_charges_once_and_releases_after_every_batch(options):
    X, y = table(60)
    with PrivacyBudget(1.5) as budget:
        model = auc(algorithm=options, budget=budget, random_state=0)
        for start in range(0, 60, 20):
            model.partial_fit(X[start : start + 20], y[start : start + 20])
        assert len(budget.charges) == 1
    assert model.n_streamed_ == 60
    with pytest.raises(InvalidParameterError, match="planned for 60"):
        model.partial_fit(X[:1], y[:1])
    kept = pickle.loads(pickle.dumps(model))
    assert "_stream" not in vars(kept)
    with pytest.raises(InvalidParameterError, match="closed by pickling"):
        kept.partial_fit(X[:1], y[:1])


@pytest.mark.parametrize("options", [OnPair(horizon=60), Ftrl(horizon=60)])
def test_stream_one_by_one_equals_all_at_once(options):
    X, y = table(60)
    whole = auc(algorithm=options, random_state=0).partial_fit(X, y)
    single = auc(algorithm=options, random_state=0)
    for x, label in zip(X, y, strict=True):
        single.partial_fit(x[None], [label])
    np.testing.assert_allclose(single.coef_, whole.coef_, atol=1e-9)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_stream_refuses_to_go_on_in_a_forked_process():
    X, y = table(60)
    model = auc(algorithm=Ftrl(horizon=60)).partial_fit(X[:20], y[:20])
    child = os.fork()
    if not child:
        with suppress(BaseException):
            model.partial_fit(X[20:40], y[20:40])
            os._exit(0)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    model.partial_fit(X[20:40], y[20:40])


@pytest.mark.parametrize("options", [OnPair(horizon=60), Ftrl(horizon=60)])
def test_stream_goes_on_by_the_settings_it_was_planned_for(options):
    X, y = table(60)
    models = [auc(algorithm=options, random_state=0).partial_fit(X[:30], y[:30]) for _ in "ab"]
    models[1].set_params(data_norm=0.01)
    for model in models:
        model.partial_fit(3 * X[30:], y[30:])
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_stream_needs_a_horizon_and_an_online_algorithm():
    X, y = table(20)
    with pytest.raises(InvalidParameterError, match="horizon"):
        auc(algorithm="ftrl").partial_fit(X, y)
    assert not hasattr(auc(), "partial_fit")


# -- metrics


def test_metric_helps_neighbours_where_features_are_badly_scaled():
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=3000)
    X = np.hstack([rng.normal(size=(3000, 9)) / 8, 0.02 * rng.normal(size=(3000, 1))])
    X[:, 9] += 0.1 * (y - 1)
    metric = PrivateMetricLearner(2.0, 1e-5, None, classes=range(3), random_state=0).fit(X, y)

    def accuracy(Z):
        return KNeighborsClassifier(5).fit(Z[:2000], y[:2000]).score(Z[2000:], y[2000:])

    assert accuracy(metric.transform(X)) > accuracy(X) + 0.1


def test_metric_speaks_as_metric_learn_does():
    X, y = table(100)
    metric = PrivateMetricLearner(4.0, 1e-5, 2, classes=[0, 1]).fit(X, y)
    pairs = X[:10].reshape(5, 2, 3)
    apart = metric.pair_distance(pairs)
    M = metric.get_mahalanobis_matrix()
    clipped = metric.transform(X)
    np.testing.assert_allclose(np.linalg.norm(clipped[0] - clipped[1]), apart[0])
    assert clipped.shape == (100, 2)
    assert np.linalg.matrix_rank(M) <= 2
    assert list(metric.get_feature_names_out()) == [
        "privatemetriclearner0",
        "privatemetriclearner1",
    ]


# -- pairs


@pytest.mark.parametrize("options", [2, Edges(2)])
def test_pair_learner_states_its_group_and_price(options):
    pairs, y = pairs_of()
    learner = DPPMetricLearner(2.0, 1e-5, options).fit(pairs, y)
    statement = learner.statement_
    assert (statement.epsilon, statement.unit, learner.kappa_) == (2.0, "any 2 pairs", 2)
    assert statement.adjacency == "zero-out"
    assert epsilon_of(learner.privacy_event_, 1e-5) <= 2.0 * (1 + 1e-6)
    assert "not protected as a whole" in str(statement)


def test_pair_learner_stretches_the_feature_that_decides():
    pairs, y = pairs_of(4000)
    learner = DPPMetricLearner(4.0, 1e-5, 1, random_state=0).fit(pairs, y)
    M = learner.get_mahalanobis_matrix()
    assert M[0, 0] > 1.2 * max(M[1, 1], M[2, 2])


def test_private_fit_of_pairs_needs_a_declared_kappa():
    with pytest.raises(InvalidParameterError, match="declared"):
        DPPMetricLearner(1.0).fit(*pairs_of(20))


@pytest.mark.parametrize(
    ("pairs", "y"),
    [
        (np.zeros((4, 3)), np.ones(4)),
        (np.zeros((4, 2, 3)), np.ones(3)),
        (np.zeros((4, 2, 3)), np.array([0, 1, 0, 1])),
        (np.full((4, 2, 3), np.nan), np.ones(4)),
    ],
)
def test_lists_that_are_no_pairs_are_refused(pairs, y):
    with pytest.raises(InvalidPairsError):
        DPPMetricLearner(1.0, 1e-4, 1).fit(pairs, y)


@pytest.mark.parametrize(
    "options",
    [
        Edges(0),
        Edges(1, adjacency="add/remove"),
    ],
)
def test_options_of_pairs_without_meaning_are_refused(options):
    with pytest.raises(InvalidParameterError):
        DPPMetricLearner(1.0, 1e-4, options).fit(*pairs_of(20))


def test_preprocessor_of_a_fitted_metric_is_not_printed():
    X, y = table()
    secret = np.array([[77.625, 78.125, 79.375]])
    metric = PrivateMetricLearner(epsilon=1.0, preprocessor=secret, classes=[0, 1]).fit(X, y)
    pipeline = make_pipeline(PublicScaler(-2, 2, (-1.0, 1.0)), metric)
    for shown in (repr(pipeline), estimator_html_repr(pipeline), repr(metric)):
        assert "77.625" not in shown


def test_statement_says_what_it_takes_for_granted_and_leaves_open():
    X, y = table()
    model = PrivateAUCClassifier(epsilon=1.0, classes=[0, 1]).fit(X, y)
    text = str(model.statement_)
    assert "the only fit on these people" in text
    assert "not scaled, filled or selected by anything learned from itself" in text
    left_open = " ".join(model.statement_.not_protected)
    assert "missing or infinite values" in left_open
    assert "how long the fit took" in left_open
    with PrivacyBudget(2.0) as budget:
        model = model.set_params(budget=budget).fit(X, y)
    assert "charged to the same budget" in str(model.statement_)


def test_epsilon_has_no_default():
    import inspect

    for name in pairwise.__all__:
        code = getattr(getattr(pairwise, name), "__init__", None)
        if not inspect.isfunction(code):
            continue
        parameters = inspect.signature(code).parameters
        if "epsilon" in parameters and name != "PublicFeatures":  # whose epsilon is the learner's
            assert parameters["epsilon"].default is inspect.Parameter.empty, name
