"""Measures of what a mechanism does to text: recovery, decoding, and what can still be learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textpriv.evaluation.comparison import Documents, Task, compare

__all__ = ["Documents", "Task", "compare"]


def __getattr__(name: str) -> Any:
    # pandas and scikit-learn are extras.
    if name in __all__:
        from textpriv.evaluation import comparison

        return getattr(comparison, name)
    raise AttributeError(name)


def __dir__() -> list[str]:
    return __all__
