"""Identifiers: new digits and letters in the format of the original, with right check digits if it had right ones.

Proof: :mod:`textpriv.spans.laws.redrawn`. The public law is uniform over the strings of a format or, for an original
that passes a public check, over those that pass it. Strings are drawn until one passes, at most 10,000 times; after
those it is the mask. The check digits of an IBAN are computed for each string, so that what is left to pass is a
country's own check. Nothing depends on the original but its structure: where digits, capitals, small letters and
marks are, with which prefix of a public list it begins, and whether it passes. What passes may be somebody's number.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError, installed, needs
from textpriv.spans.laws.base import LARGEST_LIST, SpanClaim, SpanLaw
from textpriv.spans.laws.redrawn import RedrawnLaw

__all__ = ["Identifier"]

_ALPHABETS = {"9": digits, "A": ascii_uppercase, "a": ascii_lowercase}
_READ = re.compile(r"[0-9A-Za-z ./()+:#_-]{1,64}")
_TRIES = 10_000


class Formatted(NamedTuple):
    """An original as this law sees it: its digits and letters, and its structure.

    Attributes
    ----------
    number : str
    format : str
        9 for a digit, A for a capital, a for a small letter, and marks.
    prefix : str
        Of the public list; the format is that of what follows.
    passes : bool
        Whether there is a check and the original passes it.
    """

    number: str
    format: str
    prefix: str = ""
    passes: bool = False


class Identifier(RedrawnLaw):
    """A number or code of the same format.

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

    Examples
    --------
    >>> law = Identifier(prefixes=["MRN-"])
    >>> law.parse("MRN-07-b3"), law.parse("somebody@example.org")
    (Formatted(number='07b3', format='99-a9', prefix='MRN-', passes=False), None)
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
        if re.fullmatch(r"[A-Z]{2}", region) is None:
            raise MechanismError(
                f"region is a country as ISO 3166 writes it, such as 'DE'; got {region!r}."
            )
        _ = self._passes, self._prefixes

    @cached_property
    def _prefixes(self) -> list[str]:
        """Beginnings that are kept, the longest first."""
        if self.prefixes is not None:
            return _longest_first(set(self.prefixes))
        if self.check == "phone":
            codes = needs("phonenumbers", "spans").COUNTRY_CODE_TO_REGION_CODE
            return _longest_first({f"+{code}" for code in codes})
        if self.check == "iban":
            countries = needs("stdnum.numdb", "spans").get("iban")
            letters = (first + second for first in ascii_uppercase for second in ascii_uppercase)
            return [each for each in letters if countries.info(each)[0][1]]
        return []

    @cached_property
    def _passes(self) -> Callable[[str], bool]:
        """The check; without one nothing passes."""
        if self.check is None:
            return lambda text: False
        if self.check == "phone":
            return self._is_phone
        needs("stdnum", "spans")
        if re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)*", self.check):
            try:
                valid = needs(f"stdnum.{self.check}", "spans").is_valid
                return lambda text: bool(valid(re.sub(r"[ -]", "", text)))
            except (ModuleNotFoundError, AttributeError):
                pass
        raise MechanismError(
            f"check is 'phone' or a module of python-stdnum, such as luhn, iban or us.ssn; got {self.check!r}."
        )

    def _is_phone(self, text: str) -> bool:
        phonenumbers = needs("phonenumbers", "spans")
        try:
            return bool(phonenumbers.is_valid_number(phonenumbers.parse(text, self.region)))
        except phonenumbers.NumberParseException:
            return False

    def parse(self, text: str) -> Formatted | None:
        """Read the format of a surface of digits, letters and some marks; None for anything else."""
        text = text.strip()
        if _READ.fullmatch(text) is None:
            return None
        prefix = next((each for each in self._prefixes if text.startswith(each)), "")
        body = text[len(prefix) :]
        number = "".join(each for each in body if each.isalnum())
        if not number:
            return None
        return Formatted(number, "".join(map(_symbol, body)), prefix, self._passes(text))

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
        if count > LARGEST_LIST:
            raise MechanismError(f"the format has {count:,} strings, too many for a list.")
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
        form = "where their digits, letters and marks stand"
        if self._prefixes:
            form += ", and with which prefix of a public list they begin"
        law, visible = "identifier of the same format", [form]
        if self.check:
            law += f" that passes {self.check} if the original does"
            visible.append(f"whether they pass {self.check}")
        return self._claim(law, tuple(visible))

    @classmethod
    def trials(cls) -> list[tuple[SpanLaw, list[str]]]:
        """Short codes, with a prefix, consistent, and with a check digit if python-stdnum is installed."""
        return [
            (cls(prefixes=["K-"]), ["K-12", "K-99", "1a", "7z", "4"]),
            (cls(consistent="person"), ["1-1", "1-2", "9-0"]),
            *([(cls("luhn"), ["18", "26", "27", "45"])] if installed("stdnum") else []),
        ]


def _longest_first(prefixes: set[str]) -> list[str]:
    return sorted(prefixes, key=lambda each: (-len(each), each))


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
    """An IBAN with its third and fourth characters computed from the others."""
    places = [place for place, character in enumerate(iban) if character.isalnum()][2:4]
    characters = list(iban)
    check_digits = needs("stdnum.iban", "spans").calc_check_digits(iban)
    for place, digit in zip(places, check_digits, strict=True):
        characters[place] = digit
    return "".join(characters)
