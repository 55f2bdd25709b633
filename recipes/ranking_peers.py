"""What other packages for private classification rank with; run inside the environment of one of them.

``recipes/uci.py auc`` makes an environment for each package and starts this file in it:

    python ranking_peers.py PACKAGE FOLDER ANSWER.json

FOLDER holds one ``.npz`` for each split, with records of norm at most 1, labels and test records. Each package runs by its
own defaults but for bounds, epsilon and delta, and keeps its own guarantee. Nothing of pairwise is used here.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

DELTA = 1e-5
SAMPLED, STEPS = 0.2, 100
Ranked = tuple[str, str, Any]  # method, its guarantee, scores of the test records


def auc(labels: Any, scores: Any) -> float:
    """The area under the curve: how often a positive is ranked above a negative, ties counted half."""
    above, below = scores[labels == 1][:, None], scores[labels == 0][None]
    return float(np.mean(above > below) + 0.5 * np.mean(above == below))


def diffprivlib(X: Any, y: Any, Z: Any, epsilon: float, seed: int) -> Iterator[Ranked]:
    """Logistic regression by objective perturbation, naive Bayes and a forest."""
    from diffprivlib import models

    bounds = (-np.ones(X.shape[1]), np.ones(X.shape[1]))
    pure = f"epsilon = {epsilon:g}, delta = 0"
    for name, model in (
        (
            "diffprivlib, logistic regression (objective perturbation)",
            models.LogisticRegression(
                epsilon=epsilon, data_norm=1.0, max_iter=1000, random_state=seed
            ),
        ),
        (
            "diffprivlib, naive Bayes",
            models.GaussianNB(epsilon=epsilon, bounds=bounds, random_state=seed),
        ),
        (
            "diffprivlib, random forest",
            models.RandomForestClassifier(
                epsilon=epsilon, bounds=bounds, classes=[0, 1], random_state=seed
            ),
        ),
    ):
        fitted = model.fit(X, y)
        if len(fitted.classes_) == 2:
            yield name, pure, fitted.predict_proba(Z)[:, 1]


def joined(X: Any) -> tuple[Any, list[str]]:
    """Return a table with the columns of a one-hot category as one, and the kind of each column."""
    columns: list[Any] = []
    kinds: list[str] = []
    last = ""
    for column in X.T:
        values = np.unique(column)
        kind = "continuous" if len(values) > 2 else "one-hot" if 0 in values else "two-valued"
        shown = column != 0
        if kind == last == "one-hot" and not (shown & (columns[-1] > 0)).any():
            columns[-1] = np.where(shown, columns[-1].max() + 1, columns[-1])
            continue
        columns.append(column if kind == "continuous" else shown * 1.0 if 0 in values else column)
        kinds.append("continuous" if kind == "continuous" else "nominal")
        last = kind
    table = np.array(columns, dtype=object).T
    for place, each in enumerate(kinds):
        if each == "nominal":
            table[:, place] = [f"{value:g}" for value in table[:, place]]
    return table, kinds


def interpret(X: Any, y: Any, Z: Any, epsilon: float, seed: int) -> Iterator[Ranked]:
    """DP-EBM, told which columns are one category, and the largest number of the table, for free."""
    from interpret.privacy import DPExplainableBoostingClassifier

    both = np.vstack((X, Z))
    largest = float(np.abs(both).max())
    table, kinds = joined(both)
    names = [f"column {place}" for place in range(len(kinds))]
    numbers = [name for name, kind in zip(names, kinds, strict=True) if kind == "continuous"]
    model = DPExplainableBoostingClassifier(
        feature_names=names,
        feature_types=kinds,
        epsilon=epsilon,
        delta=DELTA,
        privacy_bounds=dict.fromkeys(numbers, (-largest, largest)),
        n_jobs=1,
        random_state=seed,
    ).fit(table[: len(X)], y)
    scores = model.predict_proba(table[len(X) :])[:, 1]
    yield "DP-EBM", f"epsilon = {epsilon:g}, delta = {DELTA:g}, add/remove", scores


def opacus(X: Any, y: Any, Z: Any, epsilon: float, seed: int) -> Iterator[Ranked]:
    """Logistic regression by DP-SGD."""
    import torch
    from opacus import PrivacyEngine
    from torch.nn.functional import binary_cross_entropy_with_logits as loss
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    records, labels = (torch.tensor(a, dtype=torch.float32) for a in (X, y))
    model = torch.nn.Linear(X.shape[1], 1)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine(accountant="rdp")
    batch = math.ceil(SAMPLED * len(X))
    private, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        data_loader=DataLoader(TensorDataset(records, labels), batch_size=batch),
        target_epsilon=epsilon,
        target_delta=DELTA,
        epochs=round(STEPS * SAMPLED),
        max_grad_norm=CLIP,
    )
    done = 0
    while done < STEPS:
        for a, b in loader:
            if done == STEPS:
                break
            optimizer.zero_grad()
            if len(a):
                loss(private(a)[:, 0], b).backward()
                optimizer.step()
            done += 1
    spent = engine.get_epsilon(DELTA)
    scores = Z @ model.weight.detach().numpy()[0]
    yield (
        "Opacus, logistic regression (DP-SGD)",
        f"epsilon = {spent:.3g}, delta = {DELTA:g}, add/remove",
        scores,
    )


def adassp(X: Any, y: Any, Z: Any, epsilon: float, seed: int) -> Iterator[Ranked]:
    """AdaSSP (Wang, "Revisiting differentially private linear regression", 2018, Algorithm 2) on labels of -1 and 1."""
    rng, columns = np.random.default_rng(seed), X.shape[1]
    share = math.log(6 / DELTA)
    noise = math.sqrt(share) / (epsilon / 3)  # of records and labels of norm at most 1
    moments = X.T @ X
    least = np.linalg.eigvalsh(moments)[0] + noise * rng.normal() - share / (epsilon / 3)
    above = np.triu(rng.normal(size=(columns, columns)))
    moments = moments + noise * (above + np.triu(above, 1).T)
    sums = X.T @ (2.0 * y - 1.0) + noise * rng.normal(size=columns)
    spread = noise * math.sqrt(columns * math.log(2 * columns**2 / 0.05))
    ridge = max(0.0, spread - max(least, 0.0))
    weights = np.linalg.solve(moments + ridge * np.eye(columns), sums)
    yield "AdaSSP", f"epsilon = {epsilon:g}, delta = {DELTA:g}, add/remove", Z @ weights


# The best of eight pairs on six of the tables that algorithms were chosen on.
RATE, CLIP = 64.0, 0.5
PACKAGES: dict[str, Callable[..., Iterator[Ranked]]] = {
    "adassp": adassp,
    "diffprivlib": diffprivlib,
    "interpret": interpret,
    "opacus": opacus,
}


def main(package: str, folder: str, answer: str) -> None:
    """Rank every split at every epsilon of it, and write the AUCs."""
    warnings.simplefilter("ignore")
    cells = []
    for path in sorted(Path(folder).glob("*.npz")):
        job = np.load(path)
        for epsilon in job["epsilons"].tolist():
            ranked = PACKAGES[package](job["X"], job["y"], job["Z"], epsilon, int(job["seed"]))
            for method, guarantee, scores in ranked:
                cells.append(
                    {
                        "split": path.stem,
                        "method": method,
                        "epsilon": epsilon,
                        "score": auc(job["z"], np.asarray(scores)),
                        "guarantee": guarantee,
                    }
                )
    Path(answer).write_text(json.dumps(cells), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
