"""Where typed spans stood and where they stand now, for carrying annotations over.

Old offsets tell of the private text: they are the owner's, and go into no release.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from textpriv.errors import SpanError
from textpriv.files import atomic_write
from textpriv.tokenization.batches import RawBatch
from textpriv.tokenization.detokenizer import PrivateTokens

__all__ = ["moved_spans", "write_owners_file"]


def moved_spans(raw: RawBatch, private: Sequence[PrivateTokens]) -> Iterator[dict[str, Any]]:
    """Yield each span of a batch with its offsets in the raw and in the private text.

    Parameters
    ----------
    raw : RawBatch
        As read by ``Privatizer.read_batch``.
    private : sequence of PrivateTokens
        As ``Privatizer.release`` gave them for it.

    Yields
    ------
    dict
        ``"document"`` (its number in the batch), ``"kind"``, ``"start"`` and ``"end"`` in characters of the raw text, and
        ``"private_start"`` and ``"private_end"`` in those of the private one.
    """
    if raw.spans is None or len(raw) != len(private):
        raise SpanError("this batch was read without spans, or the private tokens are of another.")
    before = iter(raw.spans.offsets.tolist())
    for document, tokens in enumerate(private):
        kinds, end = tokens.spans, 0
        for number, (word, space) in enumerate(zip(tokens.words, tokens.spaces, strict=True)):
            start, end = end, end + len(word) + space
            if number in kinds:
                first, last = next(before)
                yield {
                    "document": document,
                    "kind": kinds[number],
                    "start": first,
                    "end": last,
                    "private_start": start,
                    "private_end": start + len(word),
                }


def write_owners_file(path: str | os.PathLike[str], rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as JSON lines into a file that its owner alone can read (mode 0600), whole or not at all."""
    with atomic_write(Path(path)) as file:
        file.writelines(json.dumps(row).encode() + b"\n" for row in rows)
