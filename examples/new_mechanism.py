"""Write a mechanism of your own, register it, and let the audit attack it.

This one keeps a word with a fixed advantage over each other word, however near or far that is. So the nearest two words
of the vocabulary decide how large the advantage may be.

python examples/new_mechanism.py
"""

import numpy as np

from textpriv.guarantees.audit import audit
from textpriv.mechanisms import registry
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.statement import PrivacyStatement


class RandomizedResponse(Mechanism):
    """Keeps a word with odds ``exp(epsilon * shortest distance)`` against each other word."""

    name = "RandomizedResponse"

    def __init__(self, index, epsilon):
        super().__init__(index, epsilon)
        distances = index.distances_of(np.arange(len(index)))
        self._same = distances == 0  # duplicates of a word must share its outputs
        self._loss = self.epsilon * float(distances[~self._same].min())
        self._sums = np.exp([self.log_prob(i) for i in range(UNKNOWN, len(index))]).cumsum(axis=1)

    def log_prob(self, word):
        id, weights = self.resolve(word), np.ones(len(self.index))
        if id != UNKNOWN:
            weights[self._same[id]] += np.expm1(self._loss) / self._same[id].sum()
        return np.log(weights / weights.sum())

    def sample_documents(self, ids, offsets, streams):
        out = np.empty_like(ids)
        for start, end, stream in zip(offsets, offsets[1:], streams, strict=False):
            sums = self._sums[ids[start:end] - UNKNOWN]
            drawn = (stream.words(end - start) >> np.uint64(11)) * 2.0**-53 * sums[:, -1]
            out[start:end] = (sums <= drawn[:, None]).sum(axis=1)
        return out

    @property
    def statement(self):
        """What the audit holds it to."""
        worst, near = {"worst_word_loss": self._loss}, "one word becomes another of the vocabulary"
        return PrivacyStatement(self.name, near, self.epsilon, 0.0, "1/d", True, figures=worst)


@registry.register("example.RandomizedResponse.v1")
def configure(epsilon):
    """Take the settings of a config; return what makes the mechanism over an index."""
    return lambda index: RandomizedResponse(index, epsilon)


if __name__ == "__main__":
    print(audit("example.RandomizedResponse.v1"))
