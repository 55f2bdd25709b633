"""Function words: closed classes of a language, which the recommended space sets apart. Content words are all others.

English has a list that comes with the package, other languages spaCy's stop words. Without a list the commonest words
stand in for one, and the statement says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import VocabularyError

ENGLISH = Path(__file__).parent / "data" / "en-function-words.txt"
_NAMED, _NAMES = 4, ("will", "may")  # words that a sentence names
_COMMON = 250  # words that stand in for a list, or a tenth of a small vocabulary


class FunctionWords(NamedTuple):
    """A public list of function words."""

    words: tuple[str, ...]
    source: str  # of the list; empty for the commonest words, which are no list of function words

    @property
    def kind(self) -> str:
        """What the words are called: without a list they are no function words."""
        return "function words" if self.source else "commonest words"

    @property
    def sentence(self) -> str:
        """What a statement says of them: how many, which, and what they show."""
        count = f"{len(self.words):,}"
        if not self.source:
            return (
                f"the {count} {self.kind}, which no recovery figure counts. There is no list of function words for this "
                f"language, so content words may be among them: {', '.join(self.words)}"
            )
        names = [word.capitalize() for word in _NAMES if word in self.words]
        return (
            f"{count} {self.kind} ({', '.join(self.words[:_NAMED])}, ...), which no recovery figure counts, by "
            f"{self.source}. They show the gender of pronouns, negation, and names that are such words"
            + (f" ({', '.join(names)})" if names else "")
        )

    def among(self, words: Sequence[str]) -> FunctionWords:
        """Return those that a vocabulary holds, in its order."""
        listed = set(self.words)
        return self._replace(words=tuple(word for word in words if word in listed))


def listed_words(
    given: FunctionWords | Iterable[str] | str | os.PathLike[str] | None, language: str | None
) -> FunctionWords | None:
    """Return a list that is given, as words or as a file of them, or else that of a language; None without one."""
    if given is None:
        return _of_language(language)
    if isinstance(given, FunctionWords):
        return given
    if isinstance(given, str | os.PathLike):
        return FunctionWords(_read(Path(given)), f"the list {Path(given).name}")
    return FunctionWords(tuple(given), "a list of one's own")


def commonest(words: Sequence[str], counts: NDArray[np.float64] | None) -> FunctionWords:
    """Return the commonest words, by counts or else by their order, in place of a list."""
    count = min(_COMMON, len(words) // 10)
    order = range(count) if counts is None else np.argsort(-counts, kind="stable")[:count].tolist()
    return FunctionWords(tuple(words[number] for number in sorted(order)), "")


def _of_language(language: str | None) -> FunctionWords | None:
    if language == "en":
        return FunctionWords(_read(ENGLISH), "textpriv's list of closed classes of English")
    if language is None or find_spec(f"spacy.lang.{language}") is None:
        return None
    from spacy.util import get_lang_class

    words = tuple(sorted(get_lang_class(language).Defaults.stop_words))
    return FunctionWords(words, f"spaCy's stop words of {language!r}") if words else None


def _read(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise VocabularyError(
            f"{path} is no readable file of UTF-8 text. Name a file of function words."
        ) from None
    return tuple(word for line in lines if not line.startswith("#") for word in line.split())
