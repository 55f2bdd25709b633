"""Sums of pair gradients: all pairs, listed pairs, all pairs inside a set, with public bounds that hold for any data.

How far a sum moves when a record changes follows from these bounds in ``algorithms.gradient``, which also adds the noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pairwise.errors import InvalidParameterError
from pairwise.noise.continuous import check_positive
from pairwise.pairs.clipping import CLIP_SLACK, clip_records
from pairwise.pairs.losses import PairLoss, get_loss

if TYPE_CHECKING:
    import torch

__all__ = ["AUCPairs", "MetricPairs", "PairSums", "auc_hinge_counts", "auc_logistic_weights"]

Array = NDArray[np.float64]

# Entries of one block of the pair matrix: 32 MiB of float64, whatever n is.
_BLOCK_ENTRIES = 1 << 22

# Squared distances come from inner products; below this share of the squared norms their error passes the clip slack.
_DISTANCE_FLOOR = 1e-8


# --------------------------------------------------------------------------------------------------------------------
# Weights of the AUC losses: what each record's features are multiplied with


def auc_hinge_counts(positive: Array, negative: Array) -> tuple[Array, Array]:
    """Return how many opponents of each record are within the margin of 1, in O(n log n).

    Parameters
    ----------
    positive, negative : (n₊,) and (n₋,) float64 arrays
        Scores of the two classes.

    Returns
    -------
    (n₊,) and (n₋,) float64 arrays
        #{q : s_q > s_p − 1} and #{p : s_p − 1 < s_q}. Both compare with the *same* rounded s_p − 1, so they count the
        same pairs and the sum stays a subgradient (mechanisms.md 6.4).
    """
    from pairwise.pairs.hinge import within_margin

    scores = np.concatenate([positive, negative])
    counts = within_margin(scores, np.arange(len(scores)) < len(positive))
    return counts[: len(positive)], counts[len(positive) :]


def _on_device(array: Array, device: str) -> torch.Tensor:
    """Return a float64 tensor on a device: sensitivities are proved for float64 only (mechanisms.md 2.3)."""
    import torch

    try:
        return torch.as_tensor(array, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InvalidParameterError(
            f"device {device!r} cannot hold float64 numbers here. Use device='cpu', or 'cuda' on a machine with such a GPU."
        ) from error


def _logistic_weights_on(
    positive: Array, negative: Array, cap: float, device: str
) -> tuple[Array, Array]:
    """Return what ``auc_logistic_weights`` does, block by block on another device."""
    import torch

    p, q = _on_device(positive, device), _on_device(negative, device)
    a, b = torch.zeros_like(p), torch.zeros_like(q)
    step = max(1, _BLOCK_ENTRIES // len(negative))
    for start in range(0, len(p), step):
        weights = 2.0 * torch.sigmoid(2.0 * (q[None, :] - p[start : start + step, None]))
        if cap < 2.0:
            weights.clamp_(max=cap)
        a[start : start + step] = weights.sum(dim=1)
        b += weights.sum(dim=0)
    return a.cpu().numpy(), b.cpu().numpy()


def auc_logistic_weights(
    positive: Array, negative: Array, cap: float = 2.0, device: str = "cpu"
) -> tuple[Array, Array]:
    """Return row and column sums of min(cap, 2/(1 + e^(2(s_p − s_q)))) over all pairs of the two classes, in blocks.

    Parameters
    ----------
    positive, negative : (n₊,) and (n₋,) float64 arrays
        Scores.
    cap : float, default=2
        Largest weight of one pair; 2 is no cap. A cap of 1 makes the loss linear where the order is wrong,
        which keeps it convex and halves G.
    device : str, default="cpu"
        A torch device for the blocks of pairs, such as "cuda".
    """
    if device != "cpu" and len(positive) and len(negative):
        return _logistic_weights_on(positive, negative, cap, device)
    a = np.zeros(len(positive))
    b = np.zeros(len(negative))
    if not len(positive) or not len(negative):
        return a, b
    step = max(1, _BLOCK_ENTRIES // len(negative))
    # e^(2(s − t)) is a product of n exponentials rather than n₊n₋ of them, as long as neither factor overflows.
    span = max(np.abs(positive).max(), np.abs(negative).max())
    factor = np.exp(-2.0 * negative) if span < 150.0 else None
    for start in range(0, len(positive), step):
        part = positive[start : start + step]
        if factor is not None:
            weights = np.multiply.outer(np.exp(2.0 * part), factor)
        else:
            with np.errstate(over="ignore"):
                weights = np.exp(2.0 * np.subtract.outer(part, negative))
        weights += 1.0
        np.divide(2.0, weights, out=weights)
        if cap < 2.0:
            np.minimum(weights, cap, out=weights)
        a[start : start + step] = weights.sum(axis=1)
        b += weights.sum(axis=0)
    return a, b


class PairSums(Protocol):
    """The data side of the engine: sums of pair gradients and the public bounds that hold for any data."""

    n: int
    pair_bound: float
    pair_change: float

    def all_pairs(self, w: Array) -> Array:
        """Return Σ_{i<j} ∇ℓ_ij(w), shape of ``w``."""

    def over(self, w: Array, pairs: NDArray[np.int64]) -> Array:
        """Return the sum over listed pairs, (m, 2) slots, shape of ``w``."""

    def within(self, w: Array, slots: NDArray[np.int64]) -> Array:
        """Return the sum over all pairs inside a set of slots, shape of ``w``."""

    def values(self, w: Array, pairs: NDArray[np.int64]) -> Array:
        """Return the loss of each listed pair, shape (m,): private, for regret and for tests."""


class AUCPairs:
    """Pair gradients of an AUC loss in w, shape (d,).

    Parameters
    ----------
    X : (n, d) float64 array
        Records; clipped here to ``data_norm``.
    positive : (n,) bool array
    loss : PairLoss or str
        ``auc-logistic`` or ``auc-hinge``.
    data_norm : float
        R.
    clip : float, optional
        Bound on one pair's gradient norm, at most G; the weight of each pair is cut at clip/(2R). For both
        losses the cut loss is convex again, so output perturbation stays proved. Default: G of the loss.
    device : str, default="cpu"
        A torch device for the n₊n₋ weights of the logistic loss; the hinge needs one sort and stays where it is.
    """

    def __init__(
        self,
        X: Array,
        positive: NDArray[np.bool_],
        loss: PairLoss | str = "auc-logistic",
        data_norm: float = 1.0,
        clip: float | None = None,
        device: str = "cpu",
    ) -> None:
        self.loss = get_loss(loss, "auc")
        self.device = str(device)
        if self.device != "cpu":
            _on_device(np.zeros(1), self.device)
        if self.loss.kind != "auc":
            raise InvalidParameterError(
                f"expected an AUC loss; found {self.loss.name!r}. Use 'logistic' or 'hinge'."
            )
        self.hinge = self.loss.name == "auc-hinge"
        if not self.hinge and self.loss.name != "auc-logistic":
            raise InvalidParameterError(
                f"no pair sums are known for the loss {self.loss.name!r}. Use 'logistic' or 'hinge'."
            )
        self.data_norm = float(data_norm)
        largest = self.loss.lipschitz(self.data_norm)
        if clip is not None and not 0 < clip <= largest * (1 + 1e-12):
            raise InvalidParameterError(
                f"clip must be in (0, G] with G = {largest:g}; found {clip!r}. Leave it out for G."
            )
        self.pair_bound = largest if clip is None else min(float(clip), largest)
        self.pair_change = self.pair_bound
        self._cap = self.pair_bound / (2.0 * self.data_norm)
        clipped = clip_records(np.ascontiguousarray(X, dtype=np.float64), self.data_norm)
        self.n, self.dimension = clipped.shape
        self.X = clipped
        self.positive = np.asarray(positive, dtype=bool)
        self._classes = np.flatnonzero(self.positive), np.flatnonzero(~self.positive)

    def _weights(self, positive: Array, negative: Array) -> tuple[Array, Array]:
        if self.hinge:
            a, b = auc_hinge_counts(positive, negative)
            if self._cap < 1.0:
                a *= self._cap
                b *= self._cap
            return a, b
        return auc_logistic_weights(positive, negative, self._cap, self.device)

    def slope(self, margin: Array) -> Array:
        """Return the weight of single pairs, 0 <= weight <= clip/(2R), at score differences s₊ − s₋."""
        if self.hinge:
            return np.asarray((margin < 1.0) * min(self._cap, 1.0), dtype=np.float64)
        with np.errstate(over="ignore"):
            return np.asarray(
                np.minimum(self._cap, 2.0 / (1.0 + np.exp(2.0 * margin))), dtype=np.float64
            )

    def all_pairs(self, w: Array) -> Array:
        """Return the sum over all pairs: O(nd + n log n) for the hinge, n₊n₋ divisions for the logistic loss."""
        scores = self.X @ w
        if self.hinge:
            from pairwise.pairs.hinge import weighted_sum, within_margin

            counts = within_margin(scores, self.positive)
            weight = min(self._cap, 1.0)
            counts *= np.where(self.positive, -weight, weight)
            return np.asarray(weighted_sum(counts, self.X))
        positive, negative = self._classes
        a, b = self._weights(scores[positive], scores[negative])
        np.negative(a, out=a)
        scores[positive] = a
        scores[negative] = b
        return np.asarray(scores @ self.X)

    def over(self, w: Array, pairs: NDArray[np.int64]) -> Array:
        """Return the sum over listed pairs; those of one class add nothing."""
        labels = self.positive[pairs]
        mixed = labels[:, 0] != labels[:, 1]
        flip = labels[mixed, 1]
        chosen = pairs[mixed]
        winner = np.where(flip, chosen[:, 1], chosen[:, 0])
        loser = np.where(flip, chosen[:, 0], chosen[:, 1])
        apart = self.X[winner] - self.X[loser]
        return np.asarray(-(self.slope(apart @ w) @ apart))

    def within(self, w: Array, slots: NDArray[np.int64]) -> Array:
        """Return the sum over all pairs inside a set of slots."""
        X, positive = self.X[slots], self.positive[slots]
        scores = X @ w
        a, b = self._weights(scores[positive], scores[~positive])
        coefficient = np.empty(len(slots))
        coefficient[positive] = -a
        coefficient[~positive] = b
        return np.asarray(coefficient @ X)

    def values(self, w: Array, pairs: NDArray[np.int64]) -> Array:
        """Return the loss of each listed pair, shape (m,)."""
        labels = self.positive[pairs].astype(np.float64)
        inner = (self.X[pairs[:, 0]] - self.X[pairs[:, 1]]) @ w
        return np.asarray(self.loss.value(inner, labels[:, 0] - labels[:, 1]).numpy())


class MetricPairs:
    """Pair gradients of a metric loss, in M (shape (d, d)) or in a factor W with M = WᵀW (shape (k, d)).

    One pair with difference Δ and q = ΔᵀMΔ has the gradient ℓ'(q) ΔΔᵀ in M and 2ℓ'(q) (WΔ)Δᵀ in W. Sums over pairs are
    XᵀLX with L a Laplacian of pair weights, formed block by block.

    Parameters
    ----------
    X : (n, d) float64 array
        Records; clipped here to ``data_norm``.
    labels : (n,) int array
        Classes; pairs of one class are similar.
    loss : PairLoss or str
        ``metric-logistic``, ``metric-hinge`` or ``contrastive`` (the last only in the factor).
    data_norm : float
        R.
    parameter : {"factor", "matrix"}
    clip : float, optional
        Bound on one pair's gradient norm. In M default 4R², which no pair exceeds; in W required, since the gradient is
        unbounded there.
    device : str, default="cpu"
        A torch device, such as "cuda", for the sums over all pairs, which take n²d; everything is float64 there too.
    """

    def __init__(
        self,
        X: Array,
        labels: NDArray[np.int64],
        loss: PairLoss | str = "metric-logistic",
        data_norm: float = 1.0,
        parameter: Literal["factor", "matrix"] = "factor",
        clip: float | None = None,
        device: str = "cpu",
    ) -> None:
        self.loss = get_loss(loss, "metric")
        self.device = str(device)
        if self.loss.kind != "metric":
            raise InvalidParameterError(
                f"expected a metric loss; found {self.loss.name!r}. Use 'logistic', 'hinge' or 'contrastive'."
            )
        if parameter == "matrix" and not self.loss.convex:
            raise InvalidParameterError(
                f"the loss {self.loss.name!r} is not convex in M, so it has no proof there. Use 'logistic' or 'hinge'."
            )
        if parameter == "factor" and clip is None:
            raise InvalidParameterError(
                "gradients in a factor are unbounded; expected a public clip such as 1.0."
            )
        self.data_norm = float(data_norm)
        if parameter == "matrix":
            largest = self.loss.lipschitz(self.data_norm)
            if clip is not None and clip < largest * (1 - 1e-12):
                raise InvalidParameterError(
                    f"in M gradients are bounded by G = {largest:g} without clipping, and clipping would destroy the "
                    f"monotonicity that the proofs use; found clip = {clip!r}. Leave it out."
                )
            self.pair_bound = largest
        else:
            assert clip is not None
            check_positive(clip=clip)
            self.pair_bound = float(clip)
        # A flipped label turns the whole gradient round, so two gradients may differ by twice their bound.
        self.pair_change = 2.0 * self.pair_bound
        self.parameter = parameter
        self.X = clip_records(np.ascontiguousarray(X, dtype=np.float64), self.data_norm)
        self.labels = np.asarray(labels)
        self.n, self.dimension = self.X.shape

    def _weights(
        self,
        q: torch.Tensor,
        r: torch.Tensor,
        sizes: tuple[torch.Tensor, torch.Tensor],
        longest: float,
        similar: torch.Tensor,
    ) -> torch.Tensor:
        """Return the weight of ΔΔᵀ per pair from q = ΔᵀMΔ and r = ‖Δ‖².

        ``sizes`` are the squares that q and r were differences of, and are overwritten; ``longest`` is ‖W‖².
        """
        slope = self.loss.derivative(q, similar.to(q.dtype) * 2.0 - 1.0)
        if self.parameter == "matrix":
            return slope
        slope = slope.mul_(2.0)
        limit = self.pair_bound * (1.0 - CLIP_SLACK)
        shrink = (q * r).sqrt_().mul_(slope.abs()).reciprocal_().mul_(limit).clamp_(max=1.0)
        weights = slope.mul_(shrink)
        # Differences lost in rounding, in Δ or in WΔ, have no length to clip by and no direction: they are given no
        # gradient, whatever the neighbours are.
        images, records = sizes
        images.add_(records, alpha=_DISTANCE_FLOOR * longest).mul_(_DISTANCE_FLOOR)
        return weights.masked_fill_((q <= images) | (r <= records.mul_(_DISTANCE_FLOOR)), 0.0)

    def _laplacian(self, w: Array, X: Array, labels: NDArray[np.int64]) -> Array:
        """Return Σ_{i<j} weight_ij ΔΔᵀ over all pairs of the rows given, shape (d, d)."""
        import torch

        n, d = X.shape
        rows_of = _on_device(X, self.device)
        classes = torch.as_tensor(labels, device=rows_of.device)
        total = torch.zeros((d, d), dtype=rows_of.dtype, device=rows_of.device)
        Z = rows_of @ _on_device(w.T, self.device)
        other = rows_of if self.parameter == "matrix" else Z
        left = (other * Z).sum(dim=1)
        plain = (rows_of * rows_of).sum(dim=1)
        longest = float(np.sum(w * w))
        # Each pair once: rows of a block against the columns from its own first row on. Narrow blocks waste little below
        # the diagonal.
        step = max(1, min(_BLOCK_ENTRIES // (4 * max(n, 1)), n // 8 + 1))
        for start in range(0, n, step):
            stop = min(start + step, n)
            part, following = rows_of[start:stop], rows_of[start:]
            scale = left[start:stop, None] + left[None, start:]
            q = torch.addmm(scale, other[start:stop], Z[start:].T, alpha=-2.0)
            size = plain[start:stop, None] + plain[None, start:]
            r = torch.addmm(size, part, following.T, alpha=-2.0).clamp_(min=0.0)
            if self.parameter == "factor":
                q.clamp_(min=0.0)
            similar = classes[start:stop, None] == classes[None, start:]
            C = self._weights(q, r, (scale, size), longest, similar)
            C[:, : stop - start].triu_(diagonal=1)
            total += part.T @ (C.sum(dim=1)[:, None] * part - 2.0 * (C @ following))
            total += following.T @ (C.sum(dim=0)[:, None] * following)
        # Σ c (x_i − x_j)(x_i − x_j)ᵀ has −2 c x_i x_jᵀ above only up to its symmetric part.
        return np.asarray(((total + total.T) / 2.0).cpu().numpy())

    def _finish(self, w: Array, S: Array) -> Array:
        return S if self.parameter == "matrix" else np.asarray(w @ S)

    def all_pairs(self, w: Array) -> Array:
        """Return the sum over all pairs, O(n²d) in blocks."""
        return self._finish(w, self._laplacian(w, self.X, self.labels))

    def over(self, w: Array, pairs: NDArray[np.int64]) -> Array:
        """Return the sum over listed pairs."""
        import torch

        apart = self.X[pairs[:, 0]] - self.X[pairs[:, 1]]
        q, similar = self._distances(w, pairs, apart)
        r = np.einsum("ij,ij->i", apart, apart)
        sizes = torch.tensor(q), torch.tensor(r)
        weights = self._weights(
            torch.as_tensor(q),
            torch.as_tensor(r),
            sizes,
            float(np.sum(w * w)),
            torch.as_tensor(similar),
        ).numpy()
        return self._finish(w, (weights[:, None] * apart).T @ apart)

    def within(self, w: Array, slots: NDArray[np.int64]) -> Array:
        """Return the sum over all pairs inside a set of slots."""
        return self._finish(w, self._laplacian(w, self.X[slots], self.labels[slots]))

    def _distances(
        self, w: Array, pairs: NDArray[np.int64], apart: Array
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Return q = ΔᵀMΔ of listed pairs and whether they are similar, shapes (m,)."""
        image = apart @ w.T
        q = np.einsum("ij,ij->i", apart if self.parameter == "matrix" else image, image)
        return q, np.asarray(self.labels[pairs[:, 0]] == self.labels[pairs[:, 1]])

    def values(self, w: Array, pairs: NDArray[np.int64]) -> Array:
        """Return the loss of each listed pair, shape (m,)."""
        q, similar = self._distances(w, pairs, self.X[pairs[:, 0]] - self.X[pairs[:, 1]])
        return np.asarray(self.loss.value(q, np.where(similar, 1.0, -1.0)).numpy())
