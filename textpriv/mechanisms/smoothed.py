"""Smoothed TEM: a rate above the calibrated one, paid for by a little background where normalisers change too fast.

Source: mechanisms.md 3.3. The law is ``P_w(y) = nu(y) (exp(-t min(d(w, y), gamma)) + kappa_w) / (Z_t(w) + kappa_w)``, with
the least kappa for which ``ln kappa`` is t-Lipschitz and ``ln(Z_t + kappa)`` is (epsilon - t)-Lipschitz: a fixed point of
two max-plus majorants. A draw is one coin: a draw from nu, or a draw of TEM at rate t. Here stand the fixed point, the
exact constant of the law over all pairs, and the mechanism; distances are swept in ``constant``, and drawn by in ``tem``.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import expm1s, exps, log1ps, logs
from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.mechanisms.base import UNKNOWN, checksum
from textpriv.mechanisms.base_measure import bernoulli, numbers
from textpriv.mechanisms.calibration.pair_sweep import Progress, sharing, sweep
from textpriv.mechanisms.calibration.privacy_constant import (
    LOGARITHMS,
    Constant,
    inputs,
    log_normalisers,
    rounding_charged,
)
from textpriv.mechanisms.tem import LARGEST_EXPONENT, TEM
from textpriv.metrics import Metric
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement

__all__ = ["Background", "SmoothedTEM", "background", "configure", "smoothed_constant"]

_ROUNDS = 60
# Beyond so many words the rounds are made in single precision, which takes half the time, until they settle; the constant
# is computed in double precision, and so are any rounds after it.
_SMALL = 8192
# The fixed point is sought inside a slightly smaller budget, so that it is met after finitely many rounds.
_INSIDE = 1 - 1e-3
_PROMISE = 1 - 1e-6
_LISTS = 8192  # lists looked at in one go
# Nats by which a round may still raise a normaliser when the constant is first looked at.
_SETTLED = 1e-4


@dataclass(frozen=True)
class Background:
    """The background of every word that has a law of its own, and what it was found to guarantee.

    Attributes
    ----------
    kappa : ndarray, shape (V,)
        All 0 where the rate needs no background; else all above 0.
    log_z : ndarray, shape (V,)
        ``ln Z_t`` of every word.
    rho : float
        The constant over all pairs with the rounding of distances charged.
    pair : tuple of int
        The ordered pair of words that attains it.
    slope_of_background, slope_of_normaliser : float
        The steepest slopes of ``ln kappa`` and of ``ln(Z_t + kappa)`` between any two words.
    rounds : int
    """

    kappa: NDArray[np.float64]
    log_z: NDArray[np.float64]
    rho: float
    pair: tuple[int, int]
    slope_of_background: float
    slope_of_normaliser: float
    rounds: int


def background(
    index: Index, weights: NDArray[np.float64], epsilon: float, t: float, gamma: float
) -> Background:
    """Find the least background that keeps the promise at a rate.

    Parameters
    ----------
    index : Index
    weights : ndarray, shape (V,)
        The base measure, summing to 1.
    epsilon, t, gamma : float
        With ``t < epsilon``.

    Raises
    ------
    MechanismError
        If the fixed point is not reached in 60 rounds, as with rates next to epsilon.

    Notes
    -----
    Both majorants are monotone and constants are fixed by both, so the iteration converges from below. It starts at what
    pairs of listed neighbours need by themselves, since words beside each other raise each other by little in a round and
    would take thousands. It ends when the
    exact constant over all pairs is at most ``epsilon (1 - 1e-6)``, rounding charged. All of it is the same on every
    processor but the last digits of that constant, 1e-12 of it, which would have to decide between two rounds.
    """
    words = inputs(index)
    coordinates = index.coordinates if len(words) == len(index) else index.coordinates[words]
    (all_log_z,) = log_normalisers(index, weights, [t], [gamma], portable=True)
    log_z = all_log_z[words]
    slope = (epsilon - t) * _INSIDE
    precision: type = np.float64 if len(words) <= _SMALL else np.float32
    kappa = _initial_background(index, words, log_z, t, gamma, slope)
    if kappa.any():
        kappa = exps(_majorant(coordinates, index.metric, logs(kappa), t, gamma, precision))
    for rounds in range(_ROUNDS):
        log_kappa = logs(kappa)
        higher = np.maximum(log_z, log_kappa)
        total = higher + log1ps(exps(np.minimum(log_z, log_kappa) - higher))
        wanted = _majorant(coordinates, index.metric, total, slope, math.inf, precision)
        if (wanted - total).max() <= _SETTLED:
            found, slopes = smoothed_constant(index, kappa, log_z, t, gamma)
            constant = rounding_charged(index, found)
            if constant.value <= epsilon * _PROMISE:
                whole = np.zeros(len(index))
                whole[words] = kappa
                return Background(
                    whole[index.representatives],
                    all_log_z,
                    constant.value,
                    constant.pair,
                    *slopes,
                    rounds,
                )
            precision = np.float64
        kappa = np.maximum(kappa, exps(log_z) * expm1s(wanted - log_z))
        log_kappa = logs(kappa)
        # Along the truncated distance, which is a metric too: the background then also keeps the cap on far pairs.
        kappa = exps(_majorant(coordinates, index.metric, log_kappa, t, gamma, precision))
    raise MechanismError(
        f"the background of rate {t:g} at epsilon {epsilon:g} did not settle in {_ROUNDS} rounds. Use a smaller share."
    )


def _initial_background(
    index: Index,
    words: NDArray[np.int64],
    log_z: NDArray[np.float64],
    t: float,
    gamma: float,
    slope: float,
) -> NDArray[np.float64]:
    """A background (m,) below the fixed point: what each pair of listed neighbours needs, with no other word about.

    With Z and d of the pair, ``Z_w + kappa_w <= exp(slope d) (Z_w' + kappa_w')`` and ``kappa_w >= exp(-t min(d, gamma))
    kappa_w'`` give ``kappa_w' >= Z_w' (exp(ln Z_w - ln Z_w' - slope d) - 1) / (1 - exp(-t min(d, gamma) - slope d))``.
    """
    row_of = np.full(len(index), -1, dtype=np.int64)
    row_of[words] = np.arange(len(words))
    kappa = np.zeros(len(words))
    for begin in range(0, len(words), _LISTS):
        some = words[begin : begin + _LISTS]
        listed = row_of[index.neighbours.ids[some]]
        distances = index.neighbours.distances[some].astype(np.float64)
        own = np.broadcast_to(row_of[some][:, None], listed.shape)
        pairs = (listed >= 0) & (distances > 0)
        own, listed, distances = own[pairs], listed[pairs], distances[pairs]
        alone = -expm1s(-t * np.minimum(distances, gamma) - slope * distances)
        for low, high in ((own, listed), (listed, own)):
            gap = log_z[high] - log_z[low] - slope * distances - LOGARITHMS[np.float64]
            np.maximum.at(kappa, low, exps(log_z[low]) * expm1s(np.maximum(gap, 0.0)) / alone)
    return kappa


def _majorant(
    coordinates: NDArray[Any],
    metric: Metric,
    values: NDArray[np.float64],
    slope: float,
    gamma: float,
    precision: type = np.float64,
) -> NDArray[np.float64]:
    """The least function above some values that changes by at most ``slope min(d, gamma)`` between any two rows."""
    if not np.isfinite(values).any():
        return values
    tops: list[NDArray[np.float64]] = []
    given: NDArray[Any] = values.astype(precision, copy=False)
    local = threading.local()

    def visit(rows: slice, columns: slice, distances: NDArray[Any]) -> None:
        if not hasattr(local, "top"):
            local.top = values.copy()
            tops.append(local.top)
        np.minimum(distances, gamma, out=distances)
        distances *= -slope
        reached = distances + given[None, columns]
        np.maximum(local.top[rows], reached.max(axis=1), out=local.top[rows])
        distances += given[rows, None]
        np.maximum(local.top[columns], distances.max(axis=0), out=local.top[columns])

    sweep(coordinates, metric, visit, precision=precision, portable=True)
    return np.max(tops, axis=0)


def smoothed_constant(
    index: Index,
    kappa: NDArray[np.float64],
    log_z: NDArray[np.float64],
    t: float,
    gamma: float,
    progress: Progress | None = None,
) -> tuple[Constant, tuple[float, float]]:
    """The constant of a smoothed law over all ordered pairs.

    Parameters
    ----------
    index : Index
    kappa, log_z : ndarrays, shape (m,)
        Of the m words that have a law of their own, in the order of
        :func:`textpriv.mechanisms.calibration.privacy_constant.inputs`.
    t, gamma : float

    Returns
    -------
    constant : Constant
    slopes : tuple of float
        The steepest slopes of ``ln kappa`` and ``ln(Z + kappa)``.

    Notes
    -----
    With x and x' the exponentials of an output for w and w', ``x' >= x exp(-t min(d(w, w'), gamma))``, so the log-ratio of
    brackets is at most that of ``(x + kappa_w) / (x exp(-t min(d, gamma)) + kappa_w')``. This is monotone in x, so its
    largest value in [0, 1] stands at 1, where the output w attains it, or at 0. Where ``ln kappa`` is t-Lipschitz along the
    truncated distance it stands at 1: the constant is exact. Otherwise it is an upper bound.
    """
    words = inputs(index)
    coordinates = index.coordinates if len(words) == len(index) else index.coordinates[words]
    smooth = bool((kappa > 0).all())
    log_kappa = np.log(kappa) if smooth else np.zeros(len(words))
    own = np.log1p(kappa)
    total = np.log(np.exp(log_z) + kappa)
    best = (0.0, 0, 0)
    allowance = LOGARITHMS[np.float64]
    steepest = [0.0, 0.0]
    guard = threading.Lock()

    def visit(rows: slice, columns: slice, distances: NDArray[np.float64]) -> None:
        nonlocal best
        if columns.start < rows.stop:
            same = np.arange(rows.start, min(rows.stop, columns.stop))
            same = same[same >= columns.start]
            distances[same - rows.start, same - columns.start] = np.inf
        lean = log_kappa[rows, None] - log_kappa[None, columns]
        fall = total[None, columns] - total[rows, None]
        np.maximum(distances, np.finfo(np.float64).tiny, out=distances)
        changes = (np.maximum(np.abs(change) - allowance, 0.0) for change in (lean, fall))
        slopes = [float((change / distances).max()) for change in changes]
        with guard:
            steepest[:] = np.maximum(steepest, slopes).tolist()
        reach = np.exp(-t * np.minimum(distances, gamma))
        for sign, ahead, behind in (
            (1.0, own[rows, None], kappa[None, columns]),
            (-1.0, own[None, columns], kappa[rows, None]),
        ):
            ratio = ahead - np.log(reach + behind)
            if smooth:
                np.maximum(ratio, sign * lean, out=ratio)
            ratio += sign * fall
            ratio -= allowance
            ratio /= distances
            where = int(ratio.argmax())
            value = float(ratio.reshape(-1)[where])
            i, j = divmod(where, ratio.shape[1])
            pair = (rows.start + i, columns.start + j)
            with guard:
                if value > best[0]:
                    best = (value, *(pair if sign > 0 else pair[::-1]))

    sweep(coordinates, index.metric, visit, progress)
    value, i, j = best
    return Constant(value, (int(words[i]), int(words[j]))), (steepest[0], steepest[1])


class SmoothedTEM(TEM):
    """TEM at a rate above the calibrated one, with a background for every word.

    Parameters
    ----------
    index : Index
        With exact lists, in a metric of this library.
    epsilon : float
        Constant of the guarantee ``P_w(y) <= exp(epsilon d(w, w')) P_w'(y)``.
    share : float
        The rate as a share of epsilon, from 0.5 to below 1. Where calibrated TEM reaches this rate, the background is 0.
    prior : {"zipf", "uniform", "counts"}, array, mapping or path
        Public base measure, as for :class:`TEM`.
    gamma : float, optional
        Truncation of the distance. Default: none (30 / t).

    Attributes
    ----------
    t : float
        The rate, ``share * epsilon``.
    background : Background
        Found once and recorded with the index.

    Raises
    ------
    MechanismError
        For parameters without meaning, approximate lists, a metric of the user's own, and a share whose background does
        not settle.
    """

    name = "SmoothedTEM"

    def __init__(
        self,
        index: Index,
        epsilon: float,
        share: float = 0.6,
        prior: str | PathLike[str] | Mapping[str, float] | NDArray[Any] = "zipf",
        gamma: float | None = None,
    ) -> None:
        number = isinstance(share, int | float | np.integer | np.floating)
        if isinstance(share, bool) or not number or not 0.5 <= share < 1:
            raise MechanismError(
                f"share is the part of epsilon that the rate takes, from 0.5 to below 1; got {share!r}."
            )
        self.share = float(share)
        self._asked = gamma
        super().__init__(
            index, epsilon, prior, math.inf if gamma is None else gamma, rate="calibrated"
        )
        kappa, log_z = self.background.kappa, self.background.log_z
        # The probability of a draw from the measure.
        self._coin = kappa / (exps(log_z) + kappa)

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this mechanism on the same index."""
        return {
            "epsilon": self.epsilon,
            "share": self.share,
            "prior": self.prior,
            "gamma": self._asked,
        }

    def drawn_from(self) -> dict[str, Any]:
        """What the sampler reads besides: that of TEM, and the chance of a draw from the measure for each word."""
        return {**super().drawn_from(), "background": checksum(self._coin)}

    def __repr__(self) -> str:
        prior = self.prior if isinstance(self.prior, str) else f"<{type(self.prior).__name__}>"
        return (
            f"SmoothedTEM(epsilon={self.epsilon:g}, share={self.share:g}, prior={prior!r}, gamma={self.gamma:.4g}, "
            f"t={self.t:.4g})"
        )

    def _find_rate(self, gamma: float) -> float:
        """Find the background: recorded for exactly these settings, or computed now."""
        self._refuse_unproved()
        index, t = self.index, self.share * self.epsilon
        binding = {"kind": "background", **self.binding()}
        record = index.find_record(binding)
        if record is None or not self._usable(record):
            truncated = min(gamma, LARGEST_EXPONENT / t)
            found = sharing(
                lambda: background(index, self.measure.weights, self.epsilon, t, truncated)
            )
            record = {
                "rho_with_rounding": found.rho,
                "pair": list(found.pair),
                "slope_of_background": found.slope_of_background,
                "slope_of_normaliser": found.slope_of_normaliser,
                "rounds": found.rounds,
                "kappa": found.kappa.tolist(),
                "log_z": found.log_z.tolist(),
            }
            index.keep_record(binding, record)
        self.rho_bound = float(record["rho_with_rounding"])
        self.background = Background(
            np.array(record["kappa"]),
            np.array(record["log_z"]),
            self.rho_bound,
            (int(record["pair"][0]), int(record["pair"][1])),
            float(record["slope_of_background"]),
            float(record["slope_of_normaliser"]),
            int(record["rounds"]),
        )
        return t

    def _usable(self, record: Mapping[str, Any]) -> bool:
        """Whether a record is whole and keeps the promise; one that does not is computed anew."""
        figures = [
            record.get(name) for name in ("slope_of_background", "slope_of_normaliser", "rounds")
        ]
        kappa = numbers(record.get("kappa"), len(self.index))
        return (
            all(isinstance(figure, int | float) and math.isfinite(figure) for figure in figures)
            and self._keeps_promise(self.share * self.epsilon, record.get("rho_with_rounding"))
            and numbers(record.get("log_z"), len(self.index)) is not None
            and kappa is not None
            and bool((kappa >= 0).all())
            and self._confirmed(
                record.get("pair"),
                record["rho_with_rounding"],
                self.share * self.epsilon,
                math.inf if self._asked is None else self._asked,
                self.measure.weights,
                kappa,
            )
        )

    # The law

    @property
    def background_share(self) -> float:
        """Probability that a word drawn from the base measure is released as a draw from it."""
        return float(self.measure.weights @ self._coin)

    def exponential_law(self) -> None:  # type: ignore[override]
        """None: with its background the law is no exponential one."""
        return None

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Natural logarithm of the output law of a word (or of ``UNKNOWN``), shape (V,)."""
        number = self.resolve(word)
        prior = np.log(self.measure.weights)
        if number == UNKNOWN:
            return prior
        bracket = -self.t * np.minimum(self.distances(number), self.gamma)
        kappa = self.background.kappa[number]
        if kappa > 0:
            bracket = np.logaddexp(bracket, math.log(kappa))
        score = prior + bracket
        peak = score.max()
        return score - (peak + math.log(np.exp(score - peak).sum()))

    def closed_constant(self, progress: Progress | None = None) -> Constant:
        """The constant over all pairs; see :func:`smoothed_constant`."""
        words = inputs(self.index)
        found, _ = smoothed_constant(
            self.index,
            self.background.kappa[words],
            self.background.log_z[words],
            self.t,
            self.gamma,
            progress,
        )
        return found

    # Draws

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`.

        A document's stream begins with two words for the coin of each of its tokens; the draws follow.
        """
        coins = np.empty((len(ids), 2), dtype=np.uint64)
        for document, stream in enumerate(streams):
            stream.fill(coins[offsets[document] : offsets[document + 1]].reshape(-1))
        # An unknown word is drawn from the measure; so is a token whose coin came up.
        drawn = _toss(self._coin, ids, coins)
        return super().sample_documents(drawn, offsets, streams)

    # The guarantee

    @property
    def _largest_range(self) -> float:
        return 2 * self.t * self.index.diameter_bound  # backgrounds are not truncated

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""
        prior = self.prior if isinstance(self.prior, str) else "given"
        stated = super().statement
        return replace(
            stated,
            mechanism=(
                f"SmoothedTEM (epsilon {self.epsilon:g}, prior {prior}, gamma {self.gamma:.4g}, rate t {self.t:.4g}, "
                f"background {self.background_share:.4g})"
            ),
            figures={**stated.figures, "background_share": self.background_share},
        )


def configure(
    epsilon: float, share: float = 0.6, prior: str = "zipf", gamma: float | None = None
) -> Callable[[Index], SmoothedTEM]:
    """Registered as ``textpriv.SmoothedTEM.v1``: settings of one that is made when its index is known."""
    return partial(SmoothedTEM, epsilon=epsilon, share=share, prior=prior, gamma=gamma)


@njit(cache=True, nogil=True)
def _toss(
    coin: NDArray[np.float64], ids: NDArray[np.int32], random: NDArray[np.uint64]
) -> NDArray[np.int32]:
    """The ids, with -1 for every token whose coin came up."""
    out = ids.copy()
    for token in range(ids.shape[0]):
        if ids[token] >= 0 and bernoulli(coin[ids[token]], random[token, 0], random[token, 1]):
            out[token] = -1
    return out
