"""Private follow-the-regularised-leader on a stream of records: gradient sums released through a binary tree.

Here live the exact sensitivity of the tree, its noise and the stream. Which gradients a record changes is ``giga``'s
business too, so the pair gradients and the stream of records come from there and from ``gradient``.

Step t takes the mean gradient of record t with all earlier ones, at a parameter that was released before. A replaced
record j changes it by at most c_j(t)·D: 1 at t = j, 1/(t − 1) later, nothing before. Every node of a binary tree over the
active steps is the sum over its steps plus Gaussian noise, released when its last step is done. Given what was released
before, the parameters of these steps are fixed, so each node is one adaptive release, and all of them together cost one
Gaussian with sensitivity D·max_j √Σ_nodes (Σ_{t in node} c_j(t))² (mechanisms.md 5.2, 1.2). A sum of t steps needs log₂ t
nodes, so its noise grows like log n, where releasing every iterate of GIGA needs noise that grows like √n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwise.algorithms.giga import PairStream, largest_horizon
from pairwise.errors import InvalidParameterError
from pairwise.noise.lattice import lattice_gaussian_plan
from pairwise.noise.release import GaussianPlan, plan_gaussian

if TYPE_CHECKING:
    from collections.abc import Callable

    from dp_accounting import DpEvent

    from pairwise.algorithms.gradient import AUCPairs, MetricPairs
    from pairwise.noise.randomness import Randomness
    from pairwise.pairs.domains import Domain

__all__ = ["OnlineTree", "TreePlan", "plan_tree", "tree_sensitivity"]

Array = NDArray[np.float64]

# Share of the horizon that only fills the history: without the first records, whose every pair weighs much, a tree of 2,000
# steps has a third of the sensitivity. The best of four shares on synthetic tables.
_BURN_IN = 0.2


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
    squares = np.zeros(
        leaves + 1
    )  # at 0 a record before the first active step, which only ever comes later in pairs
    index = np.arange(leaves)
    size = 1
    while size <= leaves:
        nodes = leaves // size
        ends = np.arange(1, nodes + 1) * size
        whole = summed[ends] - summed[ends - size]
        # from_node[m] = Σ of squares over the nodes m, m + 1, ...: all of them see the record as an earlier one.
        from_node = np.concatenate((np.cumsum((whole**2)[::-1])[::-1], [0.0]))
        squares[0] += from_node[0]
        node = index // size
        inside = own + summed[np.minimum((node + 1) * size, leaves)] - summed[index + 1]
        squares[1:] += np.where(node < nodes, inside**2, 0.0)
        squares[1:] += from_node[np.minimum(node + 1, nodes)]
        size *= 2
    if first == 1:
        squares[0] = 0.0  # there is no record before the first
    return math.sqrt(float(squares.max()))


def _count_nodes(leaves: int) -> int:
    return sum(leaves >> k for k in range(leaves.bit_length()))


@dataclass(frozen=True)
class TreePlan:
    """Noise of a tree over a stream, fixed before its first record.

    Attributes
    ----------
    n, first : int
        Horizon, and the first active step.
    strength : float
        λ of the regulariser: w_t = Π[w₀ − S_t/λ].
    sensitivity : float
        Of all nodes together.
    node : GaussianPlan
        The release of one node.
    event : DpEvent
        The whole stream, all of the horizon.
    """

    n: int
    first: int
    strength: float
    sensitivity: float
    node: GaussianPlan
    event: DpEvent = field(repr=False)

    vacuous = False
    proof = "mechanisms.md 5.2 (tree of gradients), 1.2"

    @property
    def description(self) -> str:
        """What the statement says of the stream."""
        return f"binary tree of gradients, first step {self.first}, horizon {self.n}"

    def open(
        self,
        make_sums: Callable[[Array, NDArray], AUCPairs | MetricPairs],
        domain: Domain,
        anchor: Array,
        randomness: Randomness,
        *,
        random_start: bool = False,
    ) -> OnlineTree:
        """Return the stream; there is no published form, hence no random start."""
        return OnlineTree(make_sums, self, domain, anchor, randomness)


def plan_tree(
    n: int,
    pair_change: float,
    pair_bound: float,
    size: int,
    radius: float,
    mu: float,
    *,
    hardened: bool = False,
) -> TreePlan:
    """Fix the first step, the noise of a node and the regulariser from public numbers.

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
    hardened : bool, default=False
        Exact noise on a grid of at most 2^-10 Δ/√(nodes·p), so that rounding in all nodes together moves the stream by at
        most 2^-10 Δ more (mechanisms.md 2.2).
    """
    if n < 4:
        raise InvalidParameterError(
            f"private pairwise learning needs at least 4 records; found n_samples = {n}. Collect more."
        )
    largest_horizon(n)
    first = max(2, int(_BURN_IN * n))
    sensitivity = pair_change * tree_sensitivity(n, first)
    leaves = n - first + 1
    whole = plan_gaussian(sensitivity, mu, 1)
    node = whole
    event = whole.event()
    if hardened and math.isfinite(mu):
        from dp_accounting import ZCDpEvent

        share = sensitivity / math.sqrt(_count_nodes(leaves))
        sigma = sensitivity * (1.0 + 2.0**-10) / mu * (1.0 + 1e-12)
        lattice = lattice_gaussian_plan(share, size, sigma=sigma)
        node = GaussianPlan(sensitivity, sigma, lattice)
        event = ZCDpEvent(mu * mu / 2.0)
    # The usual regulariser of the leader: the root of the summed squares of what is added, noise included.
    spread = n * pair_bound**2 + size * node.sigma**2 * math.log2(n)
    return TreePlan(n, first, math.sqrt(spread) / radius, sensitivity, node, event)


class OnlineTree(PairStream):
    """A stream of records with a private parameter after each, from noisy sums of gradients.

    The object holds raw records and noiseless sums: only ``released`` may leave. It refuses to be pickled.

    Parameters
    ----------
    make_sums : callable
        (X, y) → AUCPairs or MetricPairs over the records so far.
    plan : TreePlan
    domain : Domain
    anchor : array
        w₀.
    randomness : Randomness
    """

    def __init__(
        self,
        make_sums: Callable[[Array, NDArray], AUCPairs | MetricPairs],
        plan: TreePlan,
        domain: Domain,
        anchor: Array,
        randomness: Randomness,
    ) -> None:
        super().__init__(make_sums, plan.n, anchor)
        self.plan = plan
        self._domain = domain
        self._randomness = randomness
        # Nodes of the sum so far, largest first: number of steps, exact sum, released sum.
        self._nodes: list[tuple[int, Array, Array]] = []

    def _advance(self, sums: Any, t: int) -> None:
        if t < self.plan.first:
            return
        # The gradient is taken at what was released, so a tree is all that touches the data.
        exact = self.mean_with_earlier(sums, self.released, t)
        self._nodes.append((1, exact, self._noisy(exact)))
        while len(self._nodes) > 1 and self._nodes[-1][0] == self._nodes[-2][0]:
            (size, right, _), (_, left, _) = self._nodes.pop(), self._nodes.pop()
            self._nodes.append((2 * size, left + right, self._noisy(left + right)))
        total = np.sum([released for _, _, released in self._nodes], axis=0)
        self.released = np.asarray(self._domain.project(self._anchor - total / self.plan.strength))

    def _noisy(self, value: Array) -> Array:
        noisy = self.plan.node.release(value, self._randomness)
        return np.asarray((noisy + noisy.T) / 2.0) if noisy.ndim == 2 else noisy
