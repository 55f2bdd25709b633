"""Plain text: each line is one document.

Blank lines are documents too. What all formats share is in ``corpus.records``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from textpriv.corpus.records import CorpusReader, Format, RecordError, RecordWriter, concatenate

__all__ = ["FORMAT"]


class _TextReader(CorpusReader):
    """Read lines."""

    format = "text"

    def _records(self, stream: BinaryIO) -> Iterator[tuple[str, Any] | RecordError | None]:
        return self.line_records(stream, self._parse_line, self.max_text_bytes, skips_blank=False)

    def _parse_line(self, line: str) -> tuple[str, Any]:
        return line.removesuffix("\n").removesuffix("\r"), None


class _TextWriter(RecordWriter):
    """Write lines."""

    def _record(self, row: Any, texts: Sequence[str]) -> bytes:
        # One document a line is the format, so a released line break becomes a space.
        return texts[0].replace("\r", " ").replace("\n", " ").encode("utf-8") + b"\n"


FORMAT = Format("text", (".txt", ".text"), _TextReader, _TextWriter, concatenate)
