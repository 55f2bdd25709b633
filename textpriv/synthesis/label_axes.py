"""``LabelAxes``: labelled texts to axes of an index that set the words of different labels apart."""

from __future__ import annotations

import math

import numpy as np

from textpriv.errors import TextprivError
from textpriv.index.axes import Axes
from textpriv.synthesis.release import unit_of
from textpriv.synthesis.synthesizer import TextSynthesizer

# In root mean square lengths of the recommended space, over the number of directions that the labels have. Chosen on public
# sets: with many classes, heavier axes move their words so far from all others that a smaller epsilon costs more than it
# gives.
_WEIGHT = 2.0


class LabelAxes(TextSynthesizer):
    """Learn, under differential privacy, which words distinguish labels, for ``Index.build(..., axes=...)``.

    The measurement is that of :class:`TextSynthesizer`, with its parameters. An infinite epsilon adds no noise: then texts
    and labels must be public. :meth:`load` opens a saved measurement, at no further loss.

    Examples
    --------
    >>> texts, labels = ["a good film"] * 500 + ["a bad film"] * 500, ["pos"] * 500 + ["neg"] * 500
    >>> LabelAxes(epsilon=4.0, classes=["neg", "pos"]).fit(texts, labels).axes_
    Axes(neg, pos; epsilon 4)
    """

    @property
    def axes_(self) -> Axes:
        """One axis for each class: the root of its probability once a word is seen."""
        generator, noisy = self._generator, self.noisy_
        if len(noisy.classes) < 2:
            raise TextprivError("axes set classes apart. Give labels of two or more classes.")
        shares = generator.shares.reshape(len(noisy.classes), -1).sum(axis=1)
        known = len(self._side.words)  # new words have no place in the index
        likely = np.exp(generator.apart.tilts.T[:known]) * shares
        # Roots of probabilities are bounded (Hellinger's distance), so no word is so far out that it stays.
        values = np.sqrt(likely / likely.sum(axis=1, keepdims=True))
        content = self._side.index.vocabulary.is_content
        values = values - values[content].mean(axis=0)
        length = math.sqrt(float(np.square(values[content]).sum(axis=1).mean()))
        frequency = generator.frequency[:known]
        weight = _WEIGHT / (len(noisy.classes) - 1)
        return Axes(
            labels=tuple(map(str, noisy.classes)),
            values=values * (weight / length) if length else values,
            frequency=frequency / frequency.sum(),
            unit=unit_of(noisy.authors),
            epsilon=noisy.epsilon,
            delta=noisy.delta,
            changed=noisy.replaced,  # a change replaces a record
            vocabulary=self._side.fingerprint,
        )
