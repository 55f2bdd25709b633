"""What two given documents lose, exactly: the distribution of their privacy loss, and the best attacker's chances.

Words are drawn independently, so the losses of the words in which two documents differ add up, and their distributions
convolve. dp-accounting does that on a grid, with losses rounded up for upper bounds and down for lower ones. What *all*
documents that differ in some words lose at most is :meth:`PrivacyStatement.documents_within`.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from textpriv.composition import Together
from textpriv.errors import MechanismError, TextprivError, needs
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.privatizer import Privatizer
from textpriv.statement import at_most, factor_in_words, odds_in_words

__all__ = ["DocumentPair", "compare_documents", "compare_texts"]

GRID = 1e-4  # nats
_FINEST = 1e-6  # nats; a millionth of it is far more than the rounding of a logarithm
_DELTAS = (1e-3, 1e-6, 1e-9)  # that are shown
_LINES = 400  # that an attacker's curve is the envelope of
_CELLS = 1 << 22  # of a distribution at most; the grid is made as coarse as that takes
# What one convolution by Fourier transforms may add to the sum of all probabilities: for 2^22 cells 2^11 (the root of
# their number) times 5 x 22 roundings of 2^-53, with room. It is taken off a lower bound and put on an upper one.
_CONVOLVED = 1e-10


@dataclass(frozen=True)
class DocumentPair:
    """How well the outputs of two documents can be distinguished.

    Attributes
    ----------
    words : int
        Words in which the documents differ.
    total : float
        The sum of the largest losses, in nats, with what rounding in the sampler may add: no output distinguishes the
        documents better.
    distances : tuple of float
        Of the words that differ, the closest first.
    within : Together
        What all documents lose that differ in as many words, each by the largest of these distances, rounded up to three
        digits.
    grid : float
        Nats to which losses were rounded.
    """

    words: int
    total: float
    distances: tuple[float, ...]
    within: Together
    grid: float
    _upper: tuple[Any, ...]
    _lower: tuple[Any, ...]
    _slack: float

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return a lower and an upper bound of the least delta at an epsilon: exact but for the grid.

        ``delta(E)`` is the largest difference of ``P(S)`` and ``exp(E) P'(S)`` over all sets S of outputs and both orders of
        the documents. The upper bound also covers what rounding in the sampler may add.
        """
        if not epsilon >= 0:
            raise TextprivError(f"epsilon is a number from 0 up; got {epsilon}.")
        if not self.words:
            return 0.0, 0.0
        low = max(float(each.get_delta_for_epsilon(epsilon)) for each in self._lower)
        high = max(self._above(each, epsilon) for each in self._upper)
        return max(low - self.words * _CONVOLVED, 0.0), high

    def _above(self, direction: Any, epsilon: float) -> float:
        """Return an upper bound of delta in one order of the documents."""
        if epsilon >= self.total:
            return 0.0
        # The laws that are drawn are off by a factor of exp(slack) in all.
        found = float(direction.get_delta_for_epsilon(epsilon - self._slack))
        return min((found + self.words * _CONVOLVED) * math.exp(self._slack), 1.0)

    def epsilon(self, delta: float) -> float:
        """Return an epsilon at which the delta of these two documents is at most the one given, to the grid."""
        if not 0 <= delta < 1:
            raise TextprivError(f"delta is a probability from 0 up and below 1; got {delta}.")
        low, high = 0.0, self.total
        if self.delta(low)[1] <= delta:
            return low
        while high - low > self.grid:
            middle = (low + high) / 2
            if self.delta(middle)[1] <= delta:
                high = middle
            else:
                low = middle
        return high

    @property
    def total_variation(self) -> tuple[float, float]:
        """A lower and an upper bound of the total variation distance."""
        return self.delta(0.0)

    def roc(self, false_alarms: ArrayLike) -> NDArray[np.float64]:
        """Return upper bounds of the best attacker's detection rates at rates of false alarms.

        Parameters
        ----------
        false_alarms : array_like, shape (n,)
            How often the attacker names the first document where the second one was drawn from, in [0, 1].

        Returns
        -------
        ndarray of float64, shape (n,)
            How often he names the first one where it was drawn from.
        """
        alarms = np.asarray(false_alarms, dtype=np.float64)
        if not ((alarms >= 0) & (alarms <= 1)).all():
            raise TextprivError("rates of false alarms lie between 0 and 1.")
        if not self.words:
            return alarms.copy()
        # Every epsilon gives a line above the curve, from either order of the documents; the curve is their envelope.
        best = np.ones(alarms.shape)
        for epsilon in np.linspace(0.0, self.total, _LINES).tolist():
            first, second = (self._above(each, epsilon) for each in self._upper)
            odds = math.exp(min(epsilon, 700.0))
            best = np.minimum(best, odds * alarms + first)
            best = np.minimum(best, 1 - np.maximum(1 - alarms - second, 0.0) / odds)
        return best

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON types."""
        return {
            "words": self.words,
            "total": self.total,
            "total_variation": list(self.total_variation),
            "epsilon": {f"{delta:g}": self.epsilon(delta) for delta in _DELTAS},
            "within": self.within._asdict(),
        }

    def sentences(self) -> list[str]:
        """Say what the figures mean."""
        if not self.words:
            return ["The documents have one law: no output tells them apart."]
        farthest = self.distances[-1]
        reach = (
            "" if math.isinf(farthest) else f", each by a distance of up to {at_most(farthest, 3)}"
        )
        named, right = self.roc([0.01, 0.1]), 50 * (1 + self.total_variation[1])
        all_of_them = f"Of all documents that differ in so many words{reach}"
        false_alarms = (
            f"with false alarms in 1 % of them in at most {at_most(100 * float(named[0]), 3)} %, in 10 % of them in at most "
            f"{at_most(100 * float(named[1]), 3)} %"
        )
        whole, part = odds_in_words(self.within.total), odds_in_words(self.within.epsilon)
        # What is won by leaving out a delta may be less than what is printed.
        by_sum = self.within.by == "sum" or part == whole
        return [
            f"The documents differ in {self.words:,} word{'s' * (self.words != 1)}{reach}.",
            f"No output tells them apart by odds of more than {odds_in_words(self.total)}, the product over these words.",
            *(
                f"Any set of outputs is at most {factor_in_words(self.epsilon(delta))} times as likely for one as for the "
                f"other, plus {delta:g}."
                for delta in _DELTAS
            ),
            f"The best attacker, to whom both are equally likely, names the right one in at most {at_most(right, 3)} % of "
            f"all draws; {false_alarms}.",
            f"{all_of_them}, no output tells two apart by odds of more than {whole}."
            if by_sum
            else f"{all_of_them}: at most {factor_in_words(self.within.epsilon)} times as likely, plus "
            f"{at_most(self.within.delta)}.",
        ]


def compare_documents(
    mechanism: Mechanism,
    first: Sequence[str | int],
    second: Sequence[str | int],
    *,
    grid: float = GRID,
) -> DocumentPair:
    """Compute what two documents of equal length lose.

    Parameters
    ----------
    mechanism : Mechanism
        With a closed law.
    first, second : sequence of str or int
        Words of the vocabulary, or their ids; ``UNKNOWN`` for any other word.
    grid : float
        Nats to which losses are rounded, from 1e-6 up; made coarser where a distribution would have more than 4 million
        cells.

    Raises
    ------
    TextprivError
        For documents of different lengths, a grid below 1e-6, and where dp-accounting is not installed.
    MechanismError, VocabularyError
        For a mechanism without a law, one that reads its context, and for a word that is not there.
    """
    if mechanism.reads_context:
        raise MechanismError(
            f"{type(mechanism).__name__} draws each word by those before it, so the losses of words do not add up exactly. "
            "Its statement bounds them; compare documents under TEM (--mechanism tem)."
        )
    if len(first) != len(second):
        raise TextprivError(
            f"documents of {len(first)} and {len(second)} words are told apart by their lengths, whatever is drawn."
        )
    if not _FINEST <= grid < math.inf:
        raise TextprivError(f"the grid is a number of nats from {_FINEST:g} up; got {grid}.")
    given = [
        (mechanism.resolve(a), mechanism.resolve(b)) for a, b in zip(first, second, strict=True)
    ]
    distances = {pair: _distance(mechanism, *pair) for pair in given}
    pairs = Counter(pair for pair in given if distances[pair] > 0)
    laws = {word: mechanism.log_prob(word) for pair in pairs for word in pair}
    losses = {pair: laws[pair[0]] - laws[pair[1]] for pair in pairs}
    width = sum(float(np.ptp(loss)) * pairs[pair] for pair, loss in losses.items())
    grid = max(float(grid), width / _CELLS)
    changed, statement = sum(pairs.values()), mechanism.statement
    apart = sorted(distances[pair] for pair in pairs.elements())
    bounds = []
    for up in (True, False):
        directions = []
        for sign in (1, -1):
            weighted = [
                (sign * loss, np.exp(laws[pair[0 if sign > 0 else 1]]), pairs[pair])
                for pair, loss in losses.items()
            ]
            directions.append(_convolved(weighted, grid, up=up))
        bounds.append(tuple(directions))
    slack = changed * float(statement.figures.get("numerical_slack") or 0.0)
    total = max(
        sum(float((sign * loss).max()) * pairs[pair] for pair, loss in losses.items())
        for sign in (1, -1)
    )
    return DocumentPair(
        changed,
        total + slack,
        tuple(apart),
        statement.documents_within(changed, float(at_most(apart[-1], 3)) if apart else 0.0),
        grid,
        bounds[0],
        bounds[1],
        slack,
    )


def _distance(mechanism: Mechanism, first: int, second: int) -> float:
    """Return the distance of two inputs; infinite between an unknown word and any other."""
    if first == second:
        return 0.0
    return math.inf if UNKNOWN in (first, second) else mechanism.index.distance(first, second)


def _convolved(
    losses: list[tuple[NDArray[np.float64], NDArray[np.float64], int]], grid: float, *, up: bool
) -> Any:
    """The distribution of a sum of losses, each with its law and how often it is there; rounded up or down."""
    pld = needs("dp_accounting.pld.privacy_loss_distribution", "accounting")
    parts: list[tuple[int, int, Any]] = []
    for loss, law, times in losses:
        # What the logarithms may be off by is far less than this part of a cell.
        cells = (np.ceil(loss / grid + 1e-6) if up else np.floor(loss / grid - 1e-6)).astype(
            np.int64
        )
        least = int(cells.min())
        mass = np.bincount(cells - least, weights=law)
        there = np.flatnonzero(mass)
        made = pld.PrivacyLossDistribution.create_from_rounded_probability(
            dict(zip((there + least).tolist(), mass[there].tolist(), strict=True)), 0.0, grid, up
        )
        parts.append(
            (len(mass) * times, len(parts), made.self_compose(times) if times > 1 else made)
        )
    # The narrowest first, so that few are wide.
    heapq.heapify(parts)
    number = len(parts)
    while len(parts) > 1:
        (one, _, first), (other, _, second) = heapq.heappop(parts), heapq.heappop(parts)
        heapq.heappush(parts, (one + other, number, first.compose(second)))
        number += 1
    return parts[0][2] if parts else None


def compare_texts(
    privatizer: Privatizer, first: str, second: str, *, grid: float = GRID
) -> DocumentPair:
    """Compute what two texts lose under a mechanism and a policy; see :func:`compare_documents`.

    Raises
    ------
    TextprivError
        For texts that differ in what is not drawn, such as their number of tokens or a mark that is kept: whoever sees the
        output tells them apart, whatever is drawn. The texts are not quoted.
    """
    read = [privatizer.read(text) for text in (first, second)]
    codes = [each.codes for each in read]
    if len(codes[0]) != len(codes[1]):
        raise TextprivError(
            f"the texts have {len(codes[0])} and {len(codes[1])} tokens, which the output shows: nothing hides which "
            "of them it was."
        )
    drawn = [each >= UNKNOWN for each in codes]
    fixed = ~drawn[0]
    if not np.array_equal(drawn[0], drawn[1]) or not np.array_equal(
        codes[0][fixed], codes[1][fixed]
    ):
        where = np.flatnonzero((drawn[0] != drawn[1]) | (fixed & (codes[0] != codes[1])))
        raise TextprivError(
            f"token {int(where[0]) + 1} of the texts is of different classes, not both of which are drawn: the output shows "
            "which of them it was."
        )
    if read[0].strings != read[1].strings:
        raise TextprivError(
            "the texts differ in tokens that the policy releases as they are: the output shows which of them it was."
        )
    return compare_documents(
        privatizer.mechanism, *(each[each >= UNKNOWN].tolist() for each in codes), grid=grid
    )
