"""What becomes of marked units of personal data: which still stand where they stood, and what the best attacker names.

A unit is a name, a date or a number that somebody marked in a text; a detector may find it or miss it. Releases are looked
at unit by unit (:class:`MarkedTexts`), and how often a unit of a kind stays or is named by the Bayes attacker, who knows
the law and how often each original is written, is computed from the law (:func:`unit_recovery`). All of it is as private as
the texts. Words alone are in ``textpriv.evaluation.recovery``, whole authors in ``textpriv.evaluation.reidentification``.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError, TextprivError
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.privatizer import Privatizer
from textpriv.spans.laws.base import SpanLaw
from textpriv.spans.plan import piece_start
from textpriv.spans.span import Span, checked
from textpriv.tokenization.batches import KEPT, SPAN
from textpriv.tokenization.detokenizer import PrivateTokens
from textpriv.tokenization.policy import MASK

__all__ = [
    "Fate",
    "MarkedTexts",
    "Recovery",
    "Survival",
    "found_in",
    "survival",
    "unit_recovery",
]


def found_in(unit: str, text: str) -> Iterator[re.Match[str]]:
    """Where a unit stands in a text as a whole, whatever its casing and its blanks."""
    parts = r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", unit)))
    return re.finditer(rf"(?<!\w){parts}(?!\w)" if parts else "(?!)", text, re.IGNORECASE)


class Fate(NamedTuple):
    """What became of a unit in one release.

    Attributes
    ----------
    document : int
    kind : str
        As it was marked.
    original : str
    tokens : tuple of str
        The private tokens where the unit stood.
    private : str
        The private text of these.
    found : str
        The kind of the span that lies there; empty where all of it went through the word mechanism.
    survives : bool
        Whether the original stands there as it was written, whatever its casing; a mask is no survivor.
    anywhere : bool
        Whether it stands somewhere in the private text. A word that is drawn for another one may be the original, too.
    """

    document: int
    kind: str
    original: str
    tokens: tuple[str, ...]
    private: str
    found: str
    survives: bool
    anywhere: bool


class MarkedTexts:
    """Texts with marked units, read once by a privatizer, to be released as often as wanted.

    Parameters
    ----------
    privatizer : Privatizer
        With a run key or a seed for releases that can be repeated; a ledger is refused, for these releases are thrown away.
    texts : sequence of str
    units : sequence of sequence of Span
        Of each text its units: start and end in characters, and a kind.
    labels : sequence, optional
        Of each text the spans that are known, as for :meth:`Privatizer.pipe`.

    Raises
    ------
    TextprivError
        For units that do not fit their text, and as reading does.
    """

    def __init__(
        self,
        privatizer: Privatizer,
        texts: Sequence[str],
        units: Sequence[Iterable[Sequence[Any]]],
        labels: Sequence[Iterable[Sequence[Any]]] | None = None,
    ) -> None:
        if privatizer.ledger is not None:
            raise TextprivError("marked texts are released to be looked at: leave the ledger out.")
        if len(units) != len(texts):
            raise TextprivError(f"there are {len(texts)} texts and the units of {len(units)}.")
        self.privatizer = privatizer
        self._texts = list(texts)
        self._raw = privatizer.read_batch(self._texts, labels)
        self._units: list[tuple[int, Span, int, int]] = []
        for number, (text, tokens) in enumerate(zip(self._texts, self._tokens(), strict=True)):
            for unit in checked(text, units[number]):
                first = int(np.searchsorted(tokens[:, 1], unit.start, side="right"))
                last = int(np.searchsorted(tokens[:, 0], unit.end, side="left"))
                self._units.append((number, unit, first, last))

    def _tokens(self) -> Iterator[NDArray[np.int64]]:
        """Start and end of each token of each text, shape (tokens, 2)."""
        reader, raw = self.privatizer.reader, self._raw
        spans = iter(() if raw.spans is None else raw.spans.offsets.tolist())
        for text, (first, last) in zip(
            self._texts, zip(raw.offsets, raw.offsets[1:], strict=False), strict=True
        ):
            parts, end = [], 0
            for _ in range(int(np.count_nonzero(raw.codes[first:last] <= SPAN))):
                start, stop = next(spans)
                begin = piece_start(text, end, start)
                parts += [reader.offsets(text[begin:start]) + begin, np.array([[start, stop]])]
                end = stop
            begin = piece_start(text, end, len(text))
            tokens = np.concatenate([*parts, reader.offsets(text[begin:]) + begin])
            assert len(tokens) == last - first
            yield tokens

    def release(self, name: str | int = 0) -> list[Fate]:
        """Draw all texts once, each as a document of an author of its own, and look at their units.

        Parameters
        ----------
        name : str or int
            Of this release: under a run key or a seed another one is independent of it.
        """
        from textpriv.ledger import Document

        names = [f"{name} {number}" for number in range(len(self._texts))]
        keys = [Document(each, each) for each in names] if self.privatizer.spans else names
        drawn = [_Drawn.of(tokens) for tokens in self.privatizer.release(self._raw, keys)]
        return [
            drawn[number].fate(
                number, unit, self._texts[number][unit.start : unit.end], first, last
            )
            for number, unit, first, last in self._units
        ]


class _Drawn(NamedTuple):
    """The tokens of a private text, and the text without its masks."""

    words: list[str]
    spaces: list[bool]
    kinds: dict[int, str]
    unmasked: str

    @classmethod
    def of(cls, tokens: PrivateTokens) -> _Drawn:
        words, spaces, kinds = tokens.words, tokens.spaces, tokens.spans
        left = [
            "" if word == MASK or word == f"[{kinds.get(place)}]" else word
            for place, word in enumerate(words)
        ]
        return cls(words, spaces, kinds, _joined(left, spaces))

    def fate(self, number: int, unit: Span, original: str, first: int, last: int) -> Fate:
        tokens = tuple(self.words[first:last])
        private = _joined(tokens, self.spaces[first:last])
        found = next((self.kinds[place] for place in range(first, last) if place in self.kinds), "")
        anywhere = any(True for _ in found_in(original, self.unmasked))
        left = private.replace(f"[{found}]", "")
        survives = anywhere and any(True for _ in found_in(original, left))
        return Fate(number, unit.kind, original, tokens, private, found, survives, anywhere)


def _joined(words: Sequence[str], spaces: Sequence[bool]) -> str:
    pairs = zip(words, spaces, strict=True)
    return "".join(word + " " * space for word, space in pairs).strip()


class Survival(NamedTuple):
    """How many units of a kind survive.

    Attributes
    ----------
    units : int
        Different ones of each text; one that is marked at several places survives if it does at any.
    share : float
        That survive, on average over the releases.
    error : float
        Standard error of the share over the releases; 0 for one.
    anywhere : float
        Share of those that stand somewhere in the private text, on average.
    """

    units: int
    share: float
    error: float
    anywhere: float


def survival(releases: Iterable[Iterable[Fate]]) -> dict[str, Survival]:
    """The share of units that survive in some releases of the same texts, by kind, and under ``""`` of all."""
    shares: dict[str, list[tuple[float, float]]] = defaultdict(list)
    sizes: dict[str, int] = {}
    for fates in releases:
        units: dict[tuple[int, str, str], tuple[bool, bool]] = {}
        for fate in fates:
            key = fate.document, fate.kind, fate.original.casefold()
            stands, anywhere = units.get(key, (False, False))
            units[key] = stands or fate.survives, anywhere or fate.anywhere
        for kind in ("", *sorted({kind for _, kind, _ in units})):
            found = [each for (_, of, _), each in units.items() if kind in ("", of)]
            sizes[kind] = len(found)
            shares[kind].append(tuple(np.mean(found or [(False, False)], axis=0).tolist()))
    done = {}
    for kind, of_kind in shares.items():
        drawn = np.array(of_kind)
        error = drawn[:, 0].std(ddof=1) / math.sqrt(len(drawn)) if len(drawn) > 1 else 0.0
        share, anywhere = drawn.mean(axis=0).tolist()
        done[kind] = Survival(sizes[kind], share, float(error), anywhere)
    return done


@dataclass(frozen=True)
class Recovery:
    """What the best attacker gets of units of a kind, from the law.

    Attributes
    ----------
    guessed : float
        Share of units that the Bayes attacker names. Nobody who sees the release, knows the law, the structure and how
        often each original is written, and takes the units for independent names more.
    stays : float
        Share of units that come out as they were written. Exact, but where a law has no list of its outputs, the share
        guessed, which is at least as large, since an output may be taken for the original; and where unknown words are read
        as their nearest ones, the share of these that stay, which is at least as large, too.
    """

    guessed: float
    stays: float
    _names: Mapping[tuple[Hashable, str], str] = field(repr=False)
    _places: Mapping[str, tuple[Hashable, int]] = field(repr=False)

    def name(self, fate: Fate) -> str:
        """The original that the Bayes attacker names. Of the unit itself he is told the structure alone."""
        structure, place = self._places[fate.original]
        token = fate.tokens[place]
        keys = ((structure, token), (structure, ""))
        # What the law cannot give is taken as it is.
        return next((self._names[key] for key in keys if key in self._names), fate.private)


class _Group(NamedTuple):
    """Originals of one structure, and the laws of what tells them apart."""

    structure: Hashable
    surfaces: Sequence[str]  # one empty text where all laws are one
    originals: Sequence[str]
    written: Sequence[str]  # of each original the surface that would be it
    laws: Iterable[NDArray[np.float64]]
    place: int = 0  # of the token that tells them apart
    rest: float = 1.0  # how likely it is that all other tokens come out as they were written


def unit_recovery(privatizer: Privatizer, prior: Mapping[str, float], kind: str = "") -> Recovery:
    """Compute how often units of a kind stay as they are, and how often the best attacker names them.

    Parameters
    ----------
    privatizer : Privatizer
    prior : mapping of str to float
        How often each original is written; sums to 1. Public.
    kind : str
        Of the policy, for units that a detector finds; without one, for those that it misses and that are words.

    Raises
    ------
    MechanismError
        For an original that the law cannot read, a law that loses something and has no list of its outputs, and originals
        of words that differ in more than one token: look at each word by itself then.
    """
    law = None
    if kind:
        laws = {} if privatizer.spans is None else privatizer.spans.policy.laws
        if kind not in laws:
            raise MechanismError(f"the policy has no law of {kind!r}; it has {', '.join(laws)}.")
        law = laws[kind]
    groups = _of_words(privatizer, prior) if law is None else _of_spans(law, prior)
    guessed = stays = 0.0
    names: dict[tuple[Hashable, str], str] = {}
    told: dict[str, tuple[Hashable, int]] = {}
    for group in groups:
        places = {surface.casefold(): number for number, surface in enumerate(group.surfaces)}
        best, at, stay = np.zeros(len(group.surfaces)), np.zeros(len(group.surfaces), int), 0.0
        for number, row in enumerate(group.laws):
            joint = prior[group.originals[number]] * row
            same = places.get(group.written[number].casefold())
            stay += 0.0 if same is None else float(joint[same])
            better = joint > best
            best[better], at[better] = joint[better], number
        told |= dict.fromkeys(group.originals, (group.structure, group.place))
        guessed += float(best.sum())
        stays += min(stay * group.rest, float(best.sum()))
        for surface, number in zip(group.surfaces, at.tolist(), strict=True):
            names[group.structure, surface] = group.originals[number]
    return Recovery(guessed, stays, names, told)


def _of_spans(law: SpanLaw, prior: Mapping[str, float]) -> Iterator[_Group]:
    values: dict[Hashable, list[tuple[str, Any]]] = defaultdict(list)
    for original in prior:
        value = law.parse(original)
        if value is None:
            raise MechanismError(f"the law of {law.kind} cannot read an original of the prior.")
        values[law.structure(value)].append((original, value))
    for structure, read in values.items():
        originals = [original for original, _ in read]
        try:
            outputs = law.outputs(structure)
        except MechanismError:
            if law.claim().largest > 0:
                raise
            # All originals of a structure have one law; that one of its outputs is the original is at most its share.
            yield _Group(
                structure, [""], originals, [""] * len(read), repeat(np.ones(1), len(read))
            )
            continue
        surfaces, where = np.unique(np.array(outputs, dtype=object), return_inverse=True)
        laws = (
            np.bincount(where, np.exp(law.log_prob(value)), len(surfaces)).astype(np.float64)
            for _, value in read
        )
        yield _Group(structure, surfaces.tolist(), originals, originals, laws)


def _of_words(privatizer: Privatizer, prior: Mapping[str, float]) -> Iterator[_Group]:
    mechanism, words = privatizer.mechanism, privatizer.mechanism.index.vocabulary.words
    tokens: dict[Hashable, list[tuple[str, NDArray[np.int32]]]] = defaultdict(list)
    for original in prior:
        read = privatizer.reader.encode([original])
        # What the policy keeps and masks is visible, and so is where it stands.
        visible = tuple(np.minimum(read.codes, UNKNOWN).tolist()), tuple(read.strings)
        tokens[visible].append((original, read.codes))
    for structure, read_so in tokens.items():
        originals = [original for original, _ in read_so]
        table = np.array([codes for _, codes in read_so])
        differs = (table != table[0]).any(axis=0)
        if differs.sum() > 1:
            raise MechanismError("units differ in several words: look at each word by itself.")
        rest = math.prod(_stays(mechanism, code) for code in table[0][~differs].tolist())
        if not differs.any():
            yield _Group(
                structure,
                [""],
                originals,
                [""] * len(table),
                repeat(np.ones(1), len(table)),
                0,
                rest,
            )
            continue
        place = int(differs.argmax())
        column = table[:, place].tolist()
        written = ["" if word == UNKNOWN else words[word] for word in column]
        laws = (np.exp(mechanism.log_prob(word)) for word in column)
        yield _Group(structure, words, originals, written, laws, place, rest)


def _stays(mechanism: Mechanism, code: int) -> float:
    """How likely it is that a token comes out as it is."""
    if code < UNKNOWN:
        return float(code <= KEPT)
    return 0.0 if code == UNKNOWN else math.exp(mechanism.log_prob(code)[code])
