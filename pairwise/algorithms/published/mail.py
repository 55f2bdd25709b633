"""PrivateMail as printed: the constant M of appendix B, its noise, and Algorithm 1 between a client and a server.

For comparison only: none of it carries a guarantee (mechanisms.md PM-1 to PM-5). The labels enter every iteration
after the noise, the bound fails for small bandwidths, and the shape of the release tells how many records there were.
Sound forms live in ``pairwise.estimators.mail`` and ``pairwise.retrieval.subset``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairwise.algorithms.smlq import Array, DenseKernel, LabelKernel, iterate, smlq_step, unit_rows
from pairwise.errors import InvalidParameterError
from pairwise.noise.randomness import Randomness
from pairwise.retrieval.evaluation import align, nearest

__all__ = [
    "PUBLISHED_TRUTH",
    "PublishedMail",
    "published_constant",
    "published_denominators",
    "published_noise",
    "published_sensitivity",
]

PUBLISHED_TRUTH = (
    "labels unprotected: every iteration after the noise multiplies by the raw label Laplacian (mechanisms.md PM-1)",
    "the sensitivity bound is invalid for small bandwidths (mechanisms.md PM-4)",
    "the shape of the release and its noise scale reveal the number of records (mechanisms.md PM-2)",
)


def published_denominators(n: int, bandwidth: float) -> tuple[float, float]:
    """Return the two lower bounds on a degree that appendix B divides by (equations 18 and 19).

    Both count the self weight as if it were far away, so both can be zero or negative (mechanisms.md PM-4).
    """
    far = math.exp(-2.0 / bandwidth**2)
    return n * far + math.exp(-0.5 / bandwidth**2) - 1.0, (n + 1) * far - 1.0


def published_constant(
    n: int, alpha: float, bandwidth: float, top_class: int, *, check: bool = True
) -> float:
    """Return M = nM_ij + M_ii of appendix B (equations 22, 28 and 29).

    Parameters
    ----------
    n : int
        Number of records.
    alpha, bandwidth : float
        α and σ.
    top_class : int
        c, the largest class number when classes are 0..c.
    check : bool, default=True
        Refuse denominators that are not positive. False computes what is printed, which squares them whatever their sign.

    Raises
    ------
    InvalidParameterError
        If a printed denominator is zero or negative.
    """
    first, second = published_denominators(n, bandwidth)
    if check and not (first > 0 and second > 0):
        raise InvalidParameterError(
            f"the printed bound divides by {first:.3g} and {second:.3g} at bandwidth {bandwidth:g} and {n} records; it "
            "needs both to be positive (mechanisms.md PM-4). Use a larger bandwidth, or mode='sound'."
        )
    far = math.exp(-2.0 / bandwidth**2)
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


def published_sensitivity(
    Q: Array, alpha: float, bandwidth: float, top_class: int, *, check: bool = True
) -> float:
    """Return the Δ of Theorem 2, M√(n+1)‖Q‖_F/2, which is no bound (mechanisms.md PM-2 to PM-5)."""
    n = len(Q)
    constant = published_constant(n, alpha, bandwidth, top_class, check=check)
    return constant * math.sqrt(n + 1) / 2.0 * float(np.linalg.norm(Q))


def published_noise(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return s = √(2 ln(1.25/δ)) Δ/ε of Figure 4, for any ε as the paper has it; it is proved for ε < 1 only."""
    return math.sqrt(2.0 * math.log(1.25 / delta)) * sensitivity / epsilon


@dataclass(frozen=True)
class PublishedMail:
    """Algorithm 1 as printed, in its four parts; ``search`` runs them all.

    The defaults are those of Table 2 for CARS196. Nothing here is private; see ``PUBLISHED_TRUTH``.

    Parameters
    ----------
    epsilon, delta : float
        The numbers that the paper would print.
    n_classes : int
    n_components : int, default=2
    alpha, bandwidth, init_scale : float
        α, σ and σ_q.
    iterations : int, default=5
        T.
    """

    epsilon: float
    n_classes: int
    delta: float = 1e-5
    n_components: int = 2
    alpha: float = 0.6
    bandwidth: float = 6.0
    init_scale: float = 1e-8
    iterations: int = 5

    def _labels(self, codes: NDArray[np.int64]) -> LabelKernel:
        return LabelKernel(codes, self.n_classes, self.bandwidth)

    def _start(self, n: int, randomness: Randomness) -> Array:
        return self.init_scale * randomness.normal((n, self.n_components))

    def noise_scale(self, Q: Array) -> float:
        """Return s for a start Q, shape (n, k)."""
        top = self.n_classes - 1
        sensitivity = published_sensitivity(Q, self.alpha, self.bandwidth, top)
        return published_noise(self.epsilon, self.delta, sensitivity)

    def release(
        self,
        X: Array,
        codes: NDArray[np.int64],
        randomness: Randomness,
        *,
        discard_features: bool = False,
    ) -> Array:
        """Return the first iterate with noise, shape (n, k): step 3 of Figure 4.

        ``discard_features`` returns the noise alone, with X thrown away: what an embedding that carries nothing looks
        like.
        """
        Q = self._start(len(X), randomness)
        scale = self.noise_scale(Q)
        first = np.zeros_like(Q)
        if not discard_features:
            kernel = DenseKernel(unit_rows(X), self.bandwidth)
            first = smlq_step(Q, kernel, self._labels(codes), self.alpha)
        # The printed scale is about 1e-8 where it is used; a rounding grid would be the paper's least problem.
        return np.asarray(first + scale * randomness.normal(Q.shape))

    def carry_on(self, released: Array, codes: NDArray[np.int64]) -> tuple[Array, list[float]]:
        """Return T further iterations of a release, with L_X rebuilt from it and the raw L_Y, and the objectives."""
        kernel = DenseKernel(released, self.bandwidth)
        return iterate(released, kernel, self._labels(codes), self.alpha, self.iterations)

    def embed(self, X: Array, codes: NDArray[np.int64], randomness: Randomness) -> Array:
        """Return the server's own embedding, without noise, shape (n, k)."""
        kernel = DenseKernel(unit_rows(X), self.bandwidth)
        start = self._start(len(X), randomness)
        return iterate(start, kernel, self._labels(codes), self.alpha, self.iterations)[0]

    def search(
        self,
        queries: Array,
        query_codes: NDArray[np.int64],
        public: Array,
        public_codes: NDArray[np.int64],
        server: Array,
        server_codes: NDArray[np.int64],
        results: int,
        randomness: Randomness,
        *,
        discard_features: bool = False,
    ) -> NDArray[np.int64]:
        """Return the server rows nearest to each query, shape (q, results), all queries embedded together.

        Parameters
        ----------
        queries, public, server : (q, d), (p, d), (s, d) arrays
            The client's records with its dummies, the public anchors, the server's records.
        query_codes, public_codes, server_codes : int arrays
            Their classes.
        results : int
        randomness : Randomness
        discard_features : bool
            As in ``release``.
        """
        q = len(queries)
        codes = np.concatenate((query_codes, public_codes))
        client = np.concatenate((queries, public))
        released = self.release(client, codes, randomness, discard_features=discard_features)
        ours, _ = self.carry_on(released, codes)
        theirs = self.embed(
            np.concatenate((server, public)),
            np.concatenate((server_codes, public_codes)),
            randomness,
        )
        s = len(server)
        moved = align(ours[q:], theirs[s:]).apply(ours[:q])
        return nearest(moved, theirs[:s], results)
