"""Detectors: texts in, spans out, found by libraries that others maintain.

This file has the protocol and the adapters for spaCy, Presidio and regular expressions; ``textpriv.spans.patterns`` finds
mail addresses, numbers and dates. A detector sees private text: nothing here keeps, logs or quotes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from textpriv.errors import SpanError, installed, needs
from textpriv.spans.span import Span

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

__all__ = [
    "Detector",
    "PresidioDetector",
    "RegexDetector",
    "SpacyDetector",
    "best_installed",
    "make_detector",
]

_NAMES = "PERSON", "PER"  # labels of a pipeline that finds names
_SIZES = "trf", "lg", "md", "sm"  # of spaCy's pipelines, the best first


@runtime_checkable
class Detector(Protocol):
    """Finds spans: for each text kinds and offsets.

    Each text is looked at by itself: what is found in one must not depend on another, nor on the batch.
    """

    def detect(self, texts: Sequence[str]) -> Iterable[Iterable[Span]]:
        """Spans of each text, in order; they may overlap."""

    def fingerprint(self) -> str:
        """Distinguishes it from detectors that find something else: name, version and settings."""


class RegexDetector:
    """A detector of your own regular expressions.

    Parameters
    ----------
    patterns : mapping of str to str
        From a kind to a pattern of Python's ``re``.

    Examples
    --------
    >>> list(RegexDetector({"ticket": r"#[0-9]+"}).detect(["See #12."]))
    [[Span(start=4, end=7, kind='ticket')]]
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        try:
            self._patterns = {kind: re.compile(pattern) for kind, pattern in patterns.items()}
        except re.error as error:
            raise SpanError(f"a regular expression cannot be read: {error}.") from None

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


class SpacyDetector:
    """The entities, or span groups, that a spaCy pipeline finds.

    Parameters
    ----------
    nlp : Language or str
        A pipeline with a named-entity recogniser, an ``EntityRuler`` or a ``SpanRuler``, or the name or path of one.
    groups : tuple of str
        Span groups to read besides ``doc.ents``.
    """

    def __init__(self, nlp: Language | str, groups: tuple[str, ...] = ()) -> None:
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
        self._groups = tuple(groups)

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of each text."""
        with _forgetting(self._nlp):
            return list(map(self._spans_of, self._nlp.pipe(texts)))

    def _spans_of(self, doc: Doc) -> list[Span]:
        spans = list(doc.ents)
        for group in self._groups:
            spans += doc.spans.get(group, ())
        return [Span(each.start_char, each.end_char, each.label_) for each in spans]

    def fingerprint(self) -> str:
        """The pipeline's settings, rules and weights; not the words that it has met."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        content = hashlib.sha256(self._nlp.to_bytes(exclude=["vocab"])).hexdigest()
        return f"spacy {version('spacy')} {content} {self._groups!r}"


class PresidioDetector:
    """The entities that Presidio's analyzer finds.

    Parameters
    ----------
    analyzer : AnalyzerEngine, optional
        Default: Presidio's recognisers by pattern over a blank spaCy pipeline, which finds no names.
    language : str
    threshold : float
        The least score.

    Notes
    -----
    Presidio's recogniser of mail addresses asks the network for a list of domains when it is first used, and falls back to
    the one that comes with it. No text goes there.
    """

    def __init__(
        self, analyzer: Any = None, *, language: str = "en", threshold: float = 0.3
    ) -> None:
        self._analyzer = _pattern_analyzer(language) if analyzer is None else analyzer
        self._language, self._threshold = language, threshold

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of each text."""
        with _forgetting(*self._pipelines.values()):
            return list(map(self._spans_of, texts))

    @property
    def _pipelines(self) -> Mapping[str, Language]:
        return getattr(self._analyzer.nlp_engine, "nlp", None) or {}

    def _spans_of(self, text: str) -> list[Span]:
        settings = {"language": self._language, "score_threshold": self._threshold}
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
        settings = names, models, self._language, self._threshold
        content = hashlib.sha256(repr(settings).encode()).hexdigest()
        return f"presidio {version('presidio_analyzer')} {content}"


_one_zone = threading.Lock()  # memory zones of one pipeline must not overlap


@contextlib.contextmanager
def _forgetting(*pipelines: Language) -> Iterator[None]:
    """Remove from the pipelines' vocabularies what texts leave in them, where spaCy has memory zones (3.8)."""
    with _one_zone, contextlib.ExitStack() as zones:
        for nlp in pipelines:
            zones.enter_context(getattr(nlp, "memory_zone", contextlib.nullcontext)())
        yield


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


def make_detector(name: str, language: str = "en") -> Detector:
    """Make the detector of a name, as the command line and other processes know it.

    Parameters
    ----------
    name : str
        "patterns"; "presidio"; "spacy:" and the name or path of a pipeline, or "spacy" for the small one of the language.
        For "auto", take each name of :func:`best_installed`.
    language : str
        A language code.

    Raises
    ------
    SpanError
        For another name, and if a package or a pipeline is missing.
    """
    kind, _, which = name.partition(":")
    if name == "patterns":
        from textpriv.spans.patterns import PatternDetector

        return PatternDetector()
    if name == "presidio":
        return PresidioDetector(language=language)
    if kind == "spacy":
        return SpacyDetector(which or f"{language}_core_{'web' if language == 'en' else 'news'}_sm")
    raise SpanError(
        f"unknown detector {name!r}; use auto, patterns, presidio, or spacy:PIPELINE, such as spacy:en_core_web_sm."
    )


def best_installed(language: str = "en") -> tuple[str, ...]:
    """Return the names of the detectors that together find most of what the installed packages can find.

    These are the largest installed spaCy pipeline of the language that finds names, if any, and patterns. Without such a
    pipeline no names are found: say so to the user.

    Raises
    ------
    SpanError
        If neither is installed.

    Examples
    --------
    >>> best_installed()[-1]
    'patterns'
    """
    from spacy.util import get_installed_models, get_package_path

    def size(name: str) -> tuple[int, str]:
        ending = name.rpartition("_")[2]
        return (_SIZES.index(ending) if ending in _SIZES else len(_SIZES), name)

    names = []
    for pipeline in sorted(get_installed_models(), key=size):
        if pipeline.startswith(f"{language}_") and _finds_names(get_package_path(pipeline)):
            names.append(f"spacy:{pipeline}")
            break
    if installed("phonenumbers") and installed("stdnum"):
        names.append("patterns")
    elif not names:
        needs("phonenumbers", "spans")
    return tuple(names)


def _finds_names(package: Any) -> bool:
    """Whether the meta data of an installed pipeline lists names among the labels of its entity recogniser."""
    import json

    for meta in package.glob("**/meta.json"):
        labels = json.loads(meta.read_text(encoding="utf-8")).get("labels", {})
        return any(name in labels.get("ner", ()) for name in _NAMES)
    return False
