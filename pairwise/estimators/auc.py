"""``PrivateAUCClassifier``: plans of linear rankings. Scores and ``partial_fit`` are in ``estimators.ranking``."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.accounting.events import compose
from pairwise.accounting.gaussian import release_mu
from pairwise.algorithms.auto import default_radius, default_scale_share
from pairwise.algorithms.coordinates import (
    CoordinatePlan,
    Coordinates,
    plan_coordinates,
)
from pairwise.algorithms.descent import RecordSums, noisy_descent, plan_descent
from pairwise.algorithms.moments import auc_direction, plan_moments, release_moments
from pairwise.algorithms.options import (
    Ftrl,
    Gradient,
    OffPair,
    OnPair,
    Options,
    Pointwise,
    SGDOutput,
    Statistics,
)
from pairwise.errors import InvalidParameterError, check_share
from pairwise.estimators.base import (
    Plan,
    keeps_state_on_error,
    refuse_fit_parameters,
)
from pairwise.estimators.perturbation import plan_output, plan_stream
from pairwise.estimators.ranking import LinearRanking, is_online
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import plan_choice
from pairwise.pairs.clipping import clip_records
from pairwise.pairs.losses import AUCPairs

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from pairwise.accounting.budget import PrivacyBudget

Array = NDArray[np.float64]

_LONG_RECORDS = (
    "by a private count, more than half of the records are longer than twice data_norm, and clipping leaves little of them. "
    "Scale by bounds that are public: PublicScaler(low, high, output_range=(-1, 1)) in front, and data_norm=its norm_bound_."
)


class PrivateAUCClassifier(LinearRanking):
    """A linear ranking with a high AUC, under differential privacy (replace-one).

    Parameters
    ----------
    epsilon : float
        Natural-log bound; infinity is the non-private reference.
    delta : float, optional
        Below 1/n; default min(1e-5, n^-1.5).
    algorithm : str or options, default="auto"
        ``"auto"`` is the one to take: ``Pointwise()``, with steps, radius and what is spent on scaling chosen by a
        public rule of n, d, epsilon and delta. Others are for streams (``OnPair()``, ``Ftrl()``) and for comparison:
        ``Gradient()``, ``Statistics()``, ``OffPair()`` and ``SGDOutput()`` (``pairwise.algorithms.options``). Names mean
        their defaults: ``"pointwise"``, ``"gradient"``, ``"statistics"``, ``"onpairstrc"``, ``"offpairstrc"``,
        ``"ftrl"``, ``"sgd-output"``.
    data_norm : float, default=1.0
        R, declared in public; every record is clipped to it, in ``fit`` and in ``decision_function``. Scale with
        ``PublicScaler`` and pass its ``norm_bound_``.
    classes : array-like of 2 labels, optional
        Public; the larger is the positive one. Without it the labels are read from y and the statement says so.
    threshold_share : float, default=0.05
        Share of μ² that pays for the threshold of ``predict``: of 65 public candidates one is drawn at which most records
        are answered rightly. It is part of epsilon. 0 spends all on the ranking, and ``predict`` then refuses.
        ``partial_fit`` cuts at the score 0.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting.

    Attributes
    ----------
    coef_ : (1, d) array
    intercept_ : (1,) array
        Of a record that no clipping shortens the score is ``coef_ @ x + intercept_``.
    threshold_ : float or None
        Subtracted from the score; None where nothing was paid for it.
    centre_ : (d,) array
        What is subtracted from a record after clipping to ``data_norm``.
    scale_ : float
        Norm to which the difference is clipped again.
    basis_ : (d, d) array or None
        Map to the features as they were scaled, of the difference over ``scale_``; a score is divided by the length there
        where that is above 1. None where features were not scaled.
    classes_, statement_, privacy_event_, n_features_in_

    Notes
    -----
    ``score`` is the AUC, not an accuracy. There is no ``predict_proba``: a ranking orders records and has no probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise import PrivateAUCClassifier
    >>> X = np.repeat([[0.6, 0.0], [-0.6, 0.1]], 200, axis=0)
    >>> y = np.repeat([1, 0], 200)
    >>> clf = PrivateAUCClassifier(epsilon=2.0, classes=[0, 1]).fit(X, y)
    >>> clf.decision_function(X).shape, clf.statement_.epsilon, clf.sensitivity()
    ((400,), 2.0, 0.0026...)
    """

    _algorithms: ClassVar[dict[str, Options]] = {
        "auto": Pointwise(),  # its rule is algorithms.auto
        "pointwise": Pointwise(),
        "gradient": Gradient(),
        "statistics": Statistics(),
        "onpairstrc": OnPair(),
        "offpairstrc": OffPair(),
        "sgd-output": SGDOutput(),
        "ftrl": Ftrl(),
    }

    def __init__(
        self,
        epsilon: float,
        delta: float | None = None,
        *,
        algorithm: str | Options = "auto",
        data_norm: float = 1.0,
        classes: Any = None,
        threshold_share: float = 0.05,
        budget: PrivacyBudget | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.algorithm = algorithm
        self.data_norm = data_norm
        self.classes = classes
        self.threshold_share = threshold_share
        self.budget = budget
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # -- fitting

    @keeps_state_on_error
    def fit(self, X: ArrayLike, y: ArrayLike, **refused: Any) -> PrivateAUCClassifier:
        """Learn a ranking.

        Parameters
        ----------
        X : (n, d) array-like
            n >= 4, dense and finite.
        y : (n,) array-like
            Two classes. With ``classes`` declared a table that holds one of them only is fitted like any other: which
            classes occur is a fact about the records. Without, it is refused.

        Raises
        ------
        PairwiseError
            A ValueError that says what was expected, what was found and what to do.
        """
        refuse_fit_parameters(refused)
        table, labels = self._check_table(X, y)
        self._options.check()
        check_share(threshold_share=self.threshold_share)
        n, d = table.shape
        delta = self._check_settings(n)
        self.classes_ = self._check_classes(labels)
        self._check_two_classes()
        positive = np.asarray(labels == self.classes_[1])
        randomness = Randomness(self.random_state)
        mu = release_mu(float(self.epsilon), delta)
        share = float(self.threshold_share)
        choice = plan_choice(1.0, mu * math.sqrt(share)) if share else None
        self._begin(d)
        plan = self._plan(table, positive, mu, randomness)
        if choice is not None:
            plan = self._with_threshold(plan, choice, table, positive, randomness)
        self._end_stream()
        self._store(self._execute(plan, delta, randomness, n))
        return self

    # -- plans

    def _plan(
        self,
        table: Array,
        positive: NDArray[np.bool_],
        mu: float,
        randomness: Randomness,
    ) -> Plan:
        options = self._options
        if isinstance(options, Gradient | Pointwise):
            return self._plan_descent(options, table, positive, mu, randomness)
        if isinstance(options, Statistics):
            return self._plan_statistics(options, table, positive, mu, randomness)
        left = mu * math.sqrt(1.0 - float(self.threshold_share))
        n, d = table.shape
        radius, R = self._radius(left, n, d), float(self.data_norm)
        if is_online(self):
            stream = plan_stream(options, n, d, R, radius, left)

            def run() -> Array:
                opened = stream.open(self._pair_sums, d, randomness)
                opened.receive(table, positive)
                return opened.released

            return self._stream_plan(stream, run)
        sums = self._pair_sums(table, positive)
        return plan_output(options, sums, radius, left, randomness)

    def _plan_descent(
        self,
        options: Gradient | Pointwise,
        table: Array,
        positive: NDArray[np.bool_],
        mu: float,
        randomness: Randomness,
    ) -> Plan:
        n, d = table.shape
        spent, coordinates = self._plan_coordinates(options, n, d, mu)
        left = mu * math.sqrt(1.0 - spent)

        def sums_of(records: Array, labels: NDArray[np.bool_]) -> AUCPairs | RecordSums:
            if isinstance(options, Pointwise):
                return RecordSums(records, labels)
            return AUCPairs(records, labels, options.loss)

        # Sensitivity, steps and noise are planned for records of norm 1 and do not depend on the released scale.
        unit = sums_of(np.zeros((1, d)), np.zeros(1, dtype=bool))
        unit.n = n
        first = [] if coordinates is None else coordinates.events()
        radius = self._radius(left, n, d) * float(self.data_norm)
        steps = plan_descent(unit, left, radius, steps=options.steps)

        def run() -> Array:
            found = self._coordinates(coordinates, table, randomness)
            z = found.of(clip_records(table, float(self.data_norm)))
            # The intercept, where there is one, is no part of a ranking.
            return found.pull_back(noisy_descent(sums_of(z, positive), steps, randomness)[:d])

        what = "pointwise" if isinstance(options, Pointwise) else f"pairwise ({options.loss})"
        described = "" if coordinates is None else coordinates.description
        return Plan(
            event=compose([*first, steps.event]),
            sensitivity=steps.noise.sensitivity,
            run=run,
            mechanism=f"noisy {what} gradient descent ({steps.batching}, {steps.steps} steps{described})",
            proof=_head_of("descent", coordinates),
        )

    def _radius(self, mu: float, n: int, d: int) -> float:
        """Return the radius of the parameter ball, in the units of the records."""
        options = self._options
        given = getattr(options, "radius", None)
        if given is not None:
            return float(given)
        R = float(self.data_norm)
        if isinstance(options, Ftrl) and math.isfinite(mu):
            # In so small a ball the loss is nearly linear and its minimiser the difference of the class means, which is
            # what noisy sums of gradients can find. The best of four radii on synthetic tables.
            return 0.25 / R
        return default_radius(mu, n, d, 30.0 if isinstance(options, Pointwise) else 60.0) / R

    def _plan_coordinates(
        self, options: Gradient | Pointwise | Statistics, n: int, d: int, mu: float
    ) -> tuple[float, CoordinatePlan | None]:
        """Return the share of μ² that is spent beside the learning, and the private coordinates, if any."""
        share, centre = float(self.threshold_share), float(options.centre_share)
        if centre == 0:
            return share, None
        scale = 0.0
        if isinstance(options, Pointwise):
            given = options.scale_share
            scale = default_scale_share(mu, n, d) if given is None else float(given)
        spent = share + centre + scale
        if not spent < 1:
            raise InvalidParameterError(
                f"threshold_share, centre_share and scale_share must be below 1 together; found {spent:.3g}. Leave a part "
                "for the ranking."
            )
        return spent, plan_coordinates(n, d, float(self.data_norm), mu, centre, scale)

    def _coordinates(
        self, plan: CoordinatePlan | None, table: Array, randomness: Randomness
    ) -> Coordinates:
        """Release the coordinates, and keep what records are clipped around."""
        if plan is None:
            return Coordinates(self.centre_, self.scale_)
        found = plan.release(table, randomness)
        self.centre_, self.scale_, self.basis_ = found.centre, found.scale, found.basis
        if found.mostly_long:
            # Computed from what was released, so that the warning reveals nothing more.
            warnings.warn(_LONG_RECORDS, UserWarning, stacklevel=7)
        return found

    def _plan_statistics(
        self,
        options: Statistics,
        table: Array,
        positive: NDArray[np.bool_],
        mu: float,
        randomness: Randomness,
    ) -> Plan:
        n, d = table.shape
        spent, coordinates = self._plan_coordinates(options, n, d, mu)
        release = plan_moments(mu * math.sqrt(1.0 - spent), d, 2)

        def run() -> Array:
            found = self._coordinates(coordinates, table, randomness)
            z = found.of(clip_records(table, float(self.data_norm)))
            moments = release_moments(z, positive.astype(np.int64), 2, release, randomness)
            return found.pull_back(auc_direction(moments))

        described = "" if coordinates is None else coordinates.description
        first = [] if coordinates is None else coordinates.events()
        return Plan(
            event=compose([*first, release.noise.event()]),
            sensitivity=release.noise.sensitivity,
            run=run,
            mechanism=f"Gaussian release of class sums, counts and second moment{described}; square-loss AUC from it",
            proof=_head_of("moments", coordinates),
        )


def _head_of(module: str, coordinates: CoordinatePlan | None) -> str:
    """Return where the sensitivities are proved."""
    proof = f"head of pairwise.algorithms.{module}"
    return proof if coordinates is None else f"{proof}; head of pairwise.algorithms.coordinates"
