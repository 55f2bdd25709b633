"""Detectors: texts in, spans out, found by libraries that others maintain.

A detector sees private text: nothing here keeps, logs or quotes it. :class:`PatternDetector` finds candidates by regular
expressions; spaCy (mail and web addresses), ``ipaddress``, ``phonenumbers`` and the checksums of ``python-stdnum`` decide.
Names have no pattern and need a list, spaCy or Presidio.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from textpriv.errors import SpanError, needs
from textpriv.spans.names import NamesDetector
from textpriv.spans.span import Span

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

__all__ = [
    "DETECTORS",
    "PATTERN_KINDS",
    "Detector",
    "PatternDetector",
    "PresidioDetector",
    "RegexDetector",
    "SpacyDetector",
    "WordsDetector",
    "best_detectors",
    "finders_of_names",
    "make_detector",
]

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
_ANY_CASE = {"DATE", "PHONE", "AGE", "SSN", "IBAN"}
_COMPILED = {
    kind: re.compile(pattern, re.ASCII | (re.IGNORECASE if kind in _ANY_CASE else 0))
    for kind, pattern in _PATTERNS.items()
}
PATTERN_KINDS = ("EMAIL", "URL", *_PATTERNS)

_PART, _GAP = re.compile(r"[^\W\d_]+"), re.compile(r"\s|['’-]|\. ?")  # of an entry of a list
_DIGIT = re.compile("[0-9]")
_DIGITS_OF_A_PHONE = re.compile(r"[0-9](?:[ ()./-]{0,3}[0-9]){6}")
_ADDRESS = re.compile(r"@|://|\.[A-Za-z]{2}")
_CHUNK = re.compile(r"[^\s<>\"']+")
_AROUND = "()[]{}<>.,;:!?\"'*“”‘’«»"
_LONGEST = 254  # characters of a mail address (RFC 5321); longer chunks are left to the words
_LEAST_SCORE = 0.3  # of what Presidio finds
_PHONE_DIGITS = 7, 15  # as few as in a local number, as many as in ITU-T E.164


@runtime_checkable
class Detector(Protocol):
    """Finds spans: for each text kinds and offsets.

    Each text is looked at by itself: what is found in one must not depend on another, nor on the batch. Two attributes are
    optional. ``finds_no``, such as "names": the statement then says that the detector finds no such spans. ``labels``, all
    that the detector gives: a policy that does not know one then warns before the first text.
    """

    def detect(self, texts: Sequence[str]) -> Iterable[Iterable[Span]]:
        """Spans of each text, in order; they may overlap."""

    def fingerprint(self) -> str:
        """Distinguishes it from detectors that find something else: name, version and settings."""


class RegexDetector:
    """A detector of your own regular expressions, such as ``{"TICKET": r"#[0-9]+"}``."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        try:
            self._patterns = {kind: re.compile(pattern) for kind, pattern in patterns.items()}
        except re.error as error:
            raise SpanError(f"this is no regular expression: {error}. Correct it.") from None
        self.labels = tuple(patterns)
        self.finds_no = f"kinds but {', '.join(patterns)}"

    def detect(self, texts: Sequence[str]) -> Iterator[list[Span]]:
        """Yield the spans of each text."""
        for text in texts:
            yield [
                Span(*match.span(), kind)
                for kind, pattern in self._patterns.items()
                for match in pattern.finditer(text)
            ]

    def fingerprint(self) -> str:
        """Kinds, patterns and flags."""
        return repr([(kind, each.pattern, each.flags) for kind, each in self._patterns.items()])


class WordsDetector:
    """A detector of the names of a public list, in any case.

    An entry may have several words. Leave out names that are also common words, such as "will".
    """

    finds_no, labels = "names outside its list", ("PERSON",)

    def __init__(self, words: Iterable[str]) -> None:
        entries = (tuple(_PART.findall(entry.casefold())) for entry in words)
        self._entries = frozenset(filter(None, entries))
        # Of the entries that begin with a word, longest first.
        self._lengths: dict[str, list[int]] = {}
        for entry in sorted(self._entries, key=len, reverse=True):
            self._lengths.setdefault(entry[0], []).append(len(entry))

    @classmethod
    def load(cls, path: str) -> WordsDetector:
        """Read a list from a file, one entry a line."""
        try:
            with open(path, encoding="utf-8-sig") as file:
                found = cls(file)
            wrong = "" if found._entries else "it has no words"
        except (OSError, UnicodeDecodeError) as error:
            wrong = getattr(error, "strerror", "it is not UTF-8 text")
        if wrong:
            raise SpanError(f"cannot read the list {path}: {wrong}. Put one name on each line.")
        return found

    def detect(self, texts: Sequence[str]) -> Iterator[list[Span]]:
        """Yield the spans of each text."""
        for text in texts:
            found = list(_PART.finditer(text))
            parts = [each.group().casefold() for each in found]
            spans = []
            for at, part in enumerate(parts):
                for length in self._lengths.get(part, ()):
                    near = found[at : at + length]
                    gaps = (text[a.end() : b.start()] for a, b in itertools.pairwise(near))
                    if tuple(parts[at : at + length]) in self._entries and all(
                        map(_GAP.fullmatch, gaps)
                    ):
                        spans.append(Span(near[0].start(), near[-1].end(), self.labels[0]))
                        break
            yield spans

    def fingerprint(self) -> str:
        """A checksum of the list."""
        content = hashlib.sha256(repr(sorted(self._entries)).encode()).hexdigest()
        return f"words PERSON {content}"


class PatternDetector:
    """A detector of ``PATTERN_KINDS``: addresses, accounts, phone numbers, dates, times, ages, years and numbers.

    Dates and ages in words are those of English. Needs the extra ``spans``.
    Phone numbers without a code of the country are those of the United States.
    """

    finds_no, labels = "names", PATTERN_KINDS

    def __init__(self) -> None:
        needs("phonenumbers", "spans")
        self._checks = {
            "IP": _is_ip,
            "IBAN": needs("stdnum.iban", "spans").is_valid,
            "CARD": needs("stdnum.luhn", "spans").is_valid,
            "PHONE": _is_phone,
        }

    def detect(self, texts: Sequence[str]) -> Iterator[list[Span]]:
        """Yield the spans of each text."""
        for text in texts:
            spans: list[Span] = []
            if _ADDRESS.search(text):
                spans += self._addresses(text)
            if _DIGIT.search(text):
                spans += self._numbers(text)
            yield list(dict.fromkeys(spans))

    def _addresses(self, text: str) -> Iterator[Span]:
        from spacy.lang.lex_attrs import like_email, like_url

        for chunk in _CHUNK.finditer(text):
            bare = chunk.group().strip(_AROUND)
            if len(bare) > _LONGEST or not _ADDRESS.search(bare):
                continue
            kind = "EMAIL" if like_email(bare) else "URL" if like_url(bare) else None
            if kind is not None:
                start = chunk.start() + chunk.group().index(bare)
                yield Span(start, start + len(bare), kind)

    def _numbers(self, text: str) -> Iterator[Span]:
        for kind, pattern in _COMPILED.items():
            check = self._checks.get(kind)
            for match in pattern.finditer(text):
                start, end = match.span(match.lastgroup or 0)
                if kind == "PHONE" and _COMPILED["DATE"].fullmatch(text, start, end):
                    continue
                if check is None or check(re.sub("[ -]", "", text[start:end])):
                    yield Span(start, end, kind)
        if _DIGITS_OF_A_PHONE.search(text):
            from phonenumbers import PhoneNumberMatcher

            for found in PhoneNumberMatcher(text, "US"):
                if not _COMPILED["DATE"].fullmatch(text, found.start, found.end):
                    yield Span(found.start, found.end, "PHONE")

    def fingerprint(self) -> str:
        """The versions of the libraries."""
        versions = list(map(version, ("spacy", "phonenumbers", "python-stdnum")))
        return f"patterns 4 US {versions!r}"


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_phone(text: str) -> bool:
    least, most = _PHONE_DIGITS
    number = re.split("x|e", text, maxsplit=1, flags=re.IGNORECASE)[0]
    return least <= sum(map(str.isdecimal, number)) <= most


class SpacyDetector:
    """The entities and span groups that a spaCy pipeline finds; a name or path of one is loaded."""

    def __init__(self, nlp: Language | str) -> None:
        import spacy

        try:
            self._nlp = spacy.load(nlp) if isinstance(nlp, str) else nlp
        except OSError:
            raise SpanError(
                f"spaCy finds no pipeline {nlp!r}. Install it (python -m spacy download {nlp}), or give its path."
            ) from None
        if not self._nlp.pipe_names:
            raise SpanError(
                "this spaCy pipeline has no component that finds anything. Add an entity_ruler, a span_ruler or ner."
            )

    @property
    def labels(self) -> list[str]:
        """The labels of the components that find entities or span groups."""
        found = list[str]()
        for name in self._nlp.pipe_names:
            if {"doc.ents", "doc.spans"} & {*self._nlp.get_pipe_meta(name).assigns}:
                found += self._nlp.pipe_labels.get(name, ())
        return found

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of each text."""
        with _forgetting(self._nlp):
            return list(map(self._spans_of, self._nlp.pipe(texts)))

    def _spans_of(self, doc: Doc) -> list[Span]:
        spans = itertools.chain(doc.ents, *doc.spans.values())
        return [Span(each.start_char, each.end_char, each.label_) for each in spans]

    def fingerprint(self) -> str:
        """The pipeline's settings, rules and weights; not the words that it has met."""
        content = hashlib.sha256(self._nlp.to_bytes(exclude=["vocab"])).hexdigest()
        return f"spacy {version('spacy')} {content}"


class PresidioDetector:
    """The entities that Presidio's analyzer finds.

    By default it takes Presidio's recognisers by pattern over a blank spaCy pipeline, which finds no names. The one of mail
    addresses asks the network for a list of domains when it is first used, and falls back to its own. No text goes there.
    """

    def __init__(self, analyzer: Any = None, *, language: str = "en") -> None:
        self._analyzer = _pattern_analyzer(language) if analyzer is None else analyzer
        self.finds_no = "names" if analyzer is None else ""
        self._language = language

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of each text."""
        with _forgetting(*self._pipelines.values()):
            return list(map(self._spans_of, texts))

    @property
    def labels(self) -> list[str]:
        """The entities that the recognisers give."""
        found: list[str] = self._analyzer.get_supported_entities(self._language)
        return found

    @property
    def _pipelines(self) -> Mapping[str, Language]:
        return getattr(self._analyzer.nlp_engine, "nlp", None) or {}

    def _spans_of(self, text: str) -> list[Span]:
        settings = {"language": self._language, "score_threshold": _LEAST_SCORE}
        found = self._analyzer.analyze(text, **settings)
        return [Span(each.start, each.end, each.entity_type) for each in found]

    def fingerprint(self) -> str:
        """Version, recognisers and settings."""
        names = sorted(
            f"{type(each).__module__}.{each.name} {each.version} {getattr(each, 'patterns', '')}"
            for each in self._analyzer.registry.recognizers
        )
        models = sorted(
            (language, nlp.meta["name"], nlp.meta["version"], nlp.pipe_names)
            for language, nlp in self._pipelines.items()
        )
        settings = names, models, self._language, _LEAST_SCORE
        content = hashlib.sha256(repr(settings).encode()).hexdigest()
        return f"presidio {version('presidio_analyzer')} {content}"


def _pattern_analyzer(language: str) -> Any:
    presidio = needs("presidio_analyzer", "presidio")
    import spacy

    engine = needs("presidio_analyzer.nlp_engine", "presidio").SpacyNlpEngine()
    engine.nlp = {language: spacy.blank(language)}
    registry = presidio.RecognizerRegistry(supported_languages=[language])
    registry.load_predefined_recognizers(languages=[language])
    return presidio.AnalyzerEngine(
        registry=registry, nlp_engine=engine, supported_languages=[language]
    )


_one_zone = threading.Lock()  # memory zones of one pipeline must not overlap


@contextlib.contextmanager
def _forgetting(*pipelines: Language) -> Iterator[None]:
    """Remove from the pipelines' vocabularies what texts leave in them."""
    with _one_zone, contextlib.ExitStack() as zones:
        for nlp in pipelines:
            zones.enter_context(nlp.memory_zone())
        yield


def finders_of_names(language: str = "en") -> list[str]:
    """Return the installed spaCy pipelines of a language that find names, the best first, as names of detectors."""
    import spacy.util

    found = []
    for name in spacy.util.get_installed_models():
        meta = spacy.util.get_model_meta(spacy.util.get_package_path(name))
        if meta["lang"] == language and {"ner", "entity_ruler"} & {*meta["pipeline"]}:
            found.append((name.endswith("_trf"), name.endswith("_lg"), name.endswith("_md"), name))
    return [f"spacy:{each[-1]}" for each in sorted(found, reverse=True)]


def best_detectors(language: str = "en") -> list[str]:
    """Return the names of the best detectors that are installed: one of names, and the patterns."""
    needs("phonenumbers", "spans")
    listed = ["names"] if language == "en" else []
    return [*(finders_of_names(language)[:1] or listed), "patterns"]


# By their names on the command line. Each is made of what is behind the colon, and of a language.
DETECTORS: dict[str, Callable[[str, str], Detector]] = {
    "patterns": lambda _, language: PatternDetector(),
    "names": lambda _, language: NamesDetector(),
    "presidio": lambda _, language: PresidioDetector(language=language),
    "spacy:PIPELINE": lambda pipeline, language: SpacyDetector(pipeline),
    "words:FILE": lambda path, language: WordsDetector.load(path),
    "regex:KIND=PATTERN": lambda given, language: RegexDetector(dict([given.split("=", 1)])),
}


def make_detector(name: str, language: str = "en") -> Detector:
    """Make the detector of a name of ``DETECTORS``, such as "patterns" or "regex:TICKET=#[0-9]+"."""
    kind, _, given = name.partition(":")
    for spelled, make in DETECTORS.items():
        own, _, needed = spelled.partition(":")
        if kind == own and bool(given) == bool(needed) and ("=" in given or "=" not in needed):
            return make(given, language)
    raise SpanError(
        f"unknown detector {name!r}; use one of {', '.join(DETECTORS)}. 'textpriv doctor' lists what is installed."
    )
