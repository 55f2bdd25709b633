"""Token classes, and what is released for each.

A policy decides, for every class of token: the mechanism draws a replacement, a mask replaces it, it is left out, or it is
released as written. The statement names every class that is not drawn as not protected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from textpriv.errors import PolicyError

ACTIONS = ("sample", "mask", "drop", "keep")
MASK = "[MASK]"
LOWERED = (
    "The text is lower-cased (str.lower) before it is tokenized, so casing changes neither the released words nor their "
    "number"
)
SPLIT = 'spaCy splits words such as "well-known" into tokens. Each token is protected, but their number is not hidden'


class TokenClass(NamedTuple):
    """A class of tokens: how spaCy knows one, and what options, statements and pages say of it."""

    feature: str  # of spaCy's tokens; words outside the vocabulary have none
    title: str  # of one token
    several: str
    kept: str  # what shows if the class is released as written, or in lower case
    masked: str
    dropped: str


# All classes by their names, in the order of their codes. Each is also a field of TokenPolicy and of the command's options.
TOKEN_CLASSES = {
    "unknown": TokenClass(
        "",
        "word outside the vocabulary",
        "words outside the vocabulary",
        "words outside the vocabulary, released {cased}",
        "which words are outside the vocabulary (masked)",
        "how many words are in the vocabulary (others are left out)",
    ),
    "number": TokenClass(
        "like_num",
        "number",
        "numbers",
        "numbers, released {cased}",
        "which words are numbers (masked)",
        "how many words are not numbers (numbers are left out)",
    ),
    "punctuation": TokenClass(
        "is_punct",
        "punctuation",
        "punctuation",
        "punctuation, and emoticons made of it such as :) or :-(, released as written",
        "the places of punctuation and of emoticons made of it (masked)",
        "how many tokens are neither punctuation nor emoticons made of it (both are left out)",
    ),
    "space": TokenClass(
        "is_space",
        "blank",
        "line breaks and runs of spaces",
        "line breaks and the places of extra blanks",
        "the places of line breaks and extra blanks (masked)",
        "how many tokens are not blanks (blanks are left out)",
    ),
    "stopword": TokenClass(
        "is_stop",
        "stop word",
        "words such as 'the'",
        "stop words, released {cased}",
        "which words are stop words (masked)",
        "how many words are not stop words (stop words are left out)",
    ),
}
CLASSES = tuple(TOKEN_CLASSES)
FIRST_FIT = ("space", "punctuation", "number", "stopword")  # a token is of the first that fits


@dataclass(frozen=True)
class TokenPolicy:
    """Action for each class of token: unknown words, numbers, punctuation, spaces, stop words, case.

    Every class takes ``"sample"`` (a draw of the mechanism), ``"mask"`` (the token ``[MASK]``), ``"drop"`` (nothing) or
    ``"keep"`` (the token as written). A token belongs to the first of these classes that fits: space, punctuation,
    number, stop word, word of the vocabulary, unknown. Words of the vocabulary are always sampled.

    Attributes
    ----------
    unknown : str
        Words outside the vocabulary. "sample" draws from the prior: the same output distribution for all.
    number : str
        Tokens that look like a number, also in words.
    punctuation : str
        Tokens of punctuation marks only, emoticons such as ``:)`` and ``:-(`` among them.
    space : str
        Line breaks and extra blanks. Kept ones are reduced to one blank, one line break or two.
    stopword : str
        The language's stop words.
    case : {"lower", "keep"}
        "lower" reads the text in lower case: it is lowered before it is tokenized, so that neither a token nor
        their number depends on casing, and what is kept comes out in lower case. "keep" reads it as written: words that
        differ in casing are different words, and the number of tokens may show casing.

    Raises
    ------
    PolicyError
        For an unknown action or case.
    """

    unknown: str = "sample"
    number: str = "sample"
    punctuation: str = "keep"
    space: str = "keep"
    stopword: str = "sample"
    case: str = "lower"

    def __post_init__(self) -> None:
        for name in CLASSES:
            action = getattr(self, name)
            if action not in ACTIONS:
                raise PolicyError(
                    f"unknown action {action!r} for {name} tokens; use one of: {', '.join(ACTIONS)}."
                )
        if self.case not in ("lower", "keep"):
            raise PolicyError(f"unknown case {self.case!r}; use 'lower' or 'keep'.")

    @classmethod
    def of(cls, choices: Mapping[str, str]) -> TokenPolicy:
        """Return the policy of some choices by class, as settings hold them."""
        for name in choices:
            if name not in (*CLASSES, "case"):
                raise PolicyError(f"no class {name!r}; there are {', '.join(CLASSES)} and case.")
        return cls(**choices)

    def to_dict(self) -> dict[str, str]:
        """Return the choices by class."""
        return asdict(self)

    def __repr__(self) -> str:
        usual = TokenPolicy.__dataclass_fields__
        given = (f"{k}={v!r}" for k, v in self.to_dict().items() if v != usual[k].default)
        return f"TokenPolicy({', '.join(given)})"

    def not_protected(self) -> tuple[str, ...]:
        """What stays visible under this policy, in plain words."""
        exposed = ["the number and order of documents, and of the tokens of each"]
        cased = "in lower case" if self.case == "lower" else "as written"
        for name, each in TOKEN_CLASSES.items():
            shown = {"keep": each.kept, "mask": each.masked, "drop": each.dropped}
            if (action := getattr(self, name)) in shown:
                exposed.append(shown[action].format(cased=cased))
        return tuple(exposed)

    def notes(self) -> tuple[str, ...]:
        """How the guarantee reads under this policy."""
        notes = [LOWERED] if self.case == "lower" else []
        notes.append(SPLIT)
        if self.unknown == "sample":
            notes.append(
                "All words outside the vocabulary have the same output distribution. That a word is one of them is hidden "
                "only up to the worst-case odds"
            )
        return tuple(notes)
