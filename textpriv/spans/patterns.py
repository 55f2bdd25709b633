"""The detector of patterns: mail and web addresses, IP addresses, accounts, phone numbers, dates, years, ages, numbers.

A regular expression finds candidates. spaCy (mail and web addresses), ``ipaddress``, ``phonenumbers`` and the checksums of
``python-stdnum`` decide. Names have no pattern and are not found here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version

from textpriv.errors import SpanError, needs
from textpriv.spans.span import Span

__all__ = ["PATTERN_KINDS", "PatternDetector"]

_MONTH = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    "|Nov(?:ember)?|Dec(?:ember)?)"
)
_CALLED = (
    r"\b(?:tele)?(?:phone|tel|fax|mobile|cell|desk|office|call|ring|dial|text|sms|whatsapp|message|messages|answering"
    r"|contact|registered|reach)\b"
)
_NUMBER = r"(?<![\w.,])(?:\+|\(\+?|00)?\d{1,5}(?:[ ().\/-]{0,3}\d{1,5}){1,7}(?: ?(?:x|ext\.? ?)\d{1,5})?(?!\w|[.,-]\d)"
_PATTERNS = {
    "IP": r"\b(?:\d{1,3}\.){3}\d{1,3}\b|(?<![\w:])[\da-fA-F]{0,4}(?::[\da-fA-F]{0,4}){2,7}(?![\w:])",
    "IBAN": r"\b[A-Z]{2}\d{2}(?: ?[A-Z\d]{4}){2,7}(?: ?[A-Z\d]{1,4})?\b",
    "CARD": r"(?<![\w-])\d(?:[ -]?\d){11,18}(?![\w-])",
    "SSN": r"(?<![\w-])\d{3}-\d\d-\d{4}(?![\w-])"
    r"|(?:(?<=SSN )|(?<=SSN: )|(?<=security number is )|(?<=security number ))\d{3}[ -]?\d\d[ -]?\d{4}\b",
    # After a word of telephones, or in a form of its own: +49 ..., (030) ..., 0490 39 07 81, 415-555-2671.
    "PHONE": rf"{_CALLED}(?:[\s:.#]|\b(?:me|us|at|on|to|is|no|nr|number|back|and|your)\b){{0,8}}(?P<number>{_NUMBER})"
    rf"|(?P<before>{_NUMBER})(?=[ -]*(?:office|mobile|cell|fax|desk)\b)"
    r"|(?P<form>(?<![\w.,])(?:\+\d[\d ().-]{6,18}\d|\(\d{2,5}\) ?\d[\d -]{4,12}\d|0\d{1,4}(?:[ /-]\d{2,5}){2,4}"
    r"|\d{3}[ .-]\d{3}[ .-]\d{4})(?!\w|[.,-]\d))",
    "DATE": r"\b\d{4}-\d\d-\d\d\b|\b\d\d?([./-])\d\d?\1(?:\d{4}|\d\d)\b"
    rf"|\b{_MONTH}\.? \d\d?(?:st|nd|rd|th)?(?:,? \d{{4}})?\b"
    rf"|\b\d\d?(?:st|nd|rd|th)? (?:of )?{_MONTH}\b\.?(?:,? \d{{4}}\b)?",
    "TIME": r"\b\d\d?:\d\d(?::\d\d)?(?: ?[ap]\.?m\b)?",
    "AGE": r"\b\d{1,3}(?=[ -]?(?:(?:years?|yrs?)[ -]?old|years of age|y/o|yo)\b)"
    r"|\b(?:aged?|age of|turn(?:s|ed|ing)?|(?:he|she|they|who|I) (?:is|was|were|am)|I'm|I’m|he's|she's):? (?P<age>\d{1,3})"
    r"(?![\w%°]|[.,:/-]\d|[ -](?:degrees|percent|minutes?|hours?|days?|weeks?|months?|times|points|pages|miles|feet|of)\b)",
    "YEAR": r"(?<![\w$€£#.,:/-])(?:19|20)\d\d(?![\w%/]|[.,:-]\d| (?:[kmµ]?g|[kcm]?m|m?l|dollars|euros|pounds|people)\b)",
    "NUMBER": r"(?<![\w.])[-+\N{MINUS SIGN}]?\d+(?:,\d{3})*(?:\.\d+)?(?![\d])",
}
_COMPILED = {
    kind: re.compile(
        pattern,
        re.ASCII | (re.IGNORECASE if kind in ("DATE", "PHONE", "AGE", "SSN", "IBAN") else 0),
    )
    for kind, pattern in _PATTERNS.items()
}
PATTERN_KINDS = ("EMAIL", "URL", *_PATTERNS)

_DIGITS = re.compile("[0-9]+")
# What a text must have for a pattern to match in it: this is found much faster.
_NEEDED = {
    "IP": re.compile(r"[0-9a-fA-F:]:|[0-9]\.[0-9]"),
    "CARD": re.compile("[0-9](?:[ -]?[0-9]){11}"),
    "SSN": re.compile("[0-9]{3}[ -]?[0-9]{2}[ -]?[0-9]{4}"),
    "PHONE": re.compile(r"[0-9](?:[ ()./-]{0,3}[0-9]){6}"),
    "TIME": re.compile("[0-9]:[0-9]"),
}
_ADDRESS = re.compile(r"@|://|\.[A-Za-z]{2}")
_CHUNK = re.compile(r"[^\s<>\"']+")
_AROUND = "()[]{}<>.,;:!?\"'*“”‘’«»"
_LONGEST = 254  # characters of a mail address (RFC 5321); longer chunks are left to the words
_REACH = 64  # characters between digits of one match, and around them, at most
_PHONE_DIGITS = 7, 15  # as few as in a local number, as many as in ITU-T E.164


class PatternDetector:
    """A detector of patterns.

    Parameters
    ----------
    kinds : sequence of str
        Some of ``PATTERN_KINDS``: "EMAIL", "URL", "IP", "IBAN", "CARD", "SSN", "PHONE", "DATE", "TIME", "AGE", "YEAR" and
        "NUMBER". Dates and ages in words are those of English.
    region : str
        The country (ISO 3166) whose phone numbers are found without a code of the country.

    Raises
    ------
    SpanError
        For another kind, and if ``phonenumbers`` or ``python-stdnum`` is missing (extra ``spans``).

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
        packages = ["spacy"]
        if "PHONE" in self.kinds:
            needs("phonenumbers", "spans")
            packages.append("phonenumbers")
        if {"IBAN", "CARD"} & set(self.kinds):
            needs("stdnum", "spans")
            packages.append("python-stdnum")
        self._versions = [(package, version(package)) for package in packages]

    def detect(self, texts: Sequence[str]) -> Iterator[list[Span]]:
        """Yield the spans of each text."""
        for text in texts:
            spans: list[Span] = []
            if _ADDRESS.search(text):
                spans += self._addresses(text)
            if _DIGITS.search(text):
                spans += self._numbers(text)
            yield list(dict.fromkeys(spans))

    def _addresses(self, text: str) -> Iterator[Span]:
        from spacy.lang.lex_attrs import like_email, like_url

        for chunk in _CHUNK.finditer(text):
            bare = chunk.group().strip(_AROUND)
            if len(bare) > _LONGEST or not _ADDRESS.search(bare):
                continue
            kind = "EMAIL" if like_email(bare) else "URL" if like_url(bare) else None
            if kind in self.kinds:
                start = chunk.start() + chunk.group().index(bare)
                yield Span(start, start + len(bare), kind)

    def _numbers(self, text: str) -> Iterator[Span]:
        windows = list(_windows(text))
        for kind in self.kinds:
            needed, check = _NEEDED.get(kind, _DIGITS), _CHECKS.get(kind)
            if kind not in _COMPILED or not needed.search(text):
                continue
            for window in windows:
                for match in _COMPILED[kind].finditer(text, *window):
                    start, end = match.span(match.lastgroup or 0)
                    if check is None or check(text[start:end]):
                        yield Span(start, end, kind)
        if "PHONE" in self.kinds and _NEEDED["PHONE"].search(text):
            from phonenumbers import PhoneNumberMatcher

            for found in PhoneNumberMatcher(text, self.region):
                yield Span(found.start, found.end, "PHONE")

    def fingerprint(self) -> str:
        """Kinds, region and the versions of the libraries."""
        return f"patterns 2 {self.kinds!r} {self.region} {self._versions!r}"


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text that any pattern of digits can match in, with room around for what it looks at."""
    runs = _DIGITS.finditer(text)
    first, last = next(runs).span()
    for run in runs:
        if run.start() - last > 2 * _REACH:
            yield max(first - _REACH, 0), last + _REACH
            first = run.start()
        last = run.end()
    yield max(first - _REACH, 0), last + _REACH


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_iban(text: str) -> bool:
    from stdnum import iban

    return bool(iban.is_valid(text))


def _is_card(text: str) -> bool:
    from stdnum import luhn

    return bool(luhn.is_valid(re.sub("[ -]", "", text)))


def _is_phone(text: str) -> bool:
    least, most = _PHONE_DIGITS
    number = re.split("x|e", text, maxsplit=1, flags=re.IGNORECASE)[0]
    return least <= sum(map(str.isdecimal, number)) <= most


_CHECKS: dict[str, Callable[[str], bool]] = {
    "IP": _is_ip,
    "IBAN": _is_iban,
    "CARD": _is_card,
    "PHONE": _is_phone,
}
