"""Ledger: what each document and author has spent, and the randomness of each release."""

from __future__ import annotations

from textpriv.ledger.ledger import Charge, Document, Ledger, Release, Spent
from textpriv.ledger.terms import Terms, settings_fingerprint

__all__ = ["Charge", "Document", "Ledger", "Release", "Spent", "Terms", "settings_fingerprint"]
