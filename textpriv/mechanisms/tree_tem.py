"""TEM over a public tree of words: a closed exact constant, the whole budget spent, and odds that people can choose.

The output distribution is TEM's, ``P_w(y) = nu(y) exp(-t min(u(w, y), gamma)) / Z(w)``, over the distance u of a tree,
an ultrametric. At height h of its ancestor a, a word can become what a has below it and its child towards the word has
not. So Z is a sum over ancestors, and a draw picks one of them and then a word by nu from two intervals of the order of
the leaves. ``K(w, y) = exp(-t u(w, y))`` is strictly ultrametric, so the measure with ``K nu = 1`` is positive
(Martinez, Michon, San Martin, "Inverse of strictly ultrametric matrices are of Stieltjes type", 1994). Under this full
measure Z is the same for all words, and the rate is epsilon itself; any other measure has half of that.

One attempt chooses an ancestor by its weight, with the parts of its words rounded up to a power of two, 2^b. It then reads b
random bits and fails if they are no part of these words. So all words are returned in proportion to their weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.index.tree import Nodes, Tree, spread
from textpriv.mechanisms import protection
from textpriv.mechanisms.base import UNKNOWN, Mechanism, checksum, configured, positive
from textpriv.mechanisms.measure import (
    WORDS,
    BaseMeasure,
    MeasureTables,
    draw_in_rounds,
    exp,
    expm1,
    find,
)
from textpriv.mechanisms.near import SLACK, fits
from textpriv.mechanisms.pairs import ROUNDING
from textpriv.mechanisms.tem import LARGEST_EXPONENT
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement, at_most, odds_in_words
from textpriv.vocabulary.priors import Prior

_SHOWN = 5  # heights in a caveat that are named
_HEIGHT_BITS = 2.0**30  # chosen odds become heights of so many parts of a nat, rounded down


@njit(cache=True, nogil=True)
def _full_measure(nodes: Nodes, reach: NDArray[np.float64], atoms: int) -> NDArray[np.float64]:
    """Return the measure of each atom, in all 1, on which the normaliser is constant.

    A of a node is the sum of its children's ``B = A / (1 + (q - q') A)``, q and q' being ``exp(-reach)`` of the node's
    parent and of the node, and 1 / (1 - q) of an atom; a child's share of the measure is its share of the sum.
    """
    count = len(nodes.level)
    above, below, mass = np.zeros(count), np.zeros(count), np.ones(count)
    for node in range(count - 1):
        up = nodes.parent[node]
        high, low = reach[nodes.level[up]], reach[nodes.level[node]]
        if node < atoms:
            below[node] = -1.0 / expm1(-high)
        else:
            below[node] = above[node] / (1.0 + exp(-high) * expm1(high - low) * above[node])
        above[up] += below[node]
    for node in range(count - 2, -1, -1):
        up = nodes.parent[node]
        mass[node] = mass[up] * (below[node] / above[up])
    return mass[:atoms]


@njit
def _parts_outside(nodes: Nodes, before: NDArray[np.uint64], node: int, up: int) -> np.uint64:
    """Return the parts of the measure that a node has below it and its child has not; all of them for a child of -1."""
    parts = before[nodes.end[up]] - before[nodes.start[up]]
    if node >= 0:
        parts -= before[nodes.end[node]] - before[nodes.start[node]]
    return parts


@njit(cache=True, nogil=True)
def _normalisers(
    nodes: Nodes, before: NDArray[np.uint64], reach: NDArray[np.float64], atoms: int
) -> NDArray[np.float64]:
    sums = np.zeros(len(nodes.level))
    for node in range(len(sums) - 2, -1, -1):
        up = nodes.parent[node]
        parts = _parts_outside(nodes, before, node, up) * 2.0**-62
        sums[node] = sums[up] + parts * exp(-reach[nodes.level[up]])
    for atom in range(atoms):
        sums[atom] += _parts_outside(nodes, before, -1, atom) * 2.0**-62
    return sums[:atoms]


class _TreeTables(NamedTuple):
    """What a compiled attempt reads. Places count words in depth-first order."""

    measure: MeasureTables
    nodes: Nodes
    places: NDArray[np.int32]  # by word id
    order: NDArray[np.int32]  # the word id of each place
    before: NDArray[np.uint64]  # parts of the measure before each place, and in all
    reach: NDArray[np.float64]  # rate times height by level, truncated; 0 for level 0
    scale: (
        float  # whole parts of a weight of 1; rounding up to powers of two at most doubles a total
    )
    own: NDArray[np.uint64]  # whole parts of the weight of each atom
    above: NDArray[np.uint64]  # whole parts of all that is outside each node, 0 for the root


@njit
def _bits(count: np.uint64) -> np.uint64:
    """Return the least b with ``count <= 2^b``."""
    bits = np.uint64(0)
    while (np.uint64(1) << bits) < count:
        bits += np.uint64(1)
    return bits


@njit
def _weight(tables: _TreeTables, node: int, up: int) -> float:
    """Return the scaled weight of the parts outside a node, rounded up to a power of two."""
    bits = _bits(_parts_outside(tables.nodes, tables.before, node, up))
    parts = 2.0 ** (np.float64(bits) - 62.0)
    return parts * exp(-tables.reach[tables.nodes.level[up]]) * tables.scale


@njit(cache=True, nogil=True)
def _fill(tables: _TreeTables) -> None:
    for node in range(len(tables.above) - 2, -1, -1):
        up = np.int64(tables.nodes.parent[node])
        tables.above[node] = tables.above[up] + np.uint64(math.ceil(_weight(tables, node, up)))
    for atom in range(len(tables.own)):
        tables.own[atom] = np.uint64(math.ceil(_weight(tables, -1, atom)))


@njit
def _attempt(tables: _TreeTables, word: int, random: NDArray[np.uint64], at: int) -> int:
    """Make one attempt by the four random words from ``at`` on: the output, or -1 where it fails."""
    nodes, before, measure = tables.nodes, tables.before, tables.measure
    if word < 0:  # an unknown word
        return np.int64(tables.order[find(random[at + 1] >> np.uint64(2), measure)])
    node, up = np.int64(-1), np.int64(nodes.atom[tables.places[word]])
    own = tables.own[up]
    total = own + tables.above[up]
    part = random[at] >> (np.uint64(64) - _bits(total)) if total > 1 else np.uint64(0)
    if part >= total:
        return -1
    if part >= own:
        part -= own
        node, up = up, np.int64(nodes.parent[up])
        while part < tables.above[up]:
            node, up = up, np.int64(nodes.parent[up])
    real, parts = _weight(tables, node, up), _parts_outside(nodes, before, node, up)
    if not fits(real, random[at + 2], random[at + 3]):
        return -1
    place = random[at + 1] >> (np.uint64(64) - _bits(parts)) if parts > 1 else np.uint64(0)
    if place >= parts:
        return -1
    place += before[nodes.start[up]]
    if node >= 0 and place >= before[nodes.start[node]]:
        place += before[nodes.end[node]] - before[nodes.start[node]]
    return np.int64(tables.order[find(place, measure)])


@njit(cache=True, nogil=True)
def _attempts(
    tables: _TreeTables,
    ids: NDArray[np.int32],
    pending: NDArray[np.int64],
    words: NDArray[np.uint64],
    out: NDArray[np.int32],
) -> None:
    """Write the outputs of tokens for which one of their attempts succeeds."""
    for place, token in enumerate(pending):
        own = words[place]
        for at in range(0, len(own), WORDS):
            out[token] = _attempt(tables, ids[token], own, at)
            if out[token] >= 0:
                break


class TreeTEM(Mechanism):
    """TEM over a tree of words: privacy in odds for each level.

    Parameters
    ----------
    tree : Tree
    epsilon : float, optional
        In units of one over the tree's heights. Give this or ``levels``.
    levels : mapping from str to float, optional
        The largest odds, above 1, between two words that share a group of a level, such as
        ``{"synonyms": 3, "kind": 30, "any": 3000}``. The highest level must be among them, and one that is left out gets
        the odds of the next above it. Heights are then the logarithms of these odds, and epsilon is 1.
    prior : str, array or mapping
        Public base measure, as for :meth:`Vocabulary.prior_weights`. Under "full" the rate is epsilon, else half of it.
    """

    name = "TreeTEM"
    over_trees = True
    index: Tree

    def __init__(
        self,
        tree: Index,
        epsilon: float | None = None,
        *,
        levels: Mapping[str, float] | None = None,
        prior: Prior = "full",
    ) -> None:
        protection("TreeTEM", epsilon=epsilon, levels=levels)
        self.levels, self.prior = None, prior
        if levels is not None:
            # As numbers of one type: 3 and 3.0 are one setting, and draw the same under a key.
            self.levels = {
                str(name): positive(f"odds[{name!r}]", odds) for name, odds in levels.items()
            }
            tree = _with_odds(tree, self.levels) if isinstance(tree, Tree) else tree
        super().__init__(tree, 1.0 if epsilon is None else epsilon, levels=self.levels, prior=prior)
        if levels is not None:
            self._settings["epsilon"] = None
        full = isinstance(prior, str) and prior == "full"
        self.t = self.epsilon if full else self.epsilon / 2
        self.gamma = min(self.index.diameter_bound, LARGEST_EXPONENT / self.t)
        nodes, atoms, order = self.index.nodes, self.index.nodes.atoms, self.index.order
        reach = self.t * np.minimum(np.append(0.0, self.index.heights), self.gamma)
        if full:
            mass = _full_measure(nodes, reach, atoms)
            weights = (mass / np.bincount(nodes.atom))[nodes.atom]
        else:
            weights = self.index.vocabulary.prior_weights(prior)[order]
        self.measure = BaseMeasure(weights)  # in depth-first order
        before = np.append(np.uint64(0), self.measure.cumulative)
        normalisers = _normalisers(nodes, before, reach, atoms)
        self._reach, self._log_z = reach, np.log(normalisers)
        highest, lowest = float(self._log_z.max()), float(self._log_z.min())
        # An unknown word is a leaf at the root.
        self._unknown_word_loss = max(float(reach[-1]) + highest, -lowest, 0.0)
        apart = max(highest - lowest - ROUNDING, 0.0)
        self._worst_word_loss = max(float(reach[-1]) + apart, self._unknown_word_loss)
        self._tables = _TreeTables(
            measure=self.measure.tables,
            nodes=nodes,
            places=self.index.places,
            order=order,
            before=before,
            reach=reach,
            scale=2.0**61 * (1 - 2.0**-20) / float(normalisers.max()),
            own=np.zeros(atoms, np.uint64),
            above=np.zeros(len(nodes.level), np.uint64),
        )
        _fill(self._tables)

    def binding(self) -> dict[str, Any]:
        """Return what a record about this mechanism is bound to; the prior by its exact parts."""
        bound = super().binding()
        bound["settings"]["prior"] = checksum(self.measure.parts)
        form = [self.t, self.gamma, checksum(self.index.order), checksum(self._reach)]
        return bound | {"law": form}

    def at_epsilon(self, epsilon: float) -> TreeTEM:
        """Return the same mechanism at another epsilon; chosen levels are scaled alike, as the heights contain them."""
        return type(self)(self.index, **{**self.settings(), "levels": None, "epsilon": epsilon})

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Return the natural logarithm of a word's output distribution, shape (V,)."""
        number, nodes = self.resolve(word), self.index.nodes
        score = np.log(self.measure.weights)
        if number != UNKNOWN:
            atom = nodes.atom[self.index.places[number]]
            levels = self.index.levels_of(number)
            levels[nodes.start[atom] : nodes.end[atom]] = 0
            score = score - (self._reach + self._log_z[atom])[levels]
        return np.asarray(score[self.index.places])

    def stay_probabilities(self) -> NDArray[np.float64]:
        """Return how often each word stays, shape (V,)."""
        log_z = self._log_z[self.index.nodes.atom]
        return np.asarray((self.measure.weights * np.exp(-log_z))[self.index.places])

    def closed_constant(self) -> tuple[float, tuple[int, int]]:
        """Return the largest loss per unit of distance, and the ordered pair of words that attains it.

        Words that meet at height h lose at most ``t min(h, gamma) + ln Z(w') - ln Z(w)``, at the output w. The extremes of
        ln Z below a node may meet further down; then they lose more per unit, and were looked at before.
        """
        nodes, log_z = self.index.nodes, self._log_z[self.index.nodes.atom]
        worst, places = 0.0, (0, 0)
        for node in range(nodes.atoms, len(nodes.level)):
            start, end, level = int(nodes.start[node]), int(nodes.end[node]), nodes.level[node]
            below, height = log_z[start:end], float(self.index.heights[level - 1])
            apart = max(float(np.ptp(below)) - ROUNDING, 0.0)
            loss = min(self.t, self._reach[level] / height) + apart / height
            if loss > worst:
                ends = (below.argmin(), below.argmax()) if apart else (0, end - start - 1)
                worst, places = loss, (start + int(ends[0]), start + int(ends[1]))
        return float(worst), (int(self.index.order[places[0]]), int(self.index.order[places[1]]))

    def likeliest_inputs(
        self, prior: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return for each output its likeliest word and their joint probability: the word is the likeliest of a group."""
        order, size = self.index.order, len(self.index)
        score = prior[order] * np.exp(-self._log_z)[self.index.nodes.atom]
        best, place = np.full(size, -1.0), np.zeros(size, np.int64)
        for level, reach in enumerate(self._reach):
            starts = np.flatnonzero(np.append(True, self.index.gaps > level))
            group = np.repeat(np.arange(len(starts)), np.diff(starts, append=size))
            most = np.maximum.reduceat(score, starts)
            where = np.flatnonzero(score == most[group])
            first = where[np.searchsorted(group[where], np.arange(len(starts)))]
            value = (most * np.exp(-reach))[group]
            better = value > best
            best[better], place[better] = value[better], first[group[better]]
        guess, joint = np.empty(size, np.int64), np.empty(size)
        guess[order], joint[order] = order[place], best * self.measure.weights
        return guess, joint

    def sample_documents(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""
        return draw_in_rounds(_attempts, self._tables, ids, offsets, streams)

    def _level_notes(self, stated: PrivacyStatement) -> tuple[str, ...]:
        """What each level of a tree with names promises, in one sentence."""
        if not self.index.names:
            return ()
        # What is cut off at 30 nats loses less than epsilon times its height.
        bounds = [odds_in_words(stated.loss_at(each)) for each in self.index.heights.tolist()]
        parts = [
            f"odds are at most {bound} between two words that share a group of the level {name!r}"
            for name, bound in zip(self.index.names[:-1], bounds, strict=False)
        ]
        parts.append(f"at most {bounds[-1]} between any two words, an unknown one included")
        return (f"In one place of the text, {'; '.join(parts)}",)

    def caveats(self) -> tuple[str, ...]:
        """Say how often words that are close by the vectors are outside a word's group, where that is known."""
        names, (looked, shares) = self.index.names, self.index.separated
        if not looked:
            return ()
        parts = []
        for at in spread(np.arange(len(shares)), len(names) or _SHOWN):
            height = f"height {at_most(self.index.heights[at], 3)}"
            level = f"the level {names[at]!r}" if names else height
            parts.append(f"{100 * shares[at]:.0f} % are outside its group of {level}")
        return (
            "The promise is by the tree's distance, which may part words that are close by their vectors: of the ten "
            f"nearest words of each of {looked:,} words that were looked at, {', '.join(parts)}",
        )

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of one drawn word."""
        prior = self.prior if isinstance(self.prior, str) else "given"
        asked = f"epsilon {self.epsilon:g}"
        if self.levels is not None:
            asked = "levels " + ", ".join(f"{name} {odds:g}" for name, odds in self.levels.items())
        stated = self._stated(
            f"TreeTEM ({asked}, prior {prior}, rate t {self.t:.4g}; {self.index.source})",
            "the exact constant over all pairs of words of the tree; for the full prior the inverse of a strictly "
            "ultrametric matrix",
            "words, tree and prior",
            worst_word_loss=self._worst_word_loss,
            unknown_word_loss=self._unknown_word_loss,
            numerical_slack=SLACK,
            bounded_range=2 * self.t,
            largest_range=2 * self.t * self.gamma,
        )
        return stated.extended(notes=(*self._level_notes(stated), *self.caveats()))


def _with_odds(tree: Tree, odds: Mapping[str, float]) -> Tree:
    """Return the tree with heights such that a level's odds, rounding included, are at most those asked for."""
    for name, value in odds.items():
        if value <= 1.001:
            raise MechanismError(f"the odds of level {name!r} must be above 1.001; got {value:g}.")
    titles = tree.names
    if not titles or not set(odds) <= set(titles) or titles[-1] not in odds:
        raise MechanismError(
            f"the levels of the tree are {', '.join(titles) or 'without names'}, of which the last must have odds; got "
            f"{', '.join(odds)}. Name levels by groups= when you build a tree."
        )
    heights, above = np.empty(len(titles)), odds[titles[-1]]
    for at in range(len(titles) - 1, -1, -1):
        given = odds.get(titles[at], above)
        if given > above:
            raise MechanismError(
                f"odds must not fall from a level to a wider one; {titles[at]!r} has {given:g} below {above:g}."
            )
        above = given
        # Twice the slack: the statement adds it once. Rounded, so that logarithms of all platforms give one height.
        heights[at] = math.floor((math.log(above) - 2 * SLACK) * _HEIGHT_BITS) / _HEIGHT_BITS
    return tree.reheighted(heights, titles)


configure = configured(TreeTEM)
