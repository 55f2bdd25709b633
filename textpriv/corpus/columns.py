"""Rule for the columns beside the texts: which pass through, by ``--keep`` and ``--drop``."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["ColumnRule"]


@dataclass(frozen=True)
class ColumnRule:
    """Which columns beside the texts pass through; those that do are not protected.

    Attributes
    ----------
    keep
        Patterns (``*`` and ``?``) of the names that pass; None for all.
    drop
        Patterns of the names that do not, also where ``keep`` has them.
    new
        A column that first appears after the first 1,000 records ends the run (``"fail"``), unless ``keep`` or ``drop`` has
        it; ``"keep"`` lets it pass.
    """

    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    new: str = "fail"

    def passes(self, name: str) -> bool:
        """Return whether a column of this name passes."""
        return _passes(self, name)

    def decides(self, name: str) -> bool:
        """Return whether ``keep`` or ``drop`` decides about this column."""
        return self.keep is not None or matches(self.drop, name)

    @property
    def patterns(self) -> tuple[str, ...]:
        """All patterns but ``*``: that no column matches it cannot be a mistake."""
        return tuple(p for p in dict.fromkeys([*(self.keep or ()), *self.drop]) if p != "*")

    def matched(self, names: Collection[str]) -> list[str]:
        """Return those of the patterns that match at least one name."""
        return [p for p in self.patterns if any(fnmatch.fnmatchcase(name, p) for name in names)]


@lru_cache(maxsize=4096)
def _passes(rule: ColumnRule, name: str) -> bool:
    if matches(rule.drop, name):
        return False
    return rule.keep is None or matches(rule.keep, name)


def matches(patterns: Collection[str], name: str) -> bool:
    """Return whether any of the patterns matches a name."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
