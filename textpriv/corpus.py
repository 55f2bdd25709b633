"""Files of text in, files of private text out: JSONL, CSV and lines, in constant memory.

What lives here: reading records in batches, putting the private text back into each record, writing
a file that appears complete or not at all, and the local worker processes. What does not: how a
text becomes private (``privatizer``) and what the user sees on the screen (``cli``). Only the text
column changes; every other field is passed through and is not protected.

========= ==================================== ==============================================
format    a record is                          the extension that means it
========= ==================================== ==============================================
``jsonl`` one JSON object a line               ``.jsonl`` ``.ndjson``
``csv``   one row under a header, comma, UTF-8 ``.csv``
``text``  one line, the document itself        ``.txt`` ``.text``
========= ==================================== ==============================================

Any of them may end in ``.gz`` or ``.zst``. The path ``-`` is standard input or output,
uncompressed.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import secrets
import stat
import sys
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from textpriv.errors import CorpusError, LedgerError, TextprivError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from textpriv.privatizer import Privatizer, ReleaseKey

__all__ = [
    "Batch",
    "CorpusReader",
    "CorpusReport",
    "PrivatizerSettings",
    "corpus_format",
    "privatize_corpus",
    "read_records",
]

FORMATS = ("jsonl", "csv", "text")
STANDARD_STREAM = "-"
MAX_TEXT_BYTES = 8 * 1024 * 1024

_EXTENSIONS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".txt": "text",
    ".text": "text",
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
# A record may carry other fields, and JSON may spell a character in six bytes, so it may be this
# much longer than its text.
_RECORD_FACTOR = 8
# A batch closes at this many characters, so that many long documents do not add up in memory.
_BATCH_CHARACTERS = 4 * 1024 * 1024
_UTF8_MARK = b"\xef\xbb\xbf"
_SKIP_REMEDY = (
    "Repair the record, or leave such records out with --on-error skip (on_error='skip')."
)


def corpus_format(
    path: str | os.PathLike[str], format: str | None = None
) -> tuple[str | None, str | None]:
    """Return the format and compression that a path stands for.

    Parameters
    ----------
    path
        A file name, or ``"-"`` for a standard stream.
    format
        ``"jsonl"``, ``"csv"`` or ``"text"`` overrules the extension; None reads it.

    Returns
    -------
    tuple
        The format, or None where the path does not tell (``"-"``), and the compression (``"gzip"``,
        ``"zstd"`` or None).

    Raises
    ------
    CorpusError
        If the format is unknown, or the extension is and no format is given.
    """
    if format is not None and format not in FORMATS:
        raise CorpusError(f"The format must be one of {', '.join(FORMATS)}; found {format!r}.")
    name = os.fspath(path)
    if name == STANDARD_STREAM:
        return format, None
    stem = Path(name)
    compression = _COMPRESSIONS.get(stem.suffix.lower())
    if compression is not None:
        stem = stem.with_suffix("")
    if format is None:
        format = _EXTENSIONS.get(stem.suffix.lower())
        # A device or a pipe has no extension to go by; the other end then decides.
        if format is None and not _is_stream(name):
            raise CorpusError(
                f"Cannot tell the format of {name} from its name: expected one of "
                f"{' '.join(_EXTENSIONS)}, perhaps with {' or '.join(_COMPRESSIONS)} after it. "
                "Say which it is with --format jsonl|csv|text."
            )
    return format, compression


def _is_stream(name: str) -> bool:
    """Return whether a path is a standard stream, a device or a pipe."""
    if name == STANDARD_STREAM:
        return True
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


# --------------------------------------------------------------------------------------------------
# Reading
# --------------------------------------------------------------------------------------------------


class _BadRecord(Exception):
    """One record cannot be used: a short reason, and what was expected; never the content."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Batch:
    """A few consecutive good records.

    Attributes
    ----------
    positions
        Each record's 0-based number in its file; bad records and good ones count, blank lines do
        not (in ``text`` every line is a record). This is the document's identity for keyed
        randomness.
    texts
        The documents, as long as ``positions``.
    rows
        The whole records: a dict (``jsonl``), a list of fields (``csv``) or None (``text``).
    """

    positions: list[int]
    texts: list[str]
    rows: list[Any]


class CorpusReader:
    """Iterate over the batches of one file; made by :func:`read_records`.

    Attributes
    ----------
    format
        ``"jsonl"``, ``"csv"`` or ``"text"``.
    skipped
        Bad records left out so far, counted by reason (only with ``on_error="skip"``).
    columns
        The CSV header, or the field names of the first JSON record; empty for ``text``. Filled by
        the first batch.
    newline
        The line ending of the CSV header.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        text_column: str = "text",
        on_error: str = "fail",
        batch_size: int = 1000,
        max_text_bytes: int = MAX_TEXT_BYTES,
    ) -> None:
        if on_error not in ("fail", "skip"):
            raise CorpusError(f"on_error must be 'fail' or 'skip'; found {on_error!r}.")
        if batch_size < 1:
            raise CorpusError(f"batch_size must be at least 1; found {batch_size}.")
        self.path = os.fspath(path)
        found, self._compression = corpus_format(path, format)
        self.format = found or "text"
        self.text_column = text_column
        self.on_error = on_error
        self.batch_size = batch_size
        self.max_text_bytes = max_text_bytes
        self.skipped: Counter[str] = Counter()
        self.columns: list[str] = []
        self.newline = "\n"
        self._line = 0
        self._record_line = 0
        self._raw: BinaryIO | None = None
        self._size = 0

    @property
    def name(self) -> str:
        """The file as messages name it."""
        return "standard input" if self.path == STANDARD_STREAM else self.path

    @property
    def fraction(self) -> float | None:
        """The share of the file read so far, in [0, 1]; None for a stream."""
        if self._raw is None or not self._size:
            return None
        try:
            return min(1.0, self._raw.tell() / self._size)
        except (OSError, ValueError):
            return None

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches from the first record on.

        Raises
        ------
        CorpusError
            At the first bad record (``on_error="fail"``), or if the file as a whole cannot be read.
        OSError
            If the file cannot be opened.
        """
        self.skipped.clear()
        self._line = self._record_line = 0
        positions: list[int] = []
        texts: list[str] = []
        rows: list[Any] = []
        characters = 0
        with self._open() as stream:
            for position, (text, row) in self._good(self._records(stream)):
                positions.append(position)
                texts.append(text)
                rows.append(row)
                characters += len(text)
                if len(texts) >= self.batch_size or characters >= _BATCH_CHARACTERS:
                    yield Batch(positions, texts, rows)
                    positions, texts, rows, characters = [], [], [], 0
            if texts:
                yield Batch(positions, texts, rows)

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        """Open the file for reading bytes, decompressed."""
        if self.path == STANDARD_STREAM:
            self._raw = None
            yield sys.stdin.buffer
            return
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(open(self.path, "rb"))
            status = os.fstat(raw.fileno())
            self._raw, self._size = raw, status.st_size if stat.S_ISREG(status.st_mode) else 0
            stack.callback(setattr, self, "_raw", None)
            if self._compression == "gzip":
                yield stack.enter_context(gzip.open(raw, "rb"))  # type: ignore[misc]
            elif self._compression == "zstd":
                import pyarrow as pa

                yield io.BufferedReader(pa.CompressedInputStream(raw, "zstd"))
            else:
                yield raw

    def _good(
        self, records: Iterator[tuple[str, Any] | _BadRecord]
    ) -> Iterator[tuple[int, tuple[str, Any]]]:
        """Yield the good records with their numbers; raise on a bad one, or count it."""
        for position, record in enumerate(records):
            if not isinstance(record, _BadRecord):
                yield position, record
            elif self.on_error == "skip":
                self.skipped[record.reason] += 1
            else:
                raise CorpusError(
                    f"{self.name}, line {self._record_line} (record {position + 1}): "
                    f"{record} {_SKIP_REMEDY}"
                ) from None

    def _records(self, stream: BinaryIO) -> Iterator[tuple[str, Any] | _BadRecord]:
        """Yield every record of the file, a bad one as the error that it is."""
        if self.format == "csv":
            return self._csv_records(stream)
        parse = self._parse_json if self.format == "jsonl" else self._parse_line
        return self._line_records(stream, parse)

    # Lines ----------------------------------------------------------------------------------------

    def _lines(self, stream: BinaryIO, limit: int) -> Iterator[bytes | _BadRecord]:
        """Yield lines with their endings, and an error for each line over the limit."""
        first = True
        while True:
            line = self._read_line(stream, limit + 1)
            if not line:
                return
            self._line += 1
            # A CSV record may have several lines, and its reader says where it begins.
            if self.format != "csv":
                self._record_line = self._line
            if first:
                line, first = line.removeprefix(_UTF8_MARK), False
            if len(line) <= limit or (line.endswith(b"\n") and len(line) <= limit + 1):
                yield line
                continue
            piece = line
            while piece and not piece.endswith(b"\n"):
                piece = self._read_line(stream, 1 << 20)
            yield self._too_large()

    def _read_line(self, stream: BinaryIO, limit: int) -> bytes:
        try:
            return stream.readline(limit)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CorpusError(
                f"{self.name}: the compressed file is damaged or cut short after line "
                f"{self._line}. Make or fetch it again."
            ) from error
        except OSError as error:
            if self._compression != "zstd":
                raise
            raise CorpusError(
                f"{self.name}: the compressed file is damaged or cut short after line "
                f"{self._line}. Make or fetch it again."
            ) from error

    def _too_large(self) -> _BadRecord:
        return _BadRecord(
            "too_large",
            f"expected a text of at most {self.max_text_bytes:,} bytes, found a longer one.",
        )

    def _line_records(
        self, stream: BinaryIO, parse: Callable[[str], tuple[str, Any]]
    ) -> Iterator[tuple[str, Any] | _BadRecord]:
        limit = self.max_text_bytes * (_RECORD_FACTOR if self.format == "jsonl" else 1)
        for line in self._lines(stream, limit):
            if isinstance(line, _BadRecord):
                yield line
                continue
            if self.format == "jsonl" and not line.strip():
                continue
            try:
                yield parse(self._decode(line))
            except _BadRecord as error:
                yield error

    def _decode(self, line: bytes) -> str:
        if b"\0" in line:
            raise _null_byte()
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            raise _not_utf8() from None

    def _parse_line(self, line: str) -> tuple[str, Any]:
        return line.removesuffix("\n").removesuffix("\r"), None

    def _parse_json(self, line: str) -> tuple[str, Any]:
        try:
            record = json.loads(line)
        # Besides malformed text: numbers of thousands of digits, and nesting deeper than the
        # interpreter's stack.
        except (ValueError, RecursionError):
            raise _BadRecord(
                "malformed",
                "expected one JSON object on the line, found something that is no JSON.",
            ) from None
        if not isinstance(record, dict):
            raise _BadRecord(
                "malformed", f"expected a JSON object, found a JSON {_json_type(record)}."
            )
        if not self.columns:
            self.columns = list(record)
        if self.text_column not in record:
            raise _BadRecord(
                "missing_text",
                f"expected the field {self.text_column!r}, found {len(record)} other field(s); "
                "name the field that holds the text with --text-column.",
            )
        text = record[self.text_column]
        if not isinstance(text, str):
            raise _BadRecord(
                "wrong_type",
                f"expected a string in {self.text_column!r}, found a JSON {_json_type(text)}.",
            )
        return self._check_text(text), record

    def _check_text(self, text: str) -> str:
        if "\0" in text:
            raise _null_byte()
        # A character is at most four bytes, so most texts need no encoding to be known as small
        # enough.
        if len(text) * 4 > self.max_text_bytes or not text.isascii():
            try:
                size = len(text.encode("utf-8"))
            except UnicodeEncodeError:  # half of a surrogate pair, spelled out in JSON
                raise _not_utf8() from None
            if size > self.max_text_bytes:
                raise self._too_large()
        return text

    # CSV ------------------------------------------------------------------------------------------

    def _csv_records(self, stream: BinaryIO) -> Iterator[tuple[str, Any] | _BadRecord]:
        limit = self.max_text_bytes * _RECORD_FACTOR
        # The limit is one number for the whole process; it may only be raised, for others may have
        # raised it, too.
        csv.field_size_limit(max(csv.field_size_limit(), limit))
        lines = _CsvLines(self, stream, limit)
        rows = csv.reader(lines, strict=True)

        def next_row() -> list[str] | _BadRecord | None:
            lines.start_row()
            try:
                row = next(rows, None)
            except (csv.Error, _BadRecord) as error:
                # Fatal even with "skip": from here on nobody knows where a field begins, and a
                # piece of a text taken for another column would pass through unprotected.
                found = "a row that is too long" if isinstance(error, _BadRecord) else "a stray one"
                raise CorpusError(
                    f"{self.name}, line {self._record_line}: expected quotes that are closed, and "
                    f"doubled inside a field, in a row of at most {limit:,} bytes; found {found}. "
                    "The rows after it cannot be told apart, so it cannot be skipped: repair the "
                    "file."
                ) from None
            return lines.flaw if row is not None and lines.flaw is not None else row

        header = next_row()
        if header is None:
            raise CorpusError(
                f"{self.name} is empty: expected a CSV header with a column {self.text_column!r}."
            )
        if isinstance(header, _BadRecord):
            raise CorpusError(f"{self.name}, line 1 (the header): {header} Repair the file.")
        if header.count(self.text_column) != 1:
            found = "more than one" if self.text_column in header else "none"
            raise CorpusError(
                f"{self.name}, line 1 (the header): expected a column named {self.text_column!r}, "
                f"found {found} among {len(header)} column(s). Name the column that holds the text "
                "with --text-column; the file needs a header line, and commas between the columns."
            )
        self.columns, self.newline = header, lines.newline
        column = header.index(self.text_column)
        while (row := next_row()) is not None:
            if isinstance(row, _BadRecord):
                yield row
            elif len(row) == len(header):
                try:
                    yield self._check_text(row[column]), row
                except _BadRecord as error:
                    yield error
            elif row:
                yield _BadRecord(
                    "columns",
                    f"expected {len(header)} column(s) as in the header, found {len(row)}.",
                )
            # An empty list is a blank line between rows: no record.


class _CsvLines:
    """Feed decoded lines to ``csv.reader``, row by row, and stop a row that grows past the limit.

    An undecodable byte or a NUL is passed on in disguise and remembered as the row's flaw, so that
    the quoting around it is still understood and the next row starts where it should.
    """

    def __init__(self, reader: CorpusReader, stream: BinaryIO, limit: int) -> None:
        self._lines = reader._lines(stream, limit)
        self._reader = reader
        self._limit = limit
        self._row_bytes = 0
        self.flaw: _BadRecord | None = None
        self.newline = "\n"

    def start_row(self) -> None:
        self._reader._record_line = self._reader._line + 1
        self._row_bytes = 0
        self.flaw = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        if isinstance(line, _BadRecord):
            raise line
        self._row_bytes += len(line)
        if self._row_bytes > self._limit:
            raise self._reader._too_large()
        if self._reader._line == 1 and line.endswith(b"\r\n"):
            self.newline = "\r\n"
        if b"\0" in line:
            self.flaw = _null_byte()
            line = line.replace(b"\0", b" ")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            self.flaw = _not_utf8()
            return line.decode("utf-8", errors="surrogateescape")


def _not_utf8() -> _BadRecord:
    return _BadRecord("encoding", "expected UTF-8, found bytes or characters that are not.")


def _null_byte() -> _BadRecord:
    return _BadRecord(
        "null_byte",
        "expected UTF-8 text, found a NUL character (is the file UTF-16, or no text at all?).",
    )


def _json_type(value: object) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def read_records(
    path: str | os.PathLike[str],
    format: str | None = None,
    text_column: str = "text",
    on_error: str = "fail",
    *,
    batch_size: int = 1000,
    max_text_bytes: int = MAX_TEXT_BYTES,
) -> CorpusReader:
    """Read text records in batches, in constant memory.

    Parameters
    ----------
    path
        The file, or ``"-"`` for standard input.
    format
        ``"jsonl"``, ``"csv"`` or ``"text"``; None goes by the extension, and by ``"text"`` for
        standard input.
    text_column
        The JSON field or CSV column that holds the text. ``text`` files have none.
    on_error
        ``"fail"`` raises at the first bad record; ``"skip"`` leaves bad records out and counts them
        by reason: ``encoding``, ``null_byte``, ``malformed``, ``missing_text``, ``wrong_type``,
        ``columns``, ``too_large``. A broken quote in a CSV file ends the run either way, since the
        rows after it cannot be told apart.
    batch_size
        Most records in a batch; a batch also closes at about 4 million characters.
    max_text_bytes
        Most bytes (UTF-8) of one text.

    Returns
    -------
    CorpusReader
        Iterate over it for :class:`Batch` objects; its ``skipped`` and ``columns`` fill as it goes.

    Raises
    ------
    CorpusError
        Here for an unknown format or option; while iterating for bad records and damaged files. The
        message names the file and the line, never what stands there.
    """
    return CorpusReader(path, format, text_column, on_error, batch_size, max_text_bytes)


# --------------------------------------------------------------------------------------------------
# Writing
# --------------------------------------------------------------------------------------------------


class _Encoder:
    """Turn records back into bytes, with the private text in the place of the raw one."""

    def __init__(self, reader: CorpusReader) -> None:
        self._reader = reader

    def header(self) -> bytes:
        """Return what comes before the first record."""
        return self._csv_row(self._reader.columns) if self._reader.format == "csv" else b""

    def record(self, row: Any, text: str) -> bytes:
        """Return one record."""
        if self._reader.format == "text":
            # One document a line is the format, so a released line break becomes a space.
            return text.replace("\r", " ").replace("\n", " ").encode("utf-8") + b"\n"
        if self._reader.format == "csv":
            column = self._reader.columns.index(self._reader.text_column)
            return self._csv_row([*row[:column], text, *row[column + 1 :]])
        record = {**row, self._reader.text_column: text}
        try:
            return _dump_json(record, ensure_ascii=False).encode("utf-8") + b"\n"
        except UnicodeEncodeError:
            # Another field holds half a surrogate pair, which only an escape can write.
            return _dump_json(record, ensure_ascii=True).encode("ascii") + b"\n"

    def _csv_row(self, row: list[str]) -> bytes:
        buffer = io.StringIO(newline="")
        # Not every Python version quotes a lone carriage return, and a reader would take it for the
        # end of the row.
        writer = csv.writer(
            buffer,
            quoting=csv.QUOTE_ALL if any("\r" in value for value in row) else csv.QUOTE_MINIMAL,
            lineterminator=self._reader.newline,
        )
        writer.writerow(row)
        return buffer.getvalue().encode("utf-8")


def _dump_json(record: Mapping[str, Any], ensure_ascii: bool) -> str:
    return json.dumps(record, ensure_ascii=ensure_ascii, separators=(",", ":"))


@contextlib.contextmanager
def _atomic_output(target: str, compression: str | None) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when the block ends well.

    Until then it is a hidden file in the same folder that only its owner may read. If the block
    raises, it is removed and whatever stood at ``target`` before is untouched. Standard output,
    devices and pipes are written as they come.
    """
    if _is_stream(target):
        with contextlib.ExitStack() as stack:
            stream: BinaryIO
            if target == STANDARD_STREAM:
                stream = sys.stdout.buffer
            else:
                stream = stack.enter_context(open(target, "wb"))
            with _compressed(stream, compression) as out:
                yield out
            stream.flush()
        return
    # A link stays a link: the file that it points to is the one to replace.
    final = Path(os.path.realpath(target))
    if final.is_dir():
        raise CorpusError(f"Cannot write to {target}: it is a folder. Name a file.")
    if not final.parent.is_dir():
        raise CorpusError(f"Cannot write to {target}: its folder does not exist. Make it first.")
    temporary = final.with_name(f".{final.name[:200]}.{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:  # would name the hidden file, of which the user knows nothing
        raise CorpusError(
            f"Cannot write to {target}: {error.strerror}. Choose another place, or make room there."
        ) from error
    try:
        with os.fdopen(descriptor, "wb") as raw:
            with _compressed(raw, compression) as out:
                yield out
            raw.flush()
            os.fchmod(raw.fileno(), _final_mode(final))
            os.fsync(raw.fileno())
        os.replace(temporary, final)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(final.parent)


@contextlib.contextmanager
def _compressed(raw: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    if compression == "gzip":
        # No name and no time inside, so that the same output is the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed:
            yield packed  # type: ignore[misc]
    elif compression == "zstd":
        import pyarrow as pa

        # Arrow closes the file below together with its own stream; the caller still has to flush it
        # to the disk.
        with (
            open(os.dup(raw.fileno()), "wb") as below,
            pa.CompressedOutputStream(below, "zstd") as out,
        ):
            yield out
    else:
        yield raw


def _final_mode(final: Path) -> int:
    """Return the permissions that writing in place would leave: the old file's, or the umask's."""
    try:
        return stat.S_IMODE(final.stat().st_mode)
    except FileNotFoundError:
        umask = os.umask(0o077)
        os.umask(umask)
        return 0o666 & ~umask


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, where a folder can be synchronised."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# --------------------------------------------------------------------------------------------------
# Privatizing
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrivatizerSettings:
    """What a process needs to build the same Privatizer: an index path and plain values.

    Attributes
    ----------
    index
        Path of a saved index folder; each process maps it into memory.
    mechanism
        Registered name, such as ``"textpriv.TEM.v1"``.
    options
        The mechanism's arguments, such as ``{"epsilon": 6.0}`` (epsilon in units of 1/distance).
    policy
        Fields of TokenPolicy; those left out keep their defaults.
    seed
        For experiments only; None for secret randomness.
    run_key
        32 random bytes that every process shares, so that the output does not depend on their
        number. Not used with a ledger.
    ledger
        Path of the ledger that counts every document.
    document_limit, author_limit
        The ledger's limits, as in :class:`textpriv.ledger.Ledger`.
    """

    index: str
    mechanism: str = "textpriv.TEM.v1"
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    run_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    ledger: str | None = None
    document_limit: float | None = None
    author_limit: float | None = None

    def build(self) -> Privatizer:
        """Load the index and build the Privatizer.

        Raises
        ------
        TextprivError
            If the index, the mechanism or the policy cannot be used.
        """
        from textpriv.index import Index
        from textpriv.mechanisms import registry
        from textpriv.policy import TokenPolicy
        from textpriv.privatizer import Privatizer

        mechanism = registry.get(self.mechanism)(**self.options)(Index.load(self.index))
        policy = TokenPolicy.from_dict(dict(self.policy))
        if self.ledger is not None:
            from textpriv.ledger import Ledger

            limits = {"document_limit": self.document_limit, "author_limit": self.author_limit}
            ledger = Ledger(self.ledger, **limits)
            return Privatizer(mechanism, policy, seed=self.seed, ledger=ledger)
        run_key = None if self.seed is not None else self.run_key
        return Privatizer(mechanism, policy, seed=self.seed, run_key=run_key)


@dataclass(frozen=True)
class CorpusReport:
    """What one run did. Counts only; nothing is derived from the texts beyond what was released.

    Attributes
    ----------
    documents
        Records written.
    tokens
        Tokens by class, as released.
    skipped
        Bad records left out, by reason.
    unprotected
        Names of the other columns, which pass through as they are.
    seconds
        Wall time.
    """

    documents: int
    tokens: Mapping[str, int]
    skipped: Mapping[str, int]
    unprotected: tuple[str, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "documents": self.documents,
            "tokens": dict(self.tokens),
            "skipped": dict(self.skipped),
            "unprotected": list(self.unprotected),
            "seconds": round(self.seconds, 3),
        }


_Released = tuple[list[str], Counter[str]]


def _release(privatizer: Privatizer, texts: list[str], keys: list[ReleaseKey]) -> _Released:
    """Privatize one batch: the private texts, and the tokens by class."""
    counts: Counter[str] = Counter()
    released: list[str] = []
    for tokens in privatizer.release([privatizer.read(text) for text in texts], keys):
        counts.update(tokens.counts)
        released.append(tokens.text)
    return released, counts


def privatize_corpus(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    privatizer: Privatizer,
    *,
    format: str | None = None,
    text_column: str = "text",
    on_error: str = "fail",
    batch_size: int = 1000,
    max_text_bytes: int = MAX_TEXT_BYTES,
    workers: int = 1,
    settings: PrivatizerSettings | None = None,
    document_column: str | None = None,
    author_column: str | None = None,
    on_progress: Callable[[int, float | None], None] | None = None,
    on_unprotected: Callable[[tuple[str, ...]], None] | None = None,
) -> CorpusReport:
    """Replace the text of every record of a file by its private version.

    Records keep their order and their other fields. ``target`` appears when all is written and
    synchronised, or not at all; a failed run leaves an older ``target`` as it was. The output never
    depends on ``batch_size`` or ``workers``. A document's identity for the randomness is its record
    number, together with a fresh secret for each call, so that two runs never share a random
    stream; with a seed it is the record number alone, so that the run can be repeated.

    Parameters
    ----------
    source, target
        Files, or ``"-"`` for standard input and output. Both have the same format; the compression
        may differ.
    privatizer
        What makes a text private.
    format
        ``"jsonl"``, ``"csv"`` or ``"text"`` for both ends; None goes by the extensions. With
        ``"-"`` at one end the other end's extension decides, with ``"-"`` at both it is ``"text"``.
    text_column, on_error, batch_size, max_text_bytes
        As in :func:`read_records`.
    workers
        Number of local processes; 1 uses this process alone.
    settings
        What the worker processes build their Privatizer from; required for more than one worker,
        and must describe ``privatizer``.
    document_column, author_column
        With a ledger: the fields that name each document and, where authors are counted, its
        author. They pass through as they are, and must not be made from the text.
    on_progress
        Called after each batch with the documents done and the share of the file read (None if
        unknown).
    on_unprotected
        Called once, as soon as they are known, with the names of the columns that pass through
        unprotected, if any.

    Returns
    -------
    CorpusReport
        Counts and seconds.

    Raises
    ------
    CorpusError
        For bad records, formats that differ, source and target being one file, or a worker that
        dies.
    LedgerError
        At the first document that the ledger refuses; names its record. Documents before it stay
        counted and, as the same text, cost nothing the next time.
    OSError
        If a file cannot be opened or written.
    """
    started = time.perf_counter()
    if workers < 1:
        raise CorpusError(f"workers must be at least 1; found {workers}.")
    if workers > 1 and settings is None:
        raise CorpusError(
            "More than one worker needs settings=PrivatizerSettings(...) to build from."
        )
    if (getattr(privatizer, "ledger", None) is None) != (document_column is None):
        raise CorpusError(
            "A ledger and a document_column go together: the ledger counts documents by the names "
            "in that column."
        )
    source, target = os.fspath(source), os.fspath(target)
    format, compression = _common_format(source, target, format)
    if format == "text" and document_column is not None:
        raise CorpusError(
            "A ledger counts documents by a column of their names, and a text file has none: use "
            "jsonl or csv."
        )
    _refuse_same_file(source, target)
    reader = read_records(
        source,
        format,
        text_column,
        on_error,
        batch_size=batch_size,
        max_text_bytes=max_text_bytes,
    )
    run = _Run(reader, privatizer, on_unprotected, document_column, author_column)
    with (
        _atomic_output(target, compression) as out,
        # Closed by name: on failure a worker pool must not live on in the traceback.
        contextlib.closing(run.results(workers, settings)) as results,
    ):
        encoder = _Encoder(reader)
        header_due = True
        for batch, (texts, counts) in results:
            if header_due:
                out.write(encoder.header())
                header_due = False
            for row, text in zip(batch.rows, texts, strict=True):
                out.write(encoder.record(row, text))
            run.documents += len(texts)
            run.tokens.update(counts)
            if on_progress is not None:
                on_progress(run.documents, reader.fraction)
        if header_due:
            out.write(encoder.header())
    return CorpusReport(
        documents=run.documents,
        tokens=dict(run.tokens),
        skipped=dict(reader.skipped),
        unprotected=run.unprotected,
        seconds=time.perf_counter() - started,
    )


class _Run:
    """One pass over a reader: names the documents, releases the batches in order, adds up."""

    def __init__(
        self,
        reader: CorpusReader,
        privatizer: Privatizer,
        on_unprotected: Callable[[tuple[str, ...]], None] | None,
        document_column: str | None,
        author_column: str | None,
    ) -> None:
        self._reader = reader
        self._privatizer = privatizer
        self._on_unprotected = on_unprotected
        self._document_column = document_column
        self._author_column = author_column
        # A privatizer may serve many files. Record numbers repeat from file to file, and a random
        # stream must not: two documents under one stream would betray where they differ. Only a
        # seed asks for exactly that.
        self._salt = secrets.token_bytes(16) if privatizer.seed is None else b""
        self.documents = 0
        self.tokens: Counter[str] = Counter()
        self.unprotected: tuple[str, ...] = ()

    def results(
        self, workers: int, settings: PrivatizerSettings | None
    ) -> Generator[tuple[Batch, _Released], None, None]:
        """Yield each batch with what was released for it, in the order of the file."""
        if workers == 1 or settings is None:
            for batch in self._batches():
                with _naming_record(batch):
                    released = _release(self._privatizer, batch.texts, self._keys(batch))
                yield batch, released
            return
        # The compiled code is kept on disk. Made once here, it need not be made in every worker.
        # What is made here is not counted, for it is no document.
        uncounted = self._privatizer
        if self._document_column is not None:
            uncounted = type(uncounted)(uncounted.mechanism, uncounted.policy)
        _release(uncounted, ["text"], [secrets.token_bytes(16)])
        with _WorkerPool(settings, workers) as pool:
            yield from pool.ordered(
                (batch, batch.texts, self._keys(batch)) for batch in self._batches()
            )

    def _batches(self) -> Iterator[Batch]:
        for batch in self._reader:
            if not self.unprotected:
                self._find_unprotected(batch.rows)
            yield batch

    def _find_unprotected(self, rows: list[Any]) -> None:
        """Learn and tell the names of the other columns, from the first record that has any."""
        if self._reader.format == "text":
            return
        fields: Iterable[list[str]] = (
            [self._reader.columns] if self._reader.format == "csv" else map(list, rows)
        )
        for names in fields:
            others = tuple(name for name in names if name != self._reader.text_column)
            if others:
                self.unprotected = others
                if self._on_unprotected is not None:
                    self._on_unprotected(others)
                return

    def _keys(self, batch: Batch) -> list[ReleaseKey]:
        if self._document_column is not None:
            return self._documents(batch, self._document_column)
        if not self._salt:
            return list(batch.positions)
        return [self._salt + position.to_bytes(8, "big") for position in batch.positions]

    def _documents(self, batch: Batch, column: str) -> list[ReleaseKey]:
        from textpriv.ledger import Document

        names = self._names(batch, column)
        if self._author_column is None:
            return [Document(name) for name in names]
        authors = self._names(batch, self._author_column)
        return [Document(name, author) for name, author in zip(names, authors, strict=True)]

    def _names(self, batch: Batch, column: str) -> list[str]:
        """Read the names in a column; 7 and "7" are one name, for CSV cannot tell them apart."""
        place: Any = column
        if self._reader.format == "csv":
            if self._reader.columns.count(column) != 1:
                raise CorpusError(
                    f"{self._reader.name}: expected one column named {column!r}, to count by; found "
                    f"{self._reader.columns.count(column)} among {len(self._reader.columns)}."
                )
            place = self._reader.columns.index(column)
        names = []
        for position, row in zip(batch.positions, batch.rows, strict=True):
            name = row.get(column) if isinstance(row, dict) else row[place]
            if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
                raise CorpusError(
                    f"{self._reader.name}, record {position + 1}: expected a name, as text or a "
                    f"whole number, in {column!r}, to count by; found none."
                )
            names.append(str(name))
        return names


@contextlib.contextmanager
def _naming_record(batch: Batch) -> Iterator[None]:
    """Say in which record a document stands that the ledger refuses."""
    try:
        yield
    except LedgerError as error:
        if error.place is None:
            raise
        raise error.named(f"record {batch.positions[error.place] + 1}") from None


def _common_format(source: str, target: str, format: str | None) -> tuple[str, str | None]:
    """Return the one format of both ends, and the compression of the target."""
    source_format, _ = corpus_format(source, format)
    target_format, compression = corpus_format(target, format)
    if source_format and target_format and source_format != target_format:
        raise CorpusError(
            f"The output has the format of the input: {source} is {source_format}, {target} would "
            f"be {target_format}. Choose another name for the output, or set --format for both."
        )
    return source_format or target_format or "text", compression


def _refuse_same_file(source: str, target: str) -> None:
    if STANDARD_STREAM in (source, target):
        return
    same = os.path.realpath(source) == os.path.realpath(target)
    with contextlib.suppress(OSError):
        same = same or os.path.samefile(source, target)
    if same and not _is_stream(target):
        raise CorpusError(
            f"Input and output are the same file, {source}: the private text must not replace its "
            "only source. Name another output."
        )


# --------------------------------------------------------------------------------------------------
# Worker processes
# --------------------------------------------------------------------------------------------------

_worker: Privatizer | TextprivError | OSError | None = None


def _start_worker(settings: PrivatizerSettings) -> None:
    """Build this process's Privatizer once; a failure is kept and told at the first batch."""
    import signal

    global _worker
    # Ctrl-C reaches every process of the terminal; only the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _worker = settings.build()
    except (TextprivError, OSError) as error:
        _worker = error


def _work(texts: list[str], keys: list[ReleaseKey]) -> _Released:
    if isinstance(_worker, Exception):
        raise _worker
    assert _worker is not None
    return _release(_worker, texts, keys)


def _finished(batch: Batch, future: Future[_Released]) -> tuple[Batch, _Released]:
    with _naming_record(batch):
        return batch, future.result()


class _WorkerPool:
    """A few processes that release batches; results come in order and few batches are in flight."""

    def __init__(self, settings: PrivatizerSettings, workers: int) -> None:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        # "spawn": a forked copy of a process that has already run compiled threads may hang.
        self._pool = ProcessPoolExecutor(
            max_workers=workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(settings,),
        )
        self._in_flight = 2 * workers

    def __enter__(self) -> _WorkerPool:
        return self

    def __exit__(self, *exception: object) -> None:
        # On failure the batches that have begun still end, but none begins any more.
        self._pool.shutdown(wait=True, cancel_futures=True)

    def ordered(
        self, jobs: Iterable[tuple[Batch, list[str], list[ReleaseKey]]]
    ) -> Iterator[tuple[Batch, _Released]]:
        """Yield each job's batch and result in the order of the jobs."""
        from concurrent.futures.process import BrokenProcessPool

        waiting: deque[tuple[Batch, Future[_Released]]] = deque()
        try:
            for batch, texts, keys in jobs:
                waiting.append((batch, self._pool.submit(_work, texts, keys)))
                if len(waiting) >= self._in_flight:
                    yield _finished(*waiting.popleft())
            while waiting:
                yield _finished(*waiting.popleft())
        except BrokenProcessPool as error:
            raise CorpusError(
                "A worker process ended before its work was done (out of memory, killed, or a "
                "script without 'if __name__ == \"__main__\":'). The output is not complete. Try "
                "fewer workers or a smaller batch size."
            ) from error
