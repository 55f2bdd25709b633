"""Private AUC and metric learning on the UCI sets: every algorithm, sound and published, beside what costs no privacy.

``auc``: test AUC of all algorithms over epsilon. ``metric``: accuracy of 5 nearest neighbours under learned metrics, by the
protocol of the DPP paper (its Figure 9). ``distances``: the same of all algorithms from records and classes, on tables of
the KEEL collection. ``dpp``: that paper's Figures 7, 8, 10 and 11. ``huai``: Figures 1 to 6 of Huai et
al. ``all``: everything. Run

    python recipes/uci.py auc --data-dir DATA --out uci

Without ``--data-dir`` the sets that ship with scikit-learn are used and no network is needed; ``--online`` fetches the UCI
sets. Every cell that is done is kept in OUT/cells.jsonl, so a run that was stopped goes on where it was. Tables are printed
and written as CSV and Markdown, figures as PNG and SVG. Where a published algorithm is drawn, its label says what is really
guaranteed. Records are replaced one for one, features scaled by public bounds, delta is 1e-5 unless said.
"""

from __future__ import annotations

import csv
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Any

import data
import keel
import numpy as np
import typer
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Cell = dict[str, Any]

Task = tuple[str, str, "str | None", int, tuple[float, ...]]

app = typer.Typer(add_completion=False)

PEER_SCRIPT = Path(__file__).with_name("ranking_peers.py")

DELTA = 1e-5
# The recorded tables were drawn with floating-point noise, about 8 % less than the exact noise that is the default.
FLOATING = {"hardened": False}
AUC_EPSILONS = (0.5, 1.0, 2.0, 4.0)
METRIC_EPSILONS = (0.5, 1.0, 2.0, 4.0)
HUAI_EPSILONS = (0.5, 1.5, 2.5)

AUC_SETS = ("pima", "debrecen", "debrecen_steps", "breast_cancer")
METRIC_SETS = ("adult", "bank")
SHIPPED = ("breast_cancer", "digits")

KEEL = "keel: "
PLAIN = "logistic regression, non-private"
POINTWISE = "logistic regression, pointwise DP"
NOT_CENTRED = "gradient, not centred"
AUTO = "auto"
PAIRWISE_FREE = "auto, epsilon infinite"
DRAWS = 5  # of the noise of auto on one split of a UCI set
SOUND = ("gradient", "statistics", "sgd-output", "offpairc", "offpairstrc", "onpairc", "onpairstrc")
PUBLISHED = ("offpairc", "offpairstrc", "onpairc", "onpairstrc", "sgd-output")

# What is compared on the tables of the KEEL collection.
EVERY: dict[str, dict[str, Any]] = {
    AUTO: {},
    "pointwise, features as they are": {"algorithm": "pointwise", "algorithm__scale_share": 0.0},
    "pointwise, logistic": {"algorithm": "pointwise", "algorithm__loss": "logistic"},
    **{name: {"algorithm": name} for name in (*SOUND, "ftrl")},
}
# What other packages need in an environment of their own; with "here", on top of what is installed here.
PEERS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "diffprivlib": (False, ("diffprivlib==0.6.6", "scikit-learn<1.7")),
    "opacus": (True, ("opacus==1.6.0", "opt_einsum>=3.3")),
}
# Splits of the UCI sets for other packages, GIGA and published forms, and of the tables of the KEEL collection.
FEW_SPLITS = 5
KEEL_SPLITS = 2

IDENTITY = "identity metric"
FREE = "sound DPP, no privacy (epsilon infinite)"
PAPER_FREE = "Algorithm 1, no privacy"
WEIGHTED = "features weighted by logistic regression, no privacy"
MATCHING = "sound DPP (matching, individuals)"
# What is compared as a distance on the tables of the KEEL collection. Forms that learn all of M, the last ones, are slow,
# and run on tables of at most so many features.
DISTANCES: dict[str, dict[str, Any]] = {
    AUTO: {},
    "auto, a row for each feature": {"n_components": 1000},
    "gradient": {"algorithm": "gradient"},
    "statistics": {"algorithm": "statistics"},
    **{n: {"algorithm": n} for n in ("sgd-output", "ftrl", *(n for n in SOUND if "pair" in n))},
}
WIDEST = 40
METRIC_METHODS: dict[str, dict[str, Any]] = {
    MATCHING: {"algorithm": "matching"},
    "sound DPP without its start": {
        "algorithm": "matching",
        "algorithm__start_share": 0.0,
    },
    "sound DPP on a public 4-regular edge list": {"pairs": "regular", "algorithm": "edges"},
    "Node-DP, sound (cap 16, random pairs)": {
        "pairs": "random",
        "algorithm": "node-dp",
        "kappa": 16,
    },
    "InputPer, sound": {"algorithm": "input-perturbation"},
    "DPP, Theorem 1, as published": {"pairs": "balanced", "algorithm": "published"},
    "DPP-S, as published": {
        "pairs": "balanced",
        "algorithm": "published",
        "algorithm__variant": "dpp_s",
    },
}


# --------------------------------------------------------------------------------------------------------------------
# Data


def table(name: str, source: str | None) -> tuple[Array, Labels]:
    """Return records of norm at most 1 by public bounds, and classes; ``source`` is a folder, ``online`` or None."""
    if name.startswith(KEEL):
        return keel.table(name.removeprefix(KEEL), Path(str(source)))
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        # 64 pixels of 0..16: at most 16·√64.
        return X / 128.0, y.astype(np.int64)
    folder = None if source in (None, "online") else source
    if name == "debrecen_steps":
        return debrecen_steps(folder)
    X, y, _ = data.features(getattr(data, name)(folder))
    # Each original column adds at most 1 to the squared norm, one-hot or not.
    return X / math.sqrt(len(data.SETS[name].columns)), y


def debrecen_steps(folder: str | None) -> tuple[Array, Labels]:
    """Return Debrecen with its nested counts as differences, a public change of coordinates.

    By the set's description ma_1 to ma_6 count one thing at rising levels of confidence, so each contains the next. What
    tells the classes apart are their differences, which are small beside what the counts share: a direction of little
    variance, which noise of one size in all directions hides. A count of 100 that falls in five steps falls by 20 a step.
    """
    dataset = data.debrecen(folder)
    X, y, names = data.features(dataset)
    frame = dataset.to_pandas()
    for i in range(1, 6):
        step = frame[f"ma_{i}"].to_numpy() - frame[f"ma_{i + 1}"].to_numpy()
        X[:, names.index(f"ma_{i}")] = np.clip(step / 10.0 - 1.0, -1.0, 1.0)
    return X / math.sqrt(X.shape[1]), y


def split(
    name: str, source: str | None, seed: int, *, balance: bool = False, limit: int | None = None
) -> tuple[Array, Labels, Array, Labels]:
    """Return a random 80/20 split; ``balance`` cuts the larger class of the training part down to the smaller."""
    X, y = table(name, source)
    r = np.random.default_rng(seed)
    order = r.permutation(len(X))
    held = len(X) // 5
    test, train = order[:held][:limit], order[held:]
    if balance and len(np.unique(y)) == 2:
        ones, zeros = train[y[train] == 1], train[y[train] == 0]
        size = min(len(ones), len(zeros))
        train = r.permutation(np.concatenate([ones[:size], zeros[:size]]))
    return X[train], y[train], X[test], y[test]


def truth(statement: Any) -> str:
    """Return what a statement guarantees, in a few characters."""
    if statement.epsilon is None:
        return "none"
    if statement.epsilon == 0:
        return "(0, 0): output is random"
    if not math.isfinite(statement.epsilon):
        return "not private"
    delta = "<1e-99" if 0 < statement.delta < 1e-99 else f"{statement.delta:.1g}"
    return f"({statement.epsilon:.3g}, {delta})"


# --------------------------------------------------------------------------------------------------------------------
# Cells: one split of one set each, in a process of its own


def pointwise(X: Array, y: Labels, epsilon: float, randomness: Any) -> Array:
    """Return weights of a logistic regression by noisy full-batch gradient descent, the last one the intercept.

    Replace-one: each record's gradient has norm at most √2 with its constant column, so the mean moves by 2√2/n. Steps and
    rate as in mechanisms.md 7.1.
    """
    from pairwise.accounting.gaussian import gaussian_mu
    from pairwise.noise.continuous import gaussian

    n = len(X)
    Z = np.hstack([X, np.ones((n, 1))])
    p = Z.shape[1]
    mu = gaussian_mu(epsilon, DELTA)
    steps = int(np.clip((mu * n) ** 2 / (16 * p), 10, 200))
    sigma = 2 * math.sqrt(2) / n * math.sqrt(steps) / mu
    radius = 10.0
    rate = 2 * radius / math.sqrt(steps * (2 + p * sigma**2))
    w, total = np.zeros(p), np.zeros(p)
    for _ in range(steps):
        slope = 1.0 / (1.0 + np.exp(-(Z @ w))) - y
        w = w - rate * gaussian(Z.T @ slope / n, sigma, randomness)
        w *= min(1.0, radius / np.linalg.norm(w))
        total += w
    return total / steps


def auc_cells(
    name: str, source: str | None, seed: int, epsilons: tuple[float, ...]
) -> Iterator[Cell]:
    """Yield the test AUC of every method on one split."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    from pairwise import PrivateAUCClassifier
    from pairwise.noise.randomness import Randomness

    X, y, Z, z = split(name, source, seed)
    if name == "digits":
        y, z = y % 2, z % 2
    for label, C in ((PLAIN, 1000.0), (f"{PLAIN}, C = 1", 1.0)):
        plain = LogisticRegression(C=C, max_iter=5000).fit(X, y)
        yield {
            "method": label,
            "epsilon": None,
            "score": roc_auc_score(z, plain.decision_function(Z)),
        }

    def score(epsilon: float | None, method: str, **settings: Any) -> Cell:
        value = math.inf if epsilon is None else epsilon
        # A threshold is not part of an AUC: this is what the ranking alone can have.
        learner = PrivateAUCClassifier(
            value, DELTA, classes=[0, 1], threshold_share=0.0, random_state=seed, **FLOATING
        )
        learner.set_params(**settings).fit(X, y)
        cell = {
            "method": method,
            "epsilon": epsilon,
            "score": roc_auc_score(z, learner.decision_function(Z)),
        }
        if settings.get("mode") == "published":
            cell["truth"] = truth(learner.statement_)
        return cell

    yield score(None, PAIRWISE_FREE)
    yield score(None, "gradient, epsilon infinite", algorithm="gradient")
    # What is far behind, and what is no guarantee, is drawn on few splits.
    few = seed >= (1 if name.startswith(KEEL) else FEW_SPLITS)
    if name.startswith(KEEL):
        for epsilon in epsilons:
            for method, settings in EVERY.items():
                if not (few and "pair" in method):
                    yield score(epsilon, method, **settings)
        return
    for epsilon in epsilons:
        drawn = [score(epsilon, AUTO, random_state=seed + 1000 * k) for k in range(DRAWS)]
        yield {**drawn[0], "score": float(np.mean([cell["score"] for cell in drawn]))}
        w = pointwise(X, y, epsilon, Randomness(seed))
        yield {"method": POINTWISE, "epsilon": epsilon, "score": roc_auc_score(z, Z @ w[:-1])}
        for algorithm in SOUND:
            if not (few and "pair" in algorithm):
                yield score(epsilon, algorithm, algorithm=algorithm)
        yield score(epsilon, NOT_CENTRED, algorithm="gradient", centre_share=0.0)
        for algorithm in () if few else PUBLISHED:
            vacuous = {"algorithm__allow_vacuous": True} if "pair" in algorithm else {}
            yield score(
                epsilon,
                f"{algorithm}, as published",
                algorithm=algorithm,
                mode="published",
                **vacuous,
            )


def neighbours(A: Array, classes: Labels, B: Array, k: int = 5) -> Labels:
    """Return the commonest class among the k nearest rows of A for each row of B."""
    A32, B32 = A.astype(np.float32), B.astype(np.float32)
    squares = np.einsum("ij,ij->i", A32, A32)
    count = int(classes.max()) + 1
    found = np.empty(len(B), dtype=np.int64)
    for start in range(0, len(B), 256):
        part = B32[start : start + 256]
        near = np.argpartition(squares - 2.0 * (part @ A32.T), k, axis=1)[:, :k]
        votes = np.zeros((len(part), count))
        np.add.at(votes, (np.arange(len(part))[:, None], classes[near]), 1.0)
        found[start : start + 256] = votes.argmax(axis=1)
    return found


def pair_list(kind: str, y: Labels, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    """Return pairs with |E|/|V| = 2, their signs, and whether their topology is public."""
    from pairwise.noise.randomness import Randomness
    from pairwise.pairs.graph import labelled_pairs, random_pairs, regular_pairs

    source, n = Randomness(seed), len(y)
    if kind == "balanced":
        pairs, signs = labelled_pairs(y, 2 * n, source)
        return pairs, signs, "private"
    pairs = regular_pairs(n, 4, source) if kind == "regular" else random_pairs(n, 2 * n, source)
    return pairs, np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1), "public"


def learn(
    X: Array, y: Labels, epsilon: float, settings: dict[str, Any], seed: int
) -> tuple[Any, Array]:
    """Return a fitted learner of a line of ``METRIC_METHODS`` and its W."""
    from pairwise import DPPMetricLearner
    from pairwise.pairs.graph import PairGraph

    settings = dict(settings)
    kind = settings.pop("pairs", None)
    wider = settings.pop("margin_factor", 1.0)
    if kind is None:
        classes = np.unique(y) if settings.get("algorithm__start_share") != 0.0 else None
        learner = DPPMetricLearner(
            epsilon, DELTA, classes=classes, random_state=seed, **FLOATING
        ).set_params(**settings)
        return learner, learner.fit(X, y).components_
    pairs, signs, topology = pair_list(kind, y, seed)
    if topology == "private":
        # What the paper does: kappa of the private graph, and the mean distance of dissimilar pairs as margin.
        graph = PairGraph(pairs, len(y))
        points = X / np.maximum(1.0, np.abs(X).sum(axis=1))[:, None]
        apart = pairs[signs < 0]
        mean = float(np.linalg.norm(points[apart[:, 0]] - points[apart[:, 1]], axis=1).mean())
        margin = wider * mean
        settings = {
            "algorithm__n_steps": 3,
            "kappa": graph.kappa_bound(),
            "algorithm__margin": margin,
            **settings,
        }
    elif settings["algorithm"] == "edges":
        settings = {"algorithm__topology": "public", **settings}
    learner = DPPMetricLearner(
        epsilon, DELTA, preprocessor=X, random_state=seed, **FLOATING
    ).set_params(**settings)
    return learner, learner.fit(pairs, signs).components_


def regression_weights(X: Array, y: Labels) -> Array:
    """Return W with WᵀW = diag(|b|), b the slopes of a logistic regression: what weights of features can reach."""
    from sklearn.linear_model import LogisticRegression

    slopes = np.abs(LogisticRegression(C=10.0, max_iter=5000).fit(X, y).coef_).mean(axis=0)
    return np.diag(np.sqrt(slopes))


def metric_cells(
    name: str, source: str | None, seed: int, epsilons: tuple[float, ...]
) -> Iterator[Cell]:
    """Yield the accuracy of 5 nearest neighbours under every metric on one split."""
    X, y, Z, z = split(name, source, seed, balance=True, limit=2000)

    def cell(method: str, epsilon: float | None, W: Array, **more: Any) -> Cell:
        found = neighbours(X @ W.T, y, Z @ W.T)
        each = [float((found == z)[z == c].mean()) for c in np.unique(z)]
        return {
            "method": method,
            "epsilon": epsilon,
            "score": float((found == z).mean()),
            "balanced": float(np.mean(each)),
            **more,
        }

    yield cell(IDENTITY, None, np.eye(X.shape[1]))
    yield cell(FREE, None, learn(X, y, math.inf, {"algorithm": "matching"}, seed)[1])
    yield cell(WEIGHTED, None, regression_weights(X, y))
    paper = METRIC_METHODS["DPP, Theorem 1, as published"]
    yield cell(PAPER_FREE, None, learn(X, y, math.inf, paper, seed)[1])
    for epsilon in epsilons:
        for method, settings in METRIC_METHODS.items():
            learner, W = learn(X, y, epsilon, settings, seed)
            more = (
                {"truth": truth(learner.statement_)} if settings["algorithm"] == "published" else {}
            )
            yield cell(method, epsilon, W, **more)


def distance_cells(
    name: str, source: str | None, seed: int, epsilons: tuple[float, ...]
) -> Iterator[Cell]:
    """Yield the accuracy of 5 nearest neighbours under every metric from classes on one split of a KEEL table."""
    from pairwise import PrivateMetricLearner

    X, y = keel.table(name.removeprefix(KEEL), Path(str(source)), classes=True)
    order = np.random.default_rng(seed).permutation(len(X))
    test, train = np.split(order, [len(X) // 5])

    def cell(method: str, epsilon: float | None, W: Array) -> Cell:
        score = float((neighbours(X[train] @ W.T, y[train], X[test] @ W.T) == y[test]).mean())
        return {"method": method, "epsilon": epsilon, "score": score}

    yield cell(IDENTITY, None, np.eye(X.shape[1]))
    for epsilon in epsilons:
        for place, (method, settings) in enumerate(DISTANCES.items()):
            if place > 3 and X.shape[1] > WIDEST:
                break
            learner = PrivateMetricLearner(
                epsilon, DELTA, classes=np.unique(y), random_state=seed, **FLOATING, **settings
            )
            yield cell(method, epsilon, learner.fit(X[train], y[train]).components_)


def contrastive(
    W: Array, X: Array, pairs: NDArray[np.int64], signs: NDArray[np.int64], m: float
) -> float:
    """Return the mean of DPP eq. 7 over pairs."""
    D = np.linalg.norm((X[pairs[:, 0]] - X[pairs[:, 1]]) @ W.T, axis=1)
    return float(0.5 * np.where(signs > 0, D**2, np.maximum(m - D, 0.0) ** 2).mean())


def paper_run(
    X: Array,
    y: Labels,
    seed: int,
    variant: str,
    epsilon: float,
    *,
    clip: float = 0.5,
    batch: int = 50,
    epochs: int = 1,
    points: int = 25,
) -> tuple[list[float], list[float], Any]:
    """Return batches done and the objective after them, of a published run, and its guarantee."""
    from pairwise.algorithms.published.dpp import publish, step_sizes, true_epsilon
    from pairwise.noise.randomness import Randomness
    from pairwise.pairs.graph import PairGraph

    pairs, signs, _ = pair_list("balanced", y, seed)
    P = X / np.maximum(1.0, np.abs(X).sum(axis=1))[:, None]
    apart = pairs[signs < 0]
    m = float(np.linalg.norm(P[apart[:, 0]] - P[apart[:, 1]], axis=1).mean())
    kappa = PairGraph(pairs, len(y)).kappa_bound()
    batches = math.ceil(len(pairs) / batch)
    kept: list[tuple[Array, Array]] = []
    d = X.shape[1]
    publish(
        variant,  # type: ignore[arg-type]
        np.eye(d),
        P,
        pairs,
        signs < 0,
        epsilon=epsilon,
        kappa=kappa,
        margin=m,
        clip=clip,
        batch_size=batch,
        epochs=epochs,
        steps=step_sizes(batches * epochs),
        randomness=Randomness(seed),
        keep=kept,
    )
    true = true_epsilon(
        variant,  # type: ignore[arg-type]
        epsilon,
        kappa=kappa,
        n_rows=d,
        n_columns=d,
        batches=batches,
    )
    where = np.unique(np.linspace(0, len(kept) - 1, points).astype(int))
    sample = np.random.default_rng(0).choice(len(pairs), min(len(pairs), 4000), replace=False)
    values = [contrastive(kept[i][0], P, pairs[sample], signs[sample], m) for i in where]
    return [float(i + 1) for i in where], values, true


def dpp_cells(
    name: str, source: str | None, seed: int, epsilons: tuple[float, ...]
) -> Iterator[Cell]:
    """Yield DPP's Figures 10 and 11 on one split; ``epsilons`` holds the one epsilon of a run."""
    X, y, Z, z = split(name, source, seed, balance=True, limit=2000)
    (epsilon,) = epsilons
    for variant, label in (
        ("dpp_thm1", "Lap (Theorem 1)"),
        ("dpp_s", "Lap-S (Theorem 2)"),
        ("scdf", "SCDF"),
        ("duchi", "Duchi"),
    ):
        at, values, true = paper_run(X, y, seed, variant, epsilon)
        told = "no guarantee" if true is None else f"epsilon = {true:,.0f}"
        for x, value in zip(at, values, strict=True):
            yield {"figure": "10", "method": label, "truth": told, "x": x, "score": value}
    at, values, _ = paper_run(X, y, seed, "dpp_thm1", math.inf)
    for x, value in zip(at, values, strict=True):
        yield {"figure": "10", "method": "no noise", "x": x, "score": value}
    if name == "adult":
        return
    for h in (0.25, 0.5, 1.0, 2.0):
        at, values, _ = paper_run(X, y, seed, "dpp_thm1", epsilon, clip=h, epochs=3)
        for x, value in zip(at, values, strict=True):
            yield {"figure": "11a", "method": f"h = {h:g}", "x": x, "score": value}
    for size in (20, 50, 100, 500):
        at, values, _ = paper_run(X, y, seed, "dpp_thm1", epsilon, batch=size, epochs=3)
        for x, value in zip(at, values, strict=True):
            share = x * size / (2 * len(y))
            yield {"figure": "11b", "method": f"|B| = {size}", "x": share, "score": value}
    paper = METRIC_METHODS["DPP, Theorem 1, as published"]
    for factor in (0.5, 1.0, 2.0, 4.0):
        W = learn(X, y, math.inf, {**paper, "margin_factor": factor}, seed)[1]
        score = float((neighbours(X @ W.T, y, Z @ W.T) == z).mean())
        yield {"figure": "11c", "method": "Algorithm 1, no privacy", "x": factor, "score": score}
    for rows in (2, 4, 8, 16, 32):
        for method, chosen, value in (
            ("sound DPP (matching)", {"algorithm": "matching"}, epsilon),
            ("Algorithm 1, no privacy", paper, math.inf),
        ):
            W = learn(X, y, value, {**chosen, "n_components": rows}, seed)[1]
            score = float((neighbours(X @ W.T, y, Z @ W.T) == z).mean())
            yield {"figure": "11d", "method": method, "x": float(rows), "score": score}


def _huai_runs(
    metric: bool, algorithm: str, X: Array, y: Labels, seed: int
) -> Iterator[tuple[str, str, Any]]:
    """Yield (method, guarantee, fitted estimator) for one training table."""
    from pairwise import PrivateAUCClassifier, PrivateMetricLearner

    make: Any = PrivateMetricLearner if metric else PrivateAUCClassifier
    n = len(X)
    common: dict[str, Any] = {
        "algorithm": algorithm,
        "classes": [0, 1],
        "random_state": seed,
        **FLOATING,
    }
    runs: list[tuple[str, dict[str, Any]]] = [
        ("no privacy (sound schedule)", {"epsilon": math.inf, "delta": DELTA})
    ]
    runs += [(f"sound, epsilon {e:g}", {"epsilon": e, "delta": DELTA}) for e in HUAI_EPSILONS]
    printed = {
        "mode": "published",
        "algorithm__allow_vacuous": True,
        "allow_large_delta": True,
    }
    runs += [
        (f"as published, epsilon {e:g}", {"epsilon": e, "delta": 1.0 / n, **printed})
        for e in (HUAI_EPSILONS[0], HUAI_EPSILONS[-1])
    ]
    if algorithm.startswith("off"):
        runs.append(
            (
                f"sound default (gradient), epsilon {HUAI_EPSILONS[-1]:g}",
                {"epsilon": HUAI_EPSILONS[-1], "delta": DELTA, "algorithm": "gradient"},
            )
        )
    for method, settings in runs:
        learner = make().set_params(**{**common, **settings}).fit(X, y)
        told = truth(learner.statement_) if "published" in method else ""
        yield method, told, learner


def huai_cells(
    name: str, source: str | None, seed: int, epsilons: tuple[float, ...]
) -> Iterator[Cell]:
    """Yield Figures 1 to 6 of Huai et al. on one permutation of a set; ``epsilons`` is not used."""
    from sklearn.metrics import roc_auc_score

    X, y = table(name, source)
    r = np.random.default_rng(seed)
    order = r.permutation(len(X))
    small = name in ("hepatitis", "breast_cancer")
    sizes = (40, 65, 90) if small else (50, 150, 250, 350)
    figures = (
        ((False, "onpairstrc", "1"), (False, "offpairstrc", "3"))
        if small
        else (
            (False, "onpairc", "2"),
            (False, "offpairc", "4"),
            (True, "onpairc", "5"),
            (True, "offpairc", "6"),
        )
    )
    test = order[max(sizes) :][:400]
    Z, z = X[test], y[test]
    for metric, algorithm, figure in figures:
        for n in sizes:
            A, a = X[order[:n]], y[order[:n]]
            if len(np.unique(a)) < 2:
                continue
            for method, told, learner in _huai_runs(metric, algorithm, A, a, seed):
                if figure == "6":
                    W = learner.components_
                    score = float((neighbours(A @ W.T, a, Z @ W.T) == z).mean())
                elif figure == "5":
                    score = _metric_objective(learner.components_, A, a)
                elif figure == "4":
                    score = float(roc_auc_score(z, learner.decision_function(Z)))
                else:
                    score = _auc_objective(learner.decision_function(A), a)
                cell = {"figure": figure, "method": method, "x": float(n), "score": score}
                yield {**cell, "truth": told} if told else cell


def _auc_objective(scores: Array, y: Labels) -> float:
    """Return the mean AUC-logistic loss over all pairs of the table; pairs of one class count log 2."""
    apart = np.subtract.outer(scores[y == 1], scores[y == 0])
    n = len(y)
    mixed = apart.size
    pairs = n * (n - 1) / 2
    loss = np.logaddexp(0.0, -2.0 * apart).sum()
    return float((loss + (pairs - mixed) * math.log(2.0)) / pairs)


def _metric_objective(W: Array, X: Array, y: Labels) -> float:
    """Return the mean metric-logistic loss over all pairs of the table."""
    P = X @ W.T
    squares = np.einsum("ij,ij->i", P, P)
    q = squares[:, None] + squares[None] - 2.0 * P @ P.T
    tau = np.where(y[:, None] == y[None], 1.0, -1.0)
    upper = np.triu_indices(len(y), 1)
    return float(np.logaddexp(0.0, -tau * (1.0 - q))[upper].mean())


EXPERIMENTS: dict[str, Callable[[str, str | None, int, tuple[float, ...]], Iterator[Cell]]] = {
    "auc": auc_cells,
    "metric": metric_cells,
    "distances": distance_cells,
    "dpp": dpp_cells,
    "huai": huai_cells,
}


def work(
    experiment: str, name: str, source: str | None, seed: int, epsilons: tuple[float, ...]
) -> list[Cell]:
    """Return all cells of one split; runs in a worker process."""
    from pairwise import UnsoundWarning

    with warnings.catch_warnings():
        # Labels and tables say what the published forms guarantee.
        warnings.simplefilter("ignore", UnsoundWarning)
        cells = list(EXPERIMENTS[experiment](name, source, seed, epsilons))
    return [{"experiment": experiment, "set": name, "seed": seed, **cell} for cell in cells]


# --------------------------------------------------------------------------------------------------------------------
# Running and keeping


def run(
    tasks: list[tuple[str, str, str | None, int, tuple[float, ...]]], out: Path, jobs: int
) -> list[Cell]:
    """Run what is not done yet, in processes, keeping each split as it ends; return all cells of the tasks."""
    from rich.console import Console
    from rich.progress import Progress

    out.mkdir(parents=True, exist_ok=True)
    kept = out / "cells.jsonl"
    done: dict[str, list[Cell]] = {}
    if kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # a line that was cut off when a run was stopped
            done[entry["task"]] = entry["cells"]

    def key(task: tuple[str, str, str | None, int, tuple[float, ...]]) -> str:
        return json.dumps([task[0], task[1], task[3], list(task[4])])

    missing = [task for task in tasks if key(task) not in done]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with Progress(console=Console(stderr=True), disable=not missing) as progress:
        bar = progress.add_task("splits", total=len(tasks), completed=len(tasks) - len(missing))
        if missing:
            context = multiprocessing.get_context("spawn")
            with (
                ProcessPoolExecutor(min(jobs, len(missing)), mp_context=context) as pool,
                kept.open("a", encoding="utf-8") as file,
            ):
                if not _ends_a_line(kept):
                    file.write("\n")
                futures = {pool.submit(work, *task): task for task in missing}
                for future in as_completed(futures):
                    task = futures[future]
                    done[key(task)] = future.result()
                    file.write(json.dumps({"task": key(task), "cells": done[key(task)]}) + "\n")
                    file.flush()
                    progress.advance(bar)
    return [cell for task in tasks for cell in done[key(task)]]


def peer_python(package: str, folder: Path) -> Path:
    """Return the Python of an environment that holds a package for private classification, made at the first use."""
    import site

    here, needed = PEERS[package]
    environment = folder / f"env-{package}"
    python = environment / "bin" / "python"
    if not (environment / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)  # noqa: S603
        more = []
        if here:
            (own,) = environment.glob("lib/python*/site-packages")
            (own / "here.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
            more = ["--no-deps"]
        subprocess.run([str(python), "-m", "pip", "install", "-q", *more, *needed], check=True)  # noqa: S603
        (environment / "done").touch()
    return python


def peer_cells(tasks: list[Task], out: Path, jobs: int) -> list[Cell]:
    """Return the cells of other packages on the splits of the tasks, kept in OUT/peers.json."""
    tasks = [task for task in tasks if task[1].startswith(KEEL) or task[3] < FEW_SPLITS]
    asked = [[task[1], task[3], list(task[4])] for task in tasks]
    kept = out / "peers.json"
    if kept.exists():
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["asked"] == asked:
            return list(found["cells"])
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place, (_, table_name, source, seed, epsilons) in enumerate(tasks):
            X, y, Z, z = split(table_name, source, seed)
            if table_name == "digits":
                y, z = y % 2, z % 2
            path = folder / f"{place:05d}.npz"
            np.savez(path, X=X, y=y, Z=Z, z=z, epsilons=np.array(epsilons), seed=seed)
        running: list[tuple[str, subprocess.Popen[bytes]]] = []
        for package in PEERS:
            command = [str(peer_python(package, out)), str(PEER_SCRIPT), package, str(folder)]
            answer = folder / f"{package}.json"
            running.append((package, subprocess.Popen([*command, str(answer)])))  # noqa: S603
            if jobs == 1:
                running[-1][1].wait()
        for package, process in running:
            if process.wait():
                raise typer.Exit(1)
            for cell in json.loads((folder / f"{package}.json").read_text(encoding="utf-8")):
                _, table_name, _, seed, _ = tasks[int(cell.pop("split"))]
                cells.append({"experiment": "auc", "set": table_name, "seed": seed, **cell})
    kept.write_text(json.dumps({"asked": asked, "cells": cells}), encoding="utf-8")
    return cells


def over_tables(cells: list[Cell], peers: list[Cell]) -> str:
    """Return the table of means over all KEEL tables, and how far ``auto`` is from the best algorithm and the best peer."""
    here = [c for c in (*cells, *peers) if c["set"].startswith(KEEL)]
    names = list(dict.fromkeys(c["set"] for c in here))
    epsilons = sorted({c["epsilon"] for c in here if c["epsilon"] is not None})
    scores: dict[tuple[str, float | None, str], list[float]] = defaultdict(list)
    for c in here:
        scores[c["method"], c["epsilon"], c["set"]].append(c["score"])
    guarantees = {c["method"]: c["guarantee"] for c in peers}

    def means(method: str, epsilon: float | None) -> Array:
        return np.array([np.mean(scores[method, epsilon, name]) for name in names])

    def row(label: str, of: Callable[[float], str], free: str = "") -> str:
        return f"| {label} | {free} | " + " | ".join(of(e) for e in epsilons) + " |"

    splits = len({c["seed"] for c in here})
    lines = [
        f"### Mean test AUC over {len(names)} tables of the KEEL collection that nothing was chosen on (splits: {splits})",
        "",
        "| method | no epsilon | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
        "|---" * (len(epsilons) + 2) + "|",
    ]
    for method in (PLAIN, PAIRWISE_FREE):
        lines.append(row(method, lambda _: "", f"{means(method, None).mean():.3f}"))
    others = [method for method in EVERY if method != AUTO]
    for method in (AUTO, *others, *guarantees):
        lines.append(row(method, lambda e, m=method: f"{means(m, e).mean():.3f}"))  # type: ignore[misc]
    for label, group in (("the best other algorithm", others), ("the best peer", list(guarantees))):
        if not group:
            continue

        def apart(epsilon: float, group: list[str] = group) -> str:
            best = max(group, key=lambda m: means(m, epsilon).mean())
            mean, half = interval(means(AUTO, epsilon) - means(best, epsilon))
            return f"{mean:+.3f} ± {half:.3f} ({best})"

        lines.append(row(f"auto less {label}", apart))
    lines += ["", "Guarantees of other packages, by their own account at the largest epsilon:", ""]
    lines += [f"- {method}: {guarantee}" for method, guarantee in guarantees.items()]
    return "\n".join([*lines, "", ""])


def distances_over_tables(cells: list[Cell]) -> str:
    """Return the mean accuracy of each distance over tables, and how far ``auto`` is above it where both were tried."""
    epsilons = sorted({c["epsilon"] for c in cells if c["epsilon"] is not None})
    scores: dict[tuple[str, float | None], dict[tuple[str, int], float]] = defaultdict(dict)
    for c in cells:
        scores[c["method"], c["epsilon"]][c["set"], c["seed"]] = c["score"]

    def by_table(values: dict[tuple[str, int], float]) -> list[float]:
        names = dict.fromkeys(name for name, _ in values)
        return [float(np.mean([v for at, v in values.items() if at[0] == name])) for name in names]

    def row(method: str, of: Callable[[dict[tuple[str, int], float], float], str]) -> str:
        found = [scores[method, None if method == IDENTITY else e] for e in epsilons]
        values = [of(each, e) for each, e in zip(found, epsilons, strict=True)]
        return "| " + " | ".join([method, str(len(by_table(found[0]))), *values]) + " |"

    def mean(found: dict[tuple[str, int], float], _: float) -> str:
        return f"{np.mean(by_table(found)):.3f}"

    def apart(found: dict[tuple[str, int], float], epsilon: float) -> str:
        less = {at: scores[AUTO, epsilon][at] - value for at, value in found.items()}
        return "{:+.3f} ± {:.3f}".format(*interval(by_table(less)))

    head = "".join(f" epsilon {e:g} |" for e in epsilons)
    rule = "|---" * (len(epsilons) + 2) + "|"
    tables = len({c["set"] for c in cells})
    splits = len({c["seed"] for c in cells})
    others = [IDENTITY, *list(DISTANCES)[1:]]
    lines = [
        f"### Mean accuracy of 5 nearest neighbours over {tables} tables of the KEEL collection (splits: {splits})",
        "",
        f"| distance | tables |{head}",
        rule,
        *(row(method, mean) for method in (IDENTITY, *DISTANCES)),
        "",
        "### auto less others on the same tables (± half width of the 95 % interval over tables)",
        "",
        f"| less | tables |{head}",
        rule,
        *(row(method, apart) for method in others),
    ]
    return "\n".join([*lines, "", ""])


def _ends_a_line(path: Path) -> bool:
    content = path.read_bytes()
    return not content or content.endswith(b"\n")


def interval(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % interval by Student's t."""
    from scipy.stats import t

    numbers = np.array(list(values), dtype=np.float64)
    if len(numbers) < 2:
        return float(numbers.mean()), math.nan
    half = t.ppf(0.975, len(numbers) - 1) * numbers.std(ddof=1) / math.sqrt(len(numbers))
    return float(numbers.mean()), float(half)


def write_csv(cells: list[Cell], path: Path, keys: tuple[str, ...]) -> None:
    """Write one line per group of cells: mean, half width of the 95 % interval, number of splits."""
    groups: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[tuple(cell.get(key) for key in keys)].append(cell)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        balanced = any("balanced" in cell for cell in cells)
        extra = ["mean_balanced", "half_balanced"] if balanced else []
        writer.writerow([*keys, "mean", "half_width_95", *extra, "splits", "true_guarantee"])
        for group, members in groups.items():
            mean, half = interval(cell["score"] for cell in members)
            more = (
                [f"{v:.5f}" for v in interval(cell["balanced"] for cell in members)]
                if balanced
                else []
            )
            told = sorted({cell["truth"] for cell in members if "truth" in cell})
            writer.writerow(
                [*group, f"{mean:.5f}", f"{half:.5f}", *more, len(members), "; ".join(told[:2])]
            )


def grouped(cells: list[Cell], by: str) -> dict[str, dict[Any, list[Cell]]]:
    """Return cells by method and by another key, in order of appearance."""
    groups: dict[str, dict[Any, list[Cell]]] = {}
    for cell in cells:
        groups.setdefault(cell["method"], {}).setdefault(cell.get(by), []).append(cell)
    return groups


def markdown(cells: list[Cell], title: str, better: str) -> str:
    """Return one table per set: methods by epsilon; what has no epsilon stands in the first column of numbers."""
    lines = [f"## {title}", ""]
    for name in dict.fromkeys(cell["set"] for cell in cells):
        here = [cell for cell in cells if cell["set"] == name]
        epsilons = sorted({c["epsilon"] for c in here if c["epsilon"] is not None})
        splits = len({cell["seed"] for cell in here})
        lines += [
            f"### {name} ({splits} splits, {better} ± half width of the 95 % interval)",
            "",
            "| method | no epsilon | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
            "|---" * (len(epsilons) + 2) + "|",
        ]
        for method, found in grouped(here, "epsilon").items():
            row = [method]
            for epsilon in (None, *epsilons):
                if epsilon not in found:
                    row.append("")
                    continue
                mean, half = interval(cell["score"] for cell in found[epsilon])
                told = sorted({c["truth"] for c in found[epsilon] if "truth" in c})
                row.append(f"{mean:.3f} ± {half:.3f}" + (f"; true {told[0]}" if told else ""))
            lines.append("| " + " | ".join(row) + " |")
        lines.append("")
    return "\n".join([*lines, ""])


def differences(cells: list[Cell], reference: str, methods: tuple[str, ...]) -> str:
    """Return a table of differences from a method without epsilon, split by split."""
    epsilons = sorted({c["epsilon"] for c in cells if c["epsilon"] is not None})
    lines = [
        f"### Difference from {reference}, paired by split (± half width of the 95 % interval)",
        "",
        "| set | method | no epsilon | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
        "|---" * (len(epsilons) + 3) + "|",
    ]
    for name in dict.fromkeys(cell["set"] for cell in cells):
        here = [cell for cell in cells if cell["set"] == name]
        base = {c["seed"]: c["score"] for c in here if c["method"] == reference}
        for method, found in grouped(here, "epsilon").items():
            if method not in methods:
                continue
            row = [name, method]
            for epsilon in (None, *epsilons):
                apart = [c["score"] - base[c["seed"]] for c in found.get(epsilon, [])]
                row.append("{:+.3f} ± {:.3f}".format(*interval(apart)) if apart else "")
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join([*lines, "", ""])


def comparison(cells: list[Cell], method: str, others: tuple[str, ...]) -> str:
    """Return a table of how far ``method`` is above others at the same epsilon, split by split."""
    epsilons = sorted({c["epsilon"] for c in cells if c["epsilon"] is not None})
    lines = [
        f"### {method} less others at the same epsilon, paired by split (± half width of the 95 % interval)",
        "",
        "| set | less | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
        "|---" * (len(epsilons) + 2) + "|",
    ]
    for name in dict.fromkeys(cell["set"] for cell in cells):
        score = {
            (c["method"], c["epsilon"], c["seed"]): c["score"] for c in cells if c["set"] == name
        }
        for other in others:
            row = [name, other]
            for epsilon in epsilons:
                apart = [
                    value - score[(other, epsilon, seed)]
                    for (found, at, seed), value in score.items()
                    if (found, at) == (method, epsilon)
                ]
                row.append("{:+.3f} ± {:.3f}".format(*interval(apart)))
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join([*lines, "", ""])


# --------------------------------------------------------------------------------------------------------------------
# Figures

# Okabe and Ito's colours, told apart by all common kinds of colour vision; markers and dashes tell the rest.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
MARKERS = "osD^vPX*"


def _style(place: int) -> dict[str, Any]:
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 5,
        "linewidth": 1.5,
        "capsize": 3,
        "linestyle": "-" if place < len(COLOURS) else "--",
    }


def _labelled(method: str, members: dict[Any, list[Cell]]) -> str:
    """Return the legend's line: the method, and for published forms what is true of them."""
    told = [c["truth"] for cells in members.values() for c in cells if "truth" in c]
    if not told:
        return method
    kinds = sorted(set(told))
    if len(kinds) == 1:
        return f"{method}; true: {kinds[0]}"
    return f"{method}; true: {told[0]} … {told[-1]}"


def _save(figure: Any, path: Path, handles: tuple[list[Any], list[str]] | None = None) -> None:
    """Write PNG and SVG, a legend of all panels below them."""
    import matplotlib.pyplot as plt

    if handles is not None:
        longest = max(map(len, handles[1]))
        figure.legend(
            *handles, loc="outside lower center", ncols=1 if longest > 55 else 2, fontsize=10
        )
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=100)
    plt.close(figure)


def _axes(panels: int, legend: int = 0, height: float = 3.1) -> tuple[Any, Any]:
    """Return a figure 800 pixels wide, its panels (four in two rows) and room for so many lines of legend."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 11, "svg.hashsalt": "uci"})
    rows = 2 if panels == 4 else 1
    figure, axes = plt.subplots(
        rows,
        panels // rows,
        figsize=(8.0, height * rows + 0.22 * legend),
        squeeze=False,
        layout="constrained",
    )
    return figure, axes.ravel()


def _draw(axis: Any, groups: dict[str, dict[Any, list[Cell]]], *, log: bool) -> None:
    """Draw one line with intervals per method; methods without an x become horizontal lines."""
    for place, (method, members) in enumerate(groups.items()):
        style = _style(place)
        label = _labelled(method, members)
        if set(members) == {None}:
            mean, half = interval(cell["score"] for cell in members[None])
            axis.axhline(mean, color=style["color"], linestyle=":", linewidth=1.8, label=label)
            if math.isfinite(half):
                axis.axhspan(
                    mean - half, mean + half, color=style["color"], alpha=0.12, linewidth=0
                )
            continue
        xs = sorted(x for x in members if x is not None)
        points = [interval(cell["score"] for cell in members[x]) for x in xs]
        means, halves = zip(*points, strict=True)
        # Side by side, so that intervals of equal curves stay visible.
        step = place - len(groups) / 2
        at = np.array(xs)
        at = at * 1.025**step if log else at + 0.006 * step * (max(xs) - min(xs))
        axis.errorbar(at, means, yerr=np.nan_to_num(halves), label=label, **style)
    if log:
        axis.set_xscale("log")
        ticks = sorted({x for m in groups.values() for x in m if x is not None})
        axis.set_xticks(ticks, [f"{x:g}" for x in ticks])
        axis.minorticks_off()
    axis.grid(alpha=0.3)


def epsilon_figure(
    cells: list[Cell], path: Path, panels: dict[str, tuple[str, ...]], score: str
) -> None:
    """Draw score over epsilon, one figure per named group of methods, one panel per set."""
    sets = list(dict.fromkeys(cell["set"] for cell in cells))
    for title, methods in panels.items():
        figure, axes = _axes(len(sets), legend=len(methods))
        for axis, name in zip(axes, sets, strict=True):
            here = [c for c in cells if c["set"] == name and c["method"] in methods]
            here.sort(key=lambda c: methods.index(c["method"]))
            _draw(axis, grouped(here, "epsilon"), log=True)
            axis.set_title(name, fontsize=11)
            axis.set_xlabel("ε (nats per record, log)")
            if axis.get_subplotspec().is_first_col():
                axis.set_ylabel(score)
        handles = axes[0].get_legend_handles_labels()
        _save(figure, path.with_name(f"{path.name}-{title}"), handles)


def curve_figure(cells: list[Cell], path: Path, xs: str, ys: str, tall: bool = False) -> None:
    """Draw score over x, one panel per set; ``tall`` for scores of several orders of magnitude."""
    sets = list(dict.fromkeys(cell["set"] for cell in cells))
    methods = len({cell["method"] for cell in cells})
    figure, axes = _axes(len(sets), legend=methods)
    for axis, name in zip(axes, sets, strict=True):
        _draw(axis, grouped([c for c in cells if c["set"] == name], "x"), log=False)
        if tall:
            axis.set_yscale("log")
        axis.set_title(name, fontsize=11)
        axis.set_xlabel(xs)
    axes[0].set_ylabel(ys)
    _save(figure, path, axes[0].get_legend_handles_labels())


def toy_figures(out: Path) -> None:
    """Draw DPP's Figures 7 and 8: two Gaussian classes, 150 pairs without a cycle, epsilon 2."""
    from pairwise import DPPMetricLearner, Edges
    from pairwise.algorithms.published.dpp import publish, step_sizes
    from pairwise.noise.randomness import Randomness

    r = np.random.default_rng(0)
    y = np.repeat([0, 1], 100)
    spread = np.array([[0.020, 0.012], [0.012, 0.020]])
    X = np.array([0.18, 0.32]) + r.normal(size=(200, 2)) @ spread
    X[y == 1] += [0.03, -0.02]
    # A path through 51 records of each class and 50 edges across between fresh ones hold no cycle.
    chains = [np.stack([np.arange(50), np.arange(1, 51)], axis=1) + shift for shift in (0, 100)]
    across = np.stack([np.arange(50, 100), np.arange(150, 200)], axis=1)
    pairs = np.concatenate([*chains, across])
    signs = np.repeat([1, -1], [100, 50])
    epsilon, m, h, size, epochs = 2.0, 1.0, 0.5, 30, 10
    learned: dict[str, Array] = {"raw data": np.eye(2)}
    traces: dict[str, list[float]] = {}
    scales: dict[str, list[float]] = {}
    for label, variant, value in (
        ("no privacy", "dpp_thm1", math.inf),
        ("DPP (true: 2 × ε)", "dpp_thm1", epsilon),
        ("DPP-S (true: no guarantee)", "dpp_s", epsilon),
    ):
        kept: list[tuple[Array, Array]] = []
        learned[label] = publish(
            variant,  # type: ignore[arg-type]
            np.eye(2),
            X,
            pairs,
            signs < 0,
            epsilon=value,
            kappa=1,
            margin=m,
            clip=h,
            batch_size=size,
            epochs=epochs,
            steps=step_sizes(epochs * 5),
            randomness=Randomness(1),
            keep=kept,
        )
        traces[label] = [contrastive(W, X, pairs, signs, m) for W, _ in kept]
        if math.isfinite(value):
            # A scale is sensitivity over ε' = ε/T_max.
            scales[label] = [float(s.max()) * value / epochs for _, s in kept]
    sound = "sound DPP, κ = 1"
    learned[sound] = (
        DPPMetricLearner(
            epsilon, 1e-3, 1, algorithm=Edges(margin=m), preprocessor=X, random_state=1, **FLOATING
        )
        .fit(pairs, signs)
        .components_
    )
    figure, axes = _axes(len(learned), legend=1, height=2.4)
    for axis, (label, W) in zip(axes, learned.items(), strict=True):
        P = X @ W.T
        for c in (0, 1):
            axis.plot(
                *P[y == c].T, MARKERS[c], color=COLOURS[1 + c], markersize=3, label=f"class {c}"
            )
        axis.set_title(label.replace(" (", "\n(").replace(", κ", "\nκ"), fontsize=10)
        axis.tick_params(labelsize=8)
        axis.set_xlabel("first coordinate", fontsize=10)
    axes[0].set_ylabel("second coordinate")
    _save(figure, out / "dpp-figure-7", axes[0].get_legend_handles_labels())
    figure, axes = _axes(2, height=3.6)
    for place, (label, values) in enumerate(traces.items()):
        style = {k: v for k, v in _style(place).items() if k != "capsize"}
        axes[0].plot(np.arange(1, len(values) + 1), values, label=label, markevery=5, **style)
    axes[0].axhline(
        contrastive(learned[sound], X, pairs, signs, m),
        color=COLOURS[5],
        linestyle=":",
        label=sound,
    )
    axes[0].set_ylabel("mean contrastive loss (eq. 7)")
    for place, (label, values) in enumerate(scales.items(), start=1):
        style = {k: v for k, v in _style(place).items() if k != "capsize"}
        axes[1].plot(np.arange(1, len(values) + 1), values, label=label, markevery=5, **style)
    axes[1].set_ylabel("sensitivity used (l1, per row)")
    for axis in axes:
        axis.set_xlabel("iteration (batches)")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=9)
    _save(figure, out / "dpp-figure-8")


# --------------------------------------------------------------------------------------------------------------------
# Commands

Data = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder with uci/*.csv.gz; default: shipped sets.")
]
Out = Annotated[Path, typer.Option(help="Folder for tables, figures and finished cells.")]
Splits = Annotated[int, typer.Option(min=1, help="Random 80/20 splits of each set.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes.")]
Quick = Annotated[bool, typer.Option("--quick", help="Few splits and budgets.")]
Online = Annotated[bool, typer.Option("--online", help="Fetch the UCI sets; needs a network.")]
Sets = Annotated[str | None, typer.Option(help="Comma-separated names of sets.")]


def _tasks(
    experiment: str,
    sets: tuple[str, ...],
    chosen: str | None,
    source: str | None,
    splits: int,
    epsilons: tuple[float, ...],
) -> list[tuple[str, str, str | None, int, tuple[float, ...]]]:
    if source is None:
        sets = SHIPPED
    if chosen:
        sets = tuple(chosen.split(","))
        names = (*data.SETS, "debrecen_steps", "digits")
        unknown = [name for name in sets if name not in names]
        if unknown:
            known = ", ".join(names)
            raise typer.BadParameter(f"no set is called {unknown[0]!r}; known are {known}.")
    try:
        for name in sets:
            table(name, source)
    except (data.DataUnavailable, data.MalformedData) as error:
        raise typer.BadParameter(str(error)) from error
    return [(experiment, name, source, seed, epsilons) for seed in range(splits) for name in sets]


def _packed(out: Path) -> str:
    out.mkdir(parents=True, exist_ok=True)
    try:
        return str(keel.fetch(out))
    except keel.Unavailable as error:
        raise typer.BadParameter(str(error)) from error


def _source(data_dir: Path | None, online: bool) -> str | None:
    if data_dir is not None:
        return str(data_dir)
    return "online" if online else None


@app.command()
def auc(
    data_dir: Data = None,
    out: Out = Path("uci"),
    splits: Splits = 20,
    jobs: Jobs = 2,
    quick: Quick = False,
    online: Online = False,
    sets: Sets = None,
    others: Annotated[
        bool, typer.Option("--others/--no-others", help="Also KEEL tables and other packages.")
    ] = True,
) -> None:
    """Print the test AUC of all algorithms over epsilon."""
    epsilons = (1.0, 4.0) if quick else AUC_EPSILONS
    source = _source(data_dir, online)
    tasks = _tasks("auc", AUC_SETS, sets, source, min(splits, 2) if quick else splits, epsilons)
    others = others and not quick and sets is None
    wide: list[Task] = []
    if others:
        packed = _packed(out)
        wide = [
            ("auc", KEEL + name, packed, seed, epsilons)
            for seed in range(min(splits, KEEL_SPLITS))
            for name in keel.SHOWN_ON
        ]
    found = run([*wide, *tasks], out, jobs)
    peers = peer_cells([*tasks, *wide], out, jobs) if others else []
    cells = [cell for cell in found if not cell["set"].startswith(KEEL)]
    shown = cells + [cell for cell in peers if not cell["set"].startswith(KEEL)]
    report = markdown(shown, "AUC", "mean test AUC") + differences(
        cells,
        PLAIN,
        (f"{PLAIN}, C = 1", PAIRWISE_FREE, AUTO, "gradient", NOT_CENTRED, POINTWISE),
    )
    if others:
        report += over_tables(found, peers)
        wider = [cell for cell in (*found, *peers) if cell["set"].startswith(KEEL)]
        write_csv(wider, out / "keel.csv", ("set", "method", "epsilon"))
    (out / "auc.md").write_text(report, encoding="utf-8")
    write_csv(cells, out / "auc.csv", ("set", "method", "epsilon"))
    free = (PLAIN, "gradient, epsilon infinite")
    panels = {
        "sound": (*free, AUTO, *SOUND[:4], POINTWISE),
        "published": (*free, *(f"{name}, as published" for name in PUBLISHED)),
    }
    epsilon_figure(cells, out / "auc", panels, "test AUC")
    print(report)


@app.command()
def metric(
    data_dir: Data = None,
    out: Out = Path("uci"),
    splits: Splits = 20,
    jobs: Jobs = 2,
    quick: Quick = False,
    online: Online = False,
    sets: Sets = None,
) -> None:
    """Print the accuracy of 5 nearest neighbours under all metrics over epsilon (DPP, Figure 9)."""
    epsilons = (1.0, 4.0) if quick else METRIC_EPSILONS
    source = _source(data_dir, online)
    tasks = _tasks(
        "metric", METRIC_SETS, sets, source, min(splits, 2) if quick else splits, epsilons
    )
    cells = run(tasks, out, jobs)
    sound = (FREE, *list(METRIC_METHODS)[:5])
    report = markdown(cells, "Metric learning", "mean accuracy")
    for reference in (FREE, IDENTITY):
        others = tuple(method for method in sound if method != reference)
        report += differences(cells, reference, (*others, WEIGHTED))
    report += comparison(cells, MATCHING, tuple(METRIC_METHODS)[1:5])
    (out / "metric.md").write_text(report, encoding="utf-8")
    write_csv(cells, out / "metric.csv", ("set", "method", "epsilon"))
    lines = (IDENTITY, FREE)
    names = list(METRIC_METHODS)
    panels = {
        "sound": (*lines, *names[:5]),
        "published": (*lines, PAPER_FREE, *names[5:]),
    }
    epsilon_figure(cells, out / "dpp-figure-9", panels, "accuracy (5-NN)")
    print(report)


@app.command()
def distances(
    out: Out = Path("uci"),
    splits: Splits = 1,
    jobs: Jobs = 2,
    chosen: Annotated[
        bool, typer.Option("--chosen", help="The tables that the default was chosen on.")
    ] = False,
) -> None:
    """Print the accuracy of 5 nearest neighbours under all distances from records and classes, over KEEL tables."""
    packed = _packed(out)
    tasks: list[Task] = [
        ("distances", KEEL + name, packed, seed, METRIC_EPSILONS)
        for seed in range(splits)
        for name in (keel.CHOSEN_ON if chosen else keel.SHOWN_ON)
    ]
    cells = run(tasks, out, jobs)
    report = distances_over_tables(cells)
    name = "distances-chosen" if chosen else "distances"
    (out / f"{name}.md").write_text(report, encoding="utf-8")
    write_csv(cells, out / f"{name}.csv", ("set", "method", "epsilon"))
    print(report)


@app.command()
def dpp(
    data_dir: Data = None,
    out: Out = Path("uci"),
    splits: Splits = 3,
    jobs: Jobs = 2,
    quick: Quick = False,
    online: Online = False,
    sets: Sets = None,
) -> None:
    """Draw Figures 7, 8, 10 and 11 of the DPP paper."""
    source = _source(data_dir, online)
    tasks = _tasks("dpp", METRIC_SETS, sets, source, 1 if quick else splits, (4.0,))
    cells = run(tasks, out, jobs)
    toy_figures(out)
    drawn = {
        "10": ("batches of 50 pairs, first epoch", "mean loss, eq. 7 (log)"),
        "11a": (
            "batches of 50 pairs, three epochs (Theorem 1; true: epsilon = 4 d')",
            "mean loss, eq. 7 (log)",
        ),
        "11b": ("epochs (Theorem 1; true: epsilon = 4 d')", "mean loss, eq. 7 (log)"),
        "11c": ("margin over the mean distance of dissimilar pairs", "accuracy (5-NN)"),
        "11d": ("rows of W (d')", "accuracy (5-NN)"),
    }
    for figure, (x, y) in drawn.items():
        here = [cell for cell in cells if cell["figure"] == figure]
        if here:
            objective = figure in ("10", "11a", "11b")
            curve_figure(here, out / f"dpp-figure-{figure}", x, y, tall=objective)
    write_csv(cells, out / "dpp.csv", ("figure", "set", "method", "x"))
    print(f"figures 7, 8, 10 and 11 of DPP at epsilon 4 are in {out}")


@app.command()
def huai(
    data_dir: Data = None,
    out: Out = Path("uci"),
    splits: Splits = 20,
    jobs: Jobs = 2,
    quick: Quick = False,
    online: Online = False,
    sets: Sets = None,
) -> None:
    """Draw Figures 1 to 6 of Huai et al."""
    names = ("hepatitis", "breast_cancer", "pima", "debrecen")
    source = _source(data_dir, online)
    chosen = sets or (None if source else "breast_cancer")
    tasks = _tasks("huai", names, chosen, source, min(splits, 2) if quick else splits, ())
    cells = run(tasks, out, jobs)
    drawn = {
        "1": "mean AUC loss, OnPairStrC",
        "2": "mean AUC loss, OnPairC",
        "3": "mean AUC loss, OffPairStrC",
        "4": "test AUC, OffPairC",
        "5": "mean metric loss, OnPairC",
        "6": "accuracy (5-NN), OffPairC",
    }
    for figure, y in drawn.items():
        here = [cell for cell in cells if cell["figure"] == figure]
        if here:
            curve_figure(here, out / f"huai-figure-{figure}", "training records n", y)
    write_csv(cells, out / "huai.csv", ("figure", "set", "method", "x"))
    print(f"figures 1 to 6 of HUAI are in {out}")


@app.command("all")
def everything(
    data_dir: Data = None,
    out: Out = Path("uci"),
    splits: Splits = 20,
    jobs: Jobs = 2,
    quick: Quick = False,
    online: Online = False,
) -> None:
    """Run all five."""
    auc(data_dir, out, splits, jobs, quick, online, None)
    metric(data_dir, out, splits, jobs, quick, online, None)
    if not quick:  # as of ``auc``, no table is fetched then
        distances(out, jobs=jobs)
    dpp(data_dir, out, min(splits, 3), jobs, quick, online, None)
    huai(data_dir, out, splits, jobs, quick, online, None)


if __name__ == "__main__":
    app()
