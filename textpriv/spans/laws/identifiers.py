"""Identifiers: digits and letters are drawn anew in the format of the original, until the check digits are right.

Proof: :mod:`textpriv.spans.laws.redrawn`; the public law is uniform over the strings of a format that pass a public check,
drawn by rejection: uniform over all strings of the format until one passes, 10,000 times at most; after those it is
the mask. The check digits of an IBAN are computed for each string that is drawn, so that what is left to pass is a country's
own check. Nothing of it depends on the original but its format: where digits, capitals, small letters and marks stand, and
with which prefix of a public list it begins. The format is structure. What passes the check may be somebody's number.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.optional import installed, needs
from textpriv.spans.laws.base import LARGEST_LIST, SpanClaim, SpanLaw
from textpriv.spans.laws.redrawn import RedrawnLaw

__all__ = ["Identifier"]

_ALPHABETS = {"9": digits, "A": ascii_uppercase, "a": ascii_lowercase}
_READ = re.compile(r"[0-9A-Za-z ./()+:#_-]{1,64}")
_TRIES = 10_000


class Formatted(NamedTuple):
    """An original as this law sees it.

    Attributes
    ----------
    number : str
        Its digits and letters.
    format : str
        9 for a digit, A for a capital, a for a small letter, and marks.
    prefix : str
        Of the public list; the format is that of what follows.
    """

    number: str
    format: str
    prefix: str = ""


class Identifier(RedrawnLaw):
    """A number or code of the same format.

    Parameters
    ----------
    check : str, optional
        What must pass: "phone" (``phonenumbers``), or a module of ``python-stdnum`` such as "luhn" for cards, "iban" or
        "us.ssn". An original that does not pass is not read. Default: no check.
    prefixes : sequence of str
        Beginnings that are kept as structure, the longest that fits: "+49", "MRN-". Default: for "iban" countries, for
        "phone" calling codes after a plus, else none.
    region : str
        The country (ISO 3166) of phone numbers without a calling code.
    consistent : "document", "person" or None
        Where equal originals get the same identifier.
    kind : str, optional

    Examples
    --------
    >>> law = Identifier(prefixes=["MRN-"])
    >>> law.parse("MRN-07-b3"), law.parse("somebody@example.org")
    (Formatted(number='07b3', format='99-a9', prefix='MRN-'), None)
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
        self._given = (
            None if prefixes is None else sorted(set(prefixes), key=lambda e: (-len(e), e))
        )
        if not isinstance(region, str) or not re.fullmatch(r"[A-Z]{2}", region):
            raise MechanismError(
                f"region is a country as ISO 3166 writes it, such as 'DE'; got {region!r}."
            )
        if check is not None and not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)*", check):
            raise MechanismError(
                f"check is 'phone' or a module of stdnum such as 'luhn'; got {check!r}."
            )
        _ = self._passes, self.prefixes

    @cached_property
    def prefixes(self) -> list[str]:
        """Beginnings that are kept, the longest first."""
        if self._given is not None:
            return self._given
        if self.check == "phone":
            codes = needs("phonenumbers", "spans").COUNTRY_CODE_TO_REGION_CODE
            return sorted((f"+{code}" for code in codes), key=lambda e: (-len(e), e))
        if self.check == "iban":
            countries = needs("stdnum.numdb", "spans").get("iban")
            letters = (first + second for first in ascii_uppercase for second in ascii_uppercase)
            return [each for each in letters if countries.info(each)[0][1]]
        return []

    @cached_property
    def _passes(self) -> Callable[[str], bool] | None:
        if self.check is None:
            return None
        if self.check == "phone":
            return _phone(needs("phonenumbers", "spans"), self.region)
        needs("stdnum", "spans")
        try:
            module = needs(f"stdnum.{self.check}", "spans")
            valid = module.is_valid
        except (ModuleNotFoundError, AttributeError):
            raise MechanismError(
                f"python-stdnum has no check {self.check!r}; such as luhn, iban, us.ssn or nl.bsn."
            ) from None
        if self.check == "luhn":
            return lambda text: bool(valid(re.sub(r"[ -]", "", text)))
        return lambda text: bool(valid(text))

    def parse(self, text: str) -> Formatted | None:
        """The format of a surface of digits, letters and some marks, with the right check digits; else None."""
        text = text.strip()
        if _READ.fullmatch(text) is None or (self._passes is not None and not self._passes(text)):
            return None
        prefix = next((each for each in self.prefixes if text.startswith(each)), "")
        body = text[len(prefix) :]
        form = "".join(_symbol(each) for each in body)
        number = "".join(each for each in body if each.isalnum())
        return Formatted(number, form, prefix) if number else None

    def _one(self, structure: tuple[str, str], source: random.Random) -> str:
        form, prefix = structure
        count = _count(form)
        for _ in range(_TRIES):
            surface = prefix + _filled(form, source.randrange(count))
            if self.check == "iban":
                surface = _with_check_digits(surface)
            if self._passes is None or (self._passes(surface) and surface.startswith(prefix)):
                return surface
        return f"[{self.kind}]"

    def _all(self, structure: Any) -> list[str]:
        form, prefix = structure
        if _count(form) > LARGEST_LIST:
            raise MechanismError(f"the format has {_count(form):,} strings, too many for a list.")
        return [prefix + _filled(form, number) for number in range(_count(form))]

    def outputs(self, structure: Hashable) -> Sequence[str]:
        """All strings of the format and, where they are checked, the mask."""
        return self._all(structure) + [f"[{self.kind}]"] * (self._passes is not None)

    def log_prob(self, value: Any) -> NDArray[np.float64]:
        """Uniform over the strings that pass; the mask is as likely as that no try passes."""
        surfaces = self._all(self.structure(value))
        if self._passes is None:
            return np.full(len(surfaces), -math.log(len(surfaces)))
        passes = np.array([self._passes(each) for each in surfaces])
        share = passes.mean()
        failed = math.exp(_TRIES * math.log1p(-share)) if share < 1 else 0.0
        rates = np.append(passes * (1 - failed) / passes.sum(), failed)
        with np.errstate(divide="ignore"):
            return np.log(rates)

    def claim(self) -> SpanClaim:
        """A loss of 0; the format is visible."""
        first = ", and with which prefix of a public list they begin" if self.prefixes else ""
        passing = f" that passes {self.check}" if self.check else ""
        return self._claim(
            f"identifier of the same format{passing}",
            (f"where their digits, letters and marks stand{first}",),
        )

    def _public(self) -> dict[str, Any]:
        return {"check": self.check, "prefixes": self._given, "region": self.region}

    @classmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """Short codes, with a prefix, consistent, and with a check digit where python-stdnum is installed."""
        return [
            (cls(prefixes=["K-"]), ["K-12", "K-99", "1a", "7z", "4"]),
            (cls(consistent="person"), ["1-1", "1-2", "9-0"]),
            *([(cls("luhn"), ["18", "26"])] if installed("stdnum") else []),
        ]


def _symbol(character: str) -> str:
    for symbol, alphabet in _ALPHABETS.items():
        if character in alphabet:
            return symbol
    return character


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
    """An IBAN with its third and fourth characters computed from the others, wherever its blanks are."""
    places = [place for place, character in enumerate(iban) if character.isalnum()][2:4]
    digits = needs("stdnum.iban", "spans").calc_check_digits(iban)
    characters = list(iban)
    for place, digit in zip(places, digits, strict=True):
        characters[place] = digit
    return "".join(characters)


def _phone(phonenumbers: Any, region: str) -> Callable[[str], bool]:
    def passes(text: str) -> bool:
        try:
            return bool(phonenumbers.is_valid_number(phonenumbers.parse(text, region)))
        except phonenumbers.NumberParseException:
            return False

    return passes
