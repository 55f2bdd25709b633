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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.index.index import Index
from textpriv.index.tree import Tree
from textpriv.mechanisms.base import UNKNOWN, Group, Mechanism, checksum, positive
from textpriv.mechanisms.measure import MeasureTables, coin, exp, find
from textpriv.mechanisms.near import COARSE, SLACK, whole
from textpriv.mechanisms.rounds import WORDS, draw_in_rounds
from textpriv.mechanisms.tree_law import TreeLaw, likeliest
from textpriv.randomness import RandomWords
from textpriv.statement import PrivacyStatement, at_most, odds_in_words

__all__ = ["TreeTEM", "configure"]

_SHOWN = 5  # words of each group that are named
_HEIGHT_BITS = 2.0**30  # chosen odds become heights of so many parts of a nat, rounded down


class _Tables(NamedTuple):
    """What a compiled attempt reads, by number of a node; atoms come first.

    Attributes
    ----------
    start, end, level, parent
        As in :class:`Nodes`.
    atom : ndarray of int32, shape (V,)
        The atom of each word id.
    order : ndarray of int32, shape (V,)
        The word id of each place.
    before : ndarray of uint64, shape (V + 1,)
        Parts of the measure before each place, and in all.
    own : ndarray of uint64, shape (A,)
        Whole parts of the weight of an atom.
    above : ndarray of uint64, shape (N,)
        Whole parts of all that is outside a node, 0 for the root.
    reach : ndarray of float64, shape (L + 1,)
    scale : float
        Whole parts of a weight of 1.
    """

    start: NDArray[np.int32]
    end: NDArray[np.int32]
    level: NDArray[np.uint8]
    parent: NDArray[np.int32]
    atom: NDArray[np.int32]
    order: NDArray[np.int32]
    before: NDArray[np.uint64]
    own: NDArray[np.uint64]
    above: NDArray[np.uint64]
    reach: NDArray[np.float64]
    scale: float

    @classmethod
    def of(cls, tree: Tree, law: TreeLaw) -> _Tables:
        """Return the tables of a law over a tree."""
        nodes = tree.nodes
        made = cls(
            *nodes[:4],
            nodes.atom[tree.places],
            tree.order,
            law.measure.before,
            np.zeros(nodes.atoms, np.uint64),
            np.zeros(len(nodes.level), np.uint64),
            law.reach,
            # Rounding up to powers of two at most doubles a total.
            2.0**61 * (1 - 2.0**-20) / float(law.normalisers.max()),
        )
        _fill(made)
        return made


@njit(cache=True, nogil=True)
def _bits(count: np.uint64) -> np.uint64:
    """Return the least b with ``count <= 2^b``."""
    bits = np.uint64(0)
    while (np.uint64(1) << bits) < count:
        bits += np.uint64(1)
    return bits


@njit(cache=True, nogil=True)
def _parts_outside(tables: _Tables, node: int, up: int) -> np.uint64:
    """Return the parts of the measure that a node has below it and its child has not; all of them for a child of -1."""
    parts = tables.before[tables.end[up]] - tables.before[tables.start[up]]
    if node >= 0:
        parts -= tables.before[tables.end[node]] - tables.before[tables.start[node]]
    return parts


@njit(cache=True, nogil=True)
def _weight(tables: _Tables, node: int, up: int) -> float:
    """Return the scaled weight of those parts, rounded up to a power of two."""
    parts = 2.0 ** (np.float64(_bits(_parts_outside(tables, node, up))) - 62.0)
    return parts * exp(-tables.reach[tables.level[up]]) * tables.scale


@njit(cache=True, nogil=True)
def _fill(tables: _Tables) -> None:
    """Fill in the whole parts of all nodes, parents before children."""
    for node in range(len(tables.above) - 2, -1, -1):
        up = np.int64(tables.parent[node])
        tables.above[node] = tables.above[up] + whole(_weight(tables, node, up))
    for atom in range(len(tables.own)):
        tables.own[atom] = whole(_weight(tables, -1, atom))


@njit(cache=True, nogil=True)
def _attempt(tables: _Tables, measure: MeasureTables, word: int, random: NDArray[np.uint64]) -> int:
    """Make one attempt by four random words: the output, or -1 where it fails."""
    if word < 0:  # an unknown word
        return np.int64(tables.order[find(random[1] >> np.uint64(2), measure)])
    node, up = np.int64(-1), np.int64(tables.atom[word])
    own = tables.own[up]
    total = own + tables.above[up]
    part = random[0] >> (np.uint64(64) - _bits(total)) if total > 1 else np.uint64(0)
    if part >= total:
        return -1
    if part >= own:
        part -= own
        node, up = up, np.int64(tables.parent[up])
        while part < tables.above[up]:
            node, up = up, np.int64(tables.parent[up])
    real, parts = _weight(tables, node, up), _parts_outside(tables, node, up)
    if real < COARSE and not coin(real / math.ceil(real), random[2], random[3]):
        return -1
    place = random[1] >> (np.uint64(64) - _bits(parts)) if parts > 1 else np.uint64(0)
    if place >= parts:
        return -1
    place += tables.before[tables.start[up]]
    if node >= 0 and place >= tables.before[tables.start[node]]:
        place += tables.before[tables.end[node]] - tables.before[tables.start[node]]
    return np.int64(tables.order[find(place, measure)])


@njit(cache=True, nogil=True)
def _attempts(
    tables: _Tables,
    measure: MeasureTables,
    ids: NDArray[np.int32],
    pending: NDArray[np.int64],
    words: NDArray[np.uint64],
    out: NDArray[np.int32],
) -> None:
    """Write the outputs of tokens for which one of their attempts succeeds."""
    for place in range(pending.shape[0]):
        token = pending[place]
        for at in range(0, words.shape[1], WORDS):
            output = _attempt(tables, measure, ids[token], words[place, at : at + WORDS])
            if output >= 0:
                out[token] = output
                break


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
        Public base measure. "full" is the one under which the rate is epsilon; with any other it is half of that.

    Attributes
    ----------
    t, gamma : float
        Rate and truncation in use; the latter is 30 / t where the tree is higher.

    Raises
    ------
    MechanismError
        For parameters without meaning, and an index that is no tree.
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
        prior: str | PathLike[str] | Mapping[str, float] | NDArray[Any] = "full",
    ) -> None:
        if (epsilon is None) == (levels is None):
            raise MechanismError(
                "TreeTEM takes epsilon, or levels={'synonyms': 3, 'any': 3000} with the odds of each: give one of them."
            )
        full = isinstance(prior, str) and prior == "full"
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
        self.prior = prior
        weights = None
        if not full:
            weights = self.index.vocabulary.prior_weights(prior)[self.index.order]
        self._law = self._settle(weights)
        self.t, self.gamma = self._law.rate, self._law.gamma
        self._tables = _Tables.of(self.index, self._law)
        self._log_measure = np.log(self._law.measure.weights)

    def _settle(self, weights: NDArray[np.float64] | None) -> TreeLaw:
        """The law: all of epsilon with the full measure, half of it with any other."""
        if len(self.index.heights) == 0:  # one atom: nothing to tell apart
            return TreeLaw.at(self.index, self.epsilon, np.ones(len(self.index)))
        rate = self.epsilon if weights is None else self.epsilon / 2
        return TreeLaw.at(self.index, rate, weights)

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this mechanism on the same tree."""
        return {
            "epsilon": self.epsilon if self.levels is None else None,
            "levels": self.levels,
            "prior": self.prior,
        }

    def __repr__(self) -> str:
        prior = self.prior if isinstance(self.prior, str) else f"<{type(self.prior).__name__}>"
        asked = f"epsilon={self.epsilon:g}" if self.levels is None else f"levels={self.levels}"
        return f"TreeTEM({asked}, prior={prior!r}, t={self.t:.4g})"

    def binding(self) -> dict[str, Any]:
        """What a record about this mechanism is bound to; the prior by its exact parts."""
        bound = super().binding()
        bound["settings"]["prior"] = checksum(self._law.measure.parts)
        law = [self.t, self.gamma, checksum(self.index.order), checksum(self._law.reach)]
        return bound | {"law": law}

    # The law

    @property
    def weights(self) -> NDArray[np.float64]:
        """The base measure by id, shape (V,)."""
        return self._law.measure.weights[self.index.places]

    def log_prob(self, word: str | int) -> NDArray[np.float64]:
        """Natural logarithm of the output law of a word (or of ``UNKNOWN``), shape (V,)."""
        number = self.resolve(word)
        log_law = self._log_measure
        if number != UNKNOWN:
            atom = self.index.nodes.atom[self.index.places[number]]
            levels = self.index.levels_of(number)
            levels[self.index.nodes.start[atom] : self.index.nodes.end[atom]] = 0
            log_law = log_law - (self._law.reach + self._law.log_z[atom])[levels]
        return log_law[self.index.places]

    def closed_constant(self) -> tuple[float, tuple[int, int]]:
        """Return the constant over all pairs, from one pass over the nodes."""
        return self._law.constant, self._law.pair

    def likeliest_inputs(
        self, prior: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """For each output the word that it most likely came from, from two passes over the nodes."""
        nodes, law, order = self.index.nodes, self._law, self.index.order
        # Of words with one law the likeliest stands for all.
        place, value = likeliest(nodes, law.reach, prior[order] * np.exp(-law.log_z)[nodes.atom])
        guess = np.empty(len(order), dtype=np.int64)
        joint = np.empty(len(order))
        guess[order], joint[order] = order[place], value * law.measure.weights
        return guess, joint

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
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: Sequence[RandomWords]
    ) -> NDArray[np.int32]:
        """Draw one output for every token; see :meth:`Mechanism.sample_documents`."""
        given = self._tables, self._law.measure.tables, ids
        return draw_in_rounds(partial(_attempts, *given), offsets, streams)

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
        stated = self._stated(
            f"TreeTEM ({asked}, prior {prior}, rate t {self.t:.4g}; {self.index.source})",
            "the exact constant over all pairs of words of the tree; for the full prior the inverse of a strictly "
            "ultrametric matrix",
            "words, tree and prior",
            max(self._law.worst, self.unknown_word_loss),
            self.unknown_word_loss,
            numerical_slack=SLACK,
            bounded_range=2 * self.t,
            largest_range=2 * self.t * min(self.index.diameter_bound, self.gamma),
        )
        square, factor = at_most(self.t**2 / 2), at_most(self.epsilon)
        notes = [
            f"The loss of one word at distance u stays in a range of {at_most(2 * self.t)} u nats. Over documents, all of "
            f"one person or a whole corpus, words at distances u_1, u_2, ... are therefore {square} x (u_1^2 + u_2^2 + "
            f"...)-zCDP, besides the sum {factor} x (u_1 + u_2 + ...)"
        ]
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
                "heights='levels', or give epsilon."
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
        # Twice the slack: the statement adds it once. Rounded, so that logarithms of all platforms give one height.
        heights[at] = math.floor((math.log(above) - 2 * SLACK) * _HEIGHT_BITS) / _HEIGHT_BITS
    return tree.reheighted(heights, titles)


def configure(
    epsilon: float | None = None,
    levels: Mapping[str, float] | None = None,
    prior: str = "full",
) -> Callable[[Index], TreeTEM]:
    """Registered as ``textpriv.TreeTEM.v1``: settings of a TreeTEM that is made when its tree is known."""

    def make(index: Index) -> TreeTEM:
        return TreeTEM(index, epsilon, levels=levels, prior=prior)

    return make


configure.over_trees = True  # type: ignore[attr-defined]
