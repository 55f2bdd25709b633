"""Texts to token codes: spaCy tokenizes each new chunk between blanks once, and a dictionary gives it back.

By definition a chunk is tokenized by itself. So spaCy's special cases that reach over a blank are not found.

A policy that lowers case lowers the text before it is split. spaCy's rules depend on casing ("dont" is two tokens, "DONT"
one), so the tokens are then a function of ``text.lower()`` alone, and casing does not show in their number.

The raw chunks stay in this process: the dictionary is emptied when it is full and is never pickled, and spaCy's own store
of strings forgets them at once.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.mechanisms.base import UNKNOWN
from textpriv.tokenization.batches import KEPT, MASKED, RawBatch
from textpriv.tokenization.policy import CLASSES, MASK, TokenPolicy

__all__ = ["DEFAULT_LANGUAGE", "TextEncoder", "without_halves", "words_of_rules"]

DEFAULT_LANGUAGE = "en"  # of an index without a language
_LONGEST = (
    1_000  # characters of a chunk that is still read as words: spaCy's time grows with the square
)
_TOO_LONG = "\N{REPLACEMENT CHARACTER}"  # read in place of longer chunks
_MOST_CHUNKS, _MOST_CHARACTERS = 1 << 17, 1 << 24  # of the dictionary
_AT_ONCE = 10_000  # chunks that spaCy is given as one text
# A chunk, or a run of blanks that is more than the single blank between two words.
_CHUNK = re.compile(r"\S+|\s\s+|[^\S ]")

_HALF = re.compile("[\ud800-\udfff]")


class TextEncoder:
    """Tokenize and classify texts, for a vocabulary and a policy.

    In a language with blanks between words, a chunk of more than 1,000 characters counts as one unknown word.

    Parameters
    ----------
    words : sequence of str
        The vocabulary; a word's id is its index.
    policy : TokenPolicy
    language : str
        A spaCy language code, for the tokenizer.

    Raises
    ------
    TextprivError
        When the first text is read, if spaCy does not have the language.
    """

    def __init__(self, words: Sequence[str], policy: TokenPolicy, language: str) -> None:
        self.words, self.policy, self.language = words, policy, language
        self._ids = {word: number for number, word in enumerate(words)}
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._codes: dict[str, tuple[int, ...]] = {}  # of each chunk; see _code
        self._characters = 0
        self._released: list[
            tuple[str, int]
        ] = []  # tokens that are not drawn, and their codes in a batch
        self._numbers: dict[tuple[str, int], int] = {}  # of each of them

    def __reduce__(self) -> tuple[Any, ...]:
        return TextEncoder, (self.words, self.policy, self.language)  # without raw words

    def encode(self, texts: Sequence[str]) -> RawBatch:
        """Return the tokens of some texts."""
        with self._lock:
            chunks = []
            for text in texts:
                cased = text.lower() if self.policy.case == "lower" else text
                of_text = cased.split()
                if " ".join(of_text) != cased:
                    of_text = _CHUNK.findall(cased)
                chunks.append(list(map(self._read, of_text)) if len(cased) > _LONGEST else of_text)
            if len(self._codes) > _MOST_CHUNKS or self._characters > _MOST_CHARACTERS:
                self._forget()
            if new := set().union(*chunks).difference(self._codes):
                self._add(new)
            found: list[int] = []
            offsets = [0]
            for of_text in chunks:
                found.extend(chain.from_iterable(map(self._codes.__getitem__, of_text)))
                offsets.append(len(found))
            codes = np.array(found, dtype=np.int32)
            undrawn = codes < UNKNOWN
            numbers = (UNKNOWN - 1 - codes[undrawn]).tolist()
            released = [self._released[number] for number in numbers]
        codes[undrawn] = [code for _, code in released]
        strings = [string for string, _ in released]
        return RawBatch(codes, np.array(offsets, dtype=np.int64), strings)

    def offsets(self, text: str) -> NDArray[np.int64]:
        """Start and end of each token of a text, in characters; shape (tokens, 2)."""
        text = without_halves(text)
        cased: Callable[[str], str] = str.lower if self.policy.case == "lower" else str
        bounds: list[tuple[int, int]] = []
        for match in _CHUNK.finditer(text):
            written = match.group()
            chunk = self._read(cased(written))
            # The lower case of a character may be two.
            sizes = [len(cased(character)) for character in written]
            places = np.repeat(np.arange(match.start(), match.end()), sizes).tolist()
            is_whole = chunk == _TOO_LONG or chunk.isspace()
            end = 0
            for token, name in _tokenized(self.language, [chunk])[0]:
                begin, end = end, end + len(token)
                if self._code(token, name) is not None:
                    bounds.append(
                        match.span() if is_whole else (places[begin], places[end - 1] + 1)
                    )
        return np.array(bounds, dtype=np.int64).reshape(-1, 2)

    def _read(self, chunk: str) -> str:
        """The chunk, lower-cased already, as it is tokenized."""
        if len(chunk) > _LONGEST and not chunk.isspace() and _rules(self.language).has_blanks:
            return _TOO_LONG
        return chunk

    def _add(self, chunks: Iterable[str]) -> None:
        """Enter the codes of new chunks into the dictionary."""
        new = list(chunks)
        for start in range(0, len(new), _AT_ONCE):
            part = new[start : start + _AT_ONCE]
            for chunk, tokens in zip(part, _tokenized(self.language, part), strict=True):
                codes = (self._code(token, name) for token, name in tokens)
                self._codes[chunk] = tuple(code for code in codes if code is not None)
                self._characters += len(chunk)

    def _code(self, token: str, name: str) -> int | None:
        """The code of a token of a class, "" for a word: UNKNOWN or above if it is drawn, None if it is dropped.

        Any other is UNKNOWN - 1 minus a number in the list of released tokens.
        """
        word = self._ids.get(token, UNKNOWN)
        if not name and word != UNKNOWN:
            return word
        action = getattr(self.policy, name or "unknown")
        if action == "sample":
            return word
        if action == "drop":
            return None
        kept = KEPT - CLASSES.index(name or "unknown")
        released = (MASK, MASKED) if action == "mask" else (token, kept)
        if released not in self._numbers:
            self._released.append(released)
            self._numbers[released] = len(self._released) - 1
        return UNKNOWN - 1 - self._numbers[released]


def without_halves(text: str) -> str:
    """Replace halves of surrogate pairs, which spaCy and files cannot hold."""
    return _HALF.sub("\ufffd", text)


class _Rules(NamedTuple):
    """spaCy's tokenizer of a language.

    Attributes
    ----------
    tokenizer : spacy.tokenizer.Tokenizer
    has_blanks : bool
        Whether words are separated by blanks. Only spaCy's own tokenizer goes by rules; those of languages without blanks
        find words in long chunks.
    lock : threading.Lock
        The store of strings has one memory zone at a time.
    """

    tokenizer: Any
    has_blanks: bool
    lock: threading.Lock


@functools.cache
def _rules(language: str) -> _Rules:
    from spacy.tokenizer import Tokenizer
    from spacy.util import get_lang_class, registry
    from spacy.vocab import create_vocab

    # The parts of spacy.blank that are needed here: a whole pipeline imports every component that a package registers.
    try:
        found = get_lang_class(language)
        vocabulary: Any = create_vocab(language, found.Defaults)
        within = SimpleNamespace(vocab=vocabulary, Defaults=found.Defaults)
        settings = {"tokenizer": found.default_config["nlp"]["tokenizer"]}
        tokenizer: Any = registry.resolve(settings)["tokenizer"](within)
    except ImportError as error:
        raise TextprivError(
            f"spaCy has no language {language!r}; use a code such as 'en'."
            if "[E048]" in str(error)  # spaCy's code for it
            else f"spaCy's rules of the language {language!r} need another package: pip install 'spacy[{language}]'."
        ) from error
    has_blanks = type(tokenizer) is Tokenizer
    if has_blanks:
        tokenizer.max_cache_size = 0  # of chunks: each is tokenized once
    return _Rules(tokenizer, has_blanks, threading.Lock())


def words_of_rules(language: str) -> frozenset[str]:
    """The words of the language's rules, which every vocabulary of spaCy holds before a text is read."""
    rules = _rules(language)
    with rules.lock:
        return frozenset(lexeme.orth_ for lexeme in rules.tokenizer.vocab)


def _tokenized(language: str, chunks: Sequence[str]) -> list[list[tuple[str, str]]]:
    """The tokens of each chunk with their classes, "" for a word; spaCy keeps none of them."""
    rules = _rules(language)
    words = [chunk for chunk in chunks if not chunk.isspace()]
    # One text with a chunk a line: no special case reaches over a line break.
    lines = ["\n".join(words)] if rules.has_blanks and words else words
    found: list[list[tuple[str, str]]] = []
    with rules.lock, rules.tokenizer.vocab.memory_zone():
        for line in lines:
            found.append([])
            for token in rules.tokenizer(line):
                if token.is_space:
                    found.append([])
                else:
                    found[-1].append((token.text, _class_of(token)))
    tokens = iter(found)
    return [[(_blank(each), "space")] if each.isspace() else next(tokens) for each in chunks]


def _class_of(token: Any) -> str:
    """The first class of a token, "" for a word."""
    if token.is_punct:
        return "punctuation"
    if token.like_num:
        return "number"
    return "stopword" if token.is_stop else ""


def _blank(run: str) -> str:
    """Reduce a run of blanks to one blank, one line break or an empty line."""
    return "\n" * min(run.count("\n"), 2) or " "
