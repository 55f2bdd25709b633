"""Output perturbation of SGD pays for every step that expands."""

from __future__ import annotations

import numpy as np
import pytest

from pairwise import (
    PrivateAUCClassifier,
    SGDOutput,
)

pytestmark = pytest.mark.filterwarnings("ignore::textpriv.statement.UnsoundWarning")


def table(n: int = 200, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(n, d)) / 3
    return X, (X[:, 0] > 0).astype(int)


def test_hinge_of_sgd_pays_for_the_expansion_of_its_steps():
    X, y = table(n=100)
    options = SGDOutput(loss="hinge", steps=200, radius=0.2)  # steps of 20 · 0.2/2/200 = 0.01
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
    assert model.sensitivity() >= min(0.01 * change * total / T, 2 * 0.2) * 0.99


def test_steps_of_a_smooth_loss_are_never_too_long_to_contract():
    X, y = table(n=100)
    fits = [
        PrivateAUCClassifier(
            epsilon=1.0,
            delta=1e-5,
            algorithm=SGDOutput(steps=50, radius=radius),
            classes=[0, 1],
            random_state=0,
        ).fit(X, y)
        for radius in (1e6, 1e9)
    ]
    # 50 steps of 2/L = 1/2, each within (1/2) · 2 of its neighbour's: at the largest every step involves the record.
    assert fits[1].sensitivity() == fits[0].sensitivity() <= 50.0
