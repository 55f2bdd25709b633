"""The public map of words outside a vocabulary to words of it: misspellings and inflections, before any mechanism.

What it guarantees. The map f is a function of the written word alone, of the vocabulary and of public tables: not of other
words, of the text or of what was read before. A mechanism that draws for the word f(w) therefore loses between two words
w and w' what it loses between f(w) and f(w'), ``epsilon * d(f(w), f(w'))`` (pre-processing, mechanisms.md 10.4), and
nothing between two words with one image. Words that f leaves share the law of unknown words, as without it.

How a word goes, by the first step that finds some:

1. to the word that is equal but for case (``str.casefold``);
2. to the word that spaCy's table ``lemma_lookup`` of the language has for it, where the package ``spacy-lookups-data`` is
   installed;
3. to the word with the least optimal string alignment distance (insertions, deletions, substitutions and exchanged
   neighbours) that begins with the same letter: at most 1 for words of 4 to 7 letters, 2 for longer ones.

Of several the one that comes first in the vocabulary is taken. Words with a digit, and in step 3 those of fewer than 4 or
more than 64 characters, are left. So the cost of a word is bounded: it is compared with the words of its first letter that
are about as long.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from textpriv.mechanisms.base import UNKNOWN
from textpriv.optional import needs

__all__ = ["NearestWords", "lemmas", "map_name"]

_ALGORITHM = 1  # raised when a word may go elsewhere than before
_SHORTEST, _LONG, _LONGEST = 4, 8, 64
_KEPT = 200_000  # words whose images are remembered


@cache
def lemmas(language: str) -> dict[int, str]:
    """SpaCy's table of lemmas of a language, from its hash of a word to the lemma; empty where there is none."""
    from spacy.lookups import load_lookups

    found: Any = load_lookups(language, ["lemma_lookup"], strict=False)
    return dict(found.get_table("lemma_lookup", {}))


@cache
def map_name(language: str) -> str:
    """What tells the map from every other one, in a statement and in the fingerprint of settings.

    An edit distance is exact, so the version of the library that computes it does not count.
    """
    table = sorted(lemmas(language).items())
    lemma = hashlib.sha256(repr(table).encode()).hexdigest()[:16] if table else "none"
    return (
        f"nearest {_ALGORITHM} (case; table of lemmas: {lemma}; optimal string alignment of at most 1 from {_SHORTEST} "
        f"letters and 2 from {_LONG}, first letter kept)"
    )


class NearestWords:
    """The map of words to a vocabulary.

    Parameters
    ----------
    words : sequence of str
        The vocabulary, public; a word's id is its index.
    language : str
        Whose table of lemmas is used.

    Raises
    ------
    TextprivError
        Where rapidfuzz is not installed.
    """

    def __init__(self, words: Sequence[str], language: str) -> None:
        self._distance = needs("rapidfuzz.distance", "nearest").OSA.distance
        self._compare = needs("rapidfuzz.process", "nearest").cdist
        self._words, self._language = words, language
        self._known: dict[str, int] = {}
        self._lock = threading.Lock()

    def ids(self, words: Iterable[str]) -> list[int]:
        """The image of each word: an id of the vocabulary, or UNKNOWN for those that the map leaves."""
        images = []
        with self._lock:
            for word in words:
                image = self._known.get(word)
                if image is None:
                    image = self._image(word)
                    if len(self._known) >= _KEPT:
                        self._known.clear()
                    if (
                        len(word) <= _LONGEST
                    ):  # a longer one is soon looked up again, and would take much room
                        self._known[word] = image
                images.append(image)
        return images

    @cached_property
    def _folded(self) -> dict[str, int]:
        folded: dict[str, int] = {}
        for number, word in enumerate(self._words):
            folded.setdefault(word.casefold(), number)
        return folded

    @cached_property
    def _alike(self) -> dict[tuple[str, int], list[str]]:
        """Words in one case by their first letter and length."""
        alike: dict[tuple[str, int], list[str]] = {}
        for word in self._folded:
            alike.setdefault((word[:1], len(word)), []).append(word)
        return alike

    def _image(self, word: str) -> int:
        folded = word.casefold()
        if any(map(str.isdigit, word)):
            return UNKNOWN
        if folded in self._folded:
            return self._folded[folded]
        lemma = self._lemma(word) or self._lemma(folded)
        if lemma is not None and lemma.casefold() in self._folded:
            return self._folded[lemma.casefold()]
        if not _SHORTEST <= len(folded) <= _LONGEST:
            return UNKNOWN
        most = 1 if len(folded) < _LONG else 2
        lengths = range(len(folded) - most, len(folded) + most + 1)
        near = [word for size in lengths for word in self._alike.get((folded[0], size), ())]
        if not near:
            return UNKNOWN
        options = {"scorer": self._distance, "score_cutoff": most, "dtype": np.uint8}
        distances = self._compare([folded], near, **options)[0]
        least = int(distances.min())
        if least > most:
            return UNKNOWN
        return min(self._folded[near[at]] for at in np.flatnonzero(distances == least).tolist())

    def _lemma(self, word: str) -> str | None:
        from spacy.strings import get_string_id

        table = lemmas(self._language)
        return table.get(get_string_id(word)) if table else None
