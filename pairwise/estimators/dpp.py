"""``DPPMetricLearner``: private contrastive metric learning from a list of pairs.

Source: Li, Pan, Sui, Tsang, *Secure Metric Learning via Differential Pairwise Privacy*, in the sound form of the errata
(DPP-1 to DPP-12): clipped as a whole matrix, with a declared multiplicity, noise on sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import Adjacency
from pairwise.accounting.gaussian import release_mu
from pairwise.algorithms.noisy_contrastive import (
    ContrastivePlan,
    contrastive_descent,
    plan_contrastive,
)
from pairwise.algorithms.options import Edges
from pairwise.algorithms.plan import FitPlan
from pairwise.errors import InvalidPairsError, InvalidParameterError, check_whole
from pairwise.estimators.base import keeps_state_on_error, refuse_fit_parameters
from pairwise.estimators.metric import MahalanobisMetric
from pairwise.noise.randomness import Randomness
from pairwise.pairs.clipping import clip_records

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from pairwise.accounting.budget import PrivacyBudget


@dataclass(frozen=True, kw_only=True)
class PairsPlan(FitPlan):
    """A contrastive descent on a list of pairs."""

    descent: ContrastivePlan

    def run(self, records: tuple[NDArray[Any], ...], randomness: Randomness) -> NDArray[np.float64]:
        """Return W from clipped points, pairs of their rows, and which of the pairs are dissimilar."""
        points, index, dissimilar = records
        return contrastive_descent(self.descent, points, index, dissimilar, randomness)


class DPPMetricLearner(MahalanobisMetric):
    """A Mahalanobis metric M = WᵀW from pairs, by private contrastive gradient descent.

    It protects *pairs*: any ``kappa`` of them. For individuals with classes use ``PrivateMetricLearner``.

    Parameters
    ----------
    epsilon : float
        Bound on the privacy loss of ``kappa`` pairs, in nats; infinity adds no noise.
    delta : float, optional
        Below one over the number of pairs; default min(1e-5, m^-1.5).
    kappa : int or Edges, optional
        How many pairs may change together, a declared public bound. It protects an *individual* only if nobody can be in
        more than kappa pairs. ``Edges(kappa, adjacency)`` for pairs that change in place.
    n_components : int or None, default=None
        Rows of W, at most d. None means d, which starts at the Euclidean metric.
    data_norm : float, default=1.0
        Every record is clipped to this norm. Scale with ``PublicScaler`` and pass its ``norm_bound_``.
    preprocessor : (n, d) array-like, optional
        Points that (m, 2) index pairs refer to (metric-learn's convention). Private: printed as its shape, and not
        pickled with a fitted learner.
    budget : PrivacyBudget, optional
        For the same adjacency and unit, such as ``PrivacyBudget(4.0, adjacency="zero-out", unit="any 3 pairs")``.
    random_state : int, RandomState or None, default=None
        None draws from the operating system, the only private setting.

    Attributes
    ----------
    components_ : (k, d) array
        W.
    kappa_ : int
        Group size that was used.
    noise_scale_ : float
        Standard deviation on the sum of clipped gradients, in units of the clip.
    statement_, privacy_event_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise import DPPMetricLearner
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.normal(size=(600, 2, 3)) * [0.1, 0.5, 0.5]
    >>> y = np.where(pairs[:, 0, 0] * pairs[:, 1, 0] > 0, 1, -1)
    >>> learner = DPPMetricLearner(epsilon=4.0, kappa=3, random_state=0).fit(pairs, y)
    >>> learner.transform(pairs[:, 0]).shape, learner.statement_.unit
    ((600, 3), 'any 3 pairs')
    """

    def __init__(
        self,
        epsilon: float,
        delta: float | None = None,
        kappa: int | Edges | None = None,
        n_components: int | None = None,
        *,
        data_norm: float = 1.0,
        preprocessor: Any = None,
        budget: PrivacyBudget | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.kappa = kappa
        self.n_components = n_components
        self.data_norm = data_norm
        self.preprocessor = preprocessor
        self.budget = budget
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    @keeps_state_on_error
    def fit(self, pairs: Any, y: Any, **refused: Any) -> DPPMetricLearner:
        """Learn W.

        Parameters
        ----------
        pairs : array-like
            (m, 2, d) points, or (m, 2) indices into ``preprocessor``. Each row is one pair; a repeated pair counts as often
            as it is listed.
        y : (m,) array-like
            +1 (similar) or −1 (dissimilar).
        """
        refuse_fit_parameters(refused)
        options = self.kappa if isinstance(self.kappa, Edges) else Edges(self.kappa)
        options.check()
        if self.n_components is not None:
            check_whole("n_components", self.n_components)
        points, index = self._points_and_index(pairs)
        dissimilar = _signs(y, len(index)) < 0
        self.n_features_in_ = d = points.shape[1]
        delta = self._check_settings(len(index))
        kappa = _declared(options, private=math.isfinite(self.epsilon))
        adjacency = Adjacency(options.adjacency)
        descent = plan_contrastive(
            len(index),
            d,
            d if self.n_components is None else min(int(self.n_components), d),
            mu=release_mu(float(self.epsilon), delta),
            data_norm=float(self.data_norm),
            kappa=kappa,
            in_place=adjacency is Adjacency.REPLACE_ONE,
        )
        plan = PairsPlan(
            descent=descent,
            event=descent.noise.event(descent.steps),
            sensitivity=descent.noise.sensitivity,
            terms=len(index),
            mechanism=(
                f"contrastive metric learning on a list of pairs ({descent.steps} steps, all pairs, Gaussian noise, "
                f"kappa = {kappa})"
            ),
            proof="errata DPP-2 (one clip of the whole matrix); groups of pairs by adding up",
            adjacency=adjacency,
            unit="any one pair" if kappa == 1 else f"any {kappa} pairs",
            assumptions=(
                "the number of pairs is public",
                f"kappa = {kappa} was declared without looking at the pairs",
            ),
            notes=(
                f"an individual in more than {kappa} pairs is not protected as a whole, only any {kappa} of the pairs "
                "(errata DPP-12)",
            ),
        )
        records = clip_records(points, float(self.data_norm))
        randomness = Randomness(self.random_state)
        self.components_ = self._charge_and_run(
            plan, delta, randomness, (records, index, dissimilar)
        )
        self._n_features_out = len(self.components_)
        self.kappa_, self.noise_scale_ = kappa, descent.noise.sigma / descent.clip
        return self


def _declared(options: Edges, *, private: bool) -> int:
    """Return kappa, which a private fit needs and does not compute."""
    if options.kappa is None and private:
        raise InvalidParameterError(
            "kappa must be declared: computed from the pairs it would reveal them. Give a public bound on how many pairs "
            "change together."
        )
    return 1 if options.kappa is None else int(options.kappa)


def _signs(y: Any, m: int) -> NDArray[np.int64]:
    array = np.asarray(y)
    if array.shape != (m,):
        raise InvalidPairsError(
            f"y must hold one label for each of {m} pairs; found shape {array.shape}."
        )
    if array.dtype.kind not in "iuf" or not np.all((array == 1) | (array == -1)):
        raise InvalidPairsError(
            "y must be +1 (similar) or -1 (dissimilar) for each pair; found other labels. "
            "From 0/1 use 2 * y - 1."
        )
    return array.astype(np.int64)
