"""Balanced TEM: a base measure on which the normaliser is constant, so that the whole budget goes to the exponent.

Source: mechanisms.md 3.3. If nu solves ``sum_y exp(-epsilon d(w, y)) nu(y) = 1`` for every w and is not negative, then
``nu(y) exp(-epsilon d(w, y))`` is a law of full rate epsilon. The system is solved by conjugate gradients on blocked
products; negative weights are clipped, and the rate is lowered until the constant over all pairs keeps the promise. Like all
that decides between laws, products and solution are the same on every processor. The law that comes out is TEM's, with
another measure: sampler, certificate and statement are those of TEM.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.arithmetic import fixed_sum
from textpriv.index.index import Index
from textpriv.mechanisms.base_measure import BaseMeasure, numbers
from textpriv.mechanisms.calibration.pair_sweep import sharing
from textpriv.mechanisms.calibration.privacy_constant import estimated_rate, largest_rate
from textpriv.mechanisms.sums import exponential_sums
from textpriv.mechanisms.tem import LARGEST_EXPONENT, TEM
from textpriv.statement import PrivacyStatement

__all__ = ["BalancedTEM", "balance", "configure", "mean_distance"]

_STEPS = 100  # products that the solution may take: each is a pass over all pairs
# Beyond so many words passes are made in single precision, which takes half the time, and they are fewer. The residual of
# the solution, next to the right side, is then larger; what remains of it lowers the rate, which is certified in double
# precision. Where many steps are wanted, many weights are negative, and clipping them costs far more.
_SMALL = 8192
_RESIDUAL, _COARSE_RESIDUAL = 1e-8, 1e-6
_FEW_STEPS = 16
_CLIP = 1e-12  # of the largest weight: negative and smaller ones are raised to it


def balance(index: Index, epsilon: float, gamma: float = math.inf) -> NDArray[np.float64] | None:
    """Solve ``sum_y exp(-epsilon min(d(w, y), gamma)) nu(y) = 1`` over all words w.

    Parameters
    ----------
    index : Index
    epsilon : float
    gamma : float

    Returns
    -------
    ndarray, shape (V,), or None
        Not normalised; weights below 1e-12 of the largest are raised to it. None if there is no usable solution, as in
        a metric whose kernel is not positive definite.
    """
    # Conjugate gradients from 0. The diagonal is 1, so that nothing is gained by preconditioning with it.
    solution = np.zeros(len(index))
    residual = np.ones(len(index))
    direction = residual.copy()
    length = fixed_sum(residual * residual)
    enough = (_RESIDUAL if len(index) <= _SMALL else _COARSE_RESIDUAL) ** 2 * length
    for _ in range(_STEPS if len(index) <= _SMALL else _FEW_STEPS):
        product = _product(index, direction, epsilon, gamma)
        curvature = fixed_sum(direction * product)
        if not curvature > 0:
            break
        step = length / curvature
        solution += step * direction
        residual -= step * product
        before, length = length, fixed_sum(residual * residual)
        if length <= enough:
            break
        direction = residual + (length / before) * direction
    largest = float(solution.max(initial=0.0))
    if not (np.isfinite(solution).all() and largest > 0):
        return None
    return np.maximum(solution, _CLIP * largest)


def mean_distance(index: Index, weights: NDArray[np.float64], rate: float, gamma: float) -> float:
    """Mean over all words of the expected distance to the output, for an exponential law with some base measure."""
    total = _product(index, weights, rate, gamma)
    moved = _product(index, weights, rate, gamma, moved=True)
    return fixed_sum(moved / total) / len(index)


def _product(
    index: Index, vector: NDArray[np.float64], rate: float, gamma: float, *, moved: bool = False
) -> NDArray[np.float64]:
    """The matrix ``exp(-rate min(d, gamma))``, with the distance as a factor besides if it is to be, times a vector."""
    precision = np.float64 if len(index) <= _SMALL else np.float32
    found = exponential_sums(index, vector[None], [rate], [gamma], precision=precision, moved=moved)
    return found[0, 0]


class BalancedTEM(TEM):
    """TEM with the measure that makes its normaliser constant, or calibrated TEM where that moves words less.

    Parameters
    ----------
    index : Index
        With exact lists, in a metric of this library.
    epsilon : float
        Constant of the guarantee ``P_w(y) <= exp(epsilon d(w, w')) P_w'(y)``.
    prior : {"uniform", "zipf", "counts"}, array, mapping or path
        Public base measure of the calibrated law that the balanced one is compared with.
    gamma : float, optional
        Truncation of the distance. Default: none (30 / t).

    Attributes
    ----------
    kept : {"balanced", "calibrated"}
        The law in use: the one with the smaller mean expected distance from a word to its output, over the vocabulary.
    evidence : dict
        For each of the two its rate ``t``, that of the law not in use an estimate, and its ``mean_distance``.

    Raises
    ------
    MechanismError
        For parameters without meaning, approximate lists, and a metric of the user's own.
    """

    name = "BalancedTEM"

    def __init__(
        self,
        index: Index,
        epsilon: float,
        prior: str | PathLike[str] | Mapping[str, float] | NDArray[Any] = "uniform",
        gamma: float | None = None,
    ) -> None:
        self._asked = gamma
        self.kept = "calibrated"
        self.evidence: dict[str, dict[str, float]] = {}
        super().__init__(
            index, epsilon, prior, math.inf if gamma is None else gamma, rate="calibrated"
        )

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this mechanism on the same index."""
        return {"epsilon": self.epsilon, "prior": self.prior, "gamma": self._asked}

    def __repr__(self) -> str:
        return f"BalancedTEM(epsilon={self.epsilon:g}, kept={self.kept!r}, gamma={self.gamma:.4g}, t={self.t:.4g})"

    def _find_rate(self, gamma: float) -> float:
        """Choose between the two laws: as recorded for exactly these settings, or computed now."""
        self._refuse_unproved()
        binding = {"kind": "balance", **self.binding()}
        record = self.index.find_record(binding)
        if record is None or not self._usable(record, gamma):
            record = sharing(lambda: self._compare(gamma))
            self.index.keep_record(binding, record)
        self.kept = str(record["kept"])
        self.evidence = {law: dict(found) for law, found in record["evidence"].items()}
        if self.kept == "balanced":
            self.measure = BaseMeasure(np.array(record["weights"]))
        self.rho_bound = float(record["rho_with_rounding"])
        return float(self.evidence[self.kept]["t"])

    def _usable(self, record: Mapping[str, Any], gamma: float) -> bool:
        """Whether a record is whole and keeps the promise; one that does not is computed anew."""
        kept, evidence = record.get("kept"), record.get("evidence")
        if kept not in ("balanced", "calibrated") or not isinstance(evidence, dict):
            return False
        settled = isinstance(evidence.get(kept), dict) and self._keeps_promise(
            evidence[kept].get("t"), record.get("rho_with_rounding")
        )
        weights = numbers(record.get("weights"), len(self.index))
        if kept == "calibrated":
            weights = self.measure.weights
        elif weights is None or not (weights > 0).all():
            return False
        else:
            weights = BaseMeasure(weights).weights
        return settled and self._confirmed(
            record.get("pair"), record["rho_with_rounding"], evidence[kept]["t"], gamma, weights
        )

    def _compare(self, gamma: float) -> dict[str, Any]:
        index, epsilon = self.index, self.epsilon
        weights = balance(index, epsilon, min(gamma, LARGEST_EXPONENT / epsilon))
        laws = {"calibrated": self.measure}
        if weights is not None:
            laws["balanced"] = BaseMeasure(weights)
        evidence, binding = {}, {}
        for law, measure in laws.items():
            t, binding[law] = estimated_rate(
                index, measure.weights, epsilon, gamma, LARGEST_EXPONENT
            )
            truncated = min(gamma, LARGEST_EXPONENT / t)
            moved = mean_distance(index, measure.weights, t, truncated)
            evidence[law] = {"t": t, "mean_distance": moved}
        kept = min(evidence, key=lambda law: evidence[law]["mean_distance"])
        # Only the law in use is certified, in double precision.
        evidence[kept]["t"], constant = largest_rate(
            index, laws[kept].weights, epsilon, gamma, LARGEST_EXPONENT, pairs=binding[kept]
        )
        return {
            "kept": kept,
            "evidence": evidence,
            "rho_with_rounding": constant.value,
            "pair": list(constant.pair),
            "weights": weights.tolist() if weights is not None and kept == "balanced" else None,
        }

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""
        prior = self.prior if isinstance(self.prior, str) else "given"
        measure = "balanced measure" if self.kept == "balanced" else f"calibrated, prior {prior}"
        return replace(
            super().statement,
            mechanism=(
                f"BalancedTEM (epsilon {self.epsilon:g}, {measure}, gamma {self.gamma:.4g}, rate t {self.t:.4g})"
            ),
        )


def configure(
    epsilon: float, prior: str = "uniform", gamma: float | None = None
) -> Callable[[Index], BalancedTEM]:
    """Registered as ``textpriv.BalancedTEM.v1``: settings of one that is made when its index is known."""
    return partial(BalancedTEM, epsilon=epsilon, prior=prior, gamma=gamma)
