"""Private text: every released word is drawn by a mechanism with a proved metric-differential-privacy guarantee.

The names a user meets first. Everything is loaded when it is first used, so that importing the package stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textpriv import metrics, randomness
    from textpriv.errors import TextprivError
    from textpriv.guarantees.certificate import Certificate, certify
    from textpriv.guarantees.epsilon import eps_from_odds, epsilon_for
    from textpriv.index.index import Index
    from textpriv.ledger.ledger import Document, Ledger
    from textpriv.mechanisms import TEM, BalancedTEM, Madlib, PermuteAndFlip, SmoothedTEM
    from textpriv.privatizer import Privatizer
    from textpriv.statement import PrivacyStatement, UnsoundWarning
    from textpriv.tokenization.policy import TokenPolicy
    from textpriv.vocabulary.vocabulary import Vocabulary
    from textpriv.web.render import render

__version__ = "0.1.0"

__all__ = [
    "TEM",
    "BalancedTEM",
    "Certificate",
    "Document",
    "Index",
    "Ledger",
    "Madlib",
    "PermuteAndFlip",
    "PrivacyStatement",
    "Privatizer",
    "SmoothedTEM",
    "TextprivError",
    "TokenPolicy",
    "UnsoundWarning",
    "Vocabulary",
    "__version__",
    "certify",
    "eps_from_odds",
    "epsilon_for",
    "metrics",
    "randomness",
    "render",
]

_HOME = {
    "Document": "textpriv.ledger",
    "Ledger": "textpriv.ledger",
    "Certificate": "textpriv.guarantees.certificate",
    "certify": "textpriv.guarantees.certificate",
    "TEM": "textpriv.mechanisms",
    "BalancedTEM": "textpriv.mechanisms",
    "PermuteAndFlip": "textpriv.mechanisms",
    "SmoothedTEM": "textpriv.mechanisms",
    "Index": "textpriv.index",
    "Madlib": "textpriv.mechanisms",
    "PrivacyStatement": "textpriv.statement",
    "Privatizer": "textpriv.privatizer",
    "TextprivError": "textpriv.errors",
    "TokenPolicy": "textpriv.tokenization.policy",
    "UnsoundWarning": "textpriv.statement",
    "Vocabulary": "textpriv.vocabulary",
    "eps_from_odds": "textpriv.guarantees.epsilon",
    "epsilon_for": "textpriv.guarantees.epsilon",
    "render": "textpriv.web.render",
}
_MODULES = ("metrics", "randomness")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(f"textpriv.{name}")
    else:
        raise AttributeError(f"module 'textpriv' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
