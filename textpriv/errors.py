"""The errors a user can meet, one class a kind.

Every message says what was expected, what was found and what to do, and never quotes a private text. The command line
turns these, and only these, into a short message and exit code 1, or 2 where 1 is what a command finds. Programming
mistakes stay ordinary exceptions.
"""

from __future__ import annotations

import warnings

__all__ = [
    "CorpusError",
    "DocumentError",
    "IndexFolderError",
    "LedgerError",
    "LimitError",
    "MechanismError",
    "MetricError",
    "PolicyError",
    "RawTextError",
    "SpanError",
    "TextprivError",
    "VocabularyError",
]


class TextprivError(ValueError):
    """Base class: something the user gave cannot be used as it is."""


class VocabularyError(TextprivError):
    """Words, vectors or a prior that cannot form a vocabulary."""


class MetricError(TextprivError):
    """A distance that is not a metric, or does not fit the vectors."""


class IndexFolderError(TextprivError):
    """An index folder that is missing, truncated, altered, too new, or built otherwise than asked."""


class MechanismError(TextprivError):
    """A parameter for which the mechanism has no guarantee or no meaning."""


class OutOfReachError(MechanismError):
    """A protection that no epsilon gives under some settings; the message says what they reach."""


class PolicyError(TextprivError):
    """A token policy with an unknown class or action."""


class RawTextError(TextprivError):
    """A spaCy pipeline that would pass raw words on: saved with it, or as if they were private."""


class CorpusError(TextprivError):
    """A corpus file or record that cannot be read or written."""


class DocumentError(TextprivError):
    """Something about one of several documents.

    Attributes
    ----------
    position : int or None
        Position of the document among those that were given together.
    """

    position: int | None = None

    def named(self, name: str) -> DocumentError:
        """Return the same error with the name of the document before it."""
        return type(self)(f"{name}: {self}")


class SpanError(DocumentError):
    """Spans of a text, a detector or a policy of spans that cannot be used."""


class LedgerError(DocumentError):
    """A ledger that cannot be used, or a release that it cannot count."""

    @property
    def place(self) -> int | None:
        """The former name of ``position``, deprecated."""
        warnings.warn("place is called position now.", DeprecationWarning, stacklevel=2)
        return self.position


class LimitError(LedgerError):
    """A release that would pass a limit; it was neither drawn nor counted."""
