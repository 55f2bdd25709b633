"""``DPPMetricLearner``: private contrastive metric learning from a list of pairs.

Source: Li, Pan, Sui, Tsang, *Secure Metric Learning via Differential Pairwise Privacy*, in the sound form of the errata
(DPP-1 to DPP-12): clipped as a whole matrix, with a declared multiplicity, noise on sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwise.accounting.events import Adjacency
from pairwise.accounting.gaussian import release_mu
from pairwise.algorithms.contrastive import DriftDescent, clipped_gradient_sum, orthonormal_rows
from pairwise.algorithms.options import Edges
from pairwise.errors import InvalidPairsError, check_whole
from pairwise.estimators.base import FitPlan, keeps_state_on_error, refuse_fit_parameters
from pairwise.estimators.metric import MahalanobisMetric
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import plan_gaussian
from pairwise.pairs.clipping import clip_records
from pairwise.pairs.topology import PairGraph, group_size

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from sklearn.utils import Tags

    from pairwise.accounting.budget import PrivacyBudget

Array = NDArray[np.float64]


class DPPMetricLearner(MahalanobisMetric):
    """A Mahalanobis metric M = WᵀW from pairs, by private contrastive gradient descent.

    It protects *pairs*: any ``kappa`` of them. For individuals with classes use ``PrivateMetricLearner``.

    Parameters
    ----------
    epsilon : float
        Natural-log bound; infinity is the non-private reference.
    delta : float, optional
        Below one over the number of pairs; default min(1e-5, m^-1.5).
    kappa : int or Edges, optional
        How many pairs may change together, a declared public bound. It protects an *individual* only if nobody can be in
        more than kappa pairs. ``Edges(kappa, ...)`` for a public topology and the other settings.
    n_components : int or None, default=None
        Rows of W; at most d. None: d, which starts at the Euclidean metric.
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
        tags.target_tags.required = True
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    @property
    def _options(self) -> Edges:
        return self.kappa if isinstance(self.kappa, Edges) else Edges(self.kappa)

    @keeps_state_on_error
    def fit(self, pairs: Any, y: Any, **refused: Any) -> DPPMetricLearner:
        """Learn W.

        Parameters
        ----------
        pairs : array-like
            (m, 2, d) points, or (m, 2) indices into ``preprocessor``. Each row is one pair; with a private topology a
            repeated pair counts as often as it is listed.
        y : (m,) array-like
            +1 (similar) or −1 (dissimilar).
        """
        refuse_fit_parameters(refused)
        options = self._options
        options.check()
        if self.n_components is not None:
            check_whole("n_components", self.n_components)
        points, index = self._points_and_index(pairs)
        dissimilar = _signs(y, len(index)) < 0
        self.n_features_in_ = points.shape[1]
        delta = self._check_settings(len(index))
        graph = None
        if options.topology == "public":
            graph = self._public_graph(pairs, len(points))
        self.kappa_ = group_size(options.kappa, graph, private=math.isfinite(float(self.epsilon)))
        randomness = Randomness(self.random_state)
        records = clip_records(points, float(self.data_norm))
        plan = self._plan(records, index, dissimilar, delta, graph, randomness)
        self.components_ = self._execute(plan, delta, randomness, len(index))
        self._n_features_out = len(self.components_)
        return self

    def _public_graph(self, pairs: Any, n: int) -> PairGraph:
        if np.ndim(pairs) != 2:
            raise InvalidPairsError(
                "a public topology says who is paired with whom: pass (m, 2) indices and preprocessor=. Whether two points "
                "are one individual would be read off their features, which are private."
            )
        return PairGraph(np.asarray(pairs), n)

    def _plan(
        self,
        points: Array,
        index: NDArray[np.int64],
        dissimilar: NDArray[np.bool_],
        delta: float,
        graph: PairGraph | None,
        randomness: Randomness,
    ) -> FitPlan:
        """Return the plan of descent on all pairs.

        kappa clipped gradients move the sum by at most kappa times the clip, twice that where pairs change in place.
        """
        options, kappa, m, d = self._options, self.kappa_, len(index), points.shape[1]
        R, steps = float(self.data_norm), int(options.n_steps)
        clip = 0.1 * R * R if options.clip is None else float(options.clip)
        in_place = Adjacency(options.adjacency) is Adjacency.REPLACE_ONE
        moved = (2.0 if in_place else 1.0) * kappa * clip
        rows = d if self.n_components is None else min(int(self.n_components), d)
        mu = release_mu(float(self.epsilon), delta)
        noise = plan_gaussian(moved, mu / math.sqrt(steps), rows * d)
        self.noise_scale_ = noise.sigma / clip

        def run() -> Array:
            start = orthonormal_rows(rows, d, randomness)
            step = float(options.learning_rate) / math.sqrt(steps) / (m * clip)
            descent = DriftDescent(start, step, randomness)
            for _ in range(steps):
                total = clipped_gradient_sum(
                    descent.W,
                    points,
                    index,
                    dissimilar,
                    margin=math.sqrt(2.0) * R,
                    clip=clip,
                )
                descent.descend(noise.release(total, randomness), noise.sigma)
            return descent.W

        return self._described(noise.event(steps), moved, run, graph)

    def _described(
        self, event: DpEvent, moved: float, run: Callable[[], Array], graph: PairGraph | None
    ) -> FitPlan:
        """Return the plan with what its statement says."""
        options, kappa = self._options, self.kappa_
        declared = f"kappa = {kappa} was declared without looking at the pairs"
        return FitPlan(
            event=event,
            sensitivity=moved,
            run=run,
            mechanism=(
                f"contrastive metric learning on a list of pairs ({options.n_steps} steps, all pairs, Gaussian noise, "
                f"kappa = {kappa})"
            ),
            proof="errata DPP-2 (one clip of the whole matrix); groups of pairs by adding up",
            adjacency=Adjacency(options.adjacency),
            unit="any one pair" if kappa == 1 else f"any {kappa} pairs",
            assumptions=(
                "the number of pairs is public",
                "the topology of the pairs is public" if graph else declared,
            ),
            not_protected=("who is paired with whom",) if graph else (),
            notes=(_individuals(kappa, graph),),
        )


def _individuals(kappa: int, graph: PairGraph | None) -> str:
    if graph is not None and graph.max_degree <= kappa:
        return "nobody is in more pairs than kappa, so all pairs of one individual are covered together"
    return (
        f"an individual in more than {kappa} pairs is not protected as a whole, only any {kappa} of the pairs "
        "(errata DPP-12)"
    )


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
