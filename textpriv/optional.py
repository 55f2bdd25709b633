"""Moved to ``textpriv.errors``."""

from textpriv.errors import how_to_install as how_to_install
from textpriv.errors import installed as installed
from textpriv.errors import needs as needs
