"""Identity of a document in a corpus: its name, or its own text and how many equal texts come before it.

The identity is the ``key`` of :meth:`textpriv.Privatizer.privatize`, so the document's random stream follows from it. Two
columns of texts are two documents. An edit of one unnamed record redraws that record only; equal texts of one run have
different numbers, so they are drawn independently. Under a kept run key, equal unnamed texts of two runs come out equal.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from textpriv.errors import CorpusError
from textpriv.randomness import framed

__all__ = ["Occurrences", "document_key", "refuse_repeated", "repeated_name", "unnamed_key"]


def document_key(column: str, document: str, *, salt: bytes = b"") -> bytes:
    """Return the key of a named document: the same text under it is drawn the same way.

    Parameters
    ----------
    column : str
        The name of the text column.
    document : str
        The document's name.
    salt : bytes
        Secret bytes of a run that is not to be repeated.

    Examples
    --------
    >>> document_key("body", "letter-1") == document_key("subject", "letter-1")
    False
    """
    name = document.encode("utf-8", "surrogatepass")
    return framed(column.encode("utf-8", "surrogatepass")) + b"d" + framed(name) + salt


def unnamed_key(column: str, text: str, occurrence: int = 1, *, salt: bytes = b"") -> bytes:
    """Return the key of a document without a name: its own text, and its number among equal texts, from 1."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    own = b"t" + digest + occurrence.to_bytes(8, "big")
    return framed(column.encode("utf-8", "surrogatepass")) + own + salt


class Occurrences:
    """Count how often a name or a text came before. Of each, 16 bytes of a keyed hash are kept: about 150 bytes in all."""

    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}
        self._secret = os.urandom(16)

    def count(self, text: str) -> int:
        """Return 1 for a text that is new, 2 for the second one, and so on."""
        content = text.encode("utf-8", "surrogatepass")
        mark = hashlib.blake2b(content, digest_size=16, key=self._secret).digest()
        self._seen[mark] = number = self._seen.get(mark, 0) + 1
        return number


def refuse_repeated(names: Iterable[object], column: str) -> None:
    """Refuse a name that two documents have.

    Raises
    ------
    CorpusError
        Names the row, not the document.
    """
    known = Occurrences()
    for row, name in enumerate(names):
        if name is not None and known.count(str(name)) > 1:
            raise repeated_name(f"row {row + 1}", column)


def repeated_name(document: str, column: str) -> CorpusError:
    """Return the error for a document with the name of one before it."""
    return CorpusError(
        f"{document}: a document before it has the same name in {column!r}, and equal texts under one name would come out "
        "equal, and so betray that they are. Give each document a name of its own, or count versions of one in a ledger."
    )
