"""Formats: how a path names one, and the reader and the writer of each.

=========== ==================================== ==============================================
format      a record is                          the extension that means it
=========== ==================================== ==============================================
``jsonl``   one JSON object a line               ``.jsonl`` ``.ndjson``
``csv``     one row under a header, UTF-8        ``.csv``
``tsv``     the same with tabs between columns   ``.tsv`` ``.tab``
``text``    one line, the document itself        ``.txt`` ``.text``
``parquet`` one row                              ``.parquet``
=========== ==================================== ==============================================

All but Parquet may end in ``.gz``. The path ``-`` is standard input or output, uncompressed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from textpriv.corpus.formats import csv, lines, parquet
from textpriv.corpus.records import (
    STANDARD_STREAM,
    ColumnRule,
    CorpusReader,
    Reading,
    RecordWriter,
    is_stream,
)
from textpriv.errors import CorpusError

__all__ = ["corpus_format", "join_parts", "read_records", "reader_of", "writer_of"]

_FORMATS: dict[str, tuple[type[CorpusReader], type[RecordWriter]]] = {
    **lines.FORMATS,
    **csv.FORMATS,
    **parquet.FORMATS,
}
_EXTENSIONS = {
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv"},
    **{".txt": "text", ".text": "text", ".parquet": "parquet"},
}


def corpus_format(
    path: str | os.PathLike[str], format: str | None = None
) -> tuple[str | None, str | None]:
    """Return the format and the compression that a path stands for.

    Parameters
    ----------
    path
        A file name, or ``"-"`` for a standard stream.
    format
        Overrules the extension; None reads it.

    Returns
    -------
    tuple
        The format, or None where the path does not show it (``"-"``), and ``"gzip"`` or None.
    """
    if format is not None and format not in _FORMATS:
        raise CorpusError(f"The format must be one of {', '.join(_FORMATS)}; found {format!r}.")
    name = os.fspath(path)
    if name == STANDARD_STREAM:
        return format, None
    stem = Path(name)
    compression = "gzip" if stem.suffix.lower() == ".gz" else None
    if compression is not None:
        stem = stem.with_suffix("")
    format = format or _EXTENSIONS.get(stem.suffix.lower())
    # A device or a pipe has no extension to go by; the other end then decides.
    if format is None and not is_stream(name):
        raise CorpusError(
            f"Cannot tell the format of {name} from its name: expected one of {' '.join(_EXTENSIONS)}, perhaps with .gz "
            f"after it. Say which it is with --format {'|'.join(_FORMATS)}."
        )
    if compression is not None and format == "parquet":
        raise CorpusError(f"{name}: a compressed Parquet file cannot be read. Decompress it.")
    return format, compression


def reader_of(path: str, format: str | None, reading: Reading) -> CorpusReader:
    """Return the reader of a file."""
    found, compression = corpus_format(path, format)
    return _FORMATS[found or "text"][0](path, compression, reading)


def writer_of(format: str, reader: CorpusReader, out: BinaryIO, rule: ColumnRule) -> RecordWriter:
    """Return the writer of what a reader reads, into an open file."""
    return _FORMATS[format][1](reader, out, rule)


def join_parts(format: str, parts: Sequence[Path], out: BinaryIO) -> None:
    """Write the content of finished parts of one file one after the other."""
    _FORMATS[format][1].join(parts, out)


def read_records(
    path: str | os.PathLike[str],
    format: str | None = None,
    text_column: str | Sequence[str] = "text",
    on_error: str = "fail",
) -> CorpusReader:
    """Read text records in :class:`~textpriv.corpus.records.Batch` objects, in constant memory.

    Parameters
    ----------
    path
        The file, or ``"-"`` for standard input.
    format
        None goes by the extension, and by ``"text"`` for standard input.
    text_column
        The JSON field, CSV or Parquet column with the text, or a sequence of several. ``text`` files have none.
    on_error
        ``"fail"`` raises at the first bad record; ``"skip"`` leaves bad records out: ``batch.bad`` lists them.
    """
    columns = (text_column,) if isinstance(text_column, str) else tuple(text_column)
    return reader_of(os.fspath(path), format, Reading(columns, on_error=on_error, null="fail"))
