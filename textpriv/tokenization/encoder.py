"""Texts to token codes: tokenize by spaCy's rules, classify every token, and look its word up.

A text is split at its blanks into *chunks*, and how spaCy tokenizes a chunk depends on nothing around it, but for the few
special cases below. So each new chunk is given to spaCy once, and its tokens are cached: most chunks of a corpus were there
before, and compiled code finds them again in the bytes of the text.

Where the policy lowers case, a text is lowered as a whole before anything else is done with it. spaCy's rules depend on
casing ("dont" is two tokens, "DONT" one), so the tokens are then a function of ``text.lower()`` alone: texts that
``str.lower`` makes equal have the same tokens, and casing does not show in their number.

spaCy has special cases of several tokens, such as ``:)`` or ``a.m.``, which it looks for in the tokens of the whole
document. In one that reaches over a blank two of its tokens stand on both sides of the blank; chunks with such a pair are
few, and are given to spaCy as one. So the tokens are always those that spaCy finds in the whole text.

What is drawn for a token, and how private texts are put together, is in ``textpriv.privatizer``.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.index.index import Index
from textpriv.mechanisms.base import UNKNOWN
from textpriv.tokenization.batches import (
    DROPPED,
    KEPT,
    MASKED,
    EncodedTexts,
    RawBatch,
    RawTokens,
)
from textpriv.tokenization.chunk_cache import LONGEST_CHUNK, ChunkCache
from textpriv.tokenization.nearest import NearestWords
from textpriv.tokenization.policy import CLASSES, NEAREST, TokenPolicy
from textpriv.tokenization.spacy_tokenizer import SpacyTokenizer, hashes_of
from textpriv.tokenization.token_runs import DocTokens, TokenRuns

__all__ = ["DEFAULT_LANGUAGE", "TextEncoder", "find_split_words", "split_words"]

DEFAULT_LANGUAGE = "en"  # of an index that knows none
_ORTH, _LENGTH, _SPACY = range(3)  # columns of the attributes that are always read
_ATTRIBUTES = ("ORTH", "LENGTH", "SPACY")
# The attribute by which spaCy tells a class; the first one that a token has decides, before its word does.
_CLASS_ATTRIBUTES = {
    "space": "IS_SPACE",
    "punctuation": "IS_PUNCT",
    "number": "LIKE_NUM",
    "stopword": "IS_STOP",
}
# Characters that an encoder has tokenized whole before it looks for chunks it has met: they take a tenth of a second, and to
# compile or load what finds chunks takes as long.
_FEW = 50_000
_CALL = 50  # characters that take as long as a text takes by itself
_CHUNKS_AT_ONCE = 10_000  # given to spaCy as one document
_TOO_LONG = re.compile(rf"\S{{{LONGEST_CHUNK + 1},}}")


class TextEncoder:
    """Raw texts to token codes, for a vocabulary and a policy.

    Parameters
    ----------
    words : sequence of str
        The vocabulary; a word's id is its index.
    policy : TokenPolicy
    language : str
        A spaCy language code, for the tokenizer.

    Attributes
    ----------
    tokenizer : SpacyTokenizer
    """

    def __init__(self, words: Sequence[str], policy: TokenPolicy, language: str) -> None:
        self.words = words
        self._policy = policy
        self._classes = ["space", "punctuation"]
        # A class that is drawn whatever its token needs no looking at.
        if (policy.number, policy.stopword, policy.unknown) != ("sample",) * 3:
            self._classes.append("number")
        if policy.stopword != "sample":
            self._classes.append("stopword")
        names = (*_ATTRIBUTES, *map(_CLASS_ATTRIBUTES.__getitem__, self._classes))
        self.tokenizer = SpacyTokenizer.shared(language, names)
        # The code of each class; UNKNOWN for those that are drawn, and last for no class.
        actions = [getattr(policy, name) for name in CLASSES]
        self._nearest = NearestWords(words, language) if policy.unknown == NEAREST else None
        fixed = {"sample": UNKNOWN, NEAREST: UNKNOWN, "mask": MASKED, "drop": DROPPED}
        codes = [fixed.get(action, KEPT - number) for number, action in enumerate(actions)]
        self._class_codes = np.array([*codes, UNKNOWN], dtype=np.int32)
        self._cache: ChunkCache | None = None
        self._runs = TokenRuns()
        self._is_torn = False
        self._few = _FEW
        self._lock = threading.Lock()  # the cache is filled while others may read

    def encode(self, text: str) -> RawTokens:
        """Tokenize one text by spaCy alone.

        In a language whose words are set apart by blanks, a chunk of more than 1,000 characters counts as a single unknown
        word: no word is so long, and tokenizing it takes time that grows with its square.
        """
        return self._whole(self._cased(EncodedTexts.of([text]))[0])

    def offsets(self, text: str) -> NDArray[np.int64]:
        """Start and end of each token that :meth:`encode` finds, in characters of the text; shape (tokens, 2)."""
        lowered = self._cased(EncodedTexts.of([text]))[0]
        shortened = self._shortened(lowered)
        # Where each character of the text begins in what is tokenized: its lower case may be two, a long chunk is one.
        sizes = np.ones(len(text), dtype=np.int64)
        if len(lowered) != len(text):
            sizes = np.array([len(each.lower()) for each in text], dtype=np.int64)
        if len(shortened) != len(lowered):
            for chunk in _TOO_LONG.finditer(text):
                sizes[chunk.start() : chunk.end()] = 0
                sizes[chunk.start()] = 1
        begins = np.concatenate([[0], np.cumsum(sizes)])
        columns = self.tokenizer.attributes_of(shortened)
        starts = _starts(columns)
        ends = starts + columns[:, _LENGTH].astype(np.int64)
        bounds = np.searchsorted(begins, np.stack([starts, ends], axis=1), side="right") - 1
        return bounds[self._codes(shortened, columns, starts) != DROPPED]

    def encode_batch(self, texts: EncodedTexts) -> RawBatch:
        """Tokenize many texts; the same tokens as :meth:`encode` finds in each of them."""
        with self._lock:
            self._few = max(self._few - len(texts.data) - _CALL * len(texts), -1)
            texts = self._cased(texts)
            if not self._looks_for_chunks:
                return RawBatch.of(list(map(self._whole, texts)))
            return self._of_chunks(*self._refreshed.find(texts))

    def encode_docs(self, documents: Sequence[DocTokens]) -> RawBatch:
        """Tokenize the texts of documents of spaCy; the same tokens as :meth:`encode_batch` finds in them."""
        if self._looks_for_chunks:
            with self._lock:
                cache = self._refreshed
                batch = self._runs.read(documents, cache, self._found, self._of_chunks)
                self._is_torn = False
                if batch is not None:
                    return batch
        return self.encode_batch(EncodedTexts.of(each.text for each in documents))

    @property
    def _looks_for_chunks(self) -> bool:
        return self._few < 0 and self.tokenizer.splits_at_blanks

    @property
    def _refreshed(self) -> ChunkCache:
        """The cache of chunks; where it was full, or an error or interrupt tore it or the runs, a new one."""
        cache = self._cache
        if cache is None or self._is_torn or cache.is_full or self._runs.is_full:
            self._runs = (
                TokenRuns()
            )  # first: runs must never outlive the cache that their chunks are in
            cache = self._cache = ChunkCache(self._special_cases)
        self._is_torn = True  # until all that is found has its tokens
        return cache

    def _found(self, texts: EncodedTexts) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The chunks of texts, of which the cache then has the tokens."""
        assert self._cache is not None
        found = self._cache.find(self._cased(texts))
        self._tokenize_new(self._cache)
        return found

    def _of_chunks(self, chunks: NDArray[np.int32], offsets: NDArray[np.int64]) -> RawBatch:
        """The tokens of texts, given their chunks in the cache."""
        assert self._cache is not None
        while True:
            self._tokenize_new(self._cache)
            batch, crossed = self._cache.tokens(chunks, offsets)
            if not len(crossed):
                self._is_torn = False
                return batch
            chunks, offsets = self._cache.join(chunks, offsets, crossed)

    def compile(self) -> None:
        """Have texts from now on tokenized by their chunks, and the compiled code ready that finds these."""
        self._few = -1
        self.encode_batch(EncodedTexts.of(["a 1."]))
        self.encode_docs([DocTokens(np.ones((1, 2), dtype=np.uint64), {1: "a"})])

    @cached_property
    def _special_cases(self) -> Any:
        return self.tokenizer.special_cases()

    @cached_property
    def _sorted_words(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """SpaCy's hashes of the vocabulary in rising order, and their words."""
        hashes = hashes_of(self.words)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order.astype(np.int32)

    def _cased(self, texts: EncodedTexts) -> EncodedTexts:
        return texts.lowered() if self._policy.case == "lower" else texts

    def _whole(self, text: str) -> RawTokens:
        """Tokenize a text as a whole; chunks that are too long for a word become a character that no vocabulary holds."""
        text = self._shortened(text)
        columns = self.tokenizer.attributes_of(text)
        starts = _starts(columns)
        codes = self._codes(text, columns, starts)
        kept = _kept_strings(text, columns, starts, codes)
        return RawTokens(codes[codes != DROPPED], kept)

    def _shortened(self, text: str) -> str:
        if len(text) > LONGEST_CHUNK and self.tokenizer.splits_at_blanks:
            return _TOO_LONG.sub("\N{REPLACEMENT CHARACTER}", text)
        return text

    def _tokenize_new(self, cache: ChunkCache) -> None:
        """Give the cache the tokens of its new chunks."""
        while cache.is_behind:
            chunks = cache.pending(_CHUNKS_AT_ONCE)
            words = [number for number, chunk in enumerate(chunks) if not chunk[0].isspace()]
            # One document with a chunk a line, for no special case reaches over a line break. Runs of blanks go apart.
            text = "\n".join([chunks[number] for number in words])
            columns = self.tokenizer.attributes_of(text)
            starts = _starts(columns)
            ends = np.cumsum([len(chunks[number]) + 1 for number in words], dtype=np.int64) - 1
            line = np.searchsorted(ends, starts)
            inside = starts < ends[line]  # the line breaks between chunks are in none
            parts = [
                (
                    np.array(words, dtype=np.int64)[line[inside]],
                    *self._encoded(cache, text, columns[inside], starts[inside]),
                )
            ]
            for number, chunk in enumerate(chunks):
                if chunk[0].isspace():
                    columns = self.tokenizer.attributes_of(chunk)
                    encoded = self._encoded(cache, chunk, columns, _starts(columns))
                    parts.append((np.full(len(columns), number), *encoded))
            chunk_of, *tokens = (np.concatenate(each) for each in zip(*parts, strict=True))
            order = np.argsort(chunk_of, kind="stable")
            cache.add_tokens(chunks, chunk_of[order], *(each[order] for each in tokens))

    def _encoded(
        self, cache: ChunkCache, text: str, columns: NDArray[np.uint64], starts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint64]]:
        """Of tokens the codes, the strings of those not drawn by their numbers in the cache or -1, and the hashes."""
        codes = self._codes(text, columns, starts)
        string_ids = np.where(codes == MASKED, np.int32(0), np.int32(-1))
        kept = _kept_strings(text, columns, starts, codes)
        string_ids[_is_kept(codes)] = list(map(cache.string_id, kept))
        return codes, string_ids, columns[:, _ORTH]

    def _codes(
        self, text: str, columns: NDArray[np.uint64], starts: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """The code of each token."""
        hashes, words = self._sorted_words
        at = np.minimum(np.searchsorted(hashes, columns[:, _ORTH]), len(hashes) - 1)
        codes = np.where(hashes[at] == columns[:, _ORTH], words[at], np.int32(UNKNOWN))
        first = len(_ATTRIBUTES)
        conditions = [columns[:, first + number] != 0 for number in range(len(self._classes))]
        numbers = [CLASSES.index(name) for name in self._classes]
        unknown = CLASSES.index("unknown")
        token_class = np.select([*conditions, codes == UNKNOWN], [*numbers, unknown], -1)
        if self._nearest is not None:
            mapped = token_class == unknown
            codes[mapped] = self._nearest.ids(_strings(text, columns, starts, mapped))
        class_codes = self._class_codes[token_class]
        return np.where(class_codes == UNKNOWN, codes, class_codes)


def _starts(columns: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Where the tokens of a text start, in characters."""
    sizes = columns[:, _LENGTH].astype(np.int64) + columns[:, _SPACY].astype(np.int64)
    return np.asarray(np.cumsum(sizes) - sizes)


def _is_kept(codes: NDArray[np.int32]) -> NDArray[np.bool_]:
    return (codes <= KEPT) & (codes > DROPPED)


def _kept_strings(
    text: str, columns: NDArray[np.uint64], starts: NDArray[np.int64], codes: NDArray[np.int32]
) -> list[str]:
    """The kept tokens of a text as they are released: as written, but that a run of blanks is reduced."""
    kept = _is_kept(codes)
    strings = _strings(text, columns, starts, kept)
    space = KEPT - CLASSES.index("space")
    return [
        _canonical_space(string) if code == space else string
        for code, string in zip(codes[kept].tolist(), strings, strict=True)
    ]


def _strings(
    text: str, columns: NDArray[np.uint64], starts: NDArray[np.int64], chosen: NDArray[np.bool_]
) -> list[str]:
    """Some tokens of a text as written."""
    ends = starts[chosen] + columns[chosen, _LENGTH].astype(np.int64)
    pairs = zip(starts[chosen].tolist(), ends.tolist(), strict=True)
    return [text[start:end] for start, end in pairs]


def _canonical_space(text: str) -> str:
    """Reduce a blank token to one blank, one line break or an empty line."""
    return "\n" * min(text.count("\n"), 2) or " "


@functools.cache
def _public_tokenizer(language: str) -> SpacyTokenizer:
    """One that is given public words alone, so that it can be shared."""
    return SpacyTokenizer(language, _ATTRIBUTES)


def split_words(words: Sequence[str], language: str, case: str) -> NDArray[np.int64]:
    """Ids of the words that are not one token where they stand between blanks.

    Such as "well-known", which spaCy tokenizes as three, and with ``case="lower"`` a word with a capital, read as another
    one. Part of a longer chunk may still be such a word, as the end of "dog's" is.

    Parameters
    ----------
    words : sequence of str
        A vocabulary; it is public.
    language : str
        A spaCy language code.
    case : {"lower", "keep"}
        As in :class:`textpriv.tokenization.policy.TokenPolicy`.
    """
    tokenizer = _public_tokenizer(language)
    whole = np.fromiter((_may_be_chunk(word, case) for word in words), np.bool_, len(words))
    ids = np.flatnonzero(whole)
    size = _CHUNKS_AT_ONCE if tokenizer.splits_at_blanks else 1
    for first in range(0, len(ids), size):
        part = ids[first : first + size]
        lines = [words[word] for word in part.tolist()]
        # No special case reaches over a line break.
        columns = tokenizer.attributes_of("\n".join(lines))
        starts = _starts(columns)
        lengths = np.fromiter(map(len, lines), np.int64, len(lines))
        expected = np.cumsum(lengths + 1) - lengths - 1
        at = np.minimum(np.searchsorted(starts, expected), len(starts) - 1)
        whole[part] = (starts[at] == expected) & (columns[at, _LENGTH] == lengths)
    return np.flatnonzero(~whole)


def find_split_words(
    index: Index, language: str | None = None, case: str = "lower"
) -> dict[str, Any]:
    """How many words of an index are not one token; counted once and recorded with the index.

    Parameters
    ----------
    index : Index
    language : str, optional
        A spaCy language code. Default: that of the index.
    case : {"lower", "keep"}

    Returns
    -------
    dict
        ``"count"``, ``"words"`` (in the vocabulary) and ``"example"``, the first of them or None; see
        :func:`split_words`.
    """
    language = language or index.language or DEFAULT_LANGUAGE
    binding = {
        "record": "words cut",  # as saved records name it
        "version": 1,
        "vocabulary": index.fingerprint,
        "language": language,
        "case": case,
        "spacy": version("spacy"),
    }
    record = index.find_record(binding)
    if record is None:
        words = index.vocabulary.words
        ids = split_words(words, language, case)
        example = words[ids[0]] if len(ids) else None
        record = {"count": len(ids), "words": len(words), "example": example}
        index.keep_record(binding, record)
    return record


def _may_be_chunk(word: str, case: str) -> bool:
    """Whether a word is a chunk in the case in which texts are read."""
    return (
        0 < len(word) <= LONGEST_CHUNK
        and not any(map(str.isspace, word))
        and (case != "lower" or word == word.lower())
    )
