"""JSON lines: each line is one JSON object, a field of which contains the text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from textpriv.corpus.records import (
    MAX_TEXT_BYTES,
    RECORD_FACTOR,
    LineReader,
    Parsed,
    RecordError,
    RecordWriter,
)

__all__ = ["READER", "WRITER"]


class _JsonReader(LineReader):
    """Read JSON objects, one a line; blank lines are no records."""

    format = "jsonl"

    def records(self, stream: BinaryIO) -> Iterator[Parsed | RecordError | None]:
        limit = MAX_TEXT_BYTES * RECORD_FACTOR
        return self.line_records(stream, self._parse, limit, skips_blank=True)

    def _parse(self, line: str) -> Parsed:
        try:
            record = json.loads(line, parse_float=_finite)
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

    def spelled(self, row: Any) -> bytes | None:
        return _dumped(row)


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


class _JsonWriter(RecordWriter):
    """Write JSON objects, one a line."""

    def record(self, row: Any, texts: Sequence[str | None]) -> bytes:
        columns = self._reader.reading.text_columns
        kept = {name: row[name] for name in row if name in columns or self._rule.passes(name)}
        return _dumped({**kept, **dict(zip(columns, texts, strict=True))}) + b"\n"


READER, WRITER = _JsonReader, _JsonWriter
