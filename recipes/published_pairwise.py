"""What four papers on private pairwise learning print, and what is true of it: the published forms, run as they stand.

    python recipes/published_pairwise.py

prints one table for each paper. The sound forms are in ``pairwise``; the errata (docs/errata.md) have the derivations.

* DPP: Li, Pan, Sui, Tsang, *Secure Metric Learning via Differential Pairwise Privacy*, Algorithm 1.
* HUAI: Huai, Wang, Miao, Xu, Zhang, *Pairwise Learning with Differential Privacy Guarantees*, Algorithms 1 and 3.
* YANG: Yang, Lei, Lyu, Ying, *Stability and Differential Privacy of SGD for Pairwise Learning with Non-Smooth Loss*, eq. 5.
* PM: Vepakomma, Balla, Raskar, *PrivateMail*, Algorithm 1 and appendix B.
"""

from __future__ import annotations

import math

import numpy as np
import typer
from dp_accounting import get_sigma_gaussian
from numpy.typing import NDArray
from scipy.stats import norm

from pairwise.algorithms.giga import certified_sensitivity, schedule

Array = NDArray[np.float64]

app = typer.Typer(add_completion=False)


# --------------------------------------------------------------------------------------------------------------------
# DPP


def true_epsilon(
    variant: str, epsilon: float, *, kappa: int, rows: int, columns: int, batches: int
) -> float | None:
    """Return the true epsilon of a run of Algorithm 1 sold as ``epsilon``, for kappa pairs replaced in place.

    Each of the d' rows of a batch spends the budget again (Theorem 1). Theorem 2 reads its noise scale off the private
    batch, so no finite epsilon holds. Staircase noise costs its epsilon in every coordinate of every touched batch, Duchi's
    mechanism in every row of it.
    """
    touched = min(kappa, batches)
    factors = {
        "Theorem 1 (Laplace)": rows,
        "Theorem 2 (DPP-S)": None,
        "staircase (SCDF)": touched * rows * columns,
        "Duchi, corrected": touched * rows,
    }
    factor = factors[variant]
    return None if factor is None else factor * epsilon


def row_gradients(W: Array, difference: Array, similar: bool, margin: float, clip: float) -> Array:
    """Return the gradient of one pair with its rows clipped one by one to l1 norm ``clip`` (line 7)."""
    image = W @ difference
    length = float(np.linalg.norm(image))
    pull = 1.0 if similar else 0.0 if length >= margin else (length - margin) / length
    gradient = pull * np.outer(image, difference)
    norms = np.abs(gradient).sum(axis=1, keepdims=True)
    return np.asarray(gradient * np.minimum(1.0, clip / np.maximum(norms, 1e-300)))


def loss_of_rows(rows: int, epsilon: float) -> float:
    """Return the privacy loss of one batch of Theorem 1 between two neighbours: one pair, its label flipped.

    All |W_r d| are equal and the clip binds in every row, so each row moves by twice the clip at the noise made for that.
    """
    clip, kappa = 0.01, 1
    W, difference = np.ones((rows, 1)) / math.sqrt(rows), np.array([0.5])
    one, two = (row_gradients(W, difference, similar, 1.0, clip) for similar in (True, False))
    scale = kappa * 2.0 * clip / epsilon  # of a batch of one pair
    return float(np.abs(one - two).sum() / scale)


def scales_of_theorem_2(clip: float = 0.5) -> tuple[float, float]:
    """Return the noise scales of two neighbouring batches, without and with one pair whose gradient is clipped."""
    return clip, clip + clip  # g'' alone, and g' + g'', over the batch size


def dpp_table() -> str:
    """Return what Algorithm 1 of the DPP paper guarantees."""
    epsilon, settings = 1.0, {"kappa": 4, "rows": 32, "columns": 32, "batches": 20}
    lines = [
        f"### DPP, Algorithm 1 sold as epsilon = {epsilon:g} (kappa 4, W of 32 x 32, 20 batches)",
        "",
        "| noise | true epsilon, for 4 pairs replaced |",
        "|---|---|",
    ]
    for variant in (
        "Theorem 1 (Laplace)",
        "Theorem 2 (DPP-S)",
        "staircase (SCDF)",
        "Duchi, corrected",
    ):
        true = true_epsilon(variant, epsilon, **settings)
        lines.append(f"| {variant} | {'none' if true is None else f'{true:g}'} |")
    small, large = scales_of_theorem_2()
    return "\n".join(
        [
            *lines,
            "",
            f"One batch of Theorem 1 with 32 rows, one label flipped: loss {loss_of_rows(32, epsilon):.4g} at epsilon 1.",
            f"Theorem 2: one pair more changes the noise scale from {small:g} to {large:g}, which the output shows.",
            "",
        ]
    )


# --------------------------------------------------------------------------------------------------------------------
# HUAI


def published_burn_in(smoothness: float, alpha: float) -> int:
    """Return T1 = max(16 L²/alpha², 7) of Algorithm 1."""
    return max(math.ceil(16.0 * smoothness**2 / alpha**2), 7)


def published_offline_sigma(n: int, G: float, alpha: float, epsilon: float, delta: float) -> float:
    """Return sqrt(128 G² ln²n ln(1.25/delta))/(alpha n epsilon) of Algorithm 3, line 9."""
    return math.sqrt(128.0 * math.log(1.25 / delta)) * G * math.log(n) / (alpha * n * epsilon)


def huai_table() -> str:
    """Return the burn-in and the noise of HUAI's algorithms beside the certified ones."""
    lines = [
        "### HUAI, AUC logistic loss with unit records (G = L = 4)",
        "",
        "| n | alpha | published burn-in | learns? | published sigma (1, 1e-5) | certified sigma |",
        "|---|---|---|---|---|---|",
    ]
    for n, alpha in ((350, 1e-3), (2000, 0.1), (2000, 1.0)):
        burn_in = published_burn_in(4.0 + alpha, alpha)
        printed = published_offline_sigma(n, 4.0, alpha, 1.0, 1e-5)
        # The same loss and radius 1, by the recursion that the library uses.
        bound = certified_sensitivity(schedule(n, 4.0, alpha), 4.0, 4.0, 2.0).average
        sigma = bound * get_sigma_gaussian(1.0, 1e-5)
        learns = "yes" if burn_in < n else "no: the output is random"
        lines.append(f"| {n} | {alpha:g} | {burn_in:,} | {learns} | {printed:.3g} | {sigma:.3g} |")
    return "\n".join([*lines, ""])


# --------------------------------------------------------------------------------------------------------------------
# YANG


def published_sgd_sigma(
    n: int, steps: int, rate: float, G: float, epsilon: float, delta: float
) -> float:
    """Return sigma of eq. 5."""
    T = float(steps)
    growth = T + 3.0 * T**2 * (1.0 + math.log(T)) ** 2 * math.log(2.0 / delta) ** 2 / n**2
    return rate * G * math.sqrt(8.0 * math.log(2.5 / delta) * growth) / epsilon


def history_weights(steps: int) -> Array:
    """Return what one use of a record as i_k adds to sum_l (T - l) Y_l in Algorithm 2, shape (T,)."""
    T = int(steps)
    k = np.arange(1, T + 1, dtype=np.float64)
    harmonic = np.concatenate(([0.0], np.cumsum(1.0 / k)))
    own = np.where(k >= 2, T - k + 1.0, 0.0)
    return own + T * (harmonic[T - 1] - harmonic[:T]) - (T - k)


def realised_sensitivity(indices: NDArray[np.int64], n: int, rate: float, change: float) -> float:
    """Return the sensitivity of the average of Algorithm 2 for the indices that were drawn."""
    T = len(indices)
    involved = np.bincount(indices, weights=history_weights(T), minlength=n).max()
    return float(rate * change / T * (np.sqrt(np.arange(1.0, T)).sum() + involved))


def yang_table() -> str:
    """Return the noise of eq. 5 beside what the drawn sequence needs, and the delta that eq. 5 really gives."""
    lines = [
        "### YANG, eq. 5 at epsilon = 1, delta = 1e-5, G = 2 (the printed proof is broken; the noise suffices here)",
        "",
        "| n | T | sigma of eq. 5 | sigma needed, drawn indices | delta of eq. 5 |",
        "|---|---|---|---|---|",
    ]
    random = np.random.default_rng(0)
    for n, T, rate in ((350, 350**2, 350**-1.5), (1000, 10_000, 0.01)):
        printed = published_sgd_sigma(n, T, rate, 2.0, 1.0, 1e-5)
        bound = realised_sensitivity(random.integers(n, size=T), n, rate, 4.0)
        needed = bound * get_sigma_gaussian(1.0, 1e-5)
        mu = bound / printed
        delta = norm.cdf(mu / 2 - 1 / mu) - math.e * norm.cdf(-mu / 2 - 1 / mu)
        lines.append(f"| {n} | {T:,} | {printed:.3g} | {needed:.3g} | {delta:.1g} |")
    return "\n".join([*lines, ""])


# --------------------------------------------------------------------------------------------------------------------
# PM


def published_constant(n: int, alpha: float, bandwidth: float, top_class: int) -> float:
    """Return M of appendix B (equations 22, 28 and 29), which squares denominators whatever their sign."""
    far = math.exp(-2.0 / bandwidth**2)
    first = n * far + math.exp(-0.5 / bandwidth**2) - 1.0
    second = (n + 1) * far - 1.0
    label_far = math.exp(-0.5 * (top_class / bandwidth) ** 2)
    most = n + math.exp(-0.5 / bandwidth**2) - 1.0
    squares = (n / first) ** 2 + (n / second) ** 2
    diagonal = alpha**2 * (squares - 2.0 * ((n + 1) * label_far - 1.0) ** 2 / (n * most))
    other = (
        (alpha**2 + 1.0) * (1.0 / first**2 + 1.0 / second**2)
        - 2.0 * alpha * far * label_far * (1.0 / most**2 + 1.0 / n**2)
        - 2.0 * (alpha**2 * label_far**2 + far**2) / (n * most)
        + 4.0 * alpha / (first * second)
    )
    return n * other + diagonal


def smlq_step(Z: Array, X: Array, labels: NDArray[np.int64], alpha: float, width: float) -> Array:
    """Return Z + ½ Diag(L_X)^+ (alpha L_Y - L_X) Z (equation 4), with the paper's kernel of class numbers."""

    def laplacian(points: Array) -> Array:
        apart = ((points[:, None] - points[None]) ** 2).sum(axis=2)
        weights = np.exp(-apart / (2.0 * width**2))
        np.fill_diagonal(weights, 0.0)
        return np.asarray(np.diag(weights.sum(axis=1)) - weights)

    by_records, by_labels = laplacian(X), laplacian(labels[:, None].astype(float))
    degree = np.diag(by_records)
    return np.asarray(Z + 0.5 * ((alpha * by_labels - by_records) @ Z) / degree[:, None])


def moved_by_one_record(n: int, width: float) -> tuple[float, float]:
    """Return how far one step moves when one record is added to the antipode of all others, and the printed bound.

    One record lies at -u, all others at u, one class. The bound divides by a degree that counts the record's own weight as
    if it were far away, and fails for small bandwidths.
    """
    random = np.random.default_rng(0)
    Q = random.normal(size=(n + 1, 2))
    u = np.array([1.0, 0.0])
    X = np.array([-u] + [u] * (n - 1))
    labels = np.zeros(n, dtype=np.int64)
    one = smlq_step(Q[:n], X, labels, 0.5, width)
    two = smlq_step(Q, np.vstack([X, -u]), np.zeros(n + 1, dtype=np.int64), 0.5, width)[:n]
    bound = (
        published_constant(n, 0.5, width, 0) * math.sqrt(n + 1) / 2.0 * float(np.linalg.norm(Q[:n]))
    )
    return float(np.linalg.norm(one - two)), bound


def recall_of_labels(*, discard: bool, raw_labels: bool, seed: int = 0) -> float:
    """Return Recall@8 of the published pipeline's embedding on 10 classes; ``discard`` throws the records away.

    The noise of the first step is so large that nothing of the records is left; later iterations see the labels.
    """
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(10), 20)
    centres = random.normal(size=(10, 16))
    X = centres[labels] + 0.5 * random.normal(size=(200, 16))
    X /= np.linalg.norm(X, axis=1)[:, None]
    Z = 1e-8 * random.normal(size=(200, 2))
    if not discard:
        Z = smlq_step(Z, X, labels, 0.6, 6.0)
    Z = Z + 1e-5 * random.normal(size=Z.shape)
    shown = labels if raw_labels else random.permutation(labels)
    for _ in range(50):
        Z = smlq_step(Z, Z, shown, 0.9, 6.0)
        Z /= np.abs(Z).max()
    apart = ((Z[:, None] - Z[None]) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    near = np.argsort(apart, axis=1)[:, :8]
    return float((labels[near] == labels[:, None]).any(axis=1).mean())


def mail_table() -> str:
    """Return what PrivateMail's published pipeline shows and what it hides."""
    moved, bound = moved_by_one_record(10, 0.3)
    lines = [
        "### PrivateMail as published: no guarantee",
        "",
        "| later iterations see | first step reads the records | Recall@8 |",
        "|---|---|---|",
    ]
    for raw in (True, False):
        for discard in (False, True):
            score = np.mean(
                [recall_of_labels(discard=discard, raw_labels=raw, seed=s) for s in range(3)]
            )
            seen = "the raw labels" if raw else "labels in random order"
            lines.append(f"| {seen} | {'no' if discard else 'yes'} | {score:.3f} |")
    return "\n".join(
        [
            *lines,
            "",
            f"M at the printed defaults (CARS, n = 1000): {published_constant(1000, 0.6, 6.0, 98):.2f}.",
            f"Ten records at bandwidth 0.3: one record moves a step by {moved:.3g}, the printed bound is {bound:.3g}.",
            "",
        ]
    )


@app.command()
def main() -> None:
    """Print what the four papers' own forms guarantee."""
    for text in (dpp_table(), huai_table(), yang_table(), mail_table()):
        print(text)


if __name__ == "__main__":
    app()
