"""TEM over a public tree of words: a closed exact constant, the whole budget spent, and odds that people can choose.

The law is TEM's, ``P_w(y) = nu(y) exp(-t min(u(w, y), gamma)) / Z(w)``, over the distance u of a tree, an ultrametric. What
a word can become at height h of its ancestor a is what a has below it and its child towards the word has not, so Z is a sum
over ancestors, a draw picks one of them and then a word by nu from two intervals of the order of the leaves, and the
constant over all pairs is one pass over the nodes (mechanisms.md 10.7). For ``K(w, y) = exp(-t u(w, y))`` is strictly
ultrametric, the measure with ``K nu = 1`` is positive (Martinez, Michon, San Martin, "Inverse of strictly ultrametric
matrices are of Stieltjes type", 1994): under it Z is the same for all words, and the rate is epsilon itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.arithmetic import exp, expm1, log, logs
from textpriv.bounds import at_most, odds_in_words
from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.index.tree import Nodes, Tree
from textpriv.mechanisms.base import UNKNOWN, Group, Mechanism, checksum, positive
from textpriv.mechanisms.base_measure import BaseMeasure, bernoulli, upper_half
from textpriv.mechanisms.calibration.pair_sweep import Progress
from textpriv.mechanisms.calibration.privacy_constant import Constant
from textpriv.mechanisms.sampling import draw_documents, fetch
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement

__all__ = ["TreeTEM", "configure"]

# Nats of distance times rate beyond which all words count alike, as for TEM (mechanisms.md 2.4).
LARGEST_EXPONENT = 30.0
# Whole parts of weights are less than 2^-32 of themselves off, two weights and two totals in a ratio: less than 1e-9. The
# other half is for the arithmetic of normalisers.
SLACK = 2e-9
# Nats by which the difference of two computed normalisers may be off: far more than their sums of at most 64 positive terms
# and the rounding of a measure to whole parts make of it.
_ARITHMETIC = 1e-11
_ALONE = np.uint64(1 << 63)
_COARSE = np.uint64(1 << 32)  # parts below it are accepted against their real weight
_SPARE = 3  # random words a token read ahead
# Tokens from where a word's row is asked for to where it is drawn, and from where its atom's is.
_AHEAD, _NEXT = 16, 8
_SHOWN = 5  # words of each group that are named
_TOLERATED = 1e-10  # of epsilon, that a constant may exceed it by rounding; a certificate tolerates ten times as much


# ----------------------------------------------------------------------------------------------
# The law
# ----------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _full_measure(
    level: NDArray[np.uint8], parent: NDArray[np.int32], atoms: int, reach: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The measure of each atom, in all 1, on which the normaliser is constant; ``reach`` is rate times height by level.

    The recursion of mechanisms.md 10.7, with ``M = A / (1 + q A)`` put in: A of a node is the sum of its children's
    ``B = A / (1 + (q - q') A)``, q' being the node's q, and 1 / (1 - q') of an atom; a child's share of the measure is its
    share of the sum. All terms are positive, so nothing cancels.
    """
    count = level.shape[0]
    above, below = np.zeros(count), np.zeros(count)
    for node in range(count - 1):
        up = parent[node]
        high, low = reach[level[up]], reach[level[node]]
        if node < atoms:
            below[node] = -1.0 / expm1(-high)
        else:
            below[node] = above[node] / (1.0 + exp(-high) * expm1(high - low) * above[node])
        above[up] += below[node]
    mass = np.empty(count)
    mass[count - 1] = 1.0
    for node in range(count - 2, -1, -1):
        mass[node] = mass[parent[node]] * (below[node] / above[parent[node]])
    return mass[:atoms]


@njit(cache=True, nogil=True)
def _normalisers(
    start: NDArray[np.int32],
    end: NDArray[np.int32],
    level: NDArray[np.uint8],
    parent: NDArray[np.int32],
    atoms: int,
    before: NDArray[np.uint64],
    reach: NDArray[np.float64],
) -> NDArray[np.float64]:
    """``Z(w)`` of each atom; ``before`` has the parts of the measure before each place."""
    count = level.shape[0]
    outside = np.zeros(count)
    for node in range(count - 2, -1, -1):
        up = parent[node]
        parts = before[end[up]] - before[start[up]] - (before[end[node]] - before[start[node]])
        outside[node] = outside[up] + parts * 2.0**-62 * exp(-reach[level[up]])
    for atom in range(atoms):
        outside[atom] += (before[end[atom]] - before[start[atom]]) * 2.0**-62
    return outside[:atoms]


@njit(cache=True, nogil=True)
def _edge(
    nodes: NDArray[np.uint64],
    reach: NDArray[np.float64],
    level: NDArray[np.uint8],
    node: int,
    up: int,
) -> float:
    """The weight of what a node's parent has below it and the node has not."""
    parts = nodes[up, 3] - nodes[up, 2] - (nodes[node, 3] - nodes[node, 2])
    return parts * 2.0**-62 * exp(-reach[level[up]])


@njit(cache=True, nogil=True)
def _constant(
    level: NDArray[np.uint8],
    parent: NDArray[np.int32],
    log_z: NDArray[np.float64],
    rate: float,
    reach: NDArray[np.float64],
    heights: NDArray[np.float64],
    noise: float,
) -> tuple[float, int, int, float]:
    """The largest loss per unit of distance, the ordered pair of atoms that attains it, and the largest loss.

    For two words that meet at m the largest loss is ``t h(m) + ln Z(w') - ln Z(w)``, at the output w. So each node needs
    the extremes of ``ln Z`` below every child.
    """
    count = level.shape[0]
    highest, lowest = np.full(count, -1), np.full(count, -1)
    worst, first, second, largest = 0.0, 0, 0, 0.0
    for node in range(count - 1):
        if node < log_z.shape[0]:
            highest[node] = lowest[node] = node
        up = parent[node]
        if highest[up] < 0:
            highest[up], lowest[up] = highest[node], lowest[node]
            continue
        for one, other in ((lowest[node], highest[up]), (lowest[up], highest[node])):
            apart, height = max(log_z[other] - log_z[one] - noise, 0.0), heights[level[up]]
            largest = max(largest, reach[level[up]] + apart)
            loss = min(rate, reach[level[up]] / height) + apart / height
            if loss > worst:
                worst, first, second = loss, one, other
        if log_z[highest[node]] > log_z[highest[up]]:
            highest[up] = highest[node]
        if log_z[lowest[node]] < log_z[lowest[up]]:
            lowest[up] = lowest[node]
    return worst, first, second, largest


class _Law(NamedTuple):
    """A law and what follows from it.

    Attributes
    ----------
    rate, gamma : float
    reach : ndarray, shape (L + 1,)
        Rate times height by level, cut off; 0 for level 0.
    measure : BaseMeasure
        In depth-first order.
    log_z : ndarray, shape (A,)
        By atom.
    constant : Constant
        Over all pairs, in ids.
    worst : float
        Largest loss between two words of the tree, in nats.
    """

    rate: float
    gamma: float
    reach: NDArray[np.float64]
    measure: BaseMeasure
    log_z: NDArray[np.float64]
    constant: Constant
    worst: float

    @classmethod
    def at(cls, tree: Tree, rate: float, weights: NDArray[np.float64] | None) -> _Law:
        """The law of a rate and a measure in depth-first order, or of the full measure."""
        nodes = tree.nodes
        gamma = min(tree.diameter_bound, LARGEST_EXPONENT / rate)
        heights = np.concatenate([[0.0], tree.heights])
        reach = rate * np.minimum(heights, gamma)
        if weights is None:
            mass = _full_measure(nodes.level, nodes.parent, nodes.atoms, reach)
            weights = (mass / np.bincount(nodes.atom))[nodes.atom]
        measure = BaseMeasure(weights, evenly=True)
        log_z = logs(_normalisers(*_shape(nodes), _before(measure), reach))  # type: ignore[call-arg]
        worst, first, second, largest = _constant(
            nodes.level, nodes.parent, log_z, rate, reach, heights, _ARITHMETIC
        )
        words = tree.representatives[tree.order[nodes.start[: nodes.atoms]]]
        pair = (int(words[first]), int(words[second]))
        return cls(rate, gamma, reach, measure, log_z, Constant(worst, pair), largest)


def _shape(nodes: Nodes) -> tuple[Any, ...]:
    return nodes.start, nodes.end, nodes.level, nodes.parent, nodes.atoms


def _before(measure: BaseMeasure) -> NDArray[np.uint64]:
    return np.concatenate([np.zeros(1, np.uint64), measure.cumulative])


# ----------------------------------------------------------------------------------------------
# Draws
# ----------------------------------------------------------------------------------------------


class _Tables(NamedTuple):
    """What the compiled sampler reads: what a draw asks for together stands in one row.

    Attributes
    ----------
    words : ndarray of uint64, shape (V, 2)
        By id: the row of its atom, plus 2^63 where it is the only word of it; and whole parts of that atom's own weight.
    nodes : ndarray of uint64, shape (N, 4)
        Whole parts of what lies outside a node, over all its ancestors (0 for the root); its parent; and the parts of the
        measure before it and before what follows it. A node is followed by all that is below it, so that most steps towards
        the root stay in the cache.
    level : ndarray of uint8, shape (N,)
    before, order, guide, shift
        As in :class:`Tree` and :class:`BaseMeasure`; ``before`` is the cumulative measure with a 0 before it.
    reach : ndarray of float64, shape (L + 1,)
    scale : float
        Whole parts of a weight of 1.
    """

    words: NDArray[np.uint64]
    nodes: NDArray[np.uint64]
    level: NDArray[np.uint8]
    before: NDArray[np.uint64]
    order: NDArray[np.int32]
    guide: NDArray[np.int32]
    shift: np.uint64
    reach: NDArray[np.float64]
    scale: float


@njit(cache=True, nogil=True)
def _whole(real: float) -> np.uint64:
    """Whole parts: of a small weight rounded up, which leaves room for the exact acceptance of coarse parts."""
    return np.uint64(np.ceil(real)) if real < _COARSE else np.uint64(real)


@njit(cache=True, nogil=True)
def _filled(
    start: NDArray[np.int32],
    end: NDArray[np.int32],
    level: NDArray[np.uint8],
    parent: NDArray[np.int32],
    atom: NDArray[np.int32],
    places: NDArray[np.int32],
    rank: NDArray[np.int64],
    before: NDArray[np.uint64],
    reach: NDArray[np.float64],
    scale: float,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
    """The rows of words and of nodes; these in the order ``rank``, parents before children."""
    count = level.shape[0]
    words, nodes = np.empty((places.shape[0], 2), np.uint64), np.zeros((count, 4), np.uint64)
    row, levels = np.empty(count, np.int64), level[rank]
    for at in range(count):
        row[rank[at]] = at
    for at in range(count):
        node = rank[at]
        nodes[at, 2], nodes[at, 3] = before[start[node]], before[end[node]]
        if at > 0:
            up = row[parent[node]]
            nodes[at, 1] = up
            nodes[at, 0] = nodes[up, 0] + _whole(_edge(nodes, reach, levels, at, up) * scale)
    for word in range(places.shape[0]):
        own = atom[places[word]]
        alone = end[own] - start[own] == 1
        at = row[own]
        words[word, 0] = np.uint64(at) | (_ALONE if alone else np.uint64(0))
        words[word, 1] = _whole((nodes[at, 3] - nodes[at, 2]) * 2.0**-62 * scale)
    return words, nodes, levels


@njit(cache=True, nogil=True)
def _leaf(
    part: np.uint64, before: NDArray[np.uint64], guide: NDArray[np.int32], shift: np.uint64
) -> int:
    """The place to which a part of the measure belongs."""
    cell = np.int64(part >> shift)
    low = np.int64(guide[cell])
    high = np.int64(guide[cell + 1]) + 1 if cell + 1 < guide.shape[0] else before.shape[0] - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if before[middle] <= part:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _sample(
    state: tuple[Any, ...],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    pending: NDArray[np.int64],
    done: NDArray[np.int64],
    random: NDArray[np.uint64],
    starts: NDArray[np.int64],
    position: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    """Draw the tokens of documents in order until their random words run out; see ``sampling.Sampler``."""
    words, nodes, level, before, order, guide, shift, reach, scale = state
    for slot in range(pending.shape[0]):
        document = pending[slot]
        at, limit = starts[slot], starts[slot + 1]
        token, stop = done[document], offsets[document + 1]
        restart = at
        while token < stop and at + 4 <= limit:
            if token + _AHEAD < stop:
                fetch(words, max(ids[token + _AHEAD], 0), 0)  # type: ignore[call-arg]
            if token + _NEXT < stop:
                row = np.int64(words[max(ids[token + _NEXT], 0), 0] & ~_ALONE)
                fetch(nodes, row, 0)  # type: ignore[call-arg]
            if ids[token] < 0:
                part = random[at] >> np.uint64(2)
                at += 1
                out[token] = order[_leaf(part, before, guide, shift)]
                token, restart = token + 1, at
                continue
            leaf, mine = np.int64(words[ids[token], 0] & ~_ALONE), words[ids[token], 1]
            total = mine + nodes[leaf, 0]
            # An unbiased whole number below the total (Lemire 2019); one that rounding favours starts over.
            low = random[at] * total
            chosen: Any = upper_half(random[at], total)  # type: ignore[call-arg]
            at += 1
            if low < total and low < (~total + np.uint64(1)) % total:
                continue
            node, up = np.int64(-1), leaf
            if chosen < mine:
                width, real = mine, 0.0
                if width < _COARSE:
                    real = (nodes[leaf, 3] - nodes[leaf, 2]) * 2.0**-62 * scale
            else:
                chosen -= mine
                node, up = leaf, np.int64(nodes[leaf, 1])
                while chosen < nodes[up, 0]:
                    node, up = up, np.int64(nodes[up, 1])
                width, real = nodes[node, 0] - nodes[up, 0], 0.0
                if width < _COARSE:
                    real = _edge(nodes, reach, level, node, up) * scale
            if width < _COARSE:
                at += 2
                if not bernoulli(real / width, random[at - 2], random[at - 1]):
                    continue
            if node < 0 and words[ids[token], 0] >= _ALONE:
                out[token] = ids[token]
                token, restart = token + 1, at
                continue
            begin, count = nodes[up, 2], nodes[up, 3] - nodes[up, 2]
            if node >= 0:
                count -= nodes[node, 3] - nodes[node, 2]
            # This draw may have to be repeated, too, without a look at the first choice.
            drawn = False
            while not drawn and at < limit:
                low = random[at] * count
                part = upper_half(random[at], count)
                at += 1
                drawn = not (low < count and low < (~count + np.uint64(1)) % count)
            if not drawn:
                break
            part += begin
            if node >= 0 and part >= nodes[node, 2]:
                part += nodes[node, 3] - nodes[node, 2]
            out[token] = order[_leaf(part, before, guide, shift)]
            token, restart = token + 1, at
        done[document] = token
        position[slot] = restart


# ----------------------------------------------------------------------------------------------
# The mechanism
# ----------------------------------------------------------------------------------------------


class TreeTEM(Mechanism):
    """TEM over a tree of words.

    Parameters
    ----------
    tree : Tree
    epsilon : float, optional
        In units of one over the tree's heights. Give this or ``levels``.
    levels : mapping from str to float, optional
        The odds at most, above 1, by which two words that share a group of a level are told apart, such as
        ``{"synonyms": 3, "kind": 30, "any": 3000}``: levels of the tree by their names (or all of its heights in rising
        order, where it has no names); the highest must be among them, and one that is left out gets the odds of the next
        above it. Heights are then the logarithms of these odds, and epsilon is 1.
    prior : see :meth:`Vocabulary.prior_weights`, or "full"
        Public base measure. "full" is the one under which the whole budget is spent.
    rate : {"calibrated", "half"}, optional
        The largest rate of which the constant over all pairs keeps the promise (the default, and for ``"full"`` epsilon
        itself), or half of epsilon, which does for every prior.

    Attributes
    ----------
    t, gamma : float
        Rate and truncation in use; the latter is 30 / t where the tree is higher.
    rho_bound : float
        The constant over all pairs of words.

    Raises
    ------
    MechanismError
        For parameters without meaning, and an index that is no tree.
    """

    name = "TreeTEM"
    needs_exact_lists = False
    over_trees = True
    index: Tree

    def __init__(
        self,
        tree: Index,
        epsilon: float | None = None,
        *,
        levels: Mapping[str, float] | None = None,
        prior: str | PathLike[str] | Mapping[str, float] | NDArray[Any] = "full",
        rate: str | None = None,
    ) -> None:
        if (epsilon is None) == (levels is None):
            raise MechanismError(
                "TreeTEM takes epsilon, or levels={'synonyms': 3, 'any': 3000} with the odds of each: give one of them."
            )
        if rate not in (None, "calibrated", "half"):
            raise MechanismError(f"unknown rate {rate!r}; use 'calibrated' or 'half'.")
        full = isinstance(prior, str) and prior == "full"
        if full and rate == "half":
            raise MechanismError(
                "prior='full' is the measure that spends all of epsilon: halve epsilon, or choose another prior."
            )
        self.levels = None
        if levels is not None:
            # As numbers of one type: 3 and 3.0 are one setting, and draw the same under a key.
            self.levels = {
                str(name): positive(f"odds[{name!r}]", odds) for name, odds in levels.items()
            }
        super().__init__(
            tree
            if self.levels is None or not isinstance(tree, Tree)
            else _with_odds(tree, self.levels),
            1.0 if epsilon is None else epsilon,
        )
        self.prior, self.rate = prior, rate
        weights = None
        if not full:
            weights = self.index.vocabulary.prior_weights(prior)[self.index.order]
        self._law = self._settle(weights)
        self.t, self.gamma = self._law.rate, self._law.gamma
        self.rho_bound = self._law.constant.value
        self._held = self._tables()
        self._log_measure = np.log(self._law.measure.weights)

    def _settle(self, weights: NDArray[np.float64] | None) -> _Law:
        """The law at the largest rate that keeps the promise."""
        if len(self.index.heights) == 0:  # one atom: nothing to tell apart
            return _Law.at(self.index, self.epsilon, np.ones(len(self.index)))
        low = _Law.at(self.index, self.epsilon / 2, weights)
        if self.rate == "half":
            return low
        high = _Law.at(self.index, self.epsilon, weights)
        if high.constant.value <= self.epsilon * (1 + _TOLERATED):
            return high
        for _ in range(40):
            middle = _Law.at(self.index, (low.rate + high.rate) / 2, weights)
            if middle.constant.value <= self.epsilon:
                low = middle
            else:
                high = middle
        return low

    def _tables(self) -> tuple[Any, ...]:
        nodes, law = self.index.nodes, self._law
        before = _before(law.measure)
        # So that no total has more than 62 bits.
        scale = 2.0**62 * exp(-float(law.log_z.max())) * (1 - 2.0**-20)
        # Depth first: of nodes that begin together the widest comes first.
        rank = np.lexsort((-nodes.level.astype(np.int16), nodes.start))
        words, rows, level = _filled(
            nodes.start,
            nodes.end,
            nodes.level,
            nodes.parent,
            nodes.atom,
            self.index.places,
            rank,
            before,
            law.reach,
            scale,
        )
        guide, shift = law.measure.guide, law.measure.shift
        return tuple(
            _Tables(words, rows, level, before, self.index.order, guide, shift, law.reach, scale)
        )

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this mechanism on the same tree."""
        return {
            "epsilon": self.epsilon if self.levels is None else None,
            "levels": self.levels,
            "prior": self.prior,
            "rate": self.rate,
        }

    def __repr__(self) -> str:
        prior = self.prior if isinstance(self.prior, str) else f"<{type(self.prior).__name__}>"
        asked = f"epsilon={self.epsilon:g}" if self.levels is None else f"levels={self.levels}"
        return f"TreeTEM({asked}, prior={prior!r}, t={self.t:.4g})"

    def binding(self) -> dict[str, Any]:
        """What a record about this mechanism is bound to; the prior by its exact parts."""
        bound = super().binding()
        bound["settings"]["prior"] = checksum(self._law.measure.parts)
        return bound

    def drawn_from(self) -> dict[str, Any]:
        """What the sampler reads besides: the measure, the rate and the truncation."""
        return {"prior": checksum(self._law.measure.parts), "law": [self.t, self.gamma]}

    # The law

    @property
    def weights(self) -> NDArray[np.float64]:
        """The base measure by id, shape (V,)."""
        weights: NDArray[np.float64] = self._law.measure.weights[self.index.places]
        return weights

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Natural logarithm of the output law of a word (or of ``UNKNOWN``), shape (V,)."""
        number = self.resolve(word)
        log_law = self._log_measure
        if number != UNKNOWN:
            atom = self.index.nodes.atom[self.index.places[number]]
            levels = self.index.levels_of(number)
            levels[self.index.nodes.start[atom] : self.index.nodes.end[atom]] = 0
            log_law = log_law - (self._law.reach + self._law.log_z[atom])[levels]
        law: NDArray[np.float64] = log_law[self.index.places]
        return law

    def closed_constant(self, progress: Progress | None = None) -> Constant:
        """The constant over all pairs, from one pass over the nodes."""
        return self._law.constant

    def groups(self, word: str | int, most: int | None = None) -> list[Group]:
        """The groups of a word, or so many of them, from the closest to all words; see :meth:`Mechanism.groups`."""
        number = self.resolve(word)
        if number == UNKNOWN:
            return []
        law, tree = np.exp(self.log_prob(number))[self.index.order], self.index
        met = tree.levels_of(number)
        met[tree.places[number]] = 255
        made, inside, total = [], 1, float(law[tree.places[number]])
        for level in [each for each in np.unique(met).tolist() if each < 255]:
            ring = np.flatnonzero(met == level)
            inside, total = inside + len(ring), total + float(law[ring].sum())
            top = ring[np.argsort(-law[ring], kind="stable")[:_SHOWN]]
            likeliest = tuple(tree.vocabulary.words[each] for each in tree.order[top].tolist())
            height = float(tree.heights[level - 1]) if level else 0.0
            name = tree.names[level - 1] if tree.names and level else f"height {height:.4g}"
            loss = self._loss_within(height) if level else 0.0
            made.append(Group(name, inside, loss, min(total, 1.0), likeliest))
        if most is not None and len(made) > most:
            made = [made[at] for at in np.linspace(0, len(made) - 1, most).astype(int).tolist()]
        return made

    # Draws

    def sample_documents(
        self,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        streams: Sequence[RandomWords],
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""

        def sampler(
            pending: NDArray[np.int64],
            done: NDArray[np.int64],
            random: NDArray[np.uint64],
            starts: NDArray[np.int64],
            position: NDArray[np.int64],
            out: NDArray[np.int32],
        ) -> list[tuple[int, int]]:
            _sample(self._held, ids, offsets, pending, done, random, starts, position, out)
            return []

        out, _ = draw_documents(sampler, offsets, streams, _SPARE)
        return out

    # The guarantee

    @property
    def unknown_word_loss(self) -> float:
        """Largest loss between an unknown word, a leaf at the root, and any word of the tree, in nats."""
        reach, log_z = float(self._law.reach[-1]), self._law.log_z
        return max(reach + float(log_z.max()), -float(log_z.min()), 0.0)

    def _loss_within(self, height: float) -> float:
        """Largest loss between two words of one group of a height, in nats; at the root also of an unknown word."""
        # What is cut off at 30 nats loses less than epsilon times its height.
        return min(self.epsilon * height, max(self._law.worst, self.unknown_word_loss)) + SLACK

    @property
    def levels_in_words(self) -> str:
        """What each level of a tree with names promises, in one sentence; empty where the tree has no names."""
        if not self.index.names:
            return ""
        bounds = [odds_in_words(self._loss_within(each)) for each in self.index.heights.tolist()]
        parts = [
            f"two words that share a group of the level {name!r} are told apart by odds of at most {bound}"
            for name, bound in zip(self.index.names[:-1], bounds, strict=False)
        ]
        parts.append(f"any two words, an unknown one included, by odds of at most {bounds[-1]}")
        return f"In one place of the text, {'; '.join(parts)}"

    def caveats(self) -> tuple[str, ...]:
        """How often words that are close by the vectors lie outside a word's group, where that is known."""
        looked, shares = self.index.separated
        if not looked:
            return ()
        levels = range(len(shares))
        if not self.index.names and len(shares) > 5:
            levels = np.unique(np.linspace(0, len(shares) - 1, 5).astype(int)).tolist()
        if self.index.names:
            named = [
                f"{100 * shares[at]:.0f} % lie outside its group of the level {self.index.names[at]!r}"
                for at in levels
            ]
        else:
            named = [
                f"{100 * shares[at]:.0f} % lie outside its group of height {at_most(float(self.index.heights[at]), 3)}"
                for at in levels
            ]
        return (
            "The promise is by the tree's distance, which may part words that are close by their vectors: of the ten "
            f"nearest words of each of {looked:,} words that were looked at, {', '.join(named)}",
        )

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""
        prior = self.prior if isinstance(self.prior, str) else "given"
        asked = f"epsilon {self.epsilon:g}"
        if self.levels is not None:
            asked = "levels " + ", ".join(f"{name} {odds:g}" for name, odds in self.levels.items())
        half = self.index.reference_distance
        words = 100
        spread = 2 * (self.t * min(half, self.gamma) + SLACK)
        zcdp = words * spread**2 / 8
        together = zcdp + 2 * math.sqrt(zcdp * math.log(1e6))
        stated = self._stated(
            f"TreeTEM ({asked}, prior {prior}, rate t {self.t:.4g}; {self.index.source})",
            "the exact constant over all pairs of words of the tree; for the full prior the inverse of a strictly "
            "ultrametric matrix: mechanisms.md 10.7",
            "words, tree and prior",
            max(self._law.worst, self.unknown_word_loss),
            self.unknown_word_loss,
            numerical_slack=SLACK,
            bounded_range=2 * self.t,
        )
        square, factor = at_most(self.t**2 / 2), at_most(self.epsilon)
        notes = [
            f"The loss of one word at distance u stays in a range of {at_most(2 * self.t)} u nats. Over documents, all of "
            f"one person or a whole corpus, words at distances u_1, u_2, ... are therefore {square} x (u_1^2 + u_2^2 + "
            f"...)-zCDP, besides the sum {factor} x (u_1 + u_2 + ...): {words} words at distance {at_most(half, 3)} lose at "
            f"most {at_most(words * stated.loss_at(half), 3)} nats by the sum, and by zCDP at most {at_most(together, 3)} "
            "but for a probability of 1e-6; the smaller counts"
        ]
        if self.index.below is not None:
            notes.append(
                f"No distance in the tree exceeds the {self.index.below} distance of the vectors, so the promise holds with "
                "that one, too"
            )
        levels = (self.levels_in_words,) if self.index.names else ()
        return stated.extended(notes=(*levels, *notes, *self.caveats()))


def _with_odds(tree: Tree, odds: Mapping[str, float]) -> Tree:
    """The tree with heights such that a level's odds, rounding included, are at most those asked for."""
    for name, value in odds.items():
        if value <= 1.001:
            raise MechanismError(f"the odds of level {name!r} must be above 1.001; got {value:g}.")
    titles = tree.names
    if not titles:
        if len(odds) != len(tree.heights):
            raise MechanismError(
                f"the tree has {len(tree.heights)} heights without names, and {len(odds)} levels were given. Build one with "
                "heights='levels' (textpriv tree SOURCE OUT --groups synonyms=5000,kind=500), or give epsilon."
            )
        titles = tuple(sorted(odds, key=lambda name: odds[name]))
    if not set(odds) <= set(titles) or titles[-1] not in odds:
        raise MechanismError(
            f"the levels of the tree are {', '.join(titles)}, of which the last must have odds; got {', '.join(odds)}."
        )
    heights = np.empty(len(titles))
    above = odds[titles[-1]]
    for at in range(len(titles) - 1, -1, -1):
        given = odds.get(titles[at], above)
        if given > above:
            raise MechanismError(
                f"odds must not fall from a level to a wider one; {titles[at]!r} has {given:g} below {above:g}."
            )
        above = given
        # Twice the slack: what is stated adds it once, and logarithms are rounded.
        heights[at] = log(above) - 2 * SLACK
    return tree.reheighted(heights, titles)


def configure(
    epsilon: float | None = None,
    levels: Mapping[str, float] | None = None,
    prior: str = "full",
    rate: str | None = None,
) -> Callable[[Index], TreeTEM]:
    """Registered as ``textpriv.TreeTEM.v1``: settings of a TreeTEM that is made when its tree is known."""

    def make(index: Index) -> TreeTEM:
        return TreeTEM(index, epsilon, levels=levels, prior=prior, rate=rate)

    return make


configure.over_trees = True  # type: ignore[attr-defined]
