"""Mechanisms, one a file, and the registry by which pipelines and commands find them.

A registered function takes a mechanism's settings and returns a callable that makes the mechanism over an index. Other
distributions add theirs by the entry point group ``textpriv_mechanisms``.
"""

from __future__ import annotations

import catalogue

from textpriv.mechanisms.madlib import Madlib
from textpriv.mechanisms.mechanism import UNKNOWN, Mechanism
from textpriv.mechanisms.tem import TEM

__all__ = ["TEM", "UNKNOWN", "Madlib", "Mechanism", "registry"]

registry = catalogue.create("textpriv", "mechanisms", entry_points=True)
