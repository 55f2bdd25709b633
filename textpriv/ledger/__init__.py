"""Ledger: what each document and author has spent, and the randomness of each release."""

from __future__ import annotations

from textpriv.ledger.charges import Charge, DocumentName, Shared, Spent, Terms, settings_fingerprint
from textpriv.ledger.ledger import Ledger

__all__ = ["Charge", "DocumentName", "Ledger", "Shared", "Spent", "Terms", "settings_fingerprint"]
