"""Words, their vectors and an optional public prior: what a mechanism may know about a language.

Here lives the `Vocabulary` class. Files are read in `vocabulary.readers`, distances and neighbours
are found in `textpriv.index`; nothing of this folder sees private text.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from textpriv.arguments import whole
from textpriv.errors import VocabularyError
from textpriv.vocabulary.priors import Prior, counts_of, weights_of
from textpriv.vocabulary.readers import BLOCK_VALUES, read_source

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Prior", "Vocabulary", "equal_rows", "is_language"]

_ZIPF_MANDELBROT_SHIFT = 2.7
_SURROGATES = re.compile("[\ud800-\udfff]")
_PRIOR_NAMES = ("zipf", "uniform", "counts")


class Vocabulary:
    """Words, one vector for each, and perhaps a prior. All of it must be public.

    Parameters
    ----------
    words
        V different words, each a non-empty string. The order matters twice: a word's id is its
        position, and the prior "zipf" takes the position for the frequency rank, commonest first.
    vectors
        Array of shape (V, n) with V >= 1 and n >= 1; all values finite. float32 and float64 are
        kept, any other real type becomes float32. An array that is C-contiguous already is kept
        without a copy, so do not change it afterwards; the library never writes into it. A
        memory-mapped array stays mapped.
    prior
        None, or how common the words are: an array of shape (V,) of finite weights above 0, a
        mapping from words to counts, or the path of a file of counts. See `prior_weights` for what
        each must hold.
    language
        spaCy's code of the language of the words, such as "de"; None where it is not known. Texts are tokenized by
        the rules of that language, of English where it is not known.

    Attributes
    ----------
    words : list of str
        The words, by id.
    vectors : ndarray, shape (V, n)
        float32 or float64, C-contiguous, read-only.
    prior : ndarray, shape (V,), or None
        float64 weights above 0, not normalised, read-only.
    language : str or None

    Raises
    ------
    VocabularyError
        If words, vectors and prior do not fit together or hold something that is not allowed.

    Notes
    -----
    The guarantee of a mechanism takes words, vectors and prior as fixed and known to
    everybody. Vectors trained on the private text, a word list taken from it, or a prior counted on
    it release that text outside the guarantee, with no bound on the loss. Take all three from
    public sources. Nothing in this library can check that.

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

    words: list[str]
    vectors: NDArray[Any]
    prior: NDArray[np.float64] | None
    language: str | None

    def __init__(
        self,
        words: Sequence[str],
        vectors: ArrayLike,
        prior: Prior | None = None,
        language: str | None = None,
    ) -> None:
        self._store(words, vectors, prior, language, lambda i: f"the word with id {i}")

    def _store(
        self,
        words: Sequence[str],
        vectors: ArrayLike,
        prior: Prior | None,
        language: str | None,
        name_of: Callable[[int], str],
    ) -> None:
        """Check and store; `name_of(id)` says in a message which word it is and where it is from."""
        if isinstance(words, str):
            raise VocabularyError(
                "Expected a list of words, found one string. Pass a list with one string for each "
                "vector."
            )
        self.words = list(words)
        self.vectors = read_only(_as_matrix(vectors))
        if len(self.words) != len(self.vectors):
            raise VocabularyError(
                f"Expected one vector for each word, found {len(self.words):,} words and "
                f"{len(self.vectors):,} vectors. Pass lists of the same length and order."
            )
        self.__dict__["_ids"] = _index_words(self.words, name_of)
        _check_finite(self.vectors, name_of)
        if language is not None and not is_language(language):
            raise VocabularyError(
                f"Expected spaCy's code of a language, such as 'de', found {language!r}. Leave it out where it is not known."
            )
        self.language = language
        self.prior = None
        if prior is not None:
            if isinstance(prior, str) and prior in _PRIOR_NAMES:
                raise VocabularyError(
                    f'A vocabulary carries counts, and "{prior}" is none. Pass prior="{prior}" to '
                    "the mechanism, and here an array, a mapping from words to counts, the path "
                    "of a file of counts, or nothing."
                )
            self.prior = read_only(weights_of(prior, self.words))

    @classmethod
    def load(
        cls,
        source: Any,
        *,
        limit: int | None = None,
        prior: Prior | None = None,
        language: str | None = None,
    ) -> Vocabulary:
        """Read a vocabulary from a file of vectors, or take it over from gensim or spaCy.

        Parameters
        ----------
        source
            One of these:

            - the path of a GloVe text file, a word2vec or fastText `.vec` text file (both begin
              with a line "number of words, number of values"), or a word2vec binary file (the same
              line, then each word, a space and its values as little-endian float32); each may be
              packed with gzip;
            - a gensim `KeyedVectors` object, or a model that has one as `.wv`;
            - a spaCy `Language` object that has a table of vectors, the name of an installed spaCy
              package that has one, or the folder of a saved pipeline that has one. Of words that
              share a row, as they do in a pruned table, one is taken, and the others are unknown
              words: the most frequent by a prior that counts words, else the first in the table.
              The order is that of such a prior, else that of the rows, which says little about
              frequency;
            - "builtin:en", the words that come with the package;
            - the name of a public set with its hub: "gensim:glove-wiki-gigaword-300", "spacy:de_core_news_md" or
              "fasttext:cc.de.300". ``textpriv vectors`` lists such sets with their licences. A set is fetched when it is
              first named; where there is no network, the message says what to fetch and where to put it.

            Files are told apart by what they hold, not by their names. A first line of two whole
            numbers is a header.
        limit
            Keep the first `limit` words, and read a file no further. None keeps all.
        prior
            As in the constructor. An array must have one weight for each word that is kept.
        language
            As in the constructor. Default: that of the spaCy pipeline or of the public set.

        Returns
        -------
        Vocabulary
            Files give float32 vectors.

        Raises
        ------
        VocabularyError
            If the source is none of these, or is in any way damaged or ambiguous: numbers that are
            missing, surplus, not finite or no numbers, a repeated or empty word, bytes that are not
            UTF-8, an empty line before the end, more or fewer rows than the header says (fewer are
            wanted where `limit` says so), data cut short. The message has the line, or the row in a
            binary file. It never quotes the file, which may be the wrong one.

        Notes
        -----
        A word may contain spaces, as some do in GloVe 840B (". . ."). The header says
        how many values each line has; without one, the commonest number of fields in the first 32
        lines does. The values are then the last n fields, and what stands before them is the word.
        A longer line is accepted as a word with spaces only if the field before the values is not a
        number itself; otherwise one value is surplus, and the line is refused.

        Words and vectors must be public: see the class.
        """
        counts = None
        if isinstance(prior, str | os.PathLike | Mapping):
            prior = counts = counts_of(prior)
        words, vectors, name_of, found = read_source(source, _checked(limit), counts)
        vocabulary = cls.__new__(cls)
        vocabulary._store(words, vectors, prior, language or found, name_of)
        return vocabulary

    def without(self, words: Iterable[str]) -> Vocabulary:
        """Return the vocabulary without some words, which texts then hold as unknown ones; the list must be public.

        Raises
        ------
        VocabularyError
            If no word is left.
        """
        left_out = set(words)
        kept = [number for number, word in enumerate(self.words) if word not in left_out]
        if not kept:
            raise VocabularyError("Every word is to be left out: no vocabulary is left.")
        prior = None if self.prior is None else self.prior[kept]
        return Vocabulary(
            [self.words[number] for number in kept], self.vectors[kept], prior, self.language
        )

    def lowered(self) -> Vocabulary:
        """Return the vocabulary in lower case: of words that become equal the first one's vector, and all their counts.

        Texts are read in lower case, unless the policy keeps their case, so that a word with a capital is found in none:
        German nouns would all be unknown.

        Examples
        --------
        >>> Vocabulary(["Haus", "haus", "gut"], [[0.0], [1.0], [2.0]]).lowered().words
        ['haus', 'gut']
        """
        ids: dict[str, int] = {}
        new = np.array([ids.setdefault(word.lower(), len(ids)) for word in self.words])
        first = np.unique(new, return_index=True)[1]
        prior = None if self.prior is None else np.bincount(new, self.prior)
        return Vocabulary(list(ids), self.vectors[first], prior, self.language)

    @classmethod
    def builtin(cls, language: str = "en") -> Vocabulary:
        """Read a vocabulary that comes with the package; nothing is downloaded.

        Parameters
        ----------
        language
            Code of a language. There is "en": the 25,000 commonest words of GloVe 6B with vectors of 50 dimensions (public
            domain), in order of frequency.

        Returns
        -------
        Vocabulary
            With float32 vectors and no counts; ``prior="zipf"`` suits its order.

        Raises
        ------
        VocabularyError
            Where there is none of that language; the message says what to do.

        Examples
        --------
        >>> Vocabulary.builtin("en").words[:3]
        ['the', 'of', 'to']
        """
        from textpriv.vocabulary.builtin import read_builtin

        return read_builtin(language)

    @classmethod
    def trusted(
        cls,
        words: list[str],
        vectors: NDArray[Any],
        prior: NDArray[np.float64] | None,
        language: str | None = None,
    ) -> Vocabulary:
        """Wrap what was checked when it was written, such as the arrays of an index, without looking at it again."""
        vocabulary = cls.__new__(cls)
        vocabulary.words = words
        vocabulary.vectors = read_only(vectors)
        vocabulary.prior = None if prior is None else read_only(prior)
        vocabulary.language = language
        return vocabulary

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

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

        Raises
        ------
        VocabularyError
            If the vocabulary lacks the word. The message names it, so do not ask for words of
            private texts one by one and show the error; test them with `in`.
        """
        try:
            return self._ids[word]
        except (KeyError, TypeError):
            raise VocabularyError(
                f"The vocabulary of {len(self):,} words lacks {word!r}. Test with `word in "
                "vocabulary` first, and mind capital letters: words are looked up as they are "
                "written."
            ) from None

    def resolve(self, word: str | int) -> int:
        """Return the id of a word that is given as text or as its id.

        Raises
        ------
        VocabularyError
            If the vocabulary lacks the word, as in `id`, or the number is no id.
        """
        if isinstance(word, str):
            return self.id(word)
        number = whole("a word id", word, 0, VocabularyError)
        if number >= len(self):
            raise VocabularyError(f"a word id lies in 0..{len(self) - 1}; got {number}.")
        return number

    def ids(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Return the ids of T words as an int32 array of shape (T,); refuses as `id` does."""
        return np.array([self.id(word) for word in words], dtype=np.int32)

    def zero_rows(self) -> NDArray[np.int64]:
        """Return the ids of the words whose vector is all zero, in rising order.

        A vocabulary may hold such words; a metric that needs a direction cannot take them and uses
        this to say so.
        """
        return np.flatnonzero(~self.vectors.any(axis=1)).astype(np.int64)

    def duplicate_groups(self) -> NDArray[np.int32]:
        """Map each word to the smallest id that has exactly the same vector.

        Returns
        -------
        ndarray, shape (V,), int32
            `groups[i] == i` for a word whose vector stands there for the first time. Two vectors
            are the same when all their values are equal, so 0.0 and -0.0 are.

        Notes
        -----
        Words at distance 0 must be released with exactly the same law, which rounding
        alone would not give them. Rows are compared by a 64-bit hash, and all rows that hash alike
        are then compared in full; a collision sends the whole table to a slower exact comparison.
        """
        return equal_rows(self.vectors)

    def prior_weights(self, prior: Prior) -> NDArray[np.float64]:
        """Return a prior over the words, normalised.

        Parameters
        ----------
        prior
            One of these, and always public; a prior that was counted on the private text breaks the
            guarantee:

            - "zipf": the Zipf-Mandelbrot law 1 / (rank + 2.7), rank 1 for the first word. For
              vocabularies that are in falling order of frequency, as released vector files mostly
              are;
            - "uniform": all words alike;
            - "counts": the weights that the vocabulary carries in `.prior`;
            - an array of shape (V,): finite weights above 0;
            - a mapping from words to counts;
            - the path of a text file of lines "word count", which gzip may have packed.

            Counts are finite and not negative. Words outside the vocabulary are ignored. A word
            without a count, or with count 0, gets half of the smallest positive count in the
            vocabulary: every word must stay possible, as a word that one input can give and another
            cannot would break the guarantee altogether.

        Returns
        -------
        ndarray, shape (V,), float64
            All above 0; the sum is 1 up to rounding.

        Raises
        ------
        VocabularyError
            If the prior is none of these, holds what it must not, or spans more than float64 can.
        """
        if isinstance(prior, str) and prior in _PRIOR_NAMES:
            if prior == "counts":
                if self.prior is None:
                    raise VocabularyError(
                        'prior="counts" uses the counts that the vocabulary carries, and this one '
                        "carries none. Give public counts when you build or load it (prior=...), "
                        'or choose "zipf" or "uniform".'
                    )
                weights: NDArray[np.float64] = self.prior
            elif prior == "zipf":
                ranks = np.arange(1, len(self) + 1, dtype=np.float64)
                weights = 1.0 / (ranks + _ZIPF_MANDELBROT_SHIFT)
            else:
                weights = np.ones(len(self))
        else:
            weights = weights_of(prior, self.words)
        # Scaling by the largest first keeps the sum of very large weights finite. The sum is correctly rounded, so that no
        # processor's order of summation shows in what is drawn.
        scaled = weights / weights.max()
        normalised: NDArray[np.float64] = scaled / math.fsum(scaled.tolist())
        if not normalised.all():
            raise VocabularyError(
                "Expected weights that float64 can normalise, found them to span "
                f"{weights.min():g} to {weights.max():g}, so that the smallest become 0. Raise "
                "the small ones: every word must stay possible."
            )
        return normalised

    def fingerprint(self) -> str:
        """Return a SHA-256, in hex, over the words and the shape, type and values of the vectors.

        It names a public vocabulary: the same on every machine, and different when a word, a value
        or the order differs. The prior and the language are left out.
        """
        encoded = [word.encode("utf-8") for word in self.words]
        digest = hashlib.sha256()
        digest.update(f"{self.vectors.dtype.name} {self.vectors.shape}\n".encode())
        # The lengths keep ["ab", "c"] and ["a", "bc"] apart whatever characters words hold.
        digest.update(np.fromiter(map(len, encoded), dtype="<u8", count=len(encoded)).tobytes())
        digest.update(b"".join(encoded))
        little_endian = self.vectors.dtype.newbyteorder("<")
        for part in _blocks(*self.vectors.shape):
            digest.update(self.vectors[part].astype(little_endian, copy=False).tobytes())
        return digest.hexdigest()


# Checks of words and vectors


def is_language(code: object) -> bool:
    """Whether it has the form of spaCy's code of a language; spaCy need not have it."""
    return isinstance(code, str) and re.fullmatch(r"[a-z]{2,3}", code) is not None


def _checked(limit: Any) -> int | None:
    """A number of words to keep, or None for all."""
    if limit is None:
        return None
    if not isinstance(limit, int | np.integer) or isinstance(limit, bool) or limit < 1:
        raise VocabularyError(
            f"Expected limit to be a whole number above 0 or None, found {limit!r}. Pass the "
            "number of words to keep, or None for all."
        )
    return int(limit)


def _as_matrix(vectors: ArrayLike) -> NDArray[Any]:
    """Return a C-contiguous (V, n) array of float32 or float64; what is one is not copied."""
    try:
        given = np.asarray(vectors)
    except ValueError:
        raise VocabularyError(
            "Expected vectors of the same length, found a ragged list. Pass an array of shape "
            "(V, n)."
        ) from None
    if given.dtype.kind not in "fiu":
        raise VocabularyError(
            f"Expected vectors of real numbers, found type {given.dtype}. Pass a float32 or "
            "float64 array of shape (V, n)."
        )
    if given.ndim != 2 or 0 in given.shape:
        raise VocabularyError(
            "Expected vectors of shape (V, n), at least one word and at least one value, found "
            f"shape {given.shape}. Pass one row for each word."
        )
    double = given.dtype.kind == "f" and given.dtype.itemsize == 8
    # A value beyond float32 becomes infinite here, and is refused as such later.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(given, dtype=np.float64 if double else np.float32)


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, so that the flag of the caller's own array stays as it is.

    Tables of an index are read-only however they came: compiled functions would be compiled anew for writable ones.
    """
    view = values.view()
    view.setflags(write=False)
    return view


def _index_words(words: list[str], name_of: Callable[[int], str]) -> dict[str, int]:
    """Map words to ids; refuse a word that is empty, repeated, or cannot be written as UTF-8."""
    for i, word in enumerate(words):
        if not isinstance(word, str):
            raise VocabularyError(
                f"Expected words that are non-empty strings, found that {name_of(i)} is of type "
                f"{type(word).__name__}. Convert it to a string, or leave it out."
            )
        if not word:
            raise VocabularyError(
                f"Expected words that are non-empty strings, found that {name_of(i)} is empty. "
                "Leave it out with its vector."
            )
    try:
        "".join(words).encode("utf-8")
    except UnicodeEncodeError:
        broken = next(i for i, word in enumerate(words) if _SURROGATES.search(word))
        raise VocabularyError(
            f"Expected words that can be written as UTF-8, found that {name_of(broken)} holds half "
            "of a surrogate pair. Decode the source strictly, or leave the word out."
        ) from None
    ids = {word: i for i, word in enumerate(words)}
    if len(ids) < len(words):
        first: dict[str, int] = {}
        for i, word in enumerate(words):
            earlier = first.setdefault(word, i)
            if earlier != i:
                raise VocabularyError(
                    f"Expected different words, found that {name_of(i)} repeats {name_of(earlier)}, "
                    f"and {len(words) - len(ids):,} repeated in all. Keep one vector for each "
                    "word."
                )
    return ids


def _check_finite(vectors: NDArray[Any], name_of: Callable[[int], str]) -> None:
    for part in _blocks(*vectors.shape):
        bad = np.flatnonzero(~np.isfinite(vectors[part]).all(axis=1))
        if len(bad):
            raise VocabularyError(
                "Expected finite values, found one that is not, or is too large for "
                f"{vectors.dtype.name}, in the vector of {name_of(part.start + int(bad[0]))}. "
                "Correct the row, or leave it out."
            )


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Cut `rows` into slices that bound the memory of what is computed from them."""
    step = max(1, BLOCK_VALUES // columns)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


# Equal rows


def equal_rows(values: NDArray[Any]) -> NDArray[np.int32]:
    """Map each row to the first row with exactly the same values; see `Vocabulary.duplicate_groups`."""
    own = np.arange(len(values), dtype=np.int32)
    _, first, inverse = np.unique(_row_hashes(values), return_index=True, return_inverse=True)
    groups = first[inverse.ravel()].astype(np.int32)
    moved = np.flatnonzero(groups != own)
    for part in _blocks(len(moved), values.shape[1]):
        rows = moved[part]
        if not np.array_equal(values[rows], values[groups[rows]]):
            return _exact_groups(values)
    return groups


def _row_hashes(vectors: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each row, (V,), equal for rows of equal values."""
    rng = np.random.Generator(np.random.PCG64(0))
    factors = rng.integers(0, 2**64, size=vectors.shape[1], dtype=np.uint64)
    spread = np.uint64(0x9E3779B97F4A7C15)
    unsigned = np.uint64 if vectors.dtype.itemsize == 8 else np.uint32
    hashes = np.empty(len(vectors), dtype=np.uint64)
    for part in _blocks(*vectors.shape):
        # Adding 0.0 turns -0.0 into 0.0, so that equal values have equal bits.
        bits = (vectors[part] + vectors.dtype.type(0)).view(unsigned).astype(np.uint64)
        # A sum of multiples alone would collide for rows that differ in high bits only, such as in
        # signs.
        bits *= spread
        bits ^= bits >> np.uint64(32)
        hashes[part] = bits @ factors
    return hashes


def _exact_groups(vectors: NDArray[Any]) -> NDArray[np.int32]:
    """Return what `duplicate_groups` does by sorting the rows themselves; slower, and certain."""
    normalised = np.ascontiguousarray(vectors + vectors.dtype.type(0))
    rows = normalised.view(np.dtype((np.void, normalised.itemsize * normalised.shape[1]))).ravel()
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return first[inverse.ravel()].astype(np.int32)
