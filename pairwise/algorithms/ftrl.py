"""Private follow-the-regularised-leader on a stream of records: released sums of gradients, and the stream.

Here live the exact sensitivities of two ways to release all prefix sums, their noise and the stream. Which gradients a
record changes is ``giga``'s business too, so the pair gradients and the stream of records come from there and from
``gradient``.

Step t takes the mean gradient g_t of record t with all earlier ones, at a parameter that was released before. A replaced
record j changes it by at most c_j(t)·D: 1 at t = j, 1/(t − 1) later, nothing before. Given what was released before, the
parameters of these steps are fixed, so each release below is one adaptive Gaussian release, and all of them together cost
one Gaussian with the largest root of their summed squared changes (mechanisms.md 5.2, 1.2).

*Square root.* The matrix of ones below and on the diagonal is the square of the Toeplitz matrix with the coefficients r_k =
binom(2k, k)/4^k (Henzinger, Upadhyay, Upadhyay, "Almost Tight Error Bounds on Differentially Private Continual Counting",
2023). Released is y_t = Σ_s r_(t−s) g_s + noise after each step; the prefix sum is Σ_s r_(t−s) y_s, post-processing
(Denisov, McMahan, Rush, Smith, Thakurta 2022, theorem 2.1, for streams that react). All r_k are positive, so the worst
record turns all its gradients one way and moves y by D·‖r * c_j‖. Counted from its own step on, c_j falls in every place
as j grows, and fewer steps are left: the record of the first active step is the worst. One from before it has the same
later entries without its first one.

*Tree.* Every node of a binary tree over the active steps is the sum over its steps plus noise, released when its last step
is done: D·max_j √Σ_nodes (Σ_{t in node} c_j(t))². A sum of t steps needs log₂ t nodes.

Both noises of a prefix sum grow like log n, where releasing every iterate of GIGA needs noise that grows like √n. From a
thousand steps on the square root's is less than half of the tree's; it takes time and memory for all earlier steps at each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairwise.algorithms.giga import PairStream, largest_horizon
from pairwise.errors import InvalidParameterError
from pairwise.noise.lattice import lattice_gaussian_plan
from pairwise.noise.release import GaussianPlan, plan_gaussian

if TYPE_CHECKING:
    from collections.abc import Callable

    from dp_accounting import DpEvent

    from pairwise.noise.randomness import Randomness
    from pairwise.pairs.domains import Domain
    from pairwise.pairs.sums import AUCPairs, MetricPairs

__all__ = [
    "LeaderPlan",
    "OnlineRoot",
    "OnlineTree",
    "plan_leader",
    "root_coefficients",
    "root_sensitivity",
    "tree_sensitivity",
]

Array = NDArray[np.float64]
Sums = Literal["square-root", "tree"]

# Share of the horizon that only fills the history: without the first records, whose every pair weighs much, a tree of 2,000
# steps has a third of the sensitivity. The best of four shares on synthetic tables.
_BURN_IN = 0.2


# Numbers that a stream keeps of its gradients: twice 0.8 GB.
_LARGEST_KEPT = 100_000_000


def root_coefficients(n: int) -> Array:
    """Return r_k = binom(2k, k)/4^k for k < n, shape (n,): their convolution with themselves is 1, 1, 1, ..."""
    k = np.arange(1, n)
    return np.concatenate(([1.0], np.cumprod((2 * k - 1) / (2 * k))))


def root_sensitivity(n: int, first: int = 2) -> float:
    """Return max_j ‖r * c_j‖ over the active steps ``first``..n, in units of D (head of this module), O(n log n).

    Parameters
    ----------
    n : int
        The last step.
    first : int, default=2
        The first active step; the record of step 1 has no pair there.
    """
    from scipy.signal import fftconvolve

    if not 2 <= first <= n:
        raise InvalidParameterError(f"first must be in 2..n = {n}; found {first!r}.")
    worst = 1.0 / np.arange(first - 1, n)
    worst[0] = 1.0
    moved = fftconvolve(root_coefficients(len(worst)), worst)[: len(worst)]
    # The transform is off by less than 1e-13 of the largest term at these lengths.
    return float(np.linalg.norm(moved)) * (1.0 + 1e-10)


def tree_sensitivity(n: int, first: int = 1) -> float:
    """Return max_j √Σ_nodes (Σ_{t in node} c_j(t))², in units of D, O(n log n).

    Parameters
    ----------
    n : int
        The last step.
    first : int, default=1
        The first active step. Leaves are ``first``..n, and a node is every run of 2^k of them that ends by n.
    """
    if not 1 <= first <= n:
        raise InvalidParameterError(f"first must be in 1..n = {n}; found {first!r}.")
    steps = np.arange(first, n + 1)
    later = np.where(steps > 1, 1.0 / np.maximum(steps - 1, 1), 0.0)
    own = np.where(steps > 1, 1.0, 0.0)  # step 1 has no pair
    leaves = len(steps)
    summed = np.concatenate(([0.0], np.cumsum(later)))
    # Of records of active steps: one from before moves every node by at most what the record of the first one does.
    squares = np.zeros(leaves)
    index = np.arange(leaves)
    size = 1
    while size <= leaves:
        nodes = leaves // size
        ends = np.arange(1, nodes + 1) * size
        whole = summed[ends] - summed[ends - size]
        # from_node[m] = Σ of squares over the nodes m, m + 1, ...: all of them see the record as an earlier one.
        from_node = np.concatenate((np.cumsum((whole**2)[::-1])[::-1], [0.0]))
        node = index // size
        inside = own + summed[np.minimum((node + 1) * size, leaves)] - summed[index + 1]
        squares += np.where(node < nodes, inside**2, 0.0)
        squares += from_node[np.minimum(node + 1, nodes)]
        size *= 2
    return math.sqrt(float(squares.max()))


def _count_nodes(leaves: int) -> int:
    return sum(leaves >> k for k in range(leaves.bit_length()))


@dataclass(frozen=True)
class LeaderPlan:
    """Noise of a stream's sums, fixed before its first record.

    Attributes
    ----------
    sums : {"square-root", "tree"}
    n, first : int
        Horizon, and the first active step.
    strength : float
        λ of the regulariser: w_t = Π[w₀ − S_t/λ].
    sensitivity : float
        Of all releases together.
    release : GaussianPlan
        Of one step, or of one node.
    event : DpEvent
        The whole stream, all of the horizon.
    """

    sums: Sums
    n: int
    first: int
    strength: float
    sensitivity: float
    release: GaussianPlan
    event: DpEvent = field(repr=False)

    vacuous = False

    @property
    def proof(self) -> str:
        """Where the sensitivity is proved."""
        if self.sums == "tree":
            return "mechanisms.md 5.2 (tree of gradients), 1.2"
        return "mechanisms.md 5.2 and 10.6 (square root), 1.2, head of pairwise.algorithms.ftrl"

    @property
    def description(self) -> str:
        """What the statement says of the stream."""
        kind = "binary tree" if self.sums == "tree" else "square-root factorisation"
        return f"{kind} of gradients, first step {self.first}, horizon {self.n}"

    def open(
        self,
        make_sums: Callable[[Array, NDArray], AUCPairs | MetricPairs],
        domain: Domain,
        anchor: Array,
        randomness: Randomness,
        *,
        random_start: bool = False,
    ) -> OnlineLeader:
        """Return the stream; there is no published form, hence no random start."""
        kind = OnlineTree if self.sums == "tree" else OnlineRoot
        return kind(make_sums, self, domain, anchor, randomness)


def plan_leader(
    n: int,
    pair_change: float,
    pair_bound: float,
    size: int,
    radius: float,
    mu: float,
    *,
    sums: Sums = "square-root",
    hardened: bool = False,
) -> LeaderPlan:
    """Fix the first step, the noise of a release and the regulariser from public numbers.

    Parameters
    ----------
    n : int
        Horizon, at least 4.
    pair_change, pair_bound : float
        D and G of the pair sums.
    size : int
        p, the number of coordinates of the parameter.
    radius : float
        Of the domain.
    mu : float
        What the stream may cost (``accounting.release_mu``).
    sums : {"square-root", "tree"}
    hardened : bool, default=False
        Exact noise on a grid of at most 2^-10 Δ/√(releases·p), so that rounding in all of them together moves the stream by
        at most 2^-10 Δ more (mechanisms.md 2.2).
    """
    if n < 4:
        raise InvalidParameterError(
            f"private pairwise learning needs at least 4 records; found n_samples = {n}. Collect more."
        )
    if sums not in ("square-root", "tree"):
        raise InvalidParameterError(f"sums must be 'square-root' or 'tree'; found {sums!r}.")
    largest_horizon(n)
    if sums == "square-root" and n * size > _LARGEST_KEPT:
        raise InvalidParameterError(
            f"the square root keeps all gradients, here {n} of {size} numbers each, more than {_LARGEST_KEPT:.0e} in all. "
            "Use algorithm=Ftrl(sums='tree')."
        )
    first = max(2, int(_BURN_IN * n))
    leaves = n - first + 1
    if sums == "tree":
        unit, releases, growth = tree_sensitivity(n, first), _count_nodes(leaves), math.log2(n)
    else:
        unit, releases = root_sensitivity(n, first), leaves
        growth = float(np.sum(root_coefficients(leaves) ** 2))
    sensitivity = pair_change * unit
    release = plan_gaussian(sensitivity, mu, 1)
    event = release.event()
    if hardened and math.isfinite(mu):
        from dp_accounting import ZCDpEvent

        share = sensitivity / math.sqrt(releases)
        sigma = sensitivity * (1.0 + 2.0**-10) / mu * (1.0 + 1e-12)
        lattice = lattice_gaussian_plan(share, size, sigma=sigma)
        release = GaussianPlan(sensitivity, sigma, lattice)
        event = ZCDpEvent(mu * mu / 2.0)
    # The usual regulariser of the leader: the root of the summed squares of what is added, noise included.
    spread = n * pair_bound**2 + size * release.sigma**2 * growth
    return LeaderPlan(sums, n, first, math.sqrt(spread) / radius, sensitivity, release, event)


class OnlineLeader(PairStream):
    """A stream of records with a private parameter after each, from noisy sums of gradients.

    The object holds raw records and noiseless sums: only ``released`` may leave. It refuses to be pickled.

    Parameters
    ----------
    make_sums : callable
        (X, y) → AUCPairs or MetricPairs over the records so far.
    plan : LeaderPlan
    domain : Domain
    anchor : array
        w₀.
    randomness : Randomness
    """

    def __init__(
        self,
        make_sums: Callable[[Array, NDArray], AUCPairs | MetricPairs],
        plan: LeaderPlan,
        domain: Domain,
        anchor: Array,
        randomness: Randomness,
    ) -> None:
        super().__init__(make_sums, plan.n, anchor)
        self.plan = plan
        self._domain = domain
        self._randomness = randomness

    def _advance(self, sums: Any, t: int) -> None:
        if t < self.plan.first:
            return
        # The gradient is taken at what was released, so its sums are all that touches the data.
        total = self._sum_with(self.mean_with_earlier(sums, self.released, t))
        self.released = np.asarray(self._domain.project(self._anchor - total / self.plan.strength))

    def _sum_with(self, exact: Array) -> Array:
        """Take one more gradient, and return the released sum of all so far."""
        raise NotImplementedError

    def _noisy(self, value: Array) -> Array:
        noisy = self.plan.release.release(value, self._randomness)
        return np.asarray((noisy + noisy.T) / 2.0) if noisy.ndim == 2 else noisy


class OnlineRoot(OnlineLeader):
    """The stream whose sums are released through the square root of the summing matrix."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        steps = self.plan.n - self.plan.first + 1
        self._coefficients = root_coefficients(steps)[::-1]
        shape = (steps, *self.released.shape)
        self._exact, self._released_terms, self._taken = np.zeros(shape), np.zeros(shape), 0

    def _sum_with(self, exact: Array) -> Array:
        self._exact[self._taken] = exact
        self._taken += 1
        weights = self._coefficients[-self._taken :]
        term = self._noisy(np.tensordot(weights, self._exact[: self._taken], axes=1))
        self._released_terms[self._taken - 1] = term
        return np.asarray(np.tensordot(weights, self._released_terms[: self._taken], axes=1))


class OnlineTree(OnlineLeader):
    """The stream whose sums are released through a binary tree."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Nodes of the sum so far, largest first: number of steps, exact sum, released sum.
        self._nodes: list[tuple[int, Array, Array]] = []

    def _sum_with(self, exact: Array) -> Array:
        self._nodes.append((1, exact, self._noisy(exact)))
        while len(self._nodes) > 1 and self._nodes[-1][0] == self._nodes[-2][0]:
            (size, right, _), (_, left, _) = self._nodes.pop(), self._nodes.pop()
            self._nodes.append((2 * size, left + right, self._noisy(left + right)))
        return np.asarray(np.sum([released for _, _, released in self._nodes], axis=0))
