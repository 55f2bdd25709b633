"""A self-contained page about a measurement of records: the words that set each class apart, and sample texts.

Everything on the page follows from the noisy sums. The page loads nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timezone

from textpriv.synthesis.features import Label
from textpriv.synthesis.synthesizer import TextSynthesizer
from textpriv.web.pages import content_policy, fill

_SURE = 2.0  # standard errors on either side
_DRAWN, _SHOWN, _LONGEST = 200, 3, 300  # texts, those of a class, characters
_TOP = 20


@dataclass
class ClassWords:
    """A class as the page shows it: its noisy number of records, its words and some new texts."""

    label: Label
    count: str
    rows: list[tuple[str, float, str, str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def words_page(synthesizer: TextSynthesizer, seed: int | None = None, top: int = _TOP) -> str:
    """Return the page as HTML; every text in it is escaped.

    Parameters
    ----------
    synthesizer : TextSynthesizer
    seed : int, optional
        Of the sample texts.
    top : int
        Words of each class.
    """
    noisy = synthesizer.noisy_
    counts = noisy.rows.reshape(len(noisy.classes), -1).sum(axis=1)
    error = _SURE * noisy.rows_sigma * math.sqrt(noisy.cells)
    shown = {
        label: ClassWords(label, f"{max(0.0, count):,.0f} ± {error:,.0f}")
        for label, count in zip(noisy.classes, counts.tolist(), strict=True)
    }
    rows = synthesizer.words_apart(top)
    widest = max([abs(tilt) for _, _, tilt, _ in rows] + [1e-9])
    for label, word, tilt, sigma in rows:
        low, high = (math.exp(tilt + side * _SURE * sigma) for side in (-1, 1))
        width = 100 * max(tilt, 0.0) / widest
        shown[label].rows.append((word, width, f"{math.exp(tilt):.1f}", f"{low:.1f} to {high:.1f}"))
    for text, label in synthesizer.records(_DRAWN, seed):
        if len(own := shown[label].texts) < _SHOWN:
            own.append(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …")
    return fill(
        "words.html",
        made=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        policy=content_policy(""),
        classes=list(shown.values()),
        has_labels=noisy.classes != ("",),
        statement=synthesizer.statement_,
    )
