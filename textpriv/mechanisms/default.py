"""The default mechanism: what draws where nobody names another."""

from __future__ import annotations

from typing import Any

DEFAULT_PRIORS = {"tem": "uniform", "tree": "full"}  # by the short name of the mechanism


def default_name(index: Any) -> str:
    """Return the short name of the mechanism of an index where none is named: TreeTEM over a tree, else TEM."""
    return "tree" if getattr(index, "space", None) == "tree" else "tem"
