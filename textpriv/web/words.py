"""A self-contained page about a measurement of records: the words that set each class apart, and sample texts.

Everything on the page follows from the noisy sums. The page loads nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict

from textpriv.synthesis.features import Label
from textpriv.synthesis.synthesizer import TextSynthesizer
from textpriv.web.pages import content_policy, fill

_SURE = 2.0  # standard errors on either side
_DRAWN, _SHOWN = 200, 3  # texts, and those of a class that are shown
_TOP = 20  # words of a class


def words_page(synthesizer: TextSynthesizer, seed: int | None = None) -> str:
    """Return the page as HTML, with sample texts of a seed; every text in it is escaped."""
    noisy = synthesizer.noisy_
    counts = noisy.rows.reshape(len(noisy.classes), -1).sum(axis=1)
    error = _SURE * noisy.rows_sigma * math.sqrt(noisy.cells)
    apart = synthesizer.words_apart(_TOP)
    widest = max([abs(tilt) for _, _, tilt, _ in apart] + [1e-9])
    rows = defaultdict[Label, list[tuple[str, float, float, float, float]]](list)
    for label, word, tilt, sigma in apart:
        times, low, high = (math.exp(tilt + side * _SURE * sigma) for side in (0, -1, 1))
        rows[label].append((word, 100 * max(tilt, 0.0) / widest, times, low, high))
    texts = defaultdict[Label, list[str]](list)
    for text, label in synthesizer.records(_DRAWN, seed):
        texts[label].append(text)
    classes = [
        (label, max(0.0, count), rows[label], texts[label][:_SHOWN])
        for label, count in zip(noisy.classes, counts.tolist(), strict=True)
    ]
    return fill(
        "words.html",
        policy=content_policy(""),
        classes=classes,
        error=error,
        has_labels=noisy.classes != ("",),
        statement=synthesizer.statement_,
    )
