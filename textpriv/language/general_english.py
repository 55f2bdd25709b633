"""The small model of general English; ``tools/make_language_model.py`` makes its files and names their source."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.language.ngrams import OTHER, START, NGrams

DATA = Path(__file__).with_name("data")
PER_UNIT = 10  # steps of the logarithms in which the files keep weights, in one nat


def general_english(words: Sequence[str]) -> NGrams:
    """Return the trigram model of general English over words in lower case; unknown ones are as likely as its rarest."""
    return _over(tuple(words))


@lru_cache(maxsize=2)
def _over(words: tuple[str, ...]) -> NGrams:
    with np.load(DATA / "en-pairs.npz") as one, np.load(DATA / "en-triples.npz") as two:
        arrays = {name: np.asarray(each[name]) for each in (one, two) for name in each.files}
    # Exponentials rounded the same way on every processor, as those of a library are not.
    table = np.array([float((-Decimal(step) / PER_UNIT).exp()) for step in range(256)])
    weight, pairs, triples = (table[arrays[name]] for name in ("single", "pairs", "triples"))
    own = (DATA / "en-words.txt").read_text(encoding="utf-8").split()
    size = len(words)
    place = {word: at for at, word in enumerate(words)}
    known = [place.get(word, size + 3) for word in own]
    # The symbols of the files: start, other, full stop; then other words.
    new = np.array([*known, size, size + 1, size + 2, size + 3], np.int64)
    single: NDArray[Any] = np.bincount(new, weight, minlength=size + 4)
    single[:size] = np.maximum(single[:size], weight.min())
    first = new[np.repeat(np.arange(len(new)), arrays["pair_counts"])]
    first[first == size + 3] = -1
    second = new[arrays["seconds"]]
    order, position = _inside(first, second, size + 3)
    pair = position[np.repeat(np.arange(len(first)), arrays["triple_counts"])]
    third = new[arrays["thirds"]]
    later, _ = _inside(pair, third, size + 3)
    return NGrams.from_probabilities(
        size,
        (START, OTHER, "."),
        single,
        (first[order], second[order], pairs[order]),
        (pair[later], third[later], triples[later]),
    )


def _inside(
    context: NDArray[np.int64], last: NDArray[np.int64], other: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order of the n-grams with a context and without the token ``other``, and each one's new place, or -1."""
    kept = np.flatnonzero((context >= 0) & (last != other))
    kept = kept[np.argsort(context[kept] * (other + 1) + last[kept], kind="stable")]
    position = np.full(len(last), -1)
    position[kept] = np.arange(len(kept))
    return kept, position
