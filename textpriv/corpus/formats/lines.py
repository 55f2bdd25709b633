"""JSON lines and plain text: a record is one line."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from textpriv.corpus.records import LineReader, RecordError, RecordWriter, record_limit
from textpriv.corpus.stores import is_stream
from textpriv.errors import CorpusError

_BLANKS = re.compile(r"[ \t\n\r]*")
_TWICE = "expected each member of the object once, found one twice."
_DIGITS = 4_000  # Python reads no whole numbers of more than 4,300 as such


def _whole(digits: str) -> float:
    return int(digits) if len(digits) < _DIGITS else float(digits)


_scan = json.JSONDecoder(parse_int=_whole).scan_once  # type: ignore[attr-defined]


class _Members(dict[str, tuple[tuple[str, ...], Any, str]]):
    """Of each column of a JSON object, the names that lead to it, its value, and how that is spelled."""


class _TextWriter(RecordWriter):
    def record(self, row: Any, texts: Sequence[str | None]) -> bytes:
        # One document a line is the format, so a released line break becomes a blank.
        return (texts[0] or "").replace("\r", " ").replace("\n", " ").encode("utf-8") + b"\n"


class _JsonWriter(RecordWriter):
    """Write JSON objects, one a line; values that are copied keep their bytes."""

    def record(self, row: _Members, texts: Sequence[str | None]) -> bytes:
        private = dict(zip(self._reader.texts, map(_dumped, texts), strict=True))
        writes = self._reader.options.writes
        kept = (
            (path, private.get(name, raw)) for name, (path, _, raw) in row.items() if writes(name)
        )
        return _object(kept)


class _TextReader(LineReader):
    """Read lines; each is a document, a blank one too."""

    format, extensions = "text", (".txt", ".text")
    writer: type[RecordWriter] = _TextWriter

    def units(self, lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
        for number, line in enumerate(lines, 1):
            if number == 1 and self.options.format is None and is_stream(self.path):
                self._refuse_others(line)
            yield number, line

    def _refuse_others(self, line: bytes) -> None:
        """Refuse a stream of no named format that begins like one with columns."""
        kind = "jsonl" if line.lstrip().startswith((b"{", b"[{")) else None
        for name, delimiter in (("csv", ","), ("csv", ";"), ("tsv", "\t")):
            header = line[:10_000].decode("utf-8", "replace").splitlines() or [""]
            cells = next(csv.reader(header[:1], delimiter=delimiter), [])
            kind = kind or (name if not {*cells}.isdisjoint(self.texts) else None)
        if kind is not None:
            raise CorpusError(
                f"{self.name} begins like {kind}, and has no named format. Add --format {kind}, or --format text."
            )

    def parse(self, unit: bytes) -> tuple[Mapping[str, Any], Any]:
        return {self.texts[0]: _decoded(unit).removesuffix("\n").removesuffix("\r")}, None

    def spelled(self, row: Any) -> bytes | None:
        return bytes(row)


class _JsonReader(_TextReader):
    """Read JSON objects, one a line, a field of which contains the text; blank lines are no records."""

    format, extensions = "jsonl", (".jsonl", ".ndjson")
    writer = _JsonWriter

    def units(self, lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
        return ((number, line) for number, line in enumerate(lines, 1) if line.strip())

    @cached_property
    def _opened(self) -> frozenset[str]:
        """The objects of which a column of texts is a member: above "a.b.c" these are a and a.b."""
        dots = ((name, n) for name in self.texts for n, letter in enumerate(name) if letter == ".")
        return frozenset(name[:n] for name, n in dots)

    def parse(self, unit: bytes) -> tuple[Mapping[str, Any], _Members]:
        line, record = _decoded(unit), _Members()
        try:
            end = _read_object(line, _after_blanks(line, 0), self._opened, record)
            if _after_blanks(line, end) < len(line):
                raise ValueError
        except (ValueError, RecursionError, StopIteration):
            raise RecordError("malformed") from None
        self.columns = self.columns or list(record)
        for column in self.texts:
            if column not in record:
                raise RecordError("missing_text", f"expected a text in {column!r} (--text-column).")
        if self.options.labels_column not in (None, *record):
            raise RecordError("labels")
        return {name: record[name][1] for name in self.options.read if name in record}, record

    def spelled(self, row: Any) -> bytes | None:
        if isinstance(row, bytes):
            return row
        return _object((path, raw) for path, _, raw in row.values())

    def names_of(self, rows: Any) -> list[str]:
        return list(dict.fromkeys(chain.from_iterable(rows)))

    def new_rows(self, columns: Mapping[str, Sequence[Any]]) -> list[_Members]:
        cells = (
            [((name,), value, _dumped(value)) for value in values]
            for name, values in columns.items()
        )
        return [_Members(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]


def _decoded(line: bytes) -> str:
    if len(line) > record_limit() + 2:
        raise RecordError("too_large")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise RecordError("encoding") from None


def _after_blanks(line: str, start: int) -> int:
    found = _BLANKS.match(line, start)
    assert found is not None
    return found.end()


def _read_object(
    line: str, start: int, opened: Collection[str], found: _Members, above: tuple[str, ...] = ()
) -> int:
    """Read the members of an object into ``found``, each as it is spelled; return the end of the object.

    A member in ``opened`` is no column: its own members are. ValueError or StopIteration say that it is no JSON.
    """
    if line[start : start + 1] != "{":
        raise ValueError
    at = _after_blanks(line, start + 1)
    names: set[str] = set()
    separator = "," if line[at : at + 1] != "}" else "}"
    while separator == ",":
        if line[at : at + 1] != '"':
            raise ValueError
        name, at = scanstring(line, at + 1, True)
        if name in names:
            raise RecordError("malformed", _TWICE)
        names.add(name)
        at = _after_blanks(line, at)
        if line[at : at + 1] != ":":
            raise ValueError
        at = begin = _after_blanks(line, at + 1)
        path = (*above, name)
        column = ".".join(path)
        if column in opened and line[begin : begin + 1] == "{":
            at = _read_object(line, begin, opened, found, path)
        else:
            if column in found:
                raise RecordError("malformed", _TWICE)
            value, at = _scan(line, begin)
            found[column] = path, value, line[begin:at]
        at = _after_blanks(line, at)
        separator = line[at : at + 1]
        if separator == ",":
            at = _after_blanks(line, at + 1)
    if separator != "}":
        raise ValueError
    return at + 1


def _object(members: Iterable[tuple[tuple[str, ...], str]]) -> bytes:
    """Return a line with an object of these members, given as they are spelled."""
    tree: dict[str, Any] = {}
    for path, raw in members:
        inner = tree
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = raw
    # Half of a surrogate pair, which only an escape can write, is written as one.
    return f"{_spelled(tree)}\n".encode("utf-8", "backslashreplace")


def _spelled(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "{" + ",".join(f"{_dumped(name)}:{_spelled(each)}" for name, each in value.items()) + "}"


def _dumped(value: str | int | None) -> str:
    return json.dumps(value, ensure_ascii=False)


READERS = _JsonReader, _TextReader
