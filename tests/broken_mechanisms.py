"""Mechanisms whose claim is untrue: certificates and audits must both refute them."""

from __future__ import annotations

import numpy as np

from textpriv import TEM, Madlib
from textpriv.mechanisms.base import UNKNOWN


class DoubledRate(TEM):
    """Forgets that the normaliser costs as much as the numerator."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.t *= 2


class WithoutSelf(TEM):
    """Leaves the word out of its own list."""

    def log_prob(self, word):
        law, number = super().log_prob(word).copy(), self.resolve(word)
        if number != UNKNOWN:
            law[number] = -np.inf
        return law - np.logaddexp.reduce(law)


class Exhaustive(Madlib):
    """Compares with every word, which is faster than the default search where they are few."""

    def __init__(self, *given, **options):
        super().__init__(*given, search="exact", **options)


class Quiet(Exhaustive):
    """Noise four times too small."""

    def sample_documents(self, ids, offsets, streams):
        claimed, self.epsilon = self.epsilon, 4 * self.epsilon
        try:
            return super().sample_documents(ids, offsets, streams)
        finally:
            self.epsilon = claimed


class OutsideTheVocabulary(TEM):
    """Draws an id that no word has."""

    def sample_documents(self, ids, offsets, streams):
        return np.full_like(ids, len(self.index))
