"""Which columns of a record stay beside the text: how names are matched by ``--keep`` and ``--drop``.

Nothing here reads or writes a record.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["ColumnRule"]


@dataclass(frozen=True)
class ColumnRule:
    """Which columns beside the text pass through; those that do are not protected.

    Attributes
    ----------
    keep
        Patterns (``*`` and ``?``) of the names that pass; None for all.
    drop
        Patterns of the names that do not, also where ``keep`` has them.
    """

    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()

    def passes(self, name: str) -> bool:
        """Return whether a column of this name passes."""
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.drop):
            return False
        return self.keep is None or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.keep)

    @property
    def patterns(self) -> tuple[str, ...]:
        """All patterns, but for ``*``: that no name is meant by it cannot be a mistake."""
        given = dict.fromkeys([*(self.keep or ()), *self.drop])
        return tuple(pattern for pattern in given if pattern != "*")

    def matched(self, names: Collection[str]) -> list[str]:
        """Return those of these patterns that match at least one name."""
        return [p for p in self.patterns if any(fnmatch.fnmatchcase(name, p) for name in names)]

    @property
    def passes_all(self) -> bool:
        """Whether nothing is dropped, whatever it is called."""
        return self.keep is None and not self.drop
