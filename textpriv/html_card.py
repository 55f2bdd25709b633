"""Moved to ``textpriv.statement``."""

from textpriv.statement import card as card
