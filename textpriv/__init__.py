"""Private text: every released word is drawn by a mechanism with a proved metric-differential-privacy guarantee.

The public names stand in ``__init__.pyi``, where type checkers read them; each is loaded when it is first used, so that
importing the package stays fast.
"""

from __future__ import annotations

from textpriv.errors import lazy_names

__version__ = "0.1.0"

__getattr__, _names = lazy_names(__name__, __file__)
__all__ = sorted([*_names, "__version__"])


def __dir__() -> list[str]:
    return list(__all__)
