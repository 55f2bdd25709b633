"""JSON lines and plain text: a record is one line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from textpriv.corpus.records import LineReader, RecordError, RecordWriter, record_limit


class _TextWriter(RecordWriter):
    """Write lines."""

    def record(self, row: Any, texts: Sequence[str | None]) -> bytes:
        # One document a line is the format, so a released line break becomes a blank.
        return (texts[0] or "").replace("\r", " ").replace("\n", " ").encode("utf-8") + b"\n"


class _JsonWriter(RecordWriter):
    """Write JSON objects, one a line."""

    def record(self, row: Any, texts: Sequence[str | None]) -> bytes:
        kept = {name: row[name] for name in row if self._reader.release.writes(name)}
        return _dumped({**kept, **dict(zip(self._reader.texts, texts, strict=True))}) + b"\n"


class _TextReader(LineReader):
    """Read lines; each is a document, a blank one too."""

    writer: type[RecordWriter] = _TextWriter

    def units(self, lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
        return enumerate(lines, 1)

    def parse(self, unit: bytes) -> tuple[Sequence[Any], Any]:
        return [_decoded(unit).removesuffix("\n").removesuffix("\r")], None

    def spelled(self, row: Any) -> bytes | None:
        return bytes(row)


class _JsonReader(_TextReader):
    """Read JSON objects, one a line, a field of which contains the text; blank lines are no records."""

    writer = _JsonWriter

    def units(self, lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
        return ((number, line) for number, line in enumerate(lines, 1) if line.strip())

    def parse(self, unit: bytes) -> tuple[Sequence[Any], Any]:
        try:
            record = json.loads(_decoded(unit), parse_float=_finite)
        except (ValueError, RecursionError):
            raise RecordError("malformed") from None
        if not isinstance(record, dict):
            raise RecordError("malformed")
        self.columns = self.columns or list(record)
        for column in self.texts:
            if column not in record:
                raise RecordError(
                    "missing_text",
                    f"expected a text in {column!r}. Name its column with --text-column.",
                )
        if self.release.labels_column not in (None, *record):
            raise RecordError("labels")
        return [record.get(name) for name in self.release.read], record

    def names_of(self, rows: Any) -> Iterator[Sequence[str]]:
        return iter(rows)


def _decoded(line: bytes) -> str:
    if len(line) > record_limit() + 2:
        raise RecordError("too_large")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise RecordError("encoding") from None


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


FORMATS = {"jsonl": _JsonReader, "text": _TextReader}
