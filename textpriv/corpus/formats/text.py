"""Plain text: each line is one document, a blank one too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from textpriv.corpus.records import MAX_TEXT_BYTES, LineReader, Parsed, RecordError, RecordWriter

__all__ = ["READER", "WRITER"]


class _TextReader(LineReader):
    """Read lines."""

    format = "text"

    def records(self, stream: BinaryIO) -> Iterator[Parsed | RecordError | None]:
        return self.line_records(stream, self._parse, MAX_TEXT_BYTES, skips_blank=False)

    def _parse(self, line: str) -> Parsed:
        return self.reading.checked([line.removesuffix("\n").removesuffix("\r")]), None


class _TextWriter(RecordWriter):
    """Write lines."""

    def record(self, row: Any, texts: Sequence[str | None]) -> bytes:
        # One document a line is the format, so a released line break becomes a blank.
        return (texts[0] or "").replace("\r", " ").replace("\n", " ").encode("utf-8") + b"\n"


READER, WRITER = _TextReader, _TextWriter
