"""Measures of what a mechanism does to text: recovery, decoding, and what can still be learned."""

from __future__ import annotations

from textpriv.errors import lazy_names

__all__ = ["Documents", "Task", "compare"]
__getattr__, _ = lazy_names(__name__, __file__)  # pandas and scikit-learn are extras


def __dir__() -> list[str]:
    return __all__
