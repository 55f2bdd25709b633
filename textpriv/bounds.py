"""Moved to ``textpriv.statement``."""

from textpriv.statement import at_least as at_least
from textpriv.statement import at_most as at_most
from textpriv.statement import factor_in_words as factor_in_words
from textpriv.statement import odds_in_words as odds_in_words
