"""Ledger: what each document and author has spent, and the randomness of each release."""

from __future__ import annotations

from textpriv.ledger.charges import Charge, Document, Shared, Spent, Terms, settings_fingerprint
from textpriv.ledger.ledger import Ledger

__all__ = ["Charge", "Document", "Ledger", "Shared", "Spent", "Terms", "settings_fingerprint"]
