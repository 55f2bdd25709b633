"""JSON lines: each line is one JSON object, a field of which holds the text.

The other fields stay as they are. What all formats share is in ``corpus.records``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from textpriv.corpus.records import (
    RECORD_FACTOR,
    CorpusReader,
    Format,
    RecordError,
    RecordWriter,
    concatenate,
)

__all__ = ["FORMAT"]


class _JsonReader(CorpusReader):
    """Read JSON objects, one a line; blank lines are no records."""

    format = "jsonl"

    def _records(self, stream: BinaryIO) -> Iterator[tuple[str, Any] | RecordError | None]:
        limit = self.max_text_bytes * RECORD_FACTOR
        return self.line_records(stream, self._parse_json, limit, skips_blank=True)

    def _parse_json(self, line: str) -> tuple[str, Any]:
        try:
            record = json.loads(line, parse_float=_finite)
        # Besides malformed text: numbers of thousands of digits, and nesting deeper than the
        # interpreter's stack.
        except (ValueError, RecursionError):
            raise RecordError(
                "malformed",
                "expected one JSON object on the line, found something that is no JSON.",
            ) from None
        if not isinstance(record, dict):
            raise RecordError(
                "malformed", f"expected a JSON object, found a JSON {_json_type(record)}."
            )
        if not self.columns:
            self.columns = list(record)
        texts = []
        for column in self.text_columns:
            if column not in record:
                raise self.missing_text(column, len(record))
            texts.append(text := record[column])
            if not isinstance(text, str):
                kind = _json_type(text)
                raise RecordError(
                    "wrong_type", f"expected a string in {column!r}, found a JSON {kind}."
                )
        self.check_names(record.get(name) for name in self._names)
        if self._labels is not None:
            if self._labels not in record:
                raise RecordError(
                    "labels",
                    f"expected labels in {self._labels!r}, [] for none; found no such field.",
                )
            self.check_labels(texts[0], record[self._labels])
        return self.check_texts(texts), record


def _json_type(value: object) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _finite(literal: str) -> float:
    """Read a JSON number; one that a double cannot hold would come out as something else."""
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise ValueError
    return value


class _JsonWriter(RecordWriter):
    """Write JSON objects, one a line."""

    def _record(self, row: Any, texts: Sequence[str]) -> bytes:
        columns = self._reader.text_columns
        if not self._rule.passes_all:
            row = {name: row[name] for name in row if name in columns or self._rule.passes(name)}
        record = {**row}
        record.update(zip(columns, texts, strict=True))
        try:
            return _dump_json(record, ensure_ascii=False).encode("utf-8") + b"\n"
        except UnicodeEncodeError:
            # Another field holds half a surrogate pair, which only an escape can write.
            return _dump_json(record, ensure_ascii=True).encode("ascii") + b"\n"


def _dump_json(record: Mapping[str, Any], ensure_ascii: bool) -> str:
    return json.dumps(record, ensure_ascii=ensure_ascii, separators=(",", ":"))


FORMAT = Format("jsonl", (".jsonl", ".ndjson"), _JsonReader, _JsonWriter, concatenate)
