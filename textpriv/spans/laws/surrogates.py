"""Surrogates: names, places and the like become entries of a public list, drawn without looking at the original.

Proof: :mod:`textpriv.spans.laws.redrawn`. The public law is uniform over a given list, or that of a provider of Faker
(public lists of a language, put together by public patterns), whose random numbers are read from the keyed stream.
Two originals may get the same surrogate: a list without repetition would have to know all texts of a scope. A
surrogate may be the name of a real person.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from textpriv.errors import MechanismError, installed, needs
from textpriv.spans.laws.base import SpanClaim, SpanLaw
from textpriv.spans.laws.redrawn import RedrawnLaw

__all__ = ["SOURCES", "Surrogate"]

# Kinds of surrogates, and Faker's names for them.
SOURCES = {
    "name": "name",
    "first-name": "first_name",
    "last-name": "last_name",
    "place": "city",
    "country": "country",
    "organization": "company",
    "street": "street_address",
    "address": "address",
    "email": "safe_email",
    "url": "url",
    "user": "user_name",
    "job": "job",
}
_one_at_a_time = threading.Lock()  # a provider reads from one stream at a time


class Named(NamedTuple):
    """An original in lower case, without the width of its blanks."""

    name: str


class Surrogate(RedrawnLaw):
    """A surrogate from a public list.

    Parameters
    ----------
    entries : sequence of str or str
        A list of your own, or the name of a source: one of ``SOURCES`` (extra ``spans``).
    locale : str
        Whose names a source has, such as "de_DE".
    consistent : "document", "person" or None
        Where equal originals, up to case, get the same surrogate.
    kind : str, optional

    Examples
    --------
    >>> from textpriv.randomness import KeyedStreams, Stream
    >>> from textpriv.spans.laws.base import Scopes
    >>> law = Surrogate(["Kim", "Lee", "Ida"], consistent="document")
    >>> names = [law.parse(each) for each in ("Ann", "Bob", "ANN")]
    >>> first, _, again = law.draw(names, Stream(), Scopes(KeyedStreams(seed=1), document="letter"))
    >>> first == again
    True
    """

    name = "surrogate"

    def __init__(
        self,
        entries: Sequence[str] | str = "name",
        locale: str = "en_US",
        consistent: Literal["document", "person"] | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(consistent, kind)
        self.locale = locale
        self.entries = entries if isinstance(entries, str) else tuple(dict.fromkeys(entries))
        if isinstance(self.entries, str):
            if self.entries not in SOURCES:
                raise MechanismError(
                    f"unknown source {self.entries!r}; use one of {', '.join(SOURCES)}, or give a list of entries."
                )
            _provider(locale)
        elif not self.entries or not all(each.strip() for each in self.entries):
            raise MechanismError("a list of surrogates needs entries, and none of them empty.")

    def parse(self, text: str) -> Named | None:
        """Any surface but an empty one."""
        name = " ".join(text.casefold().split())
        return Named(name) if name else None

    def _one(self, structure: Any, source: random.Random) -> str:
        if not isinstance(self.entries, str):
            return self.entries[source.randrange(len(self.entries))]
        provider = _provider(self.locale)
        with _one_at_a_time:
            provider.random = source
            return ", ".join(getattr(provider, SOURCES[self.entries])().split("\n"))

    def stays(self) -> dict[str, float]:
        """One of so many, for a list."""
        return {} if isinstance(self.entries, str) else {"": 1 / len(self.entries)}

    def outputs(self, structure: Hashable) -> Sequence[str]:
        """The list; a source has none."""
        if isinstance(self.entries, str):
            raise MechanismError("a source of surrogates has no list of all its outputs.")
        return self.entries

    def claim(self) -> SpanClaim:
        """A loss of 0."""
        if isinstance(self.entries, str):
            listed = f"Faker's {SOURCES[self.entries]} of {self.locale}"
        else:
            listed = f"a list of {len(self.entries):,}"
        return self._claim(f"surrogate from {listed}", ())

    def fingerprint(self) -> str:
        """Everything that decides, with a key, what is drawn: for a source, also the version of Faker."""
        if not isinstance(self.entries, str):
            return super().fingerprint()
        return f"{super().fingerprint()} faker {needs('faker', 'spans').VERSION}"

    @classmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """A short list in each scope, with equal names, and a source if Faker is installed."""
        entries, names = ["Kim", "Lee", "Ida Roe"], ["Ann", "Bob Hall", "ann", "Zoe"]
        return [
            (cls(entries), names),
            (cls(entries, consistent="document"), names),
            (cls(entries, consistent="person"), [*names, "BOB HALL"]),
            *([(cls("name", consistent="person"), names[:2])] if installed("faker") else []),
        ]


@lru_cache(maxsize=32)
def _provider(locale: str) -> Any:
    """Faker's generator of a locale."""
    faker = needs("faker", "spans")
    try:
        return faker.Factory.create(locale)
    except (AttributeError, ValueError) as error:
        raise MechanismError(
            f"Faker has no locale {locale!r} ({type(error).__name__}); such as de_DE or fr_FR."
        ) from None
