"""spaCy's part of tokenization: the tokens of a text, and what spaCy says of each.

It needs spaCy and nothing else, no vocabulary and no policy. What the tokens mean to a mechanism is in
``textpriv.tokenization.encoder``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import TextprivError
from textpriv.tokenization.special_cases import SpecialCases

__all__ = ["SpacyTokenizer", "hashes_of"]

_LARGEST_STORE = 160_000  # strings spaCy's vocabulary may hold before it is replaced by a new one


def hashes_of(words: Sequence[str]) -> NDArray[np.uint64]:
    """SpaCy's hashes of words."""
    from spacy.strings import get_string_id

    return np.fromiter((get_string_id(word) for word in words), np.uint64, len(words))


class SpacyTokenizer:
    """spaCy's tokenizer of a language, with the attributes that are asked of each token.

    Parameters
    ----------
    language : str
        A spaCy language code.
    attributes : tuple of str
        By spaCy's names.
    """

    _shared: ClassVar[WeakValueDictionary[Any, SpacyTokenizer]] = WeakValueDictionary()

    def __init__(self, language: str, attributes: tuple[str, ...]) -> None:
        self.language = language
        self.attributes = attributes
        self._tokenizer: Any = None
        self._lock = threading.Lock()

    @classmethod
    def shared(cls, language: str, attributes: tuple[str, ...]) -> SpacyTokenizer:
        """The one that this process has as long as anything uses it: to enter the rules of a language takes a while."""
        return cls._shared.setdefault((language, attributes), cls(language, attributes))

    def __reduce__(self) -> tuple[Any, ...]:
        return SpacyTokenizer, (self.language, self.attributes)  # without the raw words it has seen

    @cached_property
    def splits_at_blanks(self) -> bool:
        """Whether chunks of text between blanks are tokenized each by itself.

        Raises
        ------
        TextprivError
            If spaCy does not have the language.
        """
        tokenizer = self._current_tokenizer()
        from spacy.tokenizer import Tokenizer

        # Only spaCy's own tokenizer goes by rules; those of languages without blanks find words in long chunks.
        return type(tokenizer) is Tokenizer

    def special_cases(self) -> SpecialCases:
        """The special cases of the language."""
        return SpecialCases.of(self._current_tokenizer())

    def attributes_of(self, text: str) -> NDArray[np.uint64]:
        """The attributes of the tokens of a text, shape (tokens, attributes).

        Raises
        ------
        TextprivError
            If spaCy does not have the language.
        """
        with self._lock:  # spaCy's store of strings grows
            doc = self._current_tokenizer()(text)
        columns: NDArray[np.uint64] = doc.to_array(list(self.attributes))
        return columns.reshape(len(doc), len(self.attributes))

    def words_of_rules(self) -> set[str]:
        """The words that spaCy enters into a vocabulary for the rules of the language, before any text is read."""
        return {word.orth_ for word in self._new_tokenizer().vocab}

    def _current_tokenizer(self) -> Any:
        if self._tokenizer is None or len(self._tokenizer.vocab.strings) > _LARGEST_STORE:
            self._tokenizer = self._new_tokenizer()
        return self._tokenizer

    def _new_tokenizer(self) -> Any:
        from spacy.attrs import IDS
        from spacy.util import get_lang_class, registry
        from spacy.vocab import create_vocab

        # What spacy.blank makes of the language's own settings, and no pipeline around it: that would import every
        # component that any package here registers.
        try:
            language = get_lang_class(self.language)
            settings = {"tokenizer": language.default_config["nlp"]["tokenizer"]}
            vocabulary: Any = create_vocab(self.language, language.Defaults)
            within = SimpleNamespace(vocab=vocabulary, Defaults=language.Defaults)
            tokenizer: Any = registry.resolve(settings)["tokenizer"](within)
        except ImportError as error:
            raise TextprivError(
                f"spaCy has no language {self.language!r}; use a code such as 'en'."
                if "[E048]" in str(error)  # how spaCy says so
                else f"spaCy's rules of the language {self.language!r} need another package: "
                f"pip install 'spacy[{self.language}]'."
            ) from error
        # Other attributes of a new word are never read, and each costs a call into Python.
        getters = vocabulary.lex_attr_getters
        wanted = [IDS[name] for name in self.attributes]
        vocabulary.lex_attr_getters = {name: getters[name] for name in wanted if name in getters}
        if hasattr(tokenizer, "max_cache_size"):
            # spaCy caches the tokens of 10,000 different chunks by default: a corpus has more. The store of strings bounds
            # this cache too, since both are replaced together.
            tokenizer.max_cache_size = _LARGEST_STORE
        return tokenizer
