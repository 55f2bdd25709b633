"""Privacy loss of two given documents: its exact distribution, and the best attacker's chances.

Words are drawn independently, so the distributions of their losses convolve. dp-accounting does that on a grid, with losses
rounded up for upper bounds and down for lower ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError, TextprivError, needs
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.privatizer import Privatizer
from textpriv.statement import at_most, factor_in_words, odds_in_words

__all__ = ["DocumentPair", "compare_documents", "compare_texts"]

GRID = 1e-4  # nats; a millionth of a cell is far more than the rounding of a logarithm
_DELTAS = (1e-3, 1e-6, 1e-9)  # that are shown
_CELLS = 1 << 22  # of a distribution at most; the grid is made as coarse as that takes
# What one convolution by Fourier transforms may add to the sum of all probabilities: for 2^22 cells 2^11 (the root of
# their number) times 5 x 22 roundings of 2^-53, with room. It is taken off a lower bound and put on an upper one.
_CONVOLVED = 1e-10


@dataclass(frozen=True)
class DocumentPair:
    """How well the outputs of two documents can be distinguished."""

    words: int  # in which the documents differ
    total: float  # sum of the largest losses, in nats, and of what rounding in the sampler adds
    distance: float  # the largest one between two words that differ
    grid: float  # nats to which losses were rounded
    _upper: Any
    _lower: Any
    _slack: float

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return a lower and an upper bound of the least delta at an epsilon: exact but for the grid.

        It is the largest difference of ``P(S)`` and ``exp(epsilon) P'(S)`` over all sets S of outputs and both orders of the
        documents: at 0 their total variation. The upper bound covers what rounding in the sampler may add.
        """
        if not self.words:
            return 0.0, 0.0
        low = float(self._lower.get_delta_for_epsilon(epsilon)) - self.words * _CONVOLVED
        if epsilon >= self.total:
            return max(low, 0.0), 0.0
        # The distributions that are drawn from are off by a factor of exp(slack) in all.
        found = float(self._upper.get_delta_for_epsilon(epsilon - self._slack))
        high = min((found + self.words * _CONVOLVED) * math.exp(self._slack), 1.0)
        return max(low, 0.0), high

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon at which the delta of these two documents is at most the one given, to the grid."""
        left = delta * (1 - 1e-10) * math.exp(-self._slack) - self.words * _CONVOLVED
        if left <= 0 or not self.words:
            return self.total
        found = float(self._upper.get_epsilon_for_delta(left))
        return min(found + self._slack, self.total) if found else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON types."""
        return {
            "words": self.words,
            "total": self.total,
            "total_variation": list(self.delta(0.0)),
            "epsilon": {f"{delta:g}": self.epsilon(delta) for delta in _DELTAS},
        }

    def sentences(self) -> list[str]:
        """Say what the figures mean."""
        if not self.words:
            return [
                "The documents have the same output distribution: no output distinguishes them."
            ]
        far, right = self.distance, 50 * (1 + self.delta(0.0)[1])
        reach = "" if math.isinf(far) else f", each by a distance of up to {at_most(far, 3)}"
        return [
            f"The documents differ in {self.words:,} word{'s' * (self.words != 1)}{reach}.",
            f"No output distinguishes them by odds of more than {odds_in_words(self.total)}, the product over these words.",
            *(
                f"Any set of outputs is at most {factor_in_words(self.epsilon(delta))} times as likely for one as for the "
                f"other, plus {delta:g}."
                for delta in _DELTAS
            ),
            f"The best attacker, to whom both are equally likely, names the right one in at most {at_most(right, 3)} % of "
            "all draws.",
        ]


def compare_documents(
    mechanism: Mechanism, first: Sequence[str | int], second: Sequence[str | int]
) -> DocumentPair:
    """Compute what two documents of equal length lose.

    Parameters
    ----------
    mechanism : Mechanism
        With a closed form.
    first, second : sequence of str or int
        Words of the vocabulary, or their ids; ``UNKNOWN`` for any other word.

    Raises
    ------
    TextprivError
        For documents of different lengths, and a mechanism without a closed form or one that reads its context.
    """
    if mechanism.reads_context:
        raise MechanismError(
            f"{type(mechanism).__name__} draws each word by those before it, so the losses of words do not add up exactly. "
            "Its statement bounds them; compare documents under TEM (--mechanism tem)."
        )
    if len(first) != len(second):
        raise TextprivError(
            "the documents differ in length, which the output shows. Compare documents of equal length."
        )
    given = Counter(zip(map(mechanism.resolve, first), map(mechanism.resolve, second), strict=True))
    distances = {
        pair: math.inf if UNKNOWN in pair else mechanism.index.distance(*pair)
        for pair in given
        if pair[0] != pair[1]
    }
    pairs = {pair: given[pair] for pair, distance in distances.items() if distance > 0}
    logs = {word: mechanism.log_prob(word) for pair in pairs for word in pair}
    parts = [(logs[one], logs[other], times) for (one, other), times in pairs.items()]
    grid = max(GRID, sum(np.ptp(one - other) * times for one, other, times in parts) / _CELLS)
    losses = [
        sum(float((sign * (one - other)).max()) * times for one, other, times in parts)
        for sign in (1, -1)
    ]
    changed = sum(pairs.values())
    slack = changed * float(mechanism.statement.figures.get("numerical_slack") or 0.0)
    return DocumentPair(
        changed,
        max(losses) + slack,
        max(distances.values(), default=0.0),
        float(grid),
        _convolved(parts, grid, up=True) if parts else None,
        _convolved(parts, grid, up=False) if parts else None,
        slack,
    )


def _convolved(
    parts: Sequence[tuple[NDArray[np.float64], NDArray[np.float64], int]], grid: float, *, up: bool
) -> Any:
    """Return the distribution of a sum of losses in both orders, rounded up or down, of pairs of distributions, repeated."""
    pld = needs("dp_accounting.pld.privacy_loss_distribution", "accounting")

    def masses(one: NDArray[np.float64], other: NDArray[np.float64]) -> dict[int, float]:
        # What the logarithms may be off by is far less than this part of a cell.
        cells = (one - other) / grid
        cells = np.ceil(cells + 1e-6) if up else np.floor(cells - 1e-6)
        found, places = np.unique(cells.astype(np.int64), return_inverse=True)
        mass = np.bincount(places, weights=np.exp(one))
        return dict(zip(found.tolist(), mass.tolist(), strict=True))

    made = []
    for one, other, times in parts:
        both = (masses(one, other), 0.0, grid, up, masses(other, one), 0.0, False)
        each = pld.PrivacyLossDistribution.create_from_rounded_probability(*both)
        made.append(each.self_compose(times) if times > 1 else each)
    # By twos, so that few are wide.
    while len(made) > 1:
        left = made[len(made) // 2 * 2 :]
        made = [a.compose(b) for a, b in zip(made[::2], made[1::2], strict=False)] + left
    return made[0]


def compare_texts(privatizer: Privatizer, first: str, second: str) -> DocumentPair:
    """Compare what two texts lose under a mechanism and a policy; see :func:`compare_documents`.

    Raises
    ------
    TextprivError
        For texts that differ in what is not drawn: the output distinguishes them. The texts are not quoted.
    """
    read = [privatizer.read(text) for text in (first, second)]
    one, other = (each.codes for each in read)
    if len(one) != len(other):
        raise TextprivError(
            f"the texts have {len(one)} and {len(other)} tokens, which the output shows. Compare texts of equal length."
        )
    # What is not drawn, below UNKNOWN, must be the same in both.
    kept = np.minimum(one, other) < UNKNOWN
    if (one != other)[kept].any() or read[0].strings != read[1].strings:
        raise TextprivError(
            "the texts differ in tokens that are released as they are, or in the class of a token. The output shows that."
        )
    drawn = [codes[codes >= UNKNOWN].tolist() for codes in (one, other)]
    return compare_documents(privatizer.mechanism, *drawn)
