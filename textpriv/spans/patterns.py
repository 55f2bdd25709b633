"""The detector of what has a form: mail and web addresses, IP addresses, phone numbers, accounts, cards, dates, numbers.

Candidates are found by the characters that every one of a kind must have; whether a candidate is one is decided by spaCy
(mail and web addresses), ``ipaddress``, ``phonenumbers`` and the checksums of ``python-stdnum``. Names have no form and are
not found here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import SpanError
from textpriv.spans.detectors import missing
from textpriv.spans.span import Span

__all__ = ["PATTERN_KINDS", "PatternDetector"]

PATTERN_KINDS = ("EMAIL", "URL", "IP", "IBAN", "CARD", "PHONE", "DATE", "TIME", "AGE", "NUMBER")

_MONTH = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    "|Nov(?:ember)?|Dec(?:ember)?)"
)
_DATES = (
    r"\b\d{4}-\d\d-\d\d\b",
    r"\b\d\d?([./-])\d\d?\1(?:\d{4}|\d\d)\b",
    rf"\b{_MONTH}\.? \d\d?(?:st|nd|rd|th)?(?:,? \d{{4}})?\b",
    rf"\b\d\d?(?:st|nd|rd|th)? (?:of )?{_MONTH}\b\.?(?:,? \d{{4}}\b)?",
)
_NUMBERS = {
    "IP": r"\b(?:\d{1,3}\.){3}\d{1,3}\b|(?<![\w:])[\da-fA-F]{0,4}(?::[\da-fA-F]{0,4}){2,7}(?![\w:])",
    "IBAN": r"\b[A-Z]{2}\d{2}(?: ?[A-Z\d]{4}){2,7}(?: ?[A-Z\d]{1,4})?\b",
    "CARD": r"(?<![\w-])\d(?:[ -]?\d){11,18}(?![\w-])",
    "DATE": "|".join(_DATES),
    "TIME": r"\b\d\d?:\d\d(?::\d\d)?(?: ?[ap]\.?m\b)?",
    "AGE": r"\b\d{1,3}(?=[ -]?(?:years?|yrs?)[ -]?old\b)|(?<=\baged )\d{1,3}\b",
    "NUMBER": r"(?<![\w.])[-+\N{MINUS SIGN}]?\d+(?:,\d{3})*(?:\.\d+)?(?![\d])",
}
_COMPILED = {kind: re.compile(pattern, re.ASCII) for kind, pattern in _NUMBERS.items()}
_COMPILED["DATE"] = re.compile(_NUMBERS["DATE"], re.ASCII | re.IGNORECASE)
_REACH = 40  # characters between digits of one span, and around them, at most: only there is anything looked for
_PHONE = re.compile(r"[0-9](?:[ ()./-]{0,3}[0-9]){6}")
_SEPARATED = re.compile(r"[0-9][./-][0-9]")
_BEGUN_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_CHUNK = re.compile(r"[^\s<>\"']*")
_AROUND = "()[]{}<>.,;:!?\"'*“”‘’«»"
_LONGEST = 254  # characters of a mail address (RFC 5321); longer chunks are left to the words
_AT_ONCE = 1000  # texts that are looked through for candidates
_IS_LETTER = np.array([chr(byte).isalpha() and byte < 128 for byte in range(256)])


class _Window(NamedTuple):
    """A part of a text that has digits, with what stands around them, and how many they are."""

    first: int
    last: int
    digits: int


def _may_be_date(text: str, window: _Window) -> bool:
    if _SEPARATED.search(text, window.first, window.last):
        return True
    around = text[window.first : window.last].lower()
    return any(month in around for month in _BEGUN_MONTHS)


# What a part of a text must have for the pattern of a kind to match in it; to look for that first takes a tenth of the time.
_NEEDED: dict[str, Callable[[str, _Window], bool]] = {
    "IP": lambda text, part: (
        text.count(".", part.first, part.last) >= 3 or text.count(":", part.first, part.last) >= 2
    ),
    "IBAN": lambda _, part: part.digits >= 2,
    "CARD": lambda _, part: part.digits >= 12,
    "DATE": _may_be_date,
    "TIME": lambda text, part: text.find(":", part.first, part.last) >= 0,
    "AGE": lambda text, part: (
        text.find("old", part.first, part.last) >= 0
        or text.find("aged ", part.first, part.last) >= 0
    ),
    "NUMBER": lambda *_: True,
}


class PatternDetector:
    """A detector of patterns.

    Parameters
    ----------
    kinds : sequence of str
        Which of "EMAIL", "URL", "IP", "IBAN", "CARD", "PHONE", "DATE", "TIME", "AGE" and "NUMBER". Dates and ages in words
        are those of English.
    region : str
        The country (ISO 3166) whose phone numbers are found without a code of the country.

    Raises
    ------
    SpanError
        For another kind, and where ``phonenumbers`` or ``python-stdnum`` is missing (extra ``spans``).

    Examples
    --------
    >>> detector = PatternDetector(["EMAIL", "NUMBER"])
    >>> list(detector.detect(["Write to ann@example.org 3 times."]))
    [[Span(start=9, end=24, kind='EMAIL'), Span(start=25, end=26, kind='NUMBER')]]
    """

    def __init__(self, kinds: Sequence[str] = PATTERN_KINDS, region: str = "US") -> None:
        strange = sorted(set(kinds) - set(PATTERN_KINDS))
        if strange:
            raise SpanError(f"unknown pattern {strange[0]!r}; known: {', '.join(PATTERN_KINDS)}.")
        self.kinds = tuple(kind for kind in PATTERN_KINDS if kind in kinds)
        self.region = region
        self._checks: dict[str, Callable[[str], Any]] = {"IP": _is_ip}
        self._versions = {"spacy": version("spacy")}
        if "PHONE" in self.kinds:
            try:
                import phonenumbers
            except ImportError:
                raise missing("phonenumbers", "spans") from None
            self._versions["phonenumbers"] = phonenumbers.__version__
        if {"IBAN", "CARD"} & set(self.kinds):
            try:
                from stdnum import iban
            except ImportError:
                raise missing("python-stdnum", "spans") from None
            self._checks |= {"IBAN": iban.is_valid, "CARD": _is_card}
            self._versions["python-stdnum"] = version("python-stdnum")
        self._patterns = [
            (kind, _COMPILED[kind].finditer, self._checks.get(kind))
            for kind in self.kinds
            if kind in _COMPILED
        ]

    def detect(self, texts: Sequence[str]) -> Iterator[list[Span]]:
        """Spans of each text."""
        for first in range(0, len(texts), _AT_ONCE):
            part = texts[first : first + _AT_ONCE]
            for text, places, windows in zip(part, *_candidates(part), strict=True):
                spans = list(self._addresses(text, places)) if places else []
                if windows:
                    spans += self._numbers(text, windows)
                yield spans

    def _numbers(self, text: str, windows: Sequence[_Window]) -> Iterator[Span]:
        for kind, find, check in self._patterns:
            needed = _NEEDED[kind]
            for window in windows:
                if needed(text, window):
                    for match in find(text, window.first, window.last):
                        if check is None or check(match.group()):
                            yield Span(*match.span(), kind)
        if "PHONE" in self.kinds and any(
            window.digits >= 7 and _PHONE.search(text, window.first, window.last)
            for window in windows
        ):
            from phonenumbers import PhoneNumberMatcher

            for found in PhoneNumberMatcher(text, self.region):
                yield Span(found.start, found.end, "PHONE")

    def _addresses(self, text: str, places: Sequence[int]) -> Iterator[Span]:
        from spacy.lang.lex_attrs import like_email, like_url

        done = 0
        for place in places:
            if place < done:
                continue
            first = max(done, place - _LONGEST)
            before = _CHUNK.match(text[first:place][::-1])
            after = _CHUNK.match(text, place)
            assert before is not None
            assert after is not None
            start, done = place - before.end(), after.end()
            chunk = text[start:done]
            bare = chunk.strip(_AROUND)
            if not 0 < len(bare) <= _LONGEST:
                continue
            start += chunk.index(bare)
            if like_email(bare):
                kind = "EMAIL"
            elif like_url(bare):
                kind = "URL"
            else:
                continue
            if kind in self.kinds:
                yield Span(start, start + len(bare), kind)

    def fingerprint(self) -> str:
        """Kinds, region and the versions of the libraries."""
        return f"patterns 1 {self.kinds!r} {self.region} {sorted(self._versions.items())!r}"


def _candidates(texts: Sequence[str]) -> tuple[Iterator[list[int]], Iterator[list[_Window]]]:
    """Places of each text where an address may be ("@", "://", or a point and two letters), and its parts with digits."""
    # One byte a character, whatever it is, so that offsets stay; between texts, and after the last, what is in no candidate.
    letters = np.frombuffer("\n".join([*texts, "\n"]).encode("latin-1", "replace"), np.uint8)
    starts = np.concatenate([[0], np.cumsum([len(text) + 1 for text in texts])])
    points, colons = (np.flatnonzero(letters == ord(mark)) for mark in ".:")
    letter = _IS_LETTER[letters[points + 1]]
    points = points[letter]
    points = points[_IS_LETTER[letters[points + 2]]]
    slashes = (letters[colons + 1] == ord("/")) & (letters[colons + 2] == ord("/"))
    places = [np.flatnonzero(letters == ord("@")), points, colons[slashes]]
    return _parted(np.sort(np.concatenate(places)), starts), _windows(letters, starts)


def _parted(places: NDArray[np.int64], starts: NDArray[np.int64]) -> Iterator[list[int]]:
    """Places of all texts, rising, as those of each."""
    bounds = np.searchsorted(places, starts)
    within = (places - np.repeat(starts[:-1], np.diff(bounds))).tolist()
    for first, last in pairwise(bounds.tolist()):
        yield within[first:last]


def _windows(letters: NDArray[np.uint8], starts: NDArray[np.int64]) -> Iterator[list[_Window]]:
    """The parts of each text that have digits; those that overlap or touch are one."""
    digits = np.flatnonzero(letters - np.uint8(ord("0")) < 10)
    text_of = np.searchsorted(starts, digits, side="right") - 1
    apart = (np.diff(digits) > 2 * _REACH + 1) | (np.diff(text_of) > 0)
    begin = np.flatnonzero(np.concatenate([digits[:1] >= 0, apart]))
    end = np.append(begin[1:], len(digits))[: len(begin)]
    before = starts[text_of[begin]]
    first = np.maximum(digits[begin] - _REACH - before, 0)
    last = digits[end - 1] + 1 + _REACH - before
    windows = map(_Window, first.tolist(), last.tolist(), (end - begin).tolist())
    for count in np.diff(np.searchsorted(before, starts)).tolist():
        yield list(islice(windows, count))


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_card(text: str) -> bool:
    from stdnum import luhn

    return bool(luhn.is_valid(text.replace(" ", "").replace("-", "")))
