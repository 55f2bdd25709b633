"""Private selection: the best of many settings at one price, and a scorer for scikit-learn whose scores are charged.

**The theorem.** Let a trial (a setting drawn at random, a private fit, a private score) have Rényi divergences ε(λ) between
neighbours, whatever is drawn. Repeat it K times, K drawn from a truncated negative binomial law of shape η and parameter γ
and kept secret, and release the trial with the highest score. Then, for every λ > 1 and λ' >= 1, that release has

    ε'(λ) <= ε(λ) + (1 + η)(1 − 1/λ') ε(λ') + (1 + η) ln(1/γ)/λ' + ln E[K]/(λ − 1)

(Papernot and Steinke 2022, theorem 2). The number of settings does not enter. A *fixed* K has no such bound: the best of K
trials of ε-DP can cost Kε.

**What it takes for granted.** The settings, E[K] and η are fixed without looking at the records; the setting of each trial
is drawn independently of all others; of the trials that were not chosen nothing is seen, not even how many there were or how
long they took.
"""

from __future__ import annotations

import decimal
import itertools
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from dp_accounting import LowerEndpointAndGuess, calibrate_dp_mechanism
from dp_accounting.rdp import RdpAccountant
from numpy.typing import ArrayLike

from pairwise.accounting.accountant import ORDERS, zcdp_cost
from pairwise.accounting.budget import charge_to
from pairwise.accounting.events import Adjacency, dp_event, refuse_other_terms
from pairwise.accounting.parameters import check_privacy_parameters
from pairwise.errors import BudgetClosedError, BudgetExceededError, InvalidParameterError
from pairwise.estimators.scores import private_accuracy_score, private_auc_score
from pairwise.noise.randomness import Randomness
from pairwise.statement import DataSetStatement
from textpriv.statement import epsilon_of_zcdp

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from pairwise.accounting.budget import PrivacyBudget

# Metrics of scores, and the method of a learner that each is computed from.
READ_BY = {"auc": "decision_function", "accuracy": "predict"}
_RELATION, _UNIT = Adjacency.REPLACE_ONE, "one record"
# Held while a trial's account is read and written: threads of a trial share it.
_CHARGING = threading.Lock()
# Uniform bits of one draw, and decimal digits of its distribution function, which the bits resolve with room to spare.
_WORDS, _DIGITS = 3, 80
# E[K], and the γ of the logarithmic law (η = 0), rounded up: the mean of what is drawn is at most E[K].
MEAN_TRIALS, _GAMMA = 10.0, 0.026918259600707165


def chances() -> Iterator[decimal.Decimal]:
    """Yield P[K = 1], P[K = 2], ... of the logarithmic law without end, in the decimal context of the caller."""
    gamma = decimal.Decimal(_GAMMA)
    chance = (1 - gamma) / -gamma.ln()
    for k in itertools.count(1):
        yield chance
        chance = chance * (1 - gamma) * k / (k + 1)


def number_of_trials(randomness: Randomness) -> int:
    """Return K, by a uniform of 192 bits against the distribution function in 80 digits."""
    with decimal.localcontext() as context:
        context.prec = _DIGITS
        uniform = decimal.Decimal(0)
        for word in randomness.words(_WORDS):
            uniform = uniform * 2**64 + int(word)
        uniform = (uniform + decimal.Decimal("0.5")) / 2 ** (64 * _WORDS)
        total = decimal.Decimal(0)
        for k, chance in enumerate(chances(), 1):
            total += chance
            # Beyond 2^-192 of the law there is nothing left that the uniform could tell apart.
            if uniform < total or (k >= MEAN_TRIALS and chance < decimal.Decimal(2) ** -256):
                return k
    raise AssertionError("unreachable: the law sums to 1")


def search_event(rho: float) -> DpEvent:
    """Return the event of a selection among trials that are ρ-zCDP each, as dp-accounting reads it."""
    return dp_event.RepeatAndSelectDpEvent(dp_event.ZCDpEvent(float(rho)), MEAN_TRIALS, 0.0)


class TrialAccount:
    """Budget of one trial, charged by its fits and scores.

    Parameters
    ----------
    limit : float
        ρ of zCDP.

    Notes
    -----
    ``part`` opens an account of the same limit for a part of the records. Parts are disjoint sets of *rows*, fixed in
    public, so whoever changes is in one of them and each may spend the whole limit.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._spent = 0.0
        self._closed = False
        self._process = os.getpid()
        self._parts: dict[str, TrialAccount] = {}

    @property
    def rho(self) -> float:
        """ρ of zCDP that the trial may cost."""
        return self._limit

    def epsilon(self, delta: float = 1e-6, share: float = 1.0) -> float:
        """Return the epsilon, at ``delta``, of a fit or score that takes a share of this account."""
        if not 0 < share <= 1:
            raise InvalidParameterError(f"share must be in (0, 1]; found {share!r}.")
        return epsilon_of_zcdp(share * self._limit * (1 - 1e-9), delta)

    def part(self, name: str) -> TrialAccount:
        """Return the account of a part of the records, the same one for the same name."""
        with _CHARGING:
            if self._spent:
                raise InvalidParameterError(
                    "a trial that has charged all records cannot be divided into parts. Charge every release to a part."
                )
            if name not in self._parts:
                self._parts[name] = TrialAccount(self._limit)
            return self._parts[name]

    def charge(
        self,
        event: DpEvent,
        label: str = "",
        *,
        adjacency: Adjacency | str | None = None,
        unit: str | None = None,
    ) -> None:
        """Enter a release, or refuse it, as ``PrivacyBudget.charge`` does.

        Raises
        ------
        BudgetExceededError
            If the trial would cost more than the search was priced for.
        BudgetClosedError
            If the trial has ended, and in other processes.
        UnsupportedEventError
            If the release has no zCDP bound; samples have none.
        InvalidParameterError
            For another adjacency or unit, or after ``part``.
        """
        if self._closed or self._process != os.getpid():  # a forked process has a copy as well
            raise BudgetClosedError(
                "the trial has ended, or this is a copy of its account elsewhere; nothing was drawn."
            )
        refuse_other_terms("a search", (_RELATION, _UNIT), adjacency, unit)
        cost = zcdp_cost(event)
        with _CHARGING:
            if self._parts:
                raise InvalidParameterError(
                    "this trial is divided into parts. Charge every release to one of them."
                )
            if not self._spent + cost <= self._limit:
                raise BudgetExceededError(
                    f"the release {label or type(event).__name__!r} was refused: with it the trial would cost "
                    f"{self._spent + cost:.6g} of rho {self._limit:.6g}. Nothing was drawn. "
                    "Take epsilon from account.epsilon(delta, share)."
                )
            self._spent += cost

    def close(self) -> None:
        """Refuse all further charges, to the parts as well."""
        self._closed = True
        for part in self._parts.values():
            part.close()

    def __getstate__(self) -> dict[str, Any]:
        # What is charged in another process would not be seen here.
        return {**self.__dict__, "_closed": True, "_parts": {}}

    # A clone of an estimator charges the same account.
    def __copy__(self) -> TrialAccount:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TrialAccount:
        return self


@dataclass(frozen=True)
class Selection:
    """Released result of a search: one trial, and its guarantee.

    Attributes
    ----------
    candidate : object
        The setting of the best trial.
    result : object
        What its trial returned, such as the fitted model.
    score : float
        Its private score. It is the highest of many noisy ones, so it flatters: score again for a number to report.
    statement : DataSetStatement
    event : DpEvent
    """

    candidate: Any
    result: Any
    score: float
    statement: DataSetStatement
    event: DpEvent = field(repr=False)


def trial_price(epsilon: float, delta: float) -> tuple[float, DpEvent]:
    """Return the ρ that one trial may cost, and the event of the whole search."""
    check_privacy_parameters(epsilon, delta)
    if math.isinf(epsilon):
        raise InvalidParameterError(
            "a search has a price; found epsilon = inf. Use scikit-learn's searches."
        )
    # In the logarithm, so that one tolerance serves small and large noise.
    log_noise = calibrate_dp_mechanism(
        lambda: RdpAccountant(list(ORDERS)),
        lambda log_noise: search_event(0.5 * math.exp(-2.0 * log_noise)),
        epsilon,
        delta,
        LowerEndpointAndGuess(-14.0, 2.0),
    )
    limit = 0.5 * math.exp(-2.0 * log_noise)
    return limit, search_event(limit)


def private_selection(
    trial: Callable[[Any, TrialAccount], tuple[float, Any]],
    candidates: Sequence[Any],
    *,
    epsilon: float,
    delta: float = 1e-5,
    budget: PrivacyBudget | None = None,
    random_state: Any = None,
) -> Selection:
    """Release the best of a random number of trials, 10 on average, each of a setting drawn at random, for (ε, δ) in all.

    Parameters
    ----------
    trial : callable
        Takes a candidate and a ``TrialAccount``, charges all that it reads from private records to the account before
        drawing, and returns a score (larger is better) and a result, both of which are released if it wins.
    candidates : sequence
        Settings, public; any number of them at the same price.
    epsilon, delta : float
        What the whole search may cost.
    budget : PrivacyBudget, optional
        Charged for the whole search before the first trial.
    random_state : int, RandomState or None, default=None
        Draws the number of trials and their settings. None draws from the operating system, the only private setting.

    Raises
    ------
    InvalidParameterError
        For settings out of range, and for no candidates.
    BudgetExceededError
        If the search does not fit the budget, before anything is drawn, or if a trial charges more than its part.

    References
    ----------
    Papernot and Steinke 2022, *Hyperparameter Tuning with Rényi Differential Privacy*, theorem 2; Liu and Talwar 2019,
    *Private Selection from Private Candidates*.
    """
    candidates = list(candidates)
    if not candidates:
        raise InvalidParameterError(
            "candidates must be a list of one setting at least; found none."
        )
    limit, event = trial_price(epsilon, delta)
    randomness = Randomness(random_state)
    charge_to(budget, event, label="private_selection", adjacency=_RELATION, unit=_UNIT)
    best: tuple[float, Any, Any] = (-math.inf, None, None)
    for number in range(number_of_trials(randomness)):
        candidate = candidates[int(randomness.integers(len(candidates)))]
        account = TrialAccount(limit)
        score, result = trial(candidate, account)
        account.close()
        score = -math.inf if math.isnan(score) else float(score)
        if number == 0 or score > best[0]:
            best = (score, candidate, result)
    statement = DataSetStatement(
        mechanism=(
            f"the best of a random number of trials (logarithmic, mean {MEAN_TRIALS:g}), each of {limit:.6g}-zCDP"
        ),
        adjacency=_RELATION.value,
        epsilon=float(epsilon),
        delta=float(delta),
        unit=_UNIT,
        proved=randomness.secure,
        proof="Papernot and Steinke 2022, theorem 2",
        assumptions=(
            "every trial charged all that it read from private records to its account, by randomness that stays secret",
            "parts of a trial's account are for disjoint sets of rows, fixed in public",
            "candidates and the law of the number of trials were fixed without looking at the records",
            "of the other trials nothing is seen: not their results, their number, or the time they took",
        ),
        not_protected=("the candidates, and the law of the number of trials",),
        notes=(randomness.note,) if randomness.note else (),
    )
    return Selection(best[1], best[2], best[0], statement, event)


@dataclass
class PrivateScorer:
    """A scorer for ``cross_val_score`` and ``GridSearchCV`` that charges each score to a budget before drawing its noise.

    Choose the parts without reading records or labels: ``cv=KFold(3)``. A number, or None, means ``StratifiedKFold`` for a
    classifier, whose parts depend on private labels, and then no budget covers the fits and scores.

    Parameters
    ----------
    metric : {"auc", "accuracy"}
        ``private_auc_score`` of ``decision_function``, or ``private_accuracy_score`` of ``predict``.
    epsilon : float
        Cost of one score.
    delta : float, optional
        Default min(1e-5, n^-1.5), n the number of records scored.
    budget : PrivacyBudget or TrialAccount, optional
        The same as that of the fits: scores read the same people's labels.
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting: a seed repeats the noise in every score, so that it
        falls out of their differences.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import KFold, cross_val_score
    >>> from pairwise import PrivacyBudget, PrivateAUCClassifier, PrivateScorer
    >>> X, y = np.tile([[0.6, 0.0], [-0.6, 0.1]], (60, 1)), np.tile([1, 0], 60)
    >>> with PrivacyBudget(epsilon=5.0) as budget:
    ...     model = PrivateAUCClassifier(epsilon=1.0, delta=1e-6, classes=[0, 1], budget=budget)
    ...     scorer = PrivateScorer("auc", epsilon=1.0, delta=1e-6, budget=budget)
    ...     scores = cross_val_score(model, X, y, scoring=scorer, cv=KFold(3))
    ...     len(scores), len(budget.charges)
    (3, 6)
    """

    metric: str
    epsilon: float
    delta: float | None = None
    budget: Any = None
    random_state: Any = None

    def __call__(self, estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
        """Return the private score of a fitted classifier on private records."""
        if self.metric not in READ_BY:
            raise InvalidParameterError(
                f"metric must be one of {', '.join(READ_BY)}; found {self.metric!r}."
            )
        common = {
            "classes": estimator.classes_,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "budget": self.budget,
            "random_state": self.random_state,
        }
        if self.metric == "accuracy":
            return private_accuracy_score(y, np.asarray(estimator.predict(X)), **common)
        scores = estimator.decision_function(X)
        return private_auc_score(y, scores, **common)
