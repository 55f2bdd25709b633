"""PrivateMail: the embedding of the paper, repaired, and its published form with an honest label.

What is released, at which sensitivity and under which statement is decided here; the iteration and the sensitivity are
in ``pairwise.algorithms.smlq``, the paper's own constants in ``pairwise.algorithms.published.mail``. The repair makes
the first step private, labels included; it does not make it informative, since row r of the release must hide record r
alone whatever n is (mechanisms.md 8.2). For retrieval use ``pairwise.retrieval.subset``, for a private embedding
``pairwise.algorithms.moments``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairwise.accounting.events import compose, gaussian_event, pure_event
from pairwise.accounting.zcdp import release_mu
from pairwise.algorithms.input_perturbation import randomised_response
from pairwise.algorithms.options import SMLQ, Options
from pairwise.algorithms.published.mail import PUBLISHED_TRUTH, PublishedMail, published_constant
from pairwise.algorithms.smlq import (
    Array,
    DenseKernel,
    LabelKernel,
    NeighbourKernel,
    SymmetricKernel,
    iterate,
    smlq_sensitivity,
    smlq_step,
    unit_rows,
)
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import keeps_state_on_error, refuse_fit_parameters
from pairwise.estimators.choice import AlgorithmChoice
from pairwise.noise.continuous import check_number, check_positive, check_whole
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import plan_gaussian
from pairwise.plan import Plan

if TYPE_CHECKING:
    from pairwise.accounting.budget import PrivacyBudget

__all__ = ["PrivateMail"]

_STEP_NOTE = (
    "noise was drawn exactly on a grid and pays for the rounding to it; what rounding inside the SMLQ step may reveal has "
    "no proof (mechanisms.md 2.2)"
)

_SCALED = "every record is scaled, on its own, to norm 1, and one of zeros stays as it is"

_LABELS = ("withheld", "public", "randomised")


class PrivateMail(AlgorithmChoice):
    """Supervised manifold embedding of a table by one noisy SMLQ step and post-processing.

    An embedding has a row for each record, so the paper's system can be compared; new points have none (there is no
    ``transform``). ``pairwise.PrivateLDA`` gives a private embedding that is useful, ``pairwise.SubsetQuery`` a
    private query.

    Parameters
    ----------
    n_components : int, default=2
        k.
    epsilon : float, default=1.0
        Infinity gives the paper's SMLQ without noise.
    delta : float, optional
        Default min(1e-5, n^-1.5).
    algorithm : "smlq" or SMLQ, default="smlq"
        The iteration and its settings (``pairwise.algorithms.options.SMLQ``).
    labels : {"withheld", "public", "randomised"}, default="withheld"
        What the later iterations may know of the classes. ``"withheld"``: nothing. ``"public"``: everything; the
        statement then says that labels are not protected. ``"randomised"``: a k-ary randomised response of each,
        which costs ``label_epsilon`` out of ``epsilon``.
    label_epsilon : float, optional
        For ``"randomised"``; default half of ``epsilon``.
    mode : {"sound", "published"}, default="sound"
        ``"published"``: ordinal label kernel, the printed noise, raw labels in all iterations. Warns; no guarantee.
    classes : array-like, optional
        Public list of labels. Without it the list is read from y, and the statement says so.
    allow_large_delta : bool, default=False
    budget : PrivacyBudget, optional
    random_state : int, RandomState or None, default=None
        As in ``PrivateAUCClassifier``.
    **deprecated
        Options of the algorithm.

    Attributes
    ----------
    embedding_ : (n, k) array
    objectives_ : list of float
        Equation 3 before and after each later iteration, on the released embedding (for infinite epsilon: each
        iteration on the data). Never increases.
    statement_, privacy_event_, classes_, n_features_in_

    References
    ----------
    Vepakomma, Balla, Raskar, PrivateMail, Theorem 1, Theorem 2 and Figure 4; mechanisms.md 8.2 and 8.3.

    Examples
    --------
    >>> import numpy as np
    >>> from pairwise import PrivateMail
    >>> X = np.repeat([[1.0, 0.0], [0.0, 1.0]], 20, axis=0)
    >>> mail = PrivateMail(epsilon=1.0, delta=1e-4, classes=[0, 1])
    >>> mail.fit_transform(X, np.repeat([0, 1], 20)).shape, mail.statement_.epsilon
    ((40, 2), 1.0)
    """

    data_norm = 1.0
    _clips: ClassVar[bool] = False  # rows are scaled: short ones become longer

    _algorithms: ClassVar[dict[str, Options]] = {"smlq": SMLQ()}

    def __init__(
        self,
        n_components: int = 2,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        algorithm: str | Options = "smlq",
        labels: str = "withheld",
        label_epsilon: float | None = None,
        mode: str = "sound",
        classes: Any = None,
        allow_large_delta: bool = False,
        budget: PrivacyBudget | None = None,
        random_state: Any = None,
        **deprecated: Any,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.algorithm = self._chosen(algorithm, deprecated)
        self.labels = labels
        self.label_epsilon = label_epsilon
        self.mode = mode
        self.classes = classes
        self.allow_large_delta = allow_large_delta
        self.budget = budget
        self.random_state = random_state

    @keeps_state_on_error
    def fit(self, X: ArrayLike, y: ArrayLike, **refused: Any) -> PrivateMail:
        """Release an embedding of the table.

        Parameters
        ----------
        X : (n, d) array-like
            n >= 4; rows are scaled to norm 1.
        y : (n,) array-like
            Class labels.
        """
        refuse_fit_parameters(refused)
        table, labels = self._check_table(X, y)
        delta = self._check_settings(len(table))
        self._check_choices()
        classes = self._check_classes(labels)
        codes = np.searchsorted(classes, labels).astype(np.int64)
        randomness = Randomness(self.random_state)
        records = unit_rows(table)
        if self.mode == "published":
            plan = self._published(records, codes, len(classes), delta, randomness)
        elif math.isinf(self.epsilon):
            plan = self._without_noise(records, codes, len(classes), randomness)
        else:
            plan = self._sound(records, codes, len(classes), delta, randomness)
        self.embedding_, self.objectives_ = self._execute(plan, delta, randomness, n=len(table))
        self.classes_ = classes
        return self

    def fit_transform(self, X: ArrayLike, y: ArrayLike, **refused: Any) -> Array:
        """Release an embedding of the table and return it, shape (n, k)."""
        return self.fit(X, y, **refused).embedding_

    def _check_choices(self) -> None:
        if self.mode not in ("sound", "published"):
            raise InvalidParameterError(
                f"mode must be 'sound' or 'published'; found {self.mode!r}."
            )
        if self.labels not in _LABELS:
            raise InvalidParameterError(
                f"labels must be one of {', '.join(_LABELS)}; found {self.labels!r}."
            )
        smlq = self._smlq
        if smlq.kernel not in ("dense", "neighbours"):
            raise InvalidParameterError(
                f"kernel must be 'dense' or 'neighbours'; found {smlq.kernel!r}."
            )
        check_whole("n_components", self.n_components)
        check_whole("iterations", smlq.iterations, least=0)
        check_whole("n_neighbors", smlq.n_neighbors)
        check_number("alpha", smlq.alpha)
        check_positive(bandwidth=smlq.bandwidth, init_scale=self._scale())
        if self.label_epsilon is not None:
            check_number("label_epsilon", self.label_epsilon)
        unread = {}
        if self.mode == "published" and self.labels == "randomised":
            unread["labels"] = "mode='published', whose iterations see the labels themselves"
        if self.labels != "randomised":
            unread["label_epsilon"] = f"labels={self.labels!r}"
        self._refuse_unread(unread)

    # -- plans

    @property
    def _smlq(self) -> SMLQ:
        return cast(SMLQ, self._options)

    def _scale(self) -> float:
        scale = self._smlq.init_scale
        if scale is None:
            return 1e-8 if self.mode == "published" else 1.0
        return scale

    def _start(self, n: int, randomness: Randomness) -> Array:
        return self._scale() * randomness.normal((n, int(self.n_components)))

    def _kernel(self, points: Array, bandwidth: float) -> SymmetricKernel:
        if self._smlq.kernel == "neighbours":
            return NeighbourKernel(points, bandwidth, int(self._smlq.n_neighbors))
        return DenseKernel(points, bandwidth)

    def _without_noise(
        self, X: Array, codes: NDArray[np.int64], n_classes: int, randomness: Randomness
    ) -> Plan:
        """The paper's SMLQ, with L_X and L_Y of the data throughout."""

        def run() -> tuple[Array, list[float]]:
            start = self._start(len(X), randomness)
            kernel = self._kernel(X, self._smlq.bandwidth)
            labels = LabelKernel(codes, n_classes)
            return iterate(start, kernel, labels, self._smlq.alpha, 1 + int(self._smlq.iterations))

        return Plan(gaussian_event(0.0), 0.0, run, "SMLQ without noise", "", assumptions=(_SCALED,))

    def _sound(
        self,
        X: Array,
        codes: NDArray[np.int64],
        n_classes: int,
        delta: float,
        randomness: Randomness,
    ) -> Plan:
        epsilon, alpha = float(self.epsilon), self._smlq.alpha
        label_epsilon = 0.0
        if self.labels == "randomised":
            label_epsilon = epsilon / 2 if self.label_epsilon is None else float(self.label_epsilon)
            if not 0 < label_epsilon < epsilon:
                raise InvalidParameterError(
                    f"label_epsilon must be between 0 and epsilon = {epsilon:g}; found {label_epsilon!r}."
                )
        mu = release_mu(epsilon - label_epsilon, delta, hardened=True)
        # The start is drawn before anything private is read, and may be known to everybody.
        start = self._start(len(X), randomness)
        sensitivity = smlq_sensitivity(start, alpha, self._smlq.bandwidth)
        noise = plan_gaussian(sensitivity, mu, start.size, hardened=True)
        event = noise.event()
        if label_epsilon:
            event = compose([event, pure_event(label_epsilon)])

        def run() -> tuple[Array, list[float]]:
            kernel = DenseKernel(X, self._smlq.bandwidth)
            first = smlq_step(start, kernel, LabelKernel(codes, n_classes), alpha)
            released = noise.release(first, randomness)
            known = codes
            if self.labels == "randomised":
                known = randomised_response(codes, n_classes, label_epsilon, randomness)
            later = None if self.labels == "withheld" else LabelKernel(known, n_classes)
            # The bandwidth was meant for rows of norm 1; the release has a spread of its own.
            spread = math.sqrt(2.0 * float(released.var(axis=0).sum()))
            return iterate(
                released, self._kernel(released, spread), later, alpha, int(self._smlq.iterations)
            )

        return Plan(
            event=event,
            sensitivity=sensitivity,
            run=run,
            mechanism=f"PrivateMail, repaired: one SMLQ step with Gaussian noise, labels {self.labels} afterwards",
            proof="mechanisms.md 8.2 (correct sensitivity of one SMLQ step), 2.2 and 1.3",
            assumptions=(_SCALED, "the start of the iteration is drawn independently of the data"),
            not_protected=("the labels, declared public",) if self.labels == "public" else (),
            notes=(
                "each row of the release hides one record by itself, so it carries little about it",
            ),
            arithmetic=("real", _STEP_NOTE),
        )

    def _published(
        self,
        X: Array,
        codes: NDArray[np.int64],
        n_classes: int,
        delta: float,
        randomness: Randomness,
    ) -> Plan:
        if math.isinf(self.epsilon):
            raise InvalidParameterError("mode='published' needs a finite epsilon, for its noise.")
        mail = PublishedMail(
            epsilon=float(self.epsilon),
            n_classes=n_classes,
            delta=delta,
            n_components=int(self.n_components),
            alpha=self._smlq.alpha,
            bandwidth=self._smlq.bandwidth,
            init_scale=self._scale(),
            iterations=int(self._smlq.iterations),
        )
        # Refuses denominators that are not positive before anything is drawn for the release.
        published_constant(len(X), mail.alpha, mail.bandwidth, n_classes - 1)

        def run() -> tuple[Array, list[float]]:
            released = mail.release(X, codes, randomness)
            return mail.carry_on(released, codes)

        return Plan(
            event=gaussian_event(0.0),
            sensitivity=math.inf,
            run=run,
            mechanism="PrivateMail as published (Figure 4, Algorithm 1)",
            proof="",
            epsilon=None,
            delta=0.0,
            proved=False,
            assumptions=(_SCALED,),
            unsound="PrivateMail as published has no guarantee: "
            + "; ".join(PUBLISHED_TRUTH)
            + ".",
            notes=PUBLISHED_TRUTH,
            not_protected=("the labels",),
        )
