"""How well an attack tells members from others: AUC, true positives at few false ones, intervals, and a proof's ceiling.

An attack gives every candidate a score; here the scores of both kinds become figures. How scores are made is the business
of the attacks.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from textpriv.errors import TextprivError

__all__ = ["Attack", "Rate", "auc_ceiling", "binomial_interval", "score_attack", "tpr_ceiling"]

FALSE_POSITIVE_RATES = (0.01, 0.001)


@dataclass(frozen=True)
class Rate:
    """An estimate, its interval, and the most that the guarantee allows.

    Attributes
    ----------
    value, low, high : float
    ceiling : float
        1 where the guarantee does not bound the figure.
    """

    value: float
    low: float
    high: float
    ceiling: float = 1.0

    def to_dict(self) -> dict[str, float]:
        """Return the four numbers."""
        return asdict(self)


@dataclass(frozen=True)
class Attack:
    """What an attack achieves.

    Attributes
    ----------
    name : str
    auc : Rate
        Probability that a positive scores higher than a negative, ties counting half.
    tpr : mapping of float to Rate
        True-positive rate at each false-positive rate.
    success : Rate or None
        Share of exact answers, where the attack gives one.
    positives, negatives : int
    loss : float
        Nats of loss behind the ceilings; infinite where nothing is promised.
    confidence : float
        Of the intervals.
    """

    name: str
    auc: Rate
    tpr: dict[float, Rate]
    positives: int
    negatives: int
    loss: float
    confidence: float
    success: Rate | None = None
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON types; an unbounded loss becomes None."""
        return {
            "attack": self.name,
            "auc": self.auc.to_dict(),
            "tpr": {f"{rate:g}": value.to_dict() for rate, value in self.tpr.items()},
            "success": None if self.success is None else self.success.to_dict(),
            "positives": self.positives,
            "negatives": self.negatives,
            "loss_in_nats": self.loss if math.isfinite(self.loss) else None,
            "confidence": self.confidence,
            "notes": list(self.notes),
        }


def auc_ceiling(loss: float) -> float:
    """The largest AUC of any test between two inputs whose outputs differ by at most ``loss`` nats: 1 / (1 + exp(-loss)).

    Source: the trade-off curve of pure differential privacy (Kairouz, Oh, Viswanath 2015), integrated.
    """
    return 1.0 / (1.0 + math.exp(-loss))


def tpr_ceiling(loss: float, rate: float) -> float:
    """The largest true-positive rate at a false-positive rate: min(exp(loss) a, 1 - exp(-loss) (1 - a))."""
    return min(math.exp(min(loss, 700.0)) * rate, 1.0 - math.exp(-loss) * (1.0 - rate))


def binomial_interval(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval for a share."""
    from scipy.stats import beta

    if trials < 1 or not 0 <= hits <= trials:
        raise TextprivError(f"a share needs 0 <= hits <= trials; got {hits} of {trials}.")
    half = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(half, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.ppf(1 - half, hits + 1, trials - hits))
    return low, high


def score_attack(
    name: str,
    positives: ArrayLike,
    negatives: ArrayLike,
    *,
    loss: float = math.inf,
    confidence: float = 0.95,
    success: Rate | None = None,
    notes: tuple[str, ...] = (),
) -> Attack:
    """Turn scores into figures.

    Parameters
    ----------
    name : str
    positives, negatives : array_like, shapes (p,) and (n,)
        Scores; larger speaks for a positive.
    loss : float
        What the guarantee allows between a positive and a negative, in nats.
    confidence : float
        Of the intervals: normal with DeLong's variance for the AUC, Clopper and Pearson's for a true-positive rate at its
        observed threshold.

    Raises
    ------
    TextprivError
        Without a score on either side, or for a score that is no number.
    """
    yes, no = np.asarray(positives, dtype=np.float64), np.asarray(negatives, dtype=np.float64)
    if yes.ndim != 1 or no.ndim != 1 or not len(yes) or not len(no):
        raise TextprivError(
            f"an attack is scored on positives and negatives, one score each; got shapes {yes.shape} and {no.shape}."
        )
    if np.isnan(yes).any() or np.isnan(no).any():
        raise TextprivError("a score is not a number; give -inf to a candidate that is ruled out.")
    if not 0 < confidence < 1:
        raise TextprivError(
            f"confidence is a probability strictly between 0 and 1; got {confidence}."
        )
    value, error = _auc(yes, no)
    from scipy.stats import norm

    reach = float(norm.ppf((1 + confidence) / 2)) * error
    rates = {}
    for rate in FALSE_POSITIVE_RATES:
        # The lowest threshold that no more than this share of the negatives passes.
        allowed = math.floor(rate * len(no) + 1e-9)
        threshold = np.sort(no)[::-1][allowed] if allowed < len(no) else -np.inf
        hits = int(np.count_nonzero(yes > threshold))
        low, high = binomial_interval(hits, len(yes), confidence)
        rates[rate] = Rate(hits / len(yes), low, high, tpr_ceiling(loss, rate))
    return Attack(
        name=name,
        auc=Rate(value, max(0.0, value - reach), min(1.0, value + reach), auc_ceiling(loss)),
        tpr=rates,
        positives=len(yes),
        negatives=len(no),
        loss=loss,
        confidence=confidence,
        success=success,
        notes=notes,
    )


def _auc(yes: NDArray[np.float64], no: NDArray[np.float64]) -> tuple[float, float]:
    """The AUC and its standard error (DeLong, DeLong, Clarke-Pearson 1988), by ranks."""
    wins = _below(np.sort(no), yes) / len(no)
    losses = 1.0 - _below(np.sort(yes), no) / len(yes)
    spread = (wins.var(ddof=1) / len(yes) if len(yes) > 1 else 0.0) + (
        losses.var(ddof=1) / len(no) if len(no) > 1 else 0.0
    )
    return float(wins.mean()), math.sqrt(spread)


def _below(line: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many entries of a sorted line lie below each value, equal ones counting half."""
    return (np.searchsorted(line, values, "left") + np.searchsorted(line, values, "right")) / 2.0
