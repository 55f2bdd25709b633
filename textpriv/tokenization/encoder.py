"""Texts to token codes: spaCy tokenizes each new chunk between blanks once, by itself, and a dictionary gives it back.

A policy that lowers case lowers the text before it is split, so casing does not show in the number of tokens. The raw chunks
stay in this process: the dictionary is emptied when it is full and never pickled, and spaCy's store forgets them at once.
"""

from __future__ import annotations

import functools
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count, islice
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import PolicyError, TextprivError
from textpriv.mechanisms.base import UNKNOWN
from textpriv.tokenization.batches import KEPT, MASKED, RawBatch
from textpriv.tokenization.policy import CLASSES, FIRST_FIT, MASK, TOKEN_CLASSES, TokenPolicy

DEFAULT_LANGUAGE = "en"  # of an index without a language
# Characters of a chunk that is still read as words: spaCy's time grows with the square.
_LONGEST = 1_000
_TOO_LONG = "\N{REPLACEMENT CHARACTER}"  # read in place of longer chunks
_MOST_CHUNKS, _MOST_CHARACTERS = 1 << 17, 1 << 24  # of the dictionary
_AT_ONCE = 10_000  # chunks that spaCy is given as one text
# A chunk, or a run of blanks that is more than the single blank between two words.
_CHUNK = re.compile(r"\S+|\s\s+|[^\S ]")

_HALF = re.compile("[\ud800-\udfff]")


class TextEncoder:
    """Tokenize and classify texts, for words (an id is an index), a policy and spaCy's code of a language.

    In a language with blanks between words, a chunk of more than 1,000 characters counts as one unknown word.

    Raises
    ------
    PolicyError
        If no token of a text can be most of the words, because of their capitals or blanks.
    TextprivError
        When the first text is read, if spaCy does not have the language.
    """

    def __init__(self, words: Sequence[str], policy: TokenPolicy, language: str) -> None:
        self._cased: Callable[[str], str] = str.lower if policy.case == "lower" else str
        unread = sum(self._cased(word).split() != [word] for word in words)
        if unread > len(words) / 2:
            raise PolicyError(
                f"{unread:,} of {len(words):,} words have capitals or blanks, and no token is like this. Lower-case them "
                "(Vocabulary.lowered, textpriv index --lower) and leave out those with blanks."
            )
        self.words, self.policy, self.language = words, policy, language
        self._ids = {word: number for number, word in enumerate(words)}
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        # Chunks are numbered as they are met; chunk c has the tokens from _ends[c] to _ends[c + 1].
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)
        self._characters = 0
        self._ends = np.zeros(1, dtype=np.int64)
        self._codes = np.empty(0, dtype=np.int32)
        self._strings: list[str] = []  # what is released for each token, "" if it is drawn

    def __reduce__(self) -> tuple[Any, ...]:
        return TextEncoder, (self.words, self.policy, self.language)  # without raw words

    def encode(self, texts: Sequence[str]) -> RawBatch:
        """Return the tokens of some texts."""
        with self._lock:
            if len(self._numbers) > _MOST_CHUNKS or self._characters > _MOST_CHARACTERS:
                self._forget()
            chunks: list[str] = []
            bounds = [0]
            for text in texts:
                cased = self._cased(text)
                of_text = cased.split()
                chunks += of_text if " ".join(of_text) == cased else _CHUNK.findall(cased)
                bounds.append(len(chunks))
            numbers = np.fromiter(map(self._numbers.__getitem__, chunks), np.int64, len(chunks))
            if len(self._numbers) >= len(self._ends):
                self._add(list(islice(self._numbers, len(self._ends) - 1, None)))
            starts, sizes = self._ends[numbers], np.diff(self._ends)[numbers]
            ends = np.concatenate([[0], np.cumsum(sizes)])
            places = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], sizes)
            codes = self._codes[places]
            released = places[codes < UNKNOWN].tolist()
            strings = list(map(self._strings.__getitem__, released))
        return RawBatch(codes, ends[bounds], strings)

    def offsets(self, text: str) -> NDArray[np.int64]:
        """Start and end of each token of a text, in characters; shape (tokens, 2)."""
        text = without_halves(text)
        bounds: list[tuple[int, int]] = []
        for match in _CHUNK.finditer(text):
            written = match.group()
            chunk = self._read(self._cased(written))
            # The lower case of a character may be two.
            sizes = [len(self._cased(character)) for character in written]
            places = np.repeat(np.arange(match.start(), match.end()), sizes).tolist()
            is_whole = chunk == _TOO_LONG or chunk.isspace()
            end = 0
            for token, name in _tokenized(self.language, [chunk])[0]:
                begin, end = end, end + len(token)
                if self._code(token, name) is not None:
                    within = places[begin], places[end - 1] + 1
                    bounds.append(match.span() if is_whole else within)
        return np.array(bounds, dtype=np.int64).reshape(-1, 2)

    def _read(self, chunk: str) -> str:
        """The chunk, lower-cased already, as it is tokenized."""
        if len(chunk) > _LONGEST and not chunk.isspace() and _rules(self.language).has_blanks:
            return _TOO_LONG
        return chunk

    def _add(self, new: Sequence[str]) -> None:
        found: list[list[tuple[int, str]]] = []
        for start in range(0, len(new), _AT_ONCE):
            part = list(map(self._read, new[start : start + _AT_ONCE]))
            for tokens in _tokenized(self.language, part):
                coded = (self._code(token, name) for token, name in tokens)
                found.append([each for each in coded if each is not None])
        codes = [code for tokens in found for code, _ in tokens]
        self._strings += [string for tokens in found for _, string in tokens]
        self._codes = np.append(self._codes, np.array(codes, dtype=np.int32))
        self._ends = np.append(self._ends, self._ends[-1] + np.cumsum(list(map(len, found))))
        self._characters += sum(map(len, new))

    def _code(self, token: str, name: str) -> tuple[int, str] | None:
        """The code of a token of a class, "" for a word, and what is released for it; None if it is dropped."""
        word = self._ids.get(token, UNKNOWN)
        action = getattr(self.policy, name or "unknown")
        if action == "sample" or (not name and word != UNKNOWN):
            return word, ""
        if action == "drop":
            return None
        if action == "mask":
            return MASKED, MASK
        return KEPT - CLASSES.index(name or "unknown"), token


def without_halves(text: str) -> str:
    """Replace halves of surrogate pairs, which spaCy and files cannot hold."""
    return _HALF.sub("\ufffd", text)


class _Rules(NamedTuple):
    """spaCy's tokenizer of a language."""

    tokenizer: Any
    has_blanks: bool  # between words; other tokenizers find words in long chunks
    lock: threading.Lock  # the store of strings has one memory zone at a time


@functools.cache
def _rules(language: str) -> _Rules:
    from spacy.attrs import IDS
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
    # Of a word new to spaCy only the classes are computed: the other features take as long as the tokenization.
    features = [IDS[TOKEN_CLASSES[name].feature.upper()] for name in FIRST_FIT]
    getters = vocabulary.lex_attr_getters
    vocabulary.lex_attr_getters = {each: getters[each] for each in features}
    has_blanks = type(tokenizer) is Tokenizer
    if has_blanks:
        tokenizer.max_cache_size = 0  # of chunks: each is tokenized once
    return _Rules(tokenizer, has_blanks, threading.Lock())


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
    fits = (name for name in FIRST_FIT if getattr(token, TOKEN_CLASSES[name].feature))
    return next(fits, "")


def _blank(run: str) -> str:
    """Reduce a run of blanks to one blank, one line break or an empty line."""
    return "\n" * min(run.count("\n"), 2) or " "
