"""Mechanisms that do not look at the original: masks, surrogates from public lists, identifiers of the same format.

Within a scope (a document, or all texts of a person) a surface is a secret function of the kind and the value. Equality is
visible then, and stated.
"""

from __future__ import annotations

import contextlib
import math
import random
import re
import threading
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property, lru_cache
from importlib import import_module
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError, installed, needs
from textpriv.randomness import RandomWords
from textpriv.spans.mechanisms.base import Scopes, SpanClaim, SpanMechanism

# Of Faker's sources, those that depend on nothing but random numbers.
SOURCES = (
    *("name", "first_name", "last_name", "city", "country", "company", "street_address"),
    *("address", "safe_email", "url", "user_name", "job"),
)
_one_at_a_time = threading.Lock()  # a provider reads from one stream at a time
_ALPHABETS = {"9": digits, "A": ascii_uppercase, "a": ascii_lowercase}
_SYMBOLS = {ord(each): symbol for symbol, alphabet in _ALPHABETS.items() for each in alphabet}
_TITLES = {"mr": "he", "sir": "he", **dict.fromkeys(("mrs", "ms", "miss", "madam"), "she")}
_TITLES |= {"dr": "", "prof": ""}
_READ = re.compile(r"[0-9A-Za-z ./()+:#_-]{1,64}")
_TRIES = 10_000


class _StreamRandom(random.Random):
    """Python's interface to random numbers over a stream of random words."""

    def __init__(self, stream: RandomWords) -> None:
        super().__init__(0)
        self._stream = stream

    def getrandbits(self, k: int, /) -> int:
        """Return a uniform whole number of k bits."""
        words = self._stream.words(-(-k // 64)).astype("<u8")
        return int.from_bytes(words.tobytes(), "little") >> (-k % 64)

    def random(self) -> float:
        """Return a uniform multiple of 2^-53 in [0, 1)."""
        return self.getrandbits(53) * 2.0**-53


class _Redrawn(SpanMechanism):
    """A public distribution of surfaces. The first field of a value is a text that distinguishes it from others."""

    def __init__(
        self, consistent: Literal["document", "person"] | None, kind: str | None = None
    ) -> None:
        super().__init__(kind)
        if consistent not in (None, "document", "person"):
            raise MechanismError(
                f"consistent is 'document', 'person' or left out; got {consistent!r}."
            )
        self.scope = self.consistent = consistent

    @abstractmethod
    def _one(self, structure: Any, source: random.Random) -> str:
        """Draw a surface from the public distribution of a structure."""

    def draw(
        self, values: Sequence[Any], stream: RandomWords, scopes: Scopes | None = None
    ) -> list[str]:
        """Draw a surface for each; the document's stream is read only if nothing is consistent."""
        if self.scope is None:
            source = _StreamRandom(stream)
            return [self._one(value[1:], source) for value in values]
        assert scopes is not None
        label = f"{self.name} {self.settings()!r} ".encode()
        drawn = {}
        distinct = self._distinct(values)
        for value in dict.fromkeys(distinct):
            name = label + value[0].encode("utf-8", "surrogatepass")
            drawn[value] = self._one(value[1:], _StreamRandom(scopes.stream(self.scope, name)))
        return [drawn[value] for value in distinct]

    def _distinct(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values by which surfaces are equal within a scope."""
        return values

    def loss(self, first: Any, second: Any) -> float:
        """Nothing between values of one structure."""
        return 0.0 if first[1:] == second[1:] else math.inf

    def joint_loss(self, first: Sequence[Any], second: Sequence[Any]) -> float:
        """Nothing between sequences of equal structures and, within a scope, of one pattern of equal values."""
        if self.scope is not None and self._pattern(first) != self._pattern(second):
            return math.inf
        return super().joint_loss(first, second)

    def _pattern(self, values: Sequence[Any]) -> list[int]:
        first: dict[str, int] = {}
        return [first.setdefault(value[0], len(first)) for value in self._distinct(values)]

    def log_prob(self, value: Any) -> NDArray[np.float64]:
        """Uniform over the outputs."""
        count = len(self.outputs(self.structure(value)))
        return np.full(count, -math.log(count))

    def _claim(self, mechanism: str, visible: Sequence[str] = ()) -> SpanClaim:
        how = f"consistent within a {self.scope}" if self.scope else "resampled for each span"
        if self.scope is not None:
            apart = "apart from case, blanks, marks and prefixes"
            visible = [*visible, f"which of a {self.scope} are equal, {apart}"]
        return SpanClaim(f"{mechanism}, {how}", 0.0, "span", 0.0, not_protected=tuple(visible))


class Mask(_Redrawn):
    """The mask of a kind: ``[KIND]`` for every span."""

    name = "mask"

    def __init__(self, kind: str | None = None) -> None:
        super().__init__(None, kind)

    def parse(self, text: str) -> tuple[str]:
        """Any surface; they all are one value."""
        return ("",)

    def _one(self, structure: Any, source: random.Random) -> str:
        return f"[{self.kind}]"

    def stays(self) -> dict[str, float]:
        """Never."""
        return {"": 0.0}

    def outputs(self, structure: Any) -> Sequence[str]:
        """The one surface."""
        return (f"[{self.kind}]",)

    def claim(self) -> SpanClaim:
        """A loss of 0."""
        return SpanClaim(f"mask of {self.kind}", 0.0, "span", 0.0)

    @classmethod
    def trials(cls) -> list[tuple[SpanMechanism, list[str]]]:
        """Two names under one mask."""
        return [(cls("PERSON"), ["Ann", "Bob Hall"])]


class Surrogate(_Redrawn):
    """A surrogate from a public list; two originals may get the same.

    Parameters
    ----------
    entries : sequence of str or str
        A list of your own, or one of ``SOURCES`` (extra ``spans``), whose names are those of the locale, such as "de_DE".
    consistent : "document", "person" or None
        Where equal originals, up to case, get the same surrogate. Within a document, so do the names of one person
        (of kind PERSON): see :func:`names_of_people`.
    kind : str, optional
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

    def parse(self, text: str) -> tuple[str] | None:
        """Any surface but an empty one, in lower case and without the width of its blanks."""
        name = " ".join(text.casefold().split())
        return (name,) if name else None

    @property
    def _knows_people(self) -> bool:
        return self.scope == "document" and self.kind == "PERSON"

    def _distinct(self, values: Sequence[Any]) -> Sequence[Any]:
        if not self._knows_people:
            return values
        person = names_of_people([name for (name,) in values])
        return [(person[name],) for (name,) in values]

    def _one(self, structure: Any, source: random.Random) -> str:
        if not isinstance(self.entries, str):
            return self.entries[source.randrange(len(self.entries))]
        provider = _provider(self.locale)
        with _one_at_a_time:
            provider.random = source
            return ", ".join(getattr(provider, self.entries)().split("\n"))

    def stays(self) -> dict[str, float]:
        """One of so many, for a list."""
        return {} if isinstance(self.entries, str) else {"": 1 / len(self.entries)}

    def outputs(self, structure: Any) -> Sequence[str]:
        """The list; a source has none."""
        if isinstance(self.entries, str):
            raise MechanismError("a source of surrogates has no list of all its outputs.")
        return self.entries

    def claim(self) -> SpanClaim:
        """A loss of 0."""
        visible = ["which are parts of one longer name of a text"] * self._knows_people
        source = f"Faker's {self.entries} of {self.locale}"
        if not isinstance(self.entries, str):
            source = f"a list of {len(self.entries):,}"
        return self._claim(f"surrogate from {source}", visible)

    def fingerprint(self) -> str:
        """Everything that decides, with a key, what is drawn: for a source, also the version of Faker."""
        own = super().fingerprint() + " people" * self._knows_people
        if not isinstance(self.entries, str):
            return own
        return f"{own} faker {needs('faker', 'spans').VERSION}"

    @classmethod
    def trials(cls) -> list[tuple[SpanMechanism, list[str]]]:
        """A short list in each scope, with equal names, and a source if Faker is installed."""
        entries, names = ["Kim", "Lee", "Ida Roe"], ["Ann", "Bob Hall", "ann", "Zoe"]
        return [
            (cls(entries), names),
            (cls(entries, consistent="document"), names),
            (cls(entries, consistent="person"), [*names, "BOB HALL"]),
            *([(cls("name", consistent="person"), names[:2])] if installed("faker") else []),
        ]


def names_of_people(names: Sequence[str]) -> dict[str, str]:
    """Map each name of a text, in lower case, to the name of its person.

    Titles such as "mr" do not count. A name is that of the one longest name that has all its words. It stays itself
    where several longest names have them, and where a person would be called both "mr" and "mrs".
    """
    words = {name: [each.strip(".,") for each in name.split()] for name in sorted({*names})}
    bare = {name: [each for each in own if each not in _TITLES] for name, own in words.items()}
    known = {frozenset(own): " ".join(own) for own in reversed(bare.values()) if own}
    longest = [each for each in known if not any(each < other for other in known)]
    person, called = dict[str, str](), dict[str, set[str]]()
    for name, own in bare.items():
        whole = [each for each in longest if own and each.issuperset(own)]
        person[name] = known[whole[0] if len(whole) == 1 else frozenset(own)] if own else name
        titles = {_TITLES[each] for each in words[name] if each in _TITLES}
        called.setdefault(person[name], set()).update(titles - {""})
    return {name: name if len(called[of]) > 1 else of for name, of in person.items()}


@lru_cache(maxsize=32)
def _provider(locale: str) -> Any:
    faker = needs("faker", "spans")
    try:
        return faker.Factory.create(locale)
    except (AttributeError, ValueError):
        raise MechanismError(f"Faker has no locale {locale!r}; such as de_DE.") from None


class Formatted(NamedTuple):
    """An original identifier: its digits and letters, and its structure."""

    number: str
    format: str  # after the prefix: 9 for a digit, A for a capital, a for a small letter, and marks
    prefix: str = ""  # of the public list
    passes: bool = False  # whether there is a check and the original passes it


class Identifier(_Redrawn):
    """A number or code of the same format, uniform over all or over those that pass a check.

    Strings are drawn until one passes, at most 10,000 times; after those it is the mask. The check digits of an IBAN are
    computed, so that what is left to pass is a country's own check.

    Parameters
    ----------
    check : str, optional
        What an original that passes is drawn to pass again: "phone" (``phonenumbers``), or a module of ``python-stdnum``
        such as "luhn" for cards, "iban" or "us.ssn".
    prefixes : sequence of str
        Beginnings that are kept, the longest that fits: "+49", "MRN-". Default: for "iban" countries, for "phone" calling
        codes after a plus, else none.
    region : str
        The country (ISO 3166) of phone numbers without a calling code.
    consistent : "document", "person" or None
        Where equal originals get the same identifier.
    kind : str, optional
    """

    name = "identifier"

    def __init__(
        self,
        check: str | None = None,
        prefixes: Sequence[str] | None = None,
        region: str = "US",
        consistent: Literal["document", "person"] | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(consistent, kind)
        self.check, self.region = check, region
        self.prefixes = None if prefixes is None else tuple(prefixes)
        self._library: Any = None
        if check == "phone":
            self._library = needs("phonenumbers", "spans")
        elif check is not None:
            needs("stdnum", "spans")
            with contextlib.suppress(ImportError):
                self._library = import_module(f"stdnum.{check}")
            if not hasattr(self._library, "is_valid"):
                raise MechanismError(
                    f"check is 'phone' or a module of python-stdnum, such as luhn, iban or us.ssn; got {check!r}."
                )

    @cached_property
    def _prefixes(self) -> list[str]:
        kept = set(self.prefixes or ())
        if self.prefixes is None and self.check == "phone":
            kept = {f"+{code}" for code in self._library.COUNTRY_CODE_TO_REGION_CODE}
        elif self.prefixes is None and self.check == "iban":
            countries = needs("stdnum.numdb", "spans").get("iban")
            letters = (first + second for first in ascii_uppercase for second in ascii_uppercase)
            kept = {each for each in letters if countries.info(each)[0][1]}
        return sorted(kept, key=lambda each: (-len(each), each))

    def _passes(self, text: str) -> bool:
        if self.check == "phone":
            try:
                number = self._library.parse(text, self.region)
            except self._library.NumberParseException:
                return False
            return bool(self._library.is_valid_number(number))
        return self.check is not None and bool(self._library.is_valid(re.sub("[ -]", "", text)))

    def parse(self, text: str) -> Formatted | None:
        """Read the format of a surface of digits, letters and some marks; None for anything else."""
        text = text.strip()
        if _READ.fullmatch(text) is None:
            return None
        prefix = next((each for each in self._prefixes if text.startswith(each)), "")
        body = text[len(prefix) :]
        number = "".join(filter(str.isalnum, body))
        if not number:
            return None
        return Formatted(number, body.translate(_SYMBOLS), prefix, self._passes(text))

    def _one(self, structure: tuple[str, str, bool], source: random.Random) -> str:
        form, prefix, passes = structure
        count = _count(form)
        for _ in range(_TRIES):
            surface = prefix + _filled(form, source.randrange(count))
            if passes and self.check == "iban":
                surface = _with_check_digits(surface)
            if not passes or (self._passes(surface) and surface.startswith(prefix)):
                return surface
        return f"[{self.kind}]"

    def outputs(self, structure: Any) -> Sequence[str]:
        """All strings of the format and, if they must pass, the mask."""
        form, prefix, passes = structure
        count = _count(form)
        return [prefix + _filled(form, n) for n in range(count)] + [f"[{self.kind}]"] * passes

    def log_prob(self, value: Any) -> NDArray[np.float64]:
        """Uniform over the strings that pass; the mask is as likely as that no try passes."""
        if not value.passes:
            return super().log_prob(value)
        surfaces = self.outputs(self.structure(value))[:-1]
        passing = np.array([self._passes(each) for each in surfaces])
        share = passing.mean()
        failed = math.exp(_TRIES * math.log1p(-share)) if share < 1 else 0.0
        with np.errstate(divide="ignore"):
            return np.log(np.append(passing * (1 - failed) / passing.sum(), failed))

    def claim(self) -> SpanClaim:
        """A loss of 0; the format is visible."""
        mechanism = "identifier of the same format"
        visible = ["the places of their digits, letters and marks"]
        if self._prefixes:
            visible[0] += ", and which prefix of a public list they have"
        if self.check:
            mechanism += f" that passes {self.check} if the original does"
            visible.append(f"whether they pass {self.check}")
        return self._claim(mechanism, visible)

    @classmethod
    def trials(cls) -> list[tuple[SpanMechanism, list[str]]]:
        """Short codes, with a prefix, consistent, and with a check digit if python-stdnum is installed."""
        return [
            (cls(prefixes=["K-"]), ["K-12", "K-99", "1a", "7z", "4"]),
            (cls(consistent="person"), ["1-1", "1-2", "9-0"]),
            *([(cls("luhn"), ["18", "26", "27", "45"])] if installed("stdnum") else []),
        ]


def _count(form: str) -> int:
    return math.prod(len(_ALPHABETS.get(symbol, "-")) for symbol in form)


def _filled(form: str, number: int) -> str:
    """The string of a format and of a whole number below their count."""
    characters = []
    for symbol in reversed(form):
        alphabet = _ALPHABETS.get(symbol, symbol)
        number, position = divmod(number, len(alphabet))
        characters.append(alphabet[position])
    return "".join(reversed(characters))


def _with_check_digits(iban: str) -> str:
    """An IBAN with its third and fourth characters computed from the others."""
    places = [place for place, character in enumerate(iban) if character.isalnum()][2:4]
    characters = list(iban)
    check_digits = needs("stdnum.iban", "spans").calc_check_digits(iban)
    for place, digit in zip(places, check_digits, strict=True):
        characters[place] = digit
    return "".join(characters)
