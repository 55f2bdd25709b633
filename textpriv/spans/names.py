"""A detector of common American names, which needs no download: given names and surnames of the census of 1990.

Many names are ordinary words as well ("Will", "Rose") or places ("Paris"). They are marked in the list, and count only
beside another name. ``tools/make_names.py`` marks a name if few of its 20 nearest built-in words are common names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache

from textpriv.spans.span import Span
from textpriv.vocabulary.builtin import DATA

__all__ = ["NamesDetector"]

NAMES = DATA / "en-names.txt"
_WORD = re.compile(r"(?:O['’])?[^\W\d_]+\b(?!['’][tT]\b)")  # "Don't" is no Don
_GAP = re.compile(r"\s|-")
_AFTER_INITIAL = re.compile(r"\.?\s?")
_NONE, _BESIDE, _NAME = range(3)  # what a word is: no name, one beside another name, a name


@cache
def _names() -> dict[str, int]:
    entries = NAMES.read_text(encoding="ascii").split()
    return {name.rstrip("?"): _BESIDE if name.endswith("?") else _NAME for name in entries}


class NamesDetector:
    """A detector of common American given names and surnames that are written with a capital.

    Ordinary words and initials count only beside another name: "Will" in "Will Smith", and "F." in "John F. Kennedy".
    """

    labels = ("PERSON",)
    finds_no = "names outside its list"

    def detect(self, texts: Sequence[str]) -> Iterator[list[Span]]:
        """Yield the spans of each text."""
        for text in texts:
            yield [
                Span(run[0].start(), run[-1].end(), self.labels[0])
                for run in map(_without_initials, _runs(text))
                if any(_kind(word.group()) == _NAME for word in run)
            ]

    def fingerprint(self) -> str:
        """A checksum of the list."""
        return f"names 1 {hashlib.sha256(NAMES.read_bytes()).hexdigest()}"


def _kind(word: str) -> int:
    if not word[0].isupper():
        return _NONE
    return _BESIDE if len(word) == 1 else _names().get(re.sub("['’]", "", word).casefold(), _NONE)


def _runs(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield the words that may be names, each list of those that follow one another."""
    run: list[re.Match[str]] = []
    for word in _WORD.finditer(text):
        gap = _AFTER_INITIAL if run and len(run[-1].group()) == 1 else _GAP
        kind = _kind(word.group())
        if run and not (kind and gap.fullmatch(text, run[-1].end(), word.start())):
            yield run
            run = []
        run += [word] if kind else []
    yield run


def _without_initials(run: list[re.Match[str]]) -> list[re.Match[str]]:
    """Return a run without the single letters at its ends."""
    long = [at for at, word in enumerate(run) if len(word.group()) > 1]
    return run[long[0] : long[-1] + 1] if long else []
