"""The settings of each algorithm, one frozen dataclass each, as users pass them in ``algorithm=``.

What all algorithms of an estimator share (budget, records' norm, classes) are parameters of the estimator. An algorithm's
name, such as ``"gradient"``, stands for its options at their defaults. Flags are checked here, other values
where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from pairwise.noise.continuous import check_flag

__all__ = [
    "SMLQ",
    "ContrastiveOptions",
    "ConvexOptions",
    "EdgeListOptions",
    "Edges",
    "Ftrl",
    "Gradient",
    "InputPerturbation",
    "Matching",
    "NodeDP",
    "OffPair",
    "OnPair",
    "Options",
    "Pointwise",
    "Published",
    "Pure",
    "SGDOutput",
    "Statistics",
]

Self = TypeVar("Self", bound="Options")


@dataclass(frozen=True)
class Options:
    """Settings of one algorithm: immutable, and read by scikit-learn's searches as ``algorithm__<field>``."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields(self):
            if isinstance(field.default, bool):
                check_flag(field.name, getattr(self, field.name))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields, as scikit-learn asks of what has parameters."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __sklearn_clone__(self: Self) -> Self:
        return self

    @property
    def sampled(self) -> bool:
        """Whether records or pairs are sampled in secret, for which exact noise has no accountant."""
        return False


# --------------------------------------------------------------------------------------------------------------------
# Pair losses: PrivateAUCClassifier and PrivateMetricLearner


@dataclass(frozen=True)
class ConvexOptions(Options):
    """Settings of every algorithm that descends on a pair loss.

    Parameters
    ----------
    loss : {"logistic", "hinge", "contrastive"}, default="logistic"
        Pair loss. GIGA needs the smooth one; the contrastive loss is for metrics by ``Gradient``.
    clip : float, optional
        Bound on one pair's gradient norm, at most G. Default for AUC: 2R, which makes the logistic loss linear on wrongly
        ordered pairs and halves the noise; for metrics, by ``Gradient`` only: R².
    radius : float, optional
        Of the ball that the parameter lives in; default from public numbers (``gradient.default_radius`` for AUC; for
        metrics 2√k/R on the factor or 1/R² on M).
    """

    loss: str = "logistic"
    clip: float | None = None
    radius: float | None = None


@dataclass(frozen=True)
class Gradient(ConvexOptions):
    """Noisy gradient descent on pairs (mechanisms.md 7.1).

    Parameters
    ----------
    loss, clip, radius
        As in ``ConvexOptions``.
    steps, rate : optional
        T and η; defaults from public numbers.
    batching : {"auto", "all-pairs", "matching"}, default="auto"
    batch_size : int, optional
        Draw that many records per step, secretly, and account by Rényi DP.
    device : str, default="cpu"
        A torch device, such as "cuda", for the weights of all pairs with the logistic loss; float64 there too.
    """

    name = "gradient"
    steps: int | None = None
    rate: float | None = None
    batching: str = "auto"
    batch_size: int | None = None
    device: str = "cpu"

    @property
    def sampled(self) -> bool:
        """Whether batches are drawn in secret."""
        return self.batch_size is not None


@dataclass(frozen=True)
class OnPair(ConvexOptions):
    """Online GIGA, also by ``partial_fit`` (HUAI algorithms 1, 2): ``"onpairstrc"`` and ``"onpairc"``.

    Parameters
    ----------
    loss, clip, radius
        As in ``ConvexOptions``.
    strong : bool, default=True
        Whether the loss is taken as strongly convex (algorithm 1) or as convex (2).
    alpha : float, optional
        Regulariser. Sound defaults: 1 (strongly convex) and n^-1/4 (convex); published: 1e-3 and n^-1/2.
    horizon : int, optional
        Largest number of records that ``partial_fit`` will ever see; required there.
    track_regret : bool, default=False
        ``partial_fit`` appends each record's loss at the parameter released before it to ``regret_``. Not private.
    allow_vacuous : bool, default=False
        The published form with a burn-in T₁ >= n learns nothing; refused unless this is set.
    """

    strong: bool = True
    alpha: float | None = None
    horizon: int | None = None
    track_regret: bool = False
    allow_vacuous: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """HUAI's name of the algorithm."""
        return "onpairstrc" if self.strong else "onpairc"


@dataclass(frozen=True)
class OffPair(ConvexOptions):
    """GIGA with output perturbation (HUAI algorithms 3, 4): ``"offpairstrc"`` and ``"offpairc"``.

    Parameters
    ----------
    loss, clip, radius
        As in ``ConvexOptions``.
    strong, alpha, allow_vacuous
        As in ``OnPair``; ``alpha`` of the convex form in published mode only.
    rate : float, optional
        Step size of the convex form in sound mode.
    """

    strong: bool = True
    alpha: float | None = None
    rate: float | None = None
    allow_vacuous: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """HUAI's name of the algorithm."""
        return "offpairstrc" if self.strong else "offpairc"


@dataclass(frozen=True)
class Ftrl(ConvexOptions):
    """Private follow-the-regularised-leader on released sums of gradients; best for streams of a thousand records and more.

    Parameters
    ----------
    loss, clip, radius
        As in ``ConvexOptions``.
    sums : {"square-root", "tree"}, default="square-root"
        How sums of gradients are released. From a thousand records on the square root has less than half of the tree's
        noise; it keeps all gradients, and its time grows with the square of the horizon.
    horizon, track_regret
        As in ``OnPair``.
    """

    name = "ftrl"
    sums: str = "square-root"
    horizon: int | None = None
    track_regret: bool = False


@dataclass(frozen=True)
class SGDOutput(ConvexOptions):
    """Blocked SGD with output perturbation (YANG algorithm 2): ``"sgd-output"``.

    Parameters
    ----------
    loss, clip, radius
        As in ``ConvexOptions``.
    steps, rate : optional
        T and η; defaults from public numbers.
    """

    name = "sgd-output"
    steps: int | None = None
    rate: float | None = None


@dataclass(frozen=True)
class Statistics(Options):
    """One Gaussian release of class moments; the square loss of an AUC, or discriminant directions, from it."""

    name = "statistics"


@dataclass(frozen=True)
class Pointwise(Options):
    """Noisy gradient descent on a loss of single records around a private centre (mechanisms.md 10.6): ``"pointwise"``.

    Parameters
    ----------
    loss : {"square", "logistic"}, default="square"
        Residuals are cut to [-1/2, 1/2], so the square loss is Huber's.
    intercept : float, default=0.3
        Public constant feature, in [0, 1], which takes up what the released centre missed.
    scale_share : float, optional
        Share of μ² with which the second moment around the centre is released, by which features are then scaled and made
        uncorrelated, as far as its noise lets tell (``coordinates.scaling``). Default from public numbers
        (``coordinates.default_scale_share``); 0 leaves features as they are, and so does an estimator's
        ``centre_share=0``.
    radius : float, optional
        Of the ball that the parameter lives in, for records of norm 1; default from public numbers, twice that of
        ``gradient.default_radius``.
    steps, rate : optional
        T and η; defaults from public numbers.
    """

    name = "pointwise"
    loss: str = "square"
    intercept: float = 0.3
    scale_share: float | None = None
    radius: float | None = None
    steps: int | None = None
    rate: float | None = None


# --------------------------------------------------------------------------------------------------------------------
# Contrastive metrics: DPPMetricLearner


@dataclass(frozen=True)
class ContrastiveOptions(Options):
    """Settings of every contrastive descent.

    Parameters
    ----------
    margin : float, optional
        m of the contrastive loss, public. Default √2 · ``data_norm``, the distance of two orthogonal records at the bound.
    clip : float, optional
        Norm to which the gradient of each pair is clipped, as a whole matrix: Frobenius, or l1 with Laplace noise.
        Default a tenth of ``data_norm``², small enough to bind for most pairs, so that a pair counts by its direction;
        0.5, the paper's h, in the published form.
    n_steps : int, default=10
        Gradient steps; epochs (T_max) with Laplace noise and in the published form.
    learning_rate : float, optional
        Factor on the noisy mean gradient, in units of ``clip`` and divided by √``n_steps``. Default 60, or from public
        numbers and the length of W where a release gave the initial W; in the published form 1, with the step size 1/√τ.
    init : ndarray of shape (n_components, n_features), optional
        Public initial W. Default: what ``start_share`` pays for, or the identity, or random orthonormal rows if
        ``n_components`` < d.
    """

    margin: float | None = None
    clip: float | None = None
    n_steps: int = 10
    learning_rate: float | None = None
    init: Any = None


@dataclass(frozen=True)
class EdgeListOptions(ContrastiveOptions):
    """Settings of every algorithm on a list of pairs.

    Parameters
    ----------
    margin, clip, n_steps, learning_rate, init
        As in ``ContrastiveOptions``.
    topology : {"private", "public"}, default="private"
        Whether it is public *who is paired with whom*. If it is, the statement says so, and a kappa below the true bound
        of the graph is refused.
    """

    topology: str = "private"


@dataclass(frozen=True)
class Matching(ContrastiveOptions):
    """Descent on a fresh random perfect matching of all individuals in every step (mechanisms.md 4.3 A).

    An individual is in one pair a step, so no graph quantity matters. Protects individuals, classes included; the one to
    choose when individuals are given.

    Parameters
    ----------
    margin, clip, n_steps, learning_rate, init
        As in ``ContrastiveOptions``.
    shrinkage : bool, default=True
        Use of the noisy sum of steps only what exceeds noise of the same size. Post-processing: without it W is the plain
        sum of noisy steps. Without noise nothing is shrunk.
    adaptive_clip : bool, default=False
        Move ``clip`` towards the median gradient norm by a noisy count at every step, paid from the same budget
        (Andrew et al. 2021).
    start_share : float, default=0.8
        Without ``init``: share of μ² for one release of class moments, from which W starts
        (``pairwise.algorithms.contrastive_start``). 0 starts at a public W and spends all on the descent.
    """

    name = "matching"
    shrinkage: bool = True
    adaptive_clip: bool = False
    start_share: float = 0.8


@dataclass(frozen=True)
class Edges(EdgeListOptions):
    """Noisy gradient descent on the edge list, accounted for groups of ``kappa`` pairs (mechanisms.md 4.3 B).

    Parameters
    ----------
    margin, clip, n_steps, learning_rate, init, topology
        As in ``EdgeListOptions``.
    relationship : {"transitive", "intransitive"}, default="transitive"
        What a public topology implies for kappa: in classes similarity travels along paths, among friends it does not.
    adjacency : {"zero-out", "replace-one"}, optional
        Whether the kappa pairs are removed (default) or changed in place, at twice the noise; in-place change needs
        ``sampling_rate=1``.
    shrinkage, adaptive_clip
        As in ``Matching``.
    sampling_rate : float, default=1.0
        Chance of each pair to enter a step. 1 uses every pair in every step, which gives the least noise for what it costs
        in time; smaller rates are faster per step.
    """

    name = "edges"
    relationship: str = "transitive"
    adjacency: str | None = None
    shrinkage: bool = True
    adaptive_clip: bool = False
    sampling_rate: float = 1.0

    @property
    def sampled(self) -> bool:
        """Whether pairs enter a step by a coin."""
        return self.sampling_rate != 1


@dataclass(frozen=True)
class Pure(EdgeListOptions):
    """Descent on the edge list with exact discrete Laplace noise and δ = 0 (mechanisms.md 4.3 C).

    Parameters
    ----------
    margin, clip, n_steps, learning_rate, init, topology, relationship, adjacency, shrinkage
        As in ``Edges``.
    n_batches : int, default=1
        Disjoint batches per epoch, to which pairs are assigned by coins independent of the data.
    """

    name = "pure"
    relationship: str = "transitive"
    adjacency: str | None = None
    shrinkage: bool = True
    n_batches: int = 1


@dataclass(frozen=True)
class NodeDP(EdgeListOptions):
    """The baseline that charges ``kappa`` = a declared degree cap (mechanisms.md DPP-13): ``"node-dp"``.

    With Gaussian noise it is ``Edges``, with ``noise="laplace"`` of the learner ``Pure``.

    Parameters
    ----------
    margin, clip, n_steps, learning_rate, init, topology, adjacency, shrinkage, adaptive_clip, sampling_rate
        As in ``Edges``; the last two with Gaussian noise.
    n_batches
        As in ``Pure``, with Laplace noise.
    """

    name = "node-dp"
    adjacency: str | None = None
    shrinkage: bool = True
    adaptive_clip: bool = False
    sampling_rate: float = 1.0
    n_batches: int = 1

    @property
    def sampled(self) -> bool:
        """Whether pairs enter a step by a coin."""
        return self.sampling_rate != 1


@dataclass(frozen=True)
class InputPerturbation(ContrastiveOptions):
    """The baseline that perturbs each individual once (mechanisms.md DPP-13): ``"input-perturbation"``."""

    name = "input-perturbation"


@dataclass(frozen=True)
class Published(EdgeListOptions):
    """Algorithm 1 of the DPP paper as printed, on an edge list; the statement says what is true of it.

    Parameters
    ----------
    margin, clip, n_steps, learning_rate, init, topology, relationship
        As in ``Edges``.
    variant : {"dpp_thm1", "dpp_s", "scdf", "duchi"}, default="dpp_thm1"
        Which noise of the paper.
    batch_size : int, default=50
        |B|.
    """

    name = "published"
    relationship: str = "transitive"
    variant: str = "dpp_thm1"
    batch_size: int = 50


# --------------------------------------------------------------------------------------------------------------------
# PrivateMail


@dataclass(frozen=True)
class SMLQ(Options):
    """The iteration of PrivateMail: one noisy step and post-processing.

    Parameters
    ----------
    alpha : float, default=0.5
        α >= 0, weight of the label term.
    bandwidth : float, default=5.0
        σ of the Gaussian kernel exp(-d²/2σ²) of rows of norm 1.
    iterations : int, default=5
        T, steps after the noisy one (post-processing).
    init_scale : float, optional
        σ_q of the initial embedding. Default 1 (the noise grows with it, so it does not matter in the sound form) and the
        paper's 1e-8 in the published one, whose later iterations need a tiny embedding.
    kernel : {"dense", "neighbours"}, default="dense"
        Kernel of the later iterations. The noisy step is always dense, as its sensitivity asks for; neither ever holds an
        n x n matrix.
    n_neighbors : int, default=30
        For ``"neighbours"``. The label term then outweighs the feature term by a factor of about n/n_neighbors: take
        ``alpha`` smaller by as much.
    """

    name = "smlq"
    alpha: float = 0.5
    bandwidth: float = 5.0
    iterations: int = 5
    init_scale: float | None = None
    kernel: str = "dense"
    n_neighbors: int = 30
