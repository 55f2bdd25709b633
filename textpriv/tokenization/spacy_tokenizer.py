"""spaCy's part of reading: where the tokens of a text are, and what spaCy says of each.

This needs spaCy and nothing else, no vocabulary and no policy. So another process may do it while this one loads, or draws.
What the tokens mean to a mechanism is in ``textpriv.tokenization.encoder``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.tokenization.special_cases import Crossings

__all__ = ["Cutter", "Rules", "hashes_of"]

_LARGEST_STORE = 160_000  # strings spaCy's vocabulary may hold before it is replaced by a new one


@dataclass(frozen=True)
class Rules:
    """What is to be known of a language before its tokens can be used.

    Attributes
    ----------
    by_rules : bool
        Whether stretches of text between blanks are cut each by itself.
    hashes : ndarray of uint64
        spaCy's hashes of the words of the vocabulary.
    crossings : Crossings
        Where a stretch is not cut by itself.
    """

    by_rules: bool
    hashes: NDArray[np.uint64]
    crossings: Crossings


def hashes_of(words: Sequence[str]) -> NDArray[np.uint64]:
    """The hashes by which spaCy knows words."""
    from spacy.strings import get_string_id

    return np.fromiter((get_string_id(word) for word in words), np.uint64, len(words))


class Cutter:
    """Cuts texts into tokens by spaCy.

    Parameters
    ----------
    language : str
        A spaCy language code.
    attributes : tuple of str
        What is to be known of each token, by spaCy's names.
    """

    def __init__(self, language: str, attributes: tuple[str, ...]) -> None:
        self.language = language
        self.attributes = attributes
        self._tokenizer: Any = None

    def rules(self, words: Sequence[str]) -> Rules:
        """Those of the language, for a vocabulary.

        Raises
        ------
        TextprivError
            If spaCy does not have the language.
        """
        tokenizer = self._current_tokenizer()
        crossings = Crossings.of(tokenizer) if self.by_rules else Crossings({}, list)
        return Rules(self.by_rules, hashes_of(words), crossings)

    @property
    def by_rules(self) -> bool:
        """Whether stretches of text between blanks are cut each by itself.

        Raises
        ------
        TextprivError
            If spaCy does not have the language.
        """
        tokenizer = self._current_tokenizer()
        from spacy.tokenizer import Tokenizer

        # Only spaCy's own tokenizer cuts by rules; those of languages without blanks find words in long stretches.
        return type(tokenizer) is Tokenizer

    def columns(self, texts: Sequence[str]) -> list[NDArray[np.uint64]]:
        """The attributes of the tokens of each text, shape (tokens, attributes)."""
        return [self._columns_of(text) for text in texts]

    def words_of_rules(self) -> set[str]:
        """The words that spaCy enters into a vocabulary for the rules of the language, before any text is read."""
        return {word.orth_ for word in self._new_tokenizer().vocab}

    def _columns_of(self, text: str) -> NDArray[np.uint64]:
        doc = self._current_tokenizer()(text)
        columns: NDArray[np.uint64] = doc.to_array(list(self.attributes))
        return columns.reshape(len(doc), len(self.attributes))

    def _current_tokenizer(self) -> Any:
        if self._tokenizer is None or len(self._tokenizer.vocab.strings) > _LARGEST_STORE:
            self._tokenizer = self._new_tokenizer()
        return self._tokenizer

    def _new_tokenizer(self) -> Any:
        import spacy
        from spacy.attrs import IDS

        try:
            pipeline = spacy.blank(self.language)
        except ImportError as error:
            raise TextprivError(
                f"spaCy has no language {self.language!r}; use a code such as 'en'."
            ) from error
        # Other attributes of a new word are never read, and each costs a call into Python.
        vocabulary: Any = pipeline.vocab
        getters = vocabulary.lex_attr_getters
        wanted = [IDS[name] for name in self.attributes]
        vocabulary.lex_attr_getters = {name: getters[name] for name in wanted if name in getters}
        tokenizer: Any = pipeline.tokenizer
        if hasattr(tokenizer, "max_cache_size"):
            # The tokenizer remembers how it cut a stretch of text, by default of 10,000 different ones: a corpus has
            # more. The store of strings bounds this memory too, since both are replaced together.
            tokenizer.max_cache_size = _LARGEST_STORE
        return tokenizer
