"""The policy of spans: which mechanism each kind goes to, and what becomes of everything that no detector found."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from textpriv.errors import SpanError
from textpriv.ledger import Shared
from textpriv.spans.mechanisms.base import SpanClaim, SpanMechanism, registry
from textpriv.statement import PrivacyStatement, at_most
from textpriv.tokenization.policy import LOWERED

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

UNDETECTED_PASS = "pass what the detector misses"  # noqa: S105 - no password

PRESETS = ("notes", "tickets", "chat")
WORDS = "words"  # in place of a kind: spans of this label are drawn like all other words

# Labels of spaCy's and Presidio's detectors, and the kinds of the presets and of the patterns.
LABELS = {
    "PER": "PERSON",
    "EMAIL_ADDRESS": "EMAIL",
    "IP_ADDRESS": "IP",
    "IBAN_CODE": "IBAN",
    "CREDIT_CARD": "CARD",
    "PHONE_NUMBER": "PHONE",
    "US_SSN": "SSN",
    "DATE_TIME": "DATE",
    "LOCATION": "PLACE",
    "GPE": "PLACE",
    "LOC": "PLACE",
    "FAC": "PLACE",
    "ORG": "ORGANIZATION",
    "CARDINAL": "NUMBER",
    **dict.fromkeys(("US_BANK_NUMBER", "US_DRIVER_LICENSE", "US_ITIN", "US_PASSPORT"), "ID"),
    **dict.fromkeys(("CRYPTO", "MAC_ADDRESS", "MEDICAL_LICENSE", "UK_NHS", "UUID"), "ID"),
    **dict.fromkeys(("EVENT", "LANGUAGE", "LAW", "MONEY", "NORP", "ORDINAL"), WORDS),
    **dict.fromkeys(("PERCENT", "PRODUCT", "QUANTITY", "WORK_OF_ART", "NRP"), WORDS),
}
_PREFIX = re.compile("^[BIOLUES]-")  # of labels that mark where a span begins and ends

_STRUCTURE = (
    "the number, kinds and places of the spans that the detector finds and the policy can read. The detector reads the "
    "private text, so these also depend on the words around a span"
)
_LOWERED = (
    "The text between spans is lower-cased (str.lower), each piece by itself, before it is tokenized, so its casing "
    "changes neither the released words nor their number. The detector reads the text as written, so what it finds may "
    "depend on casing"
)
_MASKED = "A span is masked if the policy cannot read it, or if another span covers it in part"
_ADJACENT = (
    "documents of equal structure: spans of the same kinds in the same places, and as many tokens between them. Between "
    "such documents: {}; and spans of one kind, as the notes say"
)


@dataclass(frozen=True)
class SpanPolicy:
    """Mechanism for each kind of span: what replaces names, dates and the like.

    A label is compared without regard to case and to a prefix such as ``B-``. A label of a detector that the policy does not
    know is drawn as words, with a warning; one that comes with a text is an error. Spans that their mechanism cannot read
    are drawn as words too.

    Attributes
    ----------
    mechanisms : mapping of str to SpanMechanism
        By kind. Draws of two kinds within a person or document are independent: labels bring what must move together under
        one kind. Of two equal spans the kind that comes first here counts.
    labels : mapping of str to str
        From a detector's label to a kind, or to "words"; over those of :data:`LABELS`.
    undetected : str
        "words", or ``"pass what the detector misses"``: all else is released as written, and nothing of it is protected.
        All that is found and is drawn by no mechanism is masked then.
    """

    mechanisms: Mapping[str, SpanMechanism]
    labels: Mapping[str, str] = field(default_factory=dict)
    undetected: str = "words"

    def __post_init__(self) -> None:
        # Draws of two kinds within a person must be independent, or their losses would not add up.
        kept = {
            kind: method if method.scope is None else method.of_kind(kind)
            for kind, method in self.mechanisms.items()
        }
        object.__setattr__(self, "mechanisms", kept)
        for kind in self.labels.values():
            if kind not in self.mechanisms and kind != WORDS:
                raise SpanError(
                    f"a label stands for {kind!r}, which has no mechanism in this policy."
                )
        if self.undetected not in ("words", UNDETECTED_PASS):
            raise SpanError(
                f'undetected is "words" or "{UNDETECTED_PASS}"; got {self.undetected!r}.'
            )

    @property
    def needs_person(self) -> bool:
        """Whether a mechanism draws the same for all documents of a person."""
        return any(mechanism.scope == "person" for mechanism in self.mechanisms.values())

    @cached_property
    def known_labels(self) -> dict[str, str]:
        """The kind of each label that the policy knows, or "words"."""
        own = {kind: kind for kind in self.mechanisms} | dict(self.labels)
        usual = {label: own.get(kind, kind) for label, kind in LABELS.items()}
        drawn = {*self.mechanisms, WORDS}
        return own | {each: kind for each, kind in usual.items() if kind in drawn} | own

    @cached_property
    def _in_capitals(self) -> dict[str, str]:
        return {label.upper(): kind for label, kind in reversed(self.known_labels.items())}

    def kind_of(self, label: str) -> str | None:
        """Return the kind that a label stands for, or "words"; None if the policy does not know it."""
        exact = self.known_labels.get(label)
        return exact or self._in_capitals.get(_PREFIX.sub("", label.upper()))

    @classmethod
    def of(cls, given: SpanPolicy | str | Path | Mapping[str, Any]) -> SpanPolicy:
        """Return the policy of a preset's name, of a TOML file with tables ``[kinds.NAME]``, or of a mapping."""
        if isinstance(given, SpanPolicy):
            return given
        if isinstance(given, Mapping):
            return cls.from_dict(given)
        presets = Path(__file__).with_name("presets")
        path = presets / f"{given}.toml" if given in PRESETS else Path(given)
        try:
            return cls.from_dict(tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise SpanError(
                f"cannot read the policy {given}: {error.strerror}. Take {', '.join(PRESETS)}, or a TOML file."
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SpanError(f"the policy {given} is no TOML: {error}.") from None

    @classmethod
    def preset(cls, name: Literal["notes", "tickets", "chat"]) -> SpanPolicy:
        """Return one of the policies that come with the package."""
        return cls.of(name)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> SpanPolicy:
        """Make a policy of ``kinds``, ``labels`` and ``undetected``.

        In ``kinds`` each has the registered name of its ``method``, and its settings beside it. With ``preset``, the name of
        one, kinds and labels are added to those of the preset or replace them.
        """
        rest = dict(settings)
        try:
            if "preset" in rest:
                preset = cls.preset(rest.pop("preset")).to_dict()
                both = {
                    part: {**preset[part], **rest.get(part, {})} for part in ("kinds", "labels")
                }
                rest = preset | rest | both
            kinds = dict(rest.pop("kinds", {}))
            return cls({kind: _mechanism(kind, given) for kind, given in kinds.items()}, **rest)
        except (TypeError, AttributeError) as error:
            raise SpanError(
                f"a policy has tables of kinds and labels, and undetected: {error}."
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that rebuild this policy, in JSON types."""
        return {
            "kinds": {
                kind: {"method": each.name, **each.settings()}
                for kind, each in self.mechanisms.items()
            },
            "labels": dict(self.labels),
            "undetected": self.undetected,
        }

    def fingerprint(self) -> list[Any]:
        """Everything that decides, with a key and what was found, what is drawn, in JSON types."""
        drawn = [(kind, method.fingerprint()) for kind, method in self.mechanisms.items()]
        return [drawn, sorted(self.labels.items()), self.undetected]

    @cached_property
    def claims(self) -> dict[str, SpanClaim]:
        """What the mechanism of each kind guarantees."""
        return {kind: mechanism.claim() for kind, mechanism in self.mechanisms.items()}

    def account(self, counts: Mapping[int, int]) -> tuple[float, float, tuple[Shared, ...]]:
        """Bound what the spans of a document lose, given how many go to each mechanism.

        A number beyond the last mechanism is the mask's. The results are nats and rho (zCDP) of the draws of each span,
        and the losses by what is drawn once for a person or the document. A loss of L nats both ways is L^2 / 2-zCDP.
        """
        nats = rho = 0.0
        shared = []
        for number, (kind, claim) in enumerate(self.claims.items()):
            count = counts.get(number, 0)
            loss = claim.largest
            if count and claim.per == "span":
                nats += count * loss
                rho += count * loss**2 / 2
            elif count:
                once = self.mechanisms[kind].drawn_once()
                shared.append(Shared(once, claim.per, loss, loss**2 / 2))
        return nats, rho, tuple(shared)

    def extend(self, statement: PrivacyStatement) -> PrivacyStatement:
        """Return the statement of words and spans together, from that of the words."""
        claims = self.claims
        losses = {f"span_loss_{kind}": claim.largest for kind, claim in claims.items()}
        exposed = [
            f"spans of kind {kind}: {what}"
            for kind, claim in claims.items()
            for what in claim.not_protected
        ]
        statement = replace(
            statement,
            adjacency=_ADJACENT.format(statement.adjacency),
            figures={**statement.figures, **losses},
            notes=tuple(_LOWERED if note == LOWERED else note for note in statement.notes),
        )
        if self.undetected == UNDETECTED_PASS:
            nothing: dict[str, Any] = {"epsilon": None, "figures": losses, "notes": (_MASKED,)}
            missed = ("the number and order of documents", "everything the detector misses")
            statement = replace(
                statement, mechanism="Typed spans alone", not_protected=missed, **nothing
            )
        return statement.extended(
            assumptions=tuple(each for claim in claims.values() for each in claim.assumptions),
            not_protected=(_STRUCTURE, *exposed),
            notes=self._notes(),
            proved=statement.proved and all(claim.proved for claim in claims.values()),
        )

    def _notes(self) -> list[str]:
        """Say what the spans of each kind lose."""
        free = {kind: claim for kind, claim in self.claims.items() if claim.largest == 0}
        notes = []
        if free:
            by_name: dict[str, list[str]] = {}
            for kind in free:
                by_name.setdefault(self.mechanisms[kind].name, []).append(kind)
            listed = "; ".join(f"{name} of {', '.join(kinds)}" for name, kinds in by_name.items())
            proofs = ", ".join(dict.fromkeys(claim.proof for claim in free.values()))
            notes.append(
                "Spans of these kinds are drawn without their text, apart from what is listed as not protected. They "
                f"lose nothing: {listed} ({proofs})"
            )
        for kind, claim in self.claims.items():
            if kind not in free:
                largest = f", {at_most(claim.largest, 4)} between any two"
                under = " under one key" * (claim.per != "span")
                notes.append(
                    f"Spans of kind {kind} are drawn by {claim.mechanism}. They lose at most {at_most(claim.epsilon)} nats "
                    f"a {claim.unit}{largest}. This counts once for each {claim.per}{under} ({claim.proof})"
                )
        return notes


def _mechanism(kind: str, given: Any) -> SpanMechanism:
    try:
        settings = {"kind": kind, **given}
        mechanism: SpanMechanism = registry.get(settings.pop("method", None))(**settings)
    except (TypeError, ValueError) as error:
        raise SpanError(f"the method of {kind}: {error}") from None
    return mechanism
