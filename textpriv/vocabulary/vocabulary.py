"""Words, their vectors and an optional public prior."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from textpriv.errors import VocabularyError
from textpriv.vocabulary.function_words import FunctionWords, commonest, listed_words
from textpriv.vocabulary.priors import NAMES, Prior, counts_of, weights_of
from textpriv.vocabulary.readers import read_source

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Vocabulary:
    """Words, one vector for each, and perhaps a prior. All of it must be public.

    The guarantee of a mechanism takes words, vectors and prior as fixed and known to everybody. Vectors trained on the
    private text, a word list taken from it, or a prior counted on it release that text outside the guarantee, with no bound
    on the loss. Nothing in this library can check that.

    Parameters
    ----------
    words
        V different words. A word's id is its position; the prior "zipf" takes it for the frequency rank, commonest first.
    vectors
        Array of shape (V, n), all values finite. float32 and float64 are kept, any other real type becomes float32.
    prior
        How common the words are: counts or an array, as `prior_weights` takes them.
    language
        spaCy's code of the language of the words, such as "de". Texts are tokenized by its rules, else by those of English.
    function_words
        Public words that the recommended space sets apart, as a list or the path of a file of words. Default: a list of
        closed classes for English, spaCy's stop words for other languages, and without a language the 250 commonest words.

    Attributes
    ----------
    prior : ndarray, shape (V,), or None
        float64 weights above 0, not normalised, read-only.
    function_words : FunctionWords
        Those of the words that are function words, and where their list is from.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.array([[0.0, 1.0], [0.0, 2.0], [5.0, 5.0]])
    >>> vocabulary = Vocabulary(["cat", "dog", "sky"], vectors)
    >>> len(vocabulary), vocabulary.id("sky"), "fish" in vocabulary
    (3, 2, False)
    >>> vocabulary.prior_weights({"cat": 60, "dog": 30}).round(3).tolist()
    [0.571, 0.286, 0.143]
    """

    def __init__(
        self,
        words: Sequence[str],
        vectors: ArrayLike,
        prior: Prior | None = None,
        language: str | None = None,
        function_words: FunctionWords | Iterable[str] | str | os.PathLike[str] | None = None,
    ) -> None:
        self.words = list(words)
        self.vectors = read_only(_as_matrix(vectors))
        if len(self.words) != len(self.vectors):
            raise VocabularyError(
                f"There are {len(self.words):,} words and {len(self.vectors):,} vectors. Pass one vector for each word."
            )
        _check_words(self.words)
        bad = np.flatnonzero(~np.isfinite(self.vectors).all(axis=1))
        if len(bad):
            raise VocabularyError(
                f"The vector of the word with id {bad[0]} has a value that is not finite. Leave the word out."
            )
        if not (language is None or re.fullmatch(r"[a-z]{2,3}", str(language))):
            raise VocabularyError(
                f"{language!r} is no code of a language. Pass spaCy's, such as 'de', or nothing."
            )
        if isinstance(prior, str) and prior in NAMES:
            raise VocabularyError(
                f'A vocabulary carries counts, and "{prior}" is none. Pass prior="{prior}" to the mechanism.'
            )
        self.language = language
        self.prior = None if prior is None else read_only(weights_of(prior, self.words))
        self._listed = listed_words(function_words, language)
        self.function_words = (
            commonest(self.words, self.prior)
            if self._listed is None
            else self._listed.among(self.words)
        )

    @classmethod
    def load(
        cls,
        source: Any,
        *,
        limit: int | None = None,
        prior: Prior | None = None,
        language: str | None = None,
        function_words: Iterable[str] | str | os.PathLike[str] | None = None,
    ) -> Vocabulary:
        """Read a vocabulary from a file of vectors, or take it over from gensim or spaCy.

        Parameters
        ----------
        source
            One of these:

            - the path of a GloVe text file, a word2vec or fastText `.vec` text file, or a word2vec binary file; each may be
              packed with gzip;
            - a gensim `KeyedVectors` object, or a model that has one as `.wv`;
            - a spaCy `Language` object, the name of an installed spaCy package, or the folder of a saved pipeline, each with
              a table of vectors. Of words that share a row, one is taken: the most frequent by a prior that counts words,
              else the first in the table;
            - "builtin:en", the words that come with the package;
            - the name of a public set, such as "gensim:glove-wiki-gigaword-300", "spacy:de_core_news_md" or
              "fasttext:cc.de.300". ``textpriv index --list`` lists such sets with their licences.
        limit
            Keep the first `limit` words, and read a file no further.
        prior, language, function_words
            As in the constructor. The language may come from the spaCy pipeline or the public set.

        Raises
        ------
        VocabularyError
            If the source is none of these, or is damaged. The message names the line and never quotes the file.
        """
        if limit is not None and limit < 1:
            raise VocabularyError(f"limit= must be at least 1, not {limit}.")
        counts = None
        if isinstance(prior, str | os.PathLike | Mapping) and prior not in NAMES:
            prior = counts = counts_of(prior)
        words, vectors, found = read_source(source, limit, counts)
        return cls(words, vectors, prior, language or found, function_words)

    def without(self, words: Iterable[str]) -> Vocabulary:
        """Return the vocabulary without some words; the list must be public."""
        left_out = set(words)
        kept = [number for number, word in enumerate(self.words) if word not in left_out]
        if not kept:
            raise VocabularyError("Every word is to be left out. Leave one in.")
        prior = None if self.prior is None else self.prior[kept]
        left = [self.words[number] for number in kept]
        return Vocabulary(left, self.vectors[kept], prior, self.language, self._listed)

    def lowered(self) -> Vocabulary:
        """Return the vocabulary in lower case: of words that become equal the first one's vector, and all their counts.

        Texts are read in lower case, unless the policy keeps their case. German nouns with a capital would all be unknown.

        Examples
        --------
        >>> Vocabulary(["Haus", "haus", "gut"], [[0.0], [1.0], [2.0]]).lowered().words
        ['haus', 'gut']
        """
        ids: dict[str, int] = {}
        new = np.array([ids.setdefault(word.lower(), len(ids)) for word in self.words])
        first = np.unique(new, return_index=True)[1]
        prior = None if self.prior is None else np.bincount(new, self.prior)
        return Vocabulary(list(ids), self.vectors[first], prior, self.language, self._listed)

    @classmethod
    def builtin(cls, language: str = "en") -> Vocabulary:
        """Read a vocabulary that comes with the package; nothing is downloaded.

        "en" has the commonest words of GloVe 6B with vectors of 50 dimensions (public domain), in order of frequency.

        Examples
        --------
        >>> Vocabulary.builtin("en").words[:3]
        ['the', 'of', 'to']
        """
        from textpriv.vocabulary.builtin import read_builtin

        return read_builtin(language)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def is_content(self) -> NDArray[np.bool_]:
        """Which words are content words: all but the function words. Shape (V,)."""
        found = np.ones(len(self), dtype=bool)
        found[self.ids(self.function_words.words)] = False
        return found

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and word in self._ids

    def __repr__(self) -> str:
        prior = "no prior" if self.prior is None else "with a prior"
        shape = f"{len(self):,} words x {self.vectors.shape[1]} {self.vectors.dtype}"
        return f"<Vocabulary: {shape}, {prior}>"

    def id(self, word: str) -> int:
        """Return the id of `word`: its position, from 0.

        The error of a missing word names it. Test words of private texts with `in` instead.
        """
        if word not in self:
            raise VocabularyError(f"The vocabulary lacks {word!r}. Mind capital letters.")
        return self._ids[word]

    def resolve(self, word: str | int) -> int:
        """Return the id of a word that is given as text or as its id."""
        if isinstance(word, str):
            return self.id(word)
        if not 0 <= word < len(self):
            raise VocabularyError(f"A word id is from 0 to {len(self) - 1}, not {word!r}.")
        return int(word)

    def ids(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Return the ids of T words as an int32 array of shape (T,)."""
        return np.array([self.id(word) for word in words], dtype=np.int32)

    def prior_weights(self, prior: Prior) -> NDArray[np.float64]:
        """Return a prior over the words, shape (V,): all above 0, and the sum is 1 up to rounding.

        Parameters
        ----------
        prior
            One of these, and always public; a prior that was counted on the private text breaks the guarantee:

            - "zipf": Zipf-Mandelbrot weights 1 / (rank + 2.7), rank 1 for the first word;
            - "uniform": all words alike;
            - "counts": the weights that the vocabulary carries in `.prior`;
            - an array of shape (V,): finite weights above 0;
            - a mapping from words to counts, or the path of a text file of lines "word count", which gzip may have packed.
              A word without a count gets half of the smallest, because every word must stay possible.
        """
        weights = weights_of(prior, self.words, self.prior)
        # Scaled by the largest, the sum is finite. It is correctly rounded, so that no processor's order of summation shows
        # in what is drawn.
        scaled = weights / weights.max()
        normalised: NDArray[np.float64] = scaled / math.fsum(scaled.tolist())
        if not normalised.all():
            raise VocabularyError(
                f"The weights span {weights.min():g} to {weights.max():g}, so the smallest become 0. Raise the small ones."
            )
        return normalised

    def fingerprint(self) -> str:
        """Return a SHA-256, in hex, over the words and the shape, type and values of the vectors."""
        encoded = [word.encode("utf-8") for word in self.words]
        digest = hashlib.sha256()
        digest.update(f"{self.vectors.dtype.name} {self.vectors.shape}\n".encode())
        # The lengths keep ["ab", "c"] and ["a", "bc"] apart whatever characters words hold.
        digest.update(np.fromiter(map(len, encoded), dtype="<u8", count=len(encoded)).tobytes())
        digest.update(b"".join(encoded))
        little_endian = self.vectors.dtype.newbyteorder("<")
        digest.update(np.ascontiguousarray(self.vectors, dtype=little_endian).data)
        return digest.hexdigest()


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, so that the flag of the caller's own array stays as it is."""
    view = values.view()
    view.setflags(write=False)
    return view


def _as_matrix(vectors: ArrayLike) -> NDArray[Any]:
    """Return a C-contiguous (V, n) array of float32 or float64; what is one is not copied."""
    try:
        given = np.asarray(vectors)
    except ValueError:
        given = np.empty(0, dtype=object)
    if given.dtype.kind not in "fiu" or given.ndim != 2 or 0 in given.shape:
        raise VocabularyError(
            f"Vectors must be real numbers of shape (V, n), not of type {given.dtype} and shape {given.shape}."
        )
    # A value beyond float32 becomes infinite here, and is refused as such later.
    with np.errstate(over="ignore"):
        kind = np.float64 if given.dtype.str[1:] == "f8" else np.float32
        return np.ascontiguousarray(given, dtype=kind)


def _check_words(words: list[str]) -> None:
    """Refuse a word that is empty, repeated, or cannot be written as UTF-8."""
    first: dict[str, int] = {}
    for number, word in enumerate(words):
        if not isinstance(word, str) or not word:
            raise VocabularyError(
                f"The word with id {number} is empty or no text. Leave it out with its vector."
            )
        if first.setdefault(word, number) != number:
            raise VocabularyError(
                f"The word with id {number} repeats the one with id {first[word]}. Keep one vector for each word."
            )
    try:
        "".join(words).encode("utf-8")
    except UnicodeEncodeError:
        raise VocabularyError(
            "A word has half of a surrogate pair and cannot be written as UTF-8. Decode the source strictly."
        ) from None
