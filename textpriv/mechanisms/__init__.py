"""Mechanisms, one a file, and the registry by which pipelines and commands find them.

A registered function takes a mechanism's settings and returns a callable that makes the mechanism over an index. Other
distributions add theirs by the entry point group ``textpriv_mechanisms``. The mechanisms themselves are imported when
they are first used, since every spaCy pipeline of the environment imports this registry.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import catalogue

if TYPE_CHECKING:
    from textpriv.mechanisms.balanced import BalancedTEM
    from textpriv.mechanisms.base import UNKNOWN, Mechanism
    from textpriv.mechanisms.madlib import Madlib
    from textpriv.mechanisms.permute_and_flip import PermuteAndFlip
    from textpriv.mechanisms.smoothed import SmoothedTEM
    from textpriv.mechanisms.tem import TEM

__all__ = [
    "TEM",
    "UNKNOWN",
    "BalancedTEM",
    "Madlib",
    "Mechanism",
    "PermuteAndFlip",
    "SmoothedTEM",
    "registry",
]

registry = catalogue.create("textpriv", "mechanisms", entry_points=True)

_HOME = {
    "BalancedTEM": "balanced",
    "Madlib": "madlib",
    "Mechanism": "base",
    "PermuteAndFlip": "permute_and_flip",
    "SmoothedTEM": "smoothed",
    "TEM": "tem",
    "UNKNOWN": "base",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'textpriv.mechanisms' has no attribute {name!r}")
    value = getattr(import_module(f"textpriv.mechanisms.{_HOME[name]}"), name)
    globals()[name] = value
    return value
