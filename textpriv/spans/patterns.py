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
from typing import Any

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
_DIGITS = re.compile(r"[0-9]+")
_REACH = 40  # characters between digits of one span, and around them, at most: only there is anything looked for
_PHONE = re.compile(r"[0-9](?:[ ()./-]{0,3}[0-9]){6}")
_ADDRESS = re.compile(r"@|://|\.[A-Za-z]{2}")
_CHUNK = re.compile(r"[^\s<>\"']*")
_AROUND = "()[]{}<>.,;:!?\"'*“”‘’«»"
_LONGEST = 254  # characters of a mail address (RFC 5321); longer chunks are left to the words


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
                from stdnum import iban, luhn
            except ImportError:
                raise missing("python-stdnum", "spans") from None
            self._checks |= {"IBAN": iban.is_valid, "CARD": _luhn(luhn.is_valid)}
            self._versions["python-stdnum"] = version("python-stdnum")
        self._patterns = [
            (kind, _COMPILED[kind].finditer, self._checks.get(kind))
            for kind in self.kinds
            if kind in _COMPILED
        ]

    def detect(self, texts: Sequence[str]) -> Iterator[list[Span]]:
        """Spans of each text."""
        addresses = "EMAIL" in self.kinds or "URL" in self.kinds
        for text in texts:
            spans = list(self._addresses(text)) if addresses else []
            windows = _windows(text)
            if windows:
                spans += self._numbers(text, windows)
            yield spans

    def _numbers(self, text: str, windows: Sequence[tuple[int, int]]) -> Iterator[Span]:
        for kind, find, check in self._patterns:
            for first, last in windows:
                for match in find(text, first, last):
                    if check is None or check(match.group()):
                        yield Span(*match.span(), kind)
        if "PHONE" in self.kinds and _PHONE.search(text):
            from phonenumbers import PhoneNumberMatcher

            for found in PhoneNumberMatcher(text, self.region):
                yield Span(found.start, found.end, "PHONE")

    def _addresses(self, text: str) -> Iterator[Span]:
        from spacy.lang.lex_attrs import like_email, like_url

        done = 0
        for match in _ADDRESS.finditer(text):
            if match.start() < done:
                continue
            first = max(done, match.start() - _LONGEST)
            before = _CHUNK.match(text[first : match.start()][::-1])
            after = _CHUNK.match(text, match.start())
            assert before is not None
            assert after is not None
            start, done = match.start() - before.end(), after.end()
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


def _windows(text: str) -> list[tuple[int, int]]:
    """The parts of a text that have digits, with what stands around them."""
    windows: list[tuple[int, int]] = []
    for match in _DIGITS.finditer(text):
        first, last = max(0, match.start() - _REACH), match.end() + _REACH
        if windows and first <= windows[-1][1]:
            first = windows.pop()[0]
        windows.append((first, last))
    return windows


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _luhn(is_valid: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda text: is_valid(text.replace(" ", "").replace("-", ""))
