"""Ledger: what each document and author has spent, and the randomness of each release."""

from __future__ import annotations

from textpriv.ledger.charges import Charge, Document, Release, Shared, Spent
from textpriv.ledger.ledger import Ledger
from textpriv.ledger.terms import Terms, settings_fingerprint

__all__ = [
    "Charge",
    "Document",
    "Ledger",
    "Release",
    "Shared",
    "Spent",
    "Terms",
    "settings_fingerprint",
]
