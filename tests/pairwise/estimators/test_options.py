"""An option either changes what a fit does or is refused: none is taken without a word and without effect."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from pairwise import DPPMetricLearner, PrivateAUCClassifier, PrivateMetricLearner
from pairwise.errors import InvalidParameterError

PERTURBATION_ALGORITHMS = ("onpairstrc", "onpairc", "offpairstrc", "offpairc", "sgd-output")
CONVEX_ALGORITHMS = (*PERTURBATION_ALGORITHMS, "ftrl")
ONLINE_ALGORITHMS = ("onpairstrc", "onpairc", "ftrl")

N = 24
R = np.random.default_rng(3)
X = R.normal(size=(N, 3)) * 0.3
TWO, THREE = np.arange(N) % 2, np.arange(N) % 3
PAIRS = np.stack((np.arange(0, N, 2), np.arange(1, N, 2)), axis=1)
SIGNS = np.where(np.arange(len(PAIRS)) % 3, 1, -1)

# What is promised, to whom and of which data; every algorithm meets it, or says that it cannot.
CONTRACT = {
    "epsilon",
    "delta",
    "data_norm",
    "algorithm",
    "mode",
    "adjacency",
    "hardened",
    "preprocessor",
    "allow_large_delta",
    "allow_vacuous",
    "budget",
    "random_state",
}
# Values other than the default; one of them must matter.
VALUES = {
    "adaptive_clip": [True],
    "alpha": [0.5],
    "batch_size": [N, 3],
    "batching": ["matching"],
    "centre_share": [0.3, 0.0],
    "classes": [[0, 1, 2], [5, 6, 7]],
    "clip": [0.05, 50.0],
    "device": ["nonsense"],
    "horizon": [40],
    "init": [np.diag([0.3, 0.2, 0.1])],
    "kappa": [5, 6],
    "learning_rate": [0.5],
    "loss": ["hinge"],
    "margin": [0.2],
    "n_batches": [2],
    "n_components": [1],
    "n_steps": [4],
    "intercept": [0.1],
    "noise": ["laplace", "gaussian"],
    "radius": [0.01],
    "rate": [1e-3],
    "relationship": ["intransitive"],
    "sampling_rate": [0.5],
    "scale_share": [0.3, 0.0],
    "shrinkage": [False, True],
    "start_share": [0.5],
    "steps": [50],
    "sums": ["tree"],
    "threshold_share": [0.3, 0.0],
    "topology": ["public"],
    "track_regret": [True],
    "variant": ["dpp_s"],
}
AUC, METRIC, DPP = PrivateAUCClassifier, PrivateMetricLearner, DPPMetricLearner
ALGORITHMS = ("gradient", *CONVEX_ALGORITHMS, "statistics")
PUBLIC = {"topology": "public"}
# Two triangles with a common corner: what may change together differs between classes and friends.
TRIANGLES = np.array([[0, 1], [1, 2], [2, 0], [0, 3], [3, 4], [4, 0]])
BASES = [
    *((AUC, {"algorithm": a}, TWO) for a in (*ALGORITHMS, "pointwise")),
    *((AUC, {"algorithm": a, "mode": "published"}, TWO) for a in PERTURBATION_ALGORITHMS),
    (AUC, {"loss": "hinge"}, TWO),
    (AUC, {"centre_share": 0.0}, TWO),
    *((METRIC, {"algorithm": a}, THREE) for a in (*ALGORITHMS, "matching")),
    (METRIC, {"algorithm": "matching", "init": np.eye(3)}, THREE),
    *((METRIC, {"algorithm": a, "mode": "published"}, THREE) for a in PERTURBATION_ALGORITHMS),
    *(
        (DPP, {"algorithm": a, "classes": [2, 1, 0]}, THREE)
        for a in ("matching", "input-perturbation")
    ),
    (DPP, {"algorithm": "matching", "init": np.eye(3)}, THREE),
    *((DPP, {"algorithm": a, "kappa": 4}, SIGNS) for a in ("edges", "pure", "node-dp")),
    *((DPP, {"algorithm": a, **PUBLIC}, SIGNS) for a in ("edges", "pure", "node-dp")),
    (DPP, {"algorithm": "node-dp", "noise": "laplace", "kappa": 4}, SIGNS),
    (DPP, {"mode": "published", "kappa": 4}, SIGNS),
    (DPP, {"mode": "published", **PUBLIC}, SIGNS),
]


def _outcome(cls, settings, target):
    """What a seeded fit leaves behind, or what it says when it refuses."""
    data = X
    if target is SIGNS:
        data, target = X[TRIANGLES], SIGNS[: len(TRIANGLES)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = cls(**settings)
            found = [_left(clone(model).fit(data, target))]
            if settings.get("algorithm") in ONLINE_ALGORITHMS and settings["horizon"] is not None:
                found.append(_left(clone(model).partial_fit(data, target)))
        except InvalidParameterError as refusal:
            return str(refusal)
    return repr(found)


def _left(model):
    learned = getattr(model, "components_", getattr(model, "coef_", None))
    more = [
        getattr(model, name, None) for name in ("intercept_", "regret_", "noise_scale_", "kappa_")
    ]
    return learned.tobytes(), more, model.statement_.to_dict(), repr(model.privacy_event_)


def _settings(cls, given):
    settings = {"random_state": 0, **given}
    if cls is not DPP and given.get("algorithm", "gradient") == "gradient":
        settings["steps"] = 3
    if given.get("algorithm") in ONLINE_ALGORITHMS:
        settings["horizon"] = 30  # so that streams are tried as well
    if given.get("algorithm") == "sgd-output" and given.get("mode") == "published":
        settings |= {"steps": 60, "epsilon": 1000.0}
    elif given.get("mode") == "published" and cls is not DPP:
        settings |= {"data_norm": 0.1, "alpha": 1.0}  # a burn-in below the number of records
    if cls is DPP or given.get("algorithm") == "matching":
        settings["epsilon"] = 20.0
        if given.get("mode") != "published" and given.get("algorithm") != "input-perturbation":
            settings["shrinkage"] = False  # which leaves nothing of so few pairs
    return settings


@pytest.mark.parametrize(
    ("cls", "given", "target"),
    BASES,
    ids=lambda v: (
        v.__name__
        if inspect.isclass(v)
        else "-".join(map(str, v.values()))
        if isinstance(v, dict)
        else ""
    ),
)
def test_every_option_changes_the_fit_or_is_refused(cls, given, target, monkeypatch):
    # Its search is slow, and any noise will do.
    monkeypatch.setattr(
        "pairwise.algorithms.contrastive_plans.group_poisson_sigma", lambda *args: 1.0
    )
    settings = _settings(cls, given)
    options = {*cls().get_params(), *cls._flat_defaults} - CONTRACT
    usual = _outcome(cls, settings, target)
    without = []
    for name in sorted(options):
        values = [value for value in VALUES[name] if settings.get(name) is not value]
        if values and all(
            _outcome(cls, {**settings, name: value}, target) == usual for value in values
        ):
            without.append(name)
    assert without == []


def test_an_option_of_another_algorithm_is_refused_by_name():
    with pytest.raises(
        InvalidParameterError, match="alpha was set, but algorithm 'statistics' does not read it"
    ):
        AUC(algorithm="statistics", alpha=7).fit(X, TWO)
    with pytest.raises(InvalidParameterError, match="device was set, but algorithm 'statistics'"):
        AUC(algorithm="statistics", device="nonsense").fit(X, TWO)


def test_a_refused_option_is_not_repeated_since_it_may_hold_anything():
    learner = DPP(kappa=1, classes=["a secret 123456"])
    with pytest.raises(InvalidParameterError, match="classes was set") as caught:
        learner.fit(X[PAIRS], SIGNS)
    assert "123456" not in str(caught.value)


def test_an_option_at_its_default_is_never_refused_whatever_its_type():
    with pytest.warns(DeprecationWarning, match="deprecated"):
        fitted = AUC(
            algorithm="statistics", centre_share=np.float64(0.15), steps=None, device="cpu"
        )
    assert fitted.fit(X, TWO).sensitivity() > 0
