"""``PrivateAUCClassifier`` and private evaluation of rankings.

Here live the choice of algorithm, its plan in terms of one table, the private threshold and the scores on
private labels. The algorithms themselves live in ``gradient``, ``giga``, ``sgd`` and ``statistics``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from pairwise import giga, sgd
from pairwise.accounting import (
    check_privacy_parameters,
    compose,
    gaussian_event,
    gaussian_mu,
)
from pairwise.domains import L2Ball
from pairwise.errors import InvalidParameter
from pairwise.estimator import Plan, PrivateEstimator
from pairwise.gradient import (
    AUCPairs,
    clip_records,
    default_radius,
    noisy_descent,
    plan_gradient,
)
from pairwise.losses import get_loss
from pairwise.noise import Randomness, gaussian
from pairwise.statistics import auc_direction, plan_moments, release_moments

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from sklearn.utils import Tags

__all__ = ["PrivateAUCClassifier", "private_accuracy_score", "private_auc_score"]

Array = NDArray[np.float64]

_ALGORITHMS = (
    "gradient",
    "onpairstrc",
    "onpairc",
    "offpairstrc",
    "offpairc",
    "sgd-output",
    "statistics",
)
# A delta that underflows is not zero.
_SMALLEST = 1e-300
# Of the share spent on centring, what the mean gets; the rest is for the scale.
_CENTRE = 0.7
# Records are clipped around the private centre to this share of their mean distance. The value is the best of three on
# synthetic tables; that records are centred at all was decided after a look at Pima, where it matters most.
_CLIP_AROUND = 0.7
_REGRET_EXPOSED = "regret_, if it was asked for: it is computed from raw records and must stay with whoever holds them"


def _is_online(estimator: Any) -> bool:
    return str(estimator.algorithm).startswith("onpair")


class PrivateAUCClassifier(ClassifierMixin, PrivateEstimator):
    """A linear ranking with a high AUC, under differential privacy (replace-one).

    Parameters
    ----------
    epsilon : float, default=1.0
        Natural-log bound; infinity is the non-private reference.
    delta : float, optional
        Default min(1e-5, n^-1.5); 1/n and above are refused unless ``allow_large_delta``.
    loss : {"logistic", "hinge"}, default="logistic"
        Pair loss. ``sgd-output`` and ``gradient`` take both, the GIGA algorithms need the smooth one,
        ``statistics`` is the square loss whatever is said here.
    algorithm : str, default="gradient"
        ``gradient``: noisy gradient descent on pairs (mechanisms.md 7.1). ``onpairstrc``, ``onpairc``: online
        GIGA, also by ``partial_fit`` (HUAI algorithms 1, 2). ``offpairstrc``, ``offpairc``: GIGA with output
        perturbation (3, 4). ``sgd-output``: blocked SGD with output perturbation (YANG algorithm 2).
        ``statistics``: one release of moments.
    data_norm : float, default=1.0
        R, declared in public; every record is clipped to it, in ``fit`` and in ``decision_function``.
    mode : {"sound", "published"}, default="sound"
        ``published`` runs the papers' formulas, warns, and states what is true of them.
    classes : array-like of 2 labels, optional
        Public; the larger is the positive one. Without it the labels are read from y and the statement says so.
    clip : float, optional
        Bound on one pair's gradient norm, at most G; default 2R, which makes the logistic loss linear on
        wrongly ordered pairs and halves the noise.
    radius : float, optional
        Of the ball that w lives in; default from public numbers (``gradient.default_radius``).
    alpha : float, optional
        Regulariser of the GIGA algorithms. Sound defaults: 1 (strongly convex) and n^-1/4 (online convex); published:
        1e-3 and n^-1/2.
    steps, rate : optional
        T and η; defaults from public numbers.
    batching : {"auto", "all-pairs", "matching"}, default="auto"
        Of ``gradient``.
    batch_size : int, optional
        Of ``gradient``: draw that many records per step, secretly, and account by Rényi DP.
    horizon : int, optional
        Largest number of records that ``partial_fit`` will ever see; required there.
    threshold_share : float, default=0.1
        Share of μ² that pays for the threshold of ``predict``, the private mean score. 0 leaves the threshold at 0 and
        spends all on the ranking. Not used in published mode, by ``partial_fit``, or where records are centred, since
        the mean score is then 0.
    centre_share : float, default=0.15
        Share of μ² with which ``gradient`` first releases the mean record and the mean distance to it. An AUC sees
        differences only, so records are then taken around that centre and clipped to 0.7 times that distance, which
        lowers G. 0 clips to ``data_norm`` around the origin.
    allow_vacuous : bool, default=False
        Published GIGA with a burn-in T₁ >= n learns nothing; refused unless this is set.
    track_regret : bool, default=False
        ``partial_fit`` keeps each record's loss at the parameter released before it, in ``regret_``. Not private.
    allow_large_delta : bool, default=False
        Accept delta >= 1/n.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting.

    Attributes
    ----------
    coef_ : (1, d) array
    intercept_ : (1,) array
    centre_ : (d,) array
        What is subtracted from a record after clipping to ``data_norm``.
    scale_ : float
        Norm to which the difference is clipped again.
    classes_, statement_, privacy_event_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise.auc import PrivateAUCClassifier
    >>> X = np.repeat([[0.6, 0.0], [-0.6, 0.1]], 200, axis=0)
    >>> y = np.repeat([1, 0], 200)
    >>> clf = PrivateAUCClassifier(epsilon=2.0, classes=[0, 1]).fit(X, y)
    >>> clf.decision_function(X).shape, clf.statement_.epsilon, clf.sensitivity()
    ((400,), 2.0, 0.01)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        loss: str = "logistic",
        algorithm: str = "gradient",
        data_norm: float = 1.0,
        mode: str = "sound",
        classes: Any = None,
        clip: float | None = None,
        radius: float | None = None,
        alpha: float | None = None,
        steps: int | None = None,
        rate: float | None = None,
        batching: str = "auto",
        batch_size: int | None = None,
        horizon: int | None = None,
        threshold_share: float = 0.1,
        centre_share: float = 0.15,
        allow_vacuous: bool = False,
        track_regret: bool = False,
        allow_large_delta: bool = False,
        budget: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.loss = loss
        self.algorithm = algorithm
        self.data_norm = data_norm
        self.mode = mode
        self.classes = classes
        self.clip = clip
        self.radius = radius
        self.alpha = alpha
        self.steps = steps
        self.rate = rate
        self.batching = batching
        self.batch_size = batch_size
        self.horizon = horizon
        self.threshold_share = threshold_share
        self.centre_share = centre_share
        self.allow_vacuous = allow_vacuous
        self.track_regret = track_regret
        self.allow_large_delta = allow_large_delta
        self.budget = budget
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # -- fitting

    def fit(self, X: ArrayLike, y: ArrayLike) -> PrivateAUCClassifier:
        """Learn a ranking.

        Parameters
        ----------
        X : (n, d) array-like
            n >= 4, dense and finite.
        y : (n,) array-like
            Two classes.

        Raises
        ------
        PairwiseError
            A ValueError that says what was expected, what was found and what to do.
        """
        table, labels = self._check_table(X, y)
        self._check_choices()
        n = len(table)
        delta = self._check_settings(n)
        positive = self._encode(labels)
        randomness = Randomness(self.random_state)
        share = self._threshold_share()
        mu = gaussian_mu(float(self.epsilon), delta)
        threshold = None
        if share > 0 and math.isfinite(mu):
            threshold = gaussian_event(1.0 / (mu * math.sqrt(share)))
        self.centre_ = np.zeros(table.shape[1])
        self.scale_ = float(self.data_norm)
        plan = self._plan(table, positive, delta, mu, share, threshold, randomness)
        if share > 0:
            main = plan.run

            def run() -> tuple[Array, float]:
                w = main()
                return w, self._release_threshold(table, w, mu * math.sqrt(share), randomness)

            event = plan.event if threshold is None else compose([plan.event, threshold])
            plan = Plan(**{**plan.__dict__, "event": event, "run": run})
            w, cut = self._execute(plan, delta, randomness, n=n)
        else:
            w, cut = self._execute(plan, delta, randomness, n=n), 0.0
        self._stream = None
        self._store(w, cut)
        return self

    def _store(self, w: Array, cut: float) -> None:
        self.coef_ = np.array(w, dtype=np.float64).reshape(1, -1)
        self.intercept_ = np.array([-float(cut)])

    def _check_choices(self) -> None:
        if self.algorithm not in _ALGORITHMS:
            raise InvalidParameter(
                f"algorithm must be one of {', '.join(_ALGORITHMS)}; found {self.algorithm!r}."
            )
        if self.mode not in ("sound", "published"):
            raise InvalidParameter(f"mode must be 'sound' or 'published'; found {self.mode!r}.")
        if self.mode == "published" and self.algorithm in ("gradient", "statistics"):
            raise InvalidParameter(
                f"algorithm {self.algorithm!r} has no published form. Use mode='sound'."
            )
        if self.mode == "published" and not math.isfinite(self.epsilon):
            raise InvalidParameter(
                "the published noise formulas need a finite epsilon; found infinity. Use mode='sound'."
            )
        smooth = get_loss(self.loss, "auc").smoothness(1.0) is not None
        if not smooth and "pair" in self.algorithm:
            raise InvalidParameter(
                f"{self.algorithm} needs a smooth loss; found {self.loss!r}. Use loss='logistic', or algorithm="
                "'gradient' or 'sgd-output'."
            )
        for name in ("threshold_share", "centre_share"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidParameter(f"{name} must be in [0, 1); found {getattr(self, name)!r}.")

    def _centred(self) -> bool:
        return self.algorithm == "gradient" and self.centre_share > 0

    def _threshold_share(self) -> float:
        if self.mode == "published" or self._centred():
            return 0.0
        return float(self.threshold_share)

    def _encode(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        classes = self._check_classes(labels)
        if len(classes) > 2:
            raise InvalidParameter(
                "Only binary classification is supported. The type of the target is multiclass: expected 2 classes, found "
                f"{len(classes)}. Compare one class with the rest."
            )
        if len(np.unique(labels)) < 2:
            raise InvalidParameter(
                "an AUC needs records of two classes; found one class in y. Check the labels."
            )
        self.classes_ = classes
        return np.asarray(labels == classes[1])

    def _ball(self, mu: float, n: int, d: int) -> L2Ball:
        radius = (
            default_radius(mu, n, d, float(self.data_norm))
            if self.radius is None
            else float(self.radius)
        )
        return L2Ball(radius)

    def _sums(
        self, table: Array, positive: NDArray[np.bool_], norm: float | None = None
    ) -> AUCPairs:
        """Return the pair sums of records clipped to ``norm`` (default R); ``clip`` is in units of that norm over R."""
        R = float(self.data_norm) if norm is None else norm
        largest = get_loss(self.loss, "auc").lipschitz(R)
        if self.mode == "published":
            clip = largest
        elif self.clip is None:
            clip = min(largest, 2.0 * R)
        else:
            clip = float(self.clip) * R / float(self.data_norm)
        return AUCPairs(table, positive, self.loss, R, clip)

    def _release_threshold(
        self, table: Array, w: Array, mu: float, randomness: Randomness
    ) -> float:
        """Return the noisy mean score, the scores scaled to [−1, 1]: sensitivity 2/n."""
        norm = float(np.linalg.norm(w))
        if norm == 0:
            return 0.0
        R = float(self.data_norm)
        scores = np.clip(clip_records(table, R) @ (w / norm) / R, -1.0, 1.0)
        noisy = float(gaussian(scores.mean(), 2.0 / len(scores) / mu, randomness))
        return min(1.0, max(-1.0, noisy)) * norm * R

    # -- plans

    def _plan(
        self,
        table: Array,
        positive: NDArray[np.bool_],
        delta: float,
        mu: float,
        share: float,
        threshold: DpEvent | None,
        randomness: Randomness,
    ) -> Plan:
        n, d = table.shape
        mu_main = mu * math.sqrt(1.0 - share)
        if self.algorithm == "gradient":
            return self._plan_gradient(table, positive, delta, mu, share, threshold, randomness)
        if self.algorithm == "statistics":
            return self._plan_statistics(table, positive, mu_main, randomness)
        sums = self._sums(table, positive)
        if self.algorithm == "sgd-output":
            return self._plan_sgd(sums, delta, mu_main, randomness)
        domain = self._ball(mu_main, n, d) if self.mode == "sound" else L2Ball(self._unit_radius())
        if self.algorithm.startswith("off"):
            if self.mode == "published":
                return self._plan_offline_published(sums, domain, delta, randomness)
            return self._plan_offline(sums, domain, mu_main, randomness)
        plan = self._plan_online(n, d, domain, delta, mu_main)
        return self._stream_plan(plan, table, positive, domain, randomness)

    def _unit_radius(self) -> float:
        return 1.0 / float(self.data_norm) if self.radius is None else float(self.radius)

    def _plan_gradient(
        self,
        table: Array,
        positive: NDArray[np.bool_],
        delta: float,
        mu: float,
        share: float,
        threshold: DpEvent | None,
        randomness: Randomness,
    ) -> Plan:
        n, d = table.shape
        R = float(self.data_norm)
        first: list[DpEvent] = [] if threshold is None else [threshold]
        spent = share
        if self._centred():
            spent = float(self.centre_share)
            first = _centre_events(mu, spent)
        # Sensitivity, steps and noise are planned for records of norm 1 and do not depend on the released
        # scale.
        unit = self._sums(np.zeros((1, d)), np.zeros(1, dtype=bool), 1.0)
        unit.n = n
        radius = None if self.radius is None else float(self.radius) * R
        if radius is None:
            radius = default_radius(mu * math.sqrt(1.0 - spent), n, d)
        domain = L2Ball(radius)
        steps = plan_gradient(
            unit,
            (d,),
            float(self.epsilon),
            delta,
            # Twice the diameter: real gradients are well below their bound.
            travel=2.0 * domain.diameter,
            share=1.0 - spent,
            batching=self.batching,  # type: ignore[arg-type]
            batch_size=self.batch_size,
            steps=self.steps,
            rate=self.rate,
            other=compose(first) if first else None,
        )

        def run() -> Array:
            if self._centred():
                self.centre_, self.scale_ = _release_centre(table, R, mu, spent, randomness)
            around = (clip_records(table, R) - self.centre_) / self.scale_
            sums = self._sums(around, positive, 1.0)
            w = noisy_descent(sums, steps, domain, np.zeros(d), randomness)
            return w / self.scale_

        centred = ", centred privately" if self._centred() else ""
        return Plan(
            event=compose([*_centre_events(mu, spent), steps.event])
            if self._centred()
            else steps.event,
            sensitivity=steps.sensitivity,
            run=run,
            mechanism=(
                f"noisy pairwise gradient descent ({unit.loss.name}, {steps.batching}, {steps.steps} steps{centred})"
            ),
            proof="mechanisms.md 7.1, 1.2, with D = G for AUC losses (head of pairwise.gradient)",
            assumptions=("the sampled batches stay secret",) if self.batch_size else (),
        )

    def _plan_statistics(
        self, table: Array, positive: NDArray[np.bool_], mu: float, randomness: Randomness
    ) -> Plan:
        release = plan_moments(mu)
        R = float(self.data_norm)
        records = clip_records(table, R) / R

        def run() -> Array:
            self.moments_ = release_moments(
                records, positive.astype(np.int64), 2, release, randomness
            )
            return auc_direction(self.moments_) / R

        return Plan(
            event=release.event,
            sensitivity=release.sensitivity,
            run=run,
            mechanism="Gaussian release of class sums, counts and second moment; square-loss AUC from it",
            proof="mechanisms.md 8.3 B with the replace-one sensitivity of pairwise.statistics, 1.1",
        )

    def _plan_sgd(self, sums: AUCPairs, delta: float, mu: float, randomness: Randomness) -> Plan:
        n, d = sums.n, sums.dimension
        R = float(self.data_norm)
        L = sums.loss.smoothness(R)
        if self.mode == "published":
            return self._plan_sgd_published(sums, delta, randomness)
        domain = self._ball(mu, n, d)
        block = max(1, n // 10)
        # Smooth losses do not expand, so few steps suffice; the hinge needs many small ones (its √t term).
        passes = 10 if L is not None else 100
        if self.steps is not None:
            passes = max(1, round(self.steps * block / n))
        sequence = sgd.shuffled_blocks(n, passes, block, randomness)
        T = sequence.steps
        rate = 10.0 * domain.radius / (T * R) if self.rate is None else float(self.rate)
        smooth = L is not None
        if L is not None and rate > 2.0 / L:
            if self.rate is not None:
                smooth = False
            else:
                rate = 2.0 / L
        weighted, _ = sgd.block_weights(sequence)
        bound = sgd.average_sensitivity(
            float(weighted.max()), T, rate, sums.pair_change, smooth=smooth
        )
        bound = min(bound, domain.diameter)

        def run() -> Array:
            average = sgd.blocked_sgd(sums, sequence, rate, domain, np.zeros(d))
            noisy = gaussian(average, 0.0 if not math.isfinite(mu) else bound / mu, randomness)
            return np.asarray(domain.project(noisy))

        return Plan(
            event=gaussian_event(1.0 / mu if math.isfinite(mu) else 0.0),
            sensitivity=bound,
            run=run,
            mechanism=(
                f"blocked pairwise SGD with output perturbation ({sums.loss.name}, {passes} shuffled passes, {T} steps)"
            ),
            proof="mechanisms.md 6.3 for the sequence that was drawn, 1.1",
        )

    def _plan_sgd_published(self, sums: AUCPairs, delta: float, randomness: Randomness) -> Plan:
        n, d = sums.n, sums.dimension
        domain = L2Ball(self._unit_radius())
        T = 10 * n if self.steps is None else int(self.steps)
        rate = T**-0.5 if self.rate is None else float(self.rate)
        indices = randomness.integers(n, (T,))
        sigma = sgd.published_sigma(n, T, rate, sums.pair_bound, float(self.epsilon), delta)
        L = sums.loss.smoothness(float(self.data_norm))
        bound = sgd.realised_sensitivity(
            indices, n, rate, sums.pair_change, smooth=L is not None and rate <= 2.0 / L
        )
        bound = min(bound, domain.diameter)
        sequence = sgd.BlockSequence(n, tuple(indices.reshape(-1, 1)))

        def run() -> Array:
            average = sgd.blocked_sgd(sums, sequence, rate, domain, np.zeros(d))
            return np.asarray(domain.project(gaussian(average, sigma, randomness)))

        true = giga.true_offline_delta(float(self.epsilon), sigma, bound)
        return Plan(
            event=gaussian_event(sigma / bound),
            sensitivity=bound,
            run=run,
            mechanism=f"pairwise SGD with the noise of eq. 5 (YANG), T = {T}",
            proof="mechanisms.md 6.3 and 1.1 for the sequence that was drawn; the paper's own proof is broken (Y-1 to Y-4)",
            epsilon=float(self.epsilon),
            delta=max(true, _SMALLEST),
            proved=False,
            unsound=(
                "the published proof of eq. 5 does not hold (mechanisms.md 6.2); the statement gives the delta that the "
                "certified sensitivity of the sequence drawn implies, and eq. 5 adds far more noise than is needed"
            ),
            notes=(
                f"asked for delta = {delta:.3g}; the delta stated is what the noise gives for the sequence "
                "that was drawn",
            ),
        )

    def _alpha(self, n: int) -> float:
        if self.alpha is not None:
            return float(self.alpha)
        strong = self.algorithm.endswith("strc")
        if self.mode == "published":
            return 1e-3 if strong else n**-0.5
        return 1.0 if strong else n**-0.25

    def _plan_offline(
        self, sums: AUCPairs, domain: L2Ball, mu: float, randomness: Randomness
    ) -> Plan:
        n, d = sums.n, sums.dimension
        L = sums.loss.smoothness(float(self.data_norm))
        assert L is not None
        if self.algorithm == "offpairstrc":
            steps = giga.schedule(n, L, self._alpha(n))
        else:
            rate = 10.0 * domain.radius / (n * float(self.data_norm))
            rate = min(rate, 2.0 / L) if self.rate is None else float(self.rate)
            steps = giga.schedule(n, L, 0.0, kind="constant", rate=rate)
        bound = giga.certified_sensitivity(steps, sums.pair_change, L, domain.diameter).average

        def run() -> Array:
            average = giga.offline_giga(sums, steps, domain, np.zeros(d))
            noisy = gaussian(average, 0.0 if not math.isfinite(mu) else bound / mu, randomness)
            return np.asarray(domain.project(noisy))

        return Plan(
            event=gaussian_event(1.0 / mu if math.isfinite(mu) else 0.0),
            sensitivity=bound,
            run=run,
            mechanism=f"pairwise GIGA with output perturbation ({self.algorithm}, alpha = {steps.alpha:.3g})",
            proof="mechanisms.md 5.2 (certified recursion), 1.1",
        )

    def _published_constants(
        self, n: int, sums: AUCPairs, domain: L2Ball
    ) -> tuple[float, float, float, int]:
        """Return G, L, α and T₁ of the algorithm as printed (regulariser included in the convex versions)."""
        alpha = self._alpha(n)
        G = sums.pair_bound
        smoothness = sums.loss.smoothness(float(self.data_norm))
        assert smoothness is not None
        # The regulariser is part of the printed loss: lambda in the strongly convex runs, alpha in the convex
        # ones.
        L = smoothness + alpha
        if not self.algorithm.endswith("strc"):
            G += alpha * domain.diameter
        burn_in = giga.published_burn_in(L, alpha)
        if burn_in >= n and not self.allow_vacuous:
            raise InvalidParameter(
                f"the published burn-in is T1 = {burn_in} steps, not below the {n} records: the output would be random "
                "noise. Use mode='sound', a larger alpha, or allow_vacuous=True to run it all the same."
            )
        return G, L, alpha, burn_in

    def _published_schedule(
        self, n: int, L: float, alpha: float, burn_in: int
    ) -> giga.GigaSchedule:
        return giga.schedule(n, L, alpha, kind="published", burn_in=min(burn_in, n))

    def _plan_offline_published(
        self, sums: AUCPairs, domain: L2Ball, delta: float, randomness: Randomness
    ) -> Plan:
        n, d = sums.n, sums.dimension
        G, L, alpha, burn_in = self._published_constants(n, sums, domain)
        steps = self._published_schedule(n, L, alpha, burn_in)
        epsilon = float(self.epsilon)
        sigma = giga.published_offline_sigma(n, G, alpha, epsilon, delta)
        data_smoothness = sums.loss.smoothness(float(self.data_norm))
        assert data_smoothness is not None
        # The printed average is over all n iterates, the random ones included.
        bound = (
            giga.certified_sensitivity(
                steps, sums.pair_change, data_smoothness, domain.diameter
            ).average
            * steps.active
            / n
        )
        vacuous = steps.active == 0

        def run() -> Array:
            average = giga.offline_giga(sums, steps, domain, np.zeros(d), random_start=randomness)
            return np.asarray(domain.project(gaussian(average, sigma, randomness)))

        true = 0.0 if vacuous else giga.true_offline_delta(epsilon, sigma, bound)
        return Plan(
            event=compose([]) if vacuous else gaussian_event(sigma / bound),
            sensitivity=bound,
            run=run,
            mechanism=f"{self.algorithm} as published (HUAI), T1 = {burn_in}",
            proof="mechanisms.md 5.2, 1.1: certified sensitivity under the published noise",
            epsilon=0.0 if vacuous else epsilon,
            delta=0.0 if vacuous else max(true, _SMALLEST),
            unsound=_published_warning(vacuous),
            notes=_published_notes(vacuous, delta),
        )

    def _plan_online(
        self, n: int, d: int, domain: L2Ball, delta: float, mu: float
    ) -> giga.OnlinePlan:
        probe = self._sums(np.zeros((1, d)), np.zeros(1, dtype=bool))
        L = probe.loss.smoothness(float(self.data_norm))
        assert L is not None
        if self.mode == "sound":
            alpha = self._alpha(n)
            burn_in = min(giga.sharp_burn_in(L + alpha, alpha), n // 4)
            steps = giga.schedule(n, L, alpha, burn_in=burn_in)
            return giga.plan_online(steps, probe.pair_change, L, domain.diameter, mu)
        G, L_published, alpha, burn_in = self._published_constants(n, probe, domain)
        steps = self._published_schedule(n, L_published, alpha, burn_in)
        rho = giga.published_rho(float(self.epsilon), delta)
        sigmas = np.zeros(n + 1)
        for t in range(steps.first, n + 1):
            sigmas[t] = giga.published_online_sigma(n, burn_in, G, alpha, rho, t)
        bound = giga.certified_sensitivity(steps, probe.pair_change, L, domain.diameter)
        event = giga.published_online_event(n, burn_in, G, alpha, rho)
        return giga.OnlinePlan(steps, sigmas, bound.per_step, event)

    def _stream_plan(
        self,
        online: giga.OnlinePlan,
        table: Array,
        positive: NDArray[np.bool_],
        domain: L2Ball,
        randomness: Randomness,
    ) -> Plan:
        def run() -> Array:
            stream = self._new_stream(online, domain, table.shape[1], randomness)
            self.n_released_ = len(stream.receive(table, positive))
            return stream.released

        return self._describe_stream(online, run)

    def _new_stream(
        self, online: giga.OnlinePlan, domain: L2Ball, d: int, randomness: Randomness
    ) -> giga.OnlineGiga:
        return giga.OnlineGiga(
            self._sums,
            online,
            domain,
            np.zeros(d),
            randomness,
            random_start=self.mode == "published",
        )

    def _describe_stream(self, online: giga.OnlinePlan, run: Callable[[], Any]) -> Plan:
        vacuous = online.steps.active == 0
        published = self.mode == "published"
        return Plan(
            event=online.event,
            sensitivity=float(online.sensitivities.max()),
            run=run,
            mechanism=(
                f"{self.algorithm}{' as published (HUAI)' if published else ''}, every iterate released, alpha = "
                f"{online.steps.alpha:.3g}, burn-in {online.steps.burn_in}, horizon {online.steps.n}"
            ),
            proof=(
                "mechanisms.md 5.1 H-1 (lemma 4), HUAI theorem 1 given the clipped records"
                if published
                else "mechanisms.md 5.2 (certified recursion), 1.2"
            ),
            epsilon=(0.0 if vacuous else float(self.epsilon)) if published else None,
            delta=0.0 if vacuous and published else None,
            unsound=_published_warning(vacuous) if published else "",
            notes=_published_notes(vacuous, None) if published else (),
            not_protected=(_REGRET_EXPOSED,) if self.track_regret else (),
        )

    @available_if(_is_online)
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None
    ) -> PrivateAUCClassifier:
        """Take further records of a stream, one at a time in order, and release the parameter after each.

        The first call fixes the noise for ``horizon`` records and charges all of it. The estimator holds the
        raw records while it learns; pickling it drops them, and with them the stream.

        Parameters
        ----------
        X : (m, d) array-like
        y : (m,) array-like
        classes : array-like, optional
            The two labels, public, for the first call. Without them and without the parameter ``classes`` they are read
            from the first batch, and the statement says so.
        """
        first = getattr(self, "_stream", None) is None
        if first and hasattr(self, "n_streamed_"):
            raise InvalidParameter(
                "this stream was closed by pickling or copying, which drop the raw records. Start again with a new "
                "estimator and a new budget."
            )
        table, labels = self._check_table(X, y, reset=first, few=True)
        if first:
            given = classes if self.classes is None else self.classes
            self._open_stream(table.shape[1], np.unique(labels if given is None else given))
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise InvalidParameter(
                f"y holds {len(unknown)} labels that are not among the two classes of this stream."
            )
        positive = np.asarray(labels == self.classes_[1])
        stream = self._stream
        assert stream is not None
        before = stream.released.copy()
        seen = stream.seen
        released = stream.receive(table, positive)
        if self.track_regret:
            self._add_regret(stream, [before, *released[:-1]], seen)
        self.n_streamed_ = stream.seen
        self._store(stream.released, 0.0)
        return self

    def _open_stream(self, d: int, labels: NDArray[Any]) -> None:
        self._check_choices()
        if self.horizon is None:
            raise InvalidParameter(
                "partial_fit needs horizon, the largest number of records that will ever come: the noise is fixed by it. "
                "Pass horizon=..., or call fit on the whole table."
            )
        horizon = int(self.horizon)
        delta = self._check_settings(horizon)
        if len(labels) != 2:
            raise InvalidParameter(
                f"the first call of partial_fit needs the two labels; found {len(labels)}. "
                "Pass classes=[negative, positive]."
            )
        self.classes_ = labels
        self.centre_, self.scale_ = np.zeros(d), float(self.data_norm)
        randomness = Randomness(self.random_state)
        mu = gaussian_mu(float(self.epsilon), delta)
        domain = self._ball(mu, horizon, d) if self.mode == "sound" else L2Ball(self._unit_radius())
        online = self._plan_online(horizon, d, domain, delta, mu)
        plan = self._describe_stream(
            online, lambda: self._new_stream(online, domain, d, randomness)
        )
        self._stream = self._execute(plan, delta, randomness, n=horizon)
        self.regret_: list[float] = []

    def _add_regret(self, stream: giga.OnlineGiga, used: list[Array], seen: int) -> None:
        """Append each record's mean loss against the earlier ones, at the parameter released before it came."""
        sums = stream.sums()
        assert isinstance(sums, AUCPairs)
        for offset, w in enumerate(used):
            t = seen + offset
            if t == 0:
                continue
            sign = (sums.positive[t].astype(float) - sums.positive[:t].astype(float)).astype(float)
            inner = (sums.X[t] - sums.X[:t]) @ w
            self.regret_.append(float(sums.loss.value(inner, sign).mean()))

    def __getstate__(self) -> dict[str, Any]:
        # Raw records and the noiseless iterate must not travel with the model.
        state = dict(super().__getstate__())
        state.pop("_stream", None)
        state.pop("regret_", None)
        return state

    # -- using

    def decision_function(self, X: ArrayLike) -> Array:
        """Return scores, shape (n,), of records clipped as in training; larger means the positive class."""
        records = clip_records(self._check_records(X) - self.centre_, self.scale_)
        return np.asarray(records @ self.coef_[0] + self.intercept_[0])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the positive class where the score is above the private threshold, shape (n,)."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores > 0).astype(int)])


def _centre_events(mu: float, share: float) -> list[DpEvent]:
    if not math.isfinite(mu):
        return [gaussian_event(0.0)]
    return [
        gaussian_event(1.0 / (mu * math.sqrt(share * part))) for part in (_CENTRE, 1.0 - _CENTRE)
    ]


def _release_centre(
    table: Array, R: float, mu: float, share: float, randomness: Randomness
) -> tuple[Array, float]:
    """Return a noisy mean record and 0.7 × the noisy mean distance to it, each of sensitivity 2R/n before noise.

    Records lie in the ball of radius R, so a replacement moves their mean by at most 2R/n; distances are cut to
    [0, 2R].
    """
    records = clip_records(table, R)
    n, d = records.shape
    sigma = 2.0 * R / n / (mu * math.sqrt(share * _CENTRE))
    noisy = gaussian(records.mean(axis=0), sigma, randomness)
    centre = clip_records(noisy[None, :], R)[0]
    distances = np.minimum(np.linalg.norm(records - centre, axis=1), 2.0 * R)
    spread = 2.0 * R / n / (mu * math.sqrt(share * (1.0 - _CENTRE)))
    mean = float(gaussian(distances.mean(), spread, randomness))
    # The noise of the centre lengthens every distance; its square is known.
    scale = _CLIP_AROUND * math.sqrt(max(mean * abs(mean) - d * sigma**2, 0.0))
    return centre, min(R, max(scale, 0.05 * R))


def _published_warning(vacuous: bool) -> str:
    if vacuous:
        return (
            "the published burn-in covers all records: the output is random and says nothing about the data "
            "(mechanisms.md H-2)"
        )
    return (
        "mode='published' runs HUAI's printed noise, which is many times what the certified sensitivity needs "
        "(mechanisms.md H-2); the statement gives what is true"
    )


def _published_notes(vacuous: bool, asked: float | None) -> tuple[str, ...]:
    if vacuous:
        return ("nothing that depends on the records was released",)
    if asked is None:
        return ()
    return (
        f"asked for delta = {asked:.3g}; the delta stated is that of the printed noise for the certified sensitivity",
    )


# --------------------------------------------------------------------------------------------------------------------
# Private evaluation


def _check_evaluation(
    y: ArrayLike, other: ArrayLike, epsilon: float, delta: float | None
) -> tuple[NDArray[Any], NDArray[Any], float]:
    labels, values = np.asarray(y), np.asarray(other)
    if labels.ndim != 1 or labels.shape != values.shape or len(labels) < 4:
        raise InvalidParameter(
            f"expected two arrays of one length n >= 4; found shapes {labels.shape} and {values.shape}."
        )
    n = len(labels)
    from pairwise.accounting import default_delta

    delta = default_delta(n) if delta is None else float(delta)
    check_privacy_parameters(float(epsilon), delta, n)
    return labels, values, delta


def private_auc_score(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    epsilon: float,
    delta: float | None = None,
    positive: Any = 1,
    budget: Any = None,
    random_state: Any = None,
) -> float:
    """Return an AUC on private records, with noise; replace-one, n public.

    Releases U/n, U the number of correctly ordered pairs (ties half), and n₊, by one Gaussian: replacing a
    record moves U by at most n − 1 and n₊ by at most 1, so (U/n, n₊) by at most √2.

    Parameters
    ----------
    y_true : (n,) array-like
    y_score : (n,) array-like
        Scores by a model that does not depend on these records, or whose cost is charged elsewhere.
    epsilon, delta : float
        Delta defaults to min(1e-5, n^-1.5).
    positive : label, default=1
    budget : PrivacyBudget, optional
    random_state : optional
    """
    labels, scores, delta = _check_evaluation(y_true, y_score, epsilon, delta)
    randomness = Randomness(random_state)
    mu = gaussian_mu(float(epsilon), delta)
    if budget is not None:
        budget.charge(
            gaussian_event(1.0 / mu if math.isfinite(mu) else 0.0),
            label="private_auc_score",
            adjacency="replace-one",
        )
    n = len(labels)
    chosen = labels == positive
    count = float(chosen.sum())
    ranks = rankdata(scores)
    wins = float(ranks[chosen].sum()) - count * (count + 1) / 2.0
    noisy = gaussian(np.array([wins / n, count]), math.sqrt(2.0) / mu, randomness)
    pairs = noisy[1] * (n - noisy[1])
    if pairs <= 0:
        return 0.5
    return float(np.clip(noisy[0] * n / pairs, 0.0, 1.0))


def private_accuracy_score(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    epsilon: float,
    delta: float | None = None,
    budget: Any = None,
    random_state: Any = None,
) -> float:
    """Return an accuracy on private records with Gaussian noise of sensitivity 1/n, cut to [0, 1]; replace-one.

    Parameters
    ----------
    y_true, y_pred : (n,) array-like
    epsilon, delta : float
    budget : PrivacyBudget, optional
    random_state : optional
    """
    labels, predicted, delta = _check_evaluation(y_true, y_pred, epsilon, delta)
    randomness = Randomness(random_state)
    mu = gaussian_mu(float(epsilon), delta)
    if budget is not None:
        budget.charge(
            gaussian_event(1.0 / mu if math.isfinite(mu) else 0.0),
            label="private_accuracy_score",
            adjacency="replace-one",
        )
    share = float((labels == predicted).mean())
    noisy = float(gaussian(share, 1.0 / len(labels) / mu, randomness))
    return min(1.0, max(0.0, noisy))
