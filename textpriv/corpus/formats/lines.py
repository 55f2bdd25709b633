"""JSON lines and plain text: a record is one line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from textpriv.corpus.records import (
    LineReader,
    RecordError,
    RecordWriter,
    not_utf8,
    record_limit,
    too_large,
)

__all__ = ["FORMATS"]


class _TextReader(LineReader):
    """Read lines; each is a document, a blank one too."""

    format = "text"

    def units(self, lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
        return enumerate(lines, 1)

    def parse(self, unit: bytes) -> tuple[tuple[Any, ...], Any]:
        return self.reading.checked([_decoded(unit).removesuffix("\n").removesuffix("\r")]), None

    def spelled(self, row: Any) -> bytes | None:
        return row if isinstance(row, bytes) else _dumped(row)


class _JsonReader(_TextReader):
    """Read JSON objects, one a line, a field of which contains the text; blank lines are no records."""

    format = "jsonl"

    def units(self, lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
        return ((number, line) for number, line in enumerate(lines, 1) if line.strip())

    def parse(self, unit: bytes) -> tuple[tuple[Any, ...], Any]:
        try:
            record = json.loads(_decoded(unit), parse_float=_finite)
        except (ValueError, RecursionError):
            raise RecordError(
                "malformed",
                "expected one JSON object on the line, found something that is no JSON.",
            ) from None
        if not isinstance(record, dict):
            raise RecordError("malformed", "expected a JSON object, found another JSON value.")
        self.columns = self.columns or list(record)
        for column in self.reading.text_columns:
            if column not in record:
                raise RecordError(
                    "missing_text",
                    f"expected a text in {column!r}, found {len(record)} other column(s); name the column that contains "
                    "the text with --text-column.",
                )
        labels = self.reading.labels
        if labels is not None and labels not in record:
            raise RecordError("labels", f"expected labels in {labels!r}, [] for none.")
        return self.reading.checked([record.get(name) for name in self.reading.columns]), record

    def names_of(self, rows: Any) -> Iterator[Sequence[str]]:
        return iter(rows)


def _decoded(line: bytes) -> str:
    if len(line) > record_limit() + 2:
        raise too_large()
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise not_utf8() from None


def _finite(literal: str) -> float:
    """Read a JSON number; one that a double cannot hold would come out as something else."""
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise ValueError
    return value


def _dumped(record: Any) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can write
        return json.dumps(record, separators=(",", ":")).encode("ascii")


class _TextWriter(RecordWriter):
    """Write lines."""

    def record(self, row: Any, texts: Sequence[str | None]) -> bytes:
        # One document a line is the format, so a released line break becomes a blank.
        return (texts[0] or "").replace("\r", " ").replace("\n", " ").encode("utf-8") + b"\n"


class _JsonWriter(RecordWriter):
    """Write JSON objects, one a line."""

    def record(self, row: Any, texts: Sequence[str | None]) -> bytes:
        columns = self._reader.reading.text_columns
        kept = {name: row[name] for name in row if name in columns or self._rule.passes(name)}
        return _dumped({**kept, **dict(zip(columns, texts, strict=True))}) + b"\n"


FORMATS = {"jsonl": (_JsonReader, _JsonWriter), "text": (_TextReader, _TextWriter)}
