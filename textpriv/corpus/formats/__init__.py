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

All but Parquet may end in ``.gz`` or ``.zst``. The path ``-`` is standard input or output, uncompressed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from textpriv.corpus.formats import csv, jsonl, parquet, text
from textpriv.corpus.records import (
    STANDARD_STREAM,
    CorpusReader,
    Cursor,
    Reading,
    RecordWriter,
    is_stream,
)
from textpriv.errors import CorpusError

__all__ = ["READERS", "WRITERS", "corpus_format", "read_records", "reader_of"]

READERS: dict[str, type[CorpusReader]] = {
    "jsonl": jsonl.READER,
    "csv": csv.READER,
    "tsv": csv.TSV_READER,
    "text": text.READER,
    "parquet": parquet.READER,
}
WRITERS: dict[str, type[RecordWriter]] = {
    "jsonl": jsonl.WRITER,
    "csv": csv.WRITER,
    "tsv": csv.WRITER,
    "text": text.WRITER,
    "parquet": parquet.WRITER,
}
_EXTENSIONS = {
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv"},
    **{".txt": "text", ".text": "text", ".parquet": "parquet"},
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def corpus_format(
    path: str | os.PathLike[str], format: str | None = None
) -> tuple[str | None, str | None]:
    """Return the format and compression that a path stands for.

    Parameters
    ----------
    path
        A file name, or ``"-"`` for a standard stream.
    format
        Overrules the extension; None reads it.

    Returns
    -------
    tuple
        The format, or None where the path does not show it (``"-"``), and the compression (``"gzip"``, ``"zstd"`` or None).

    Raises
    ------
    CorpusError
        If the format is unknown, or the extension is and no format is given.
    """
    if format is not None and format not in READERS:
        raise CorpusError(f"The format must be one of {', '.join(READERS)}; found {format!r}.")
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
        if format is None and not is_stream(name):
            raise CorpusError(
                f"Cannot tell the format of {name} from its name: expected one of {' '.join(_EXTENSIONS)}, perhaps with "
                f"{' or '.join(_COMPRESSIONS)} after it. Say which it is with --format {'|'.join(READERS)}."
            )
    if compression is not None and format == "parquet":
        raise CorpusError(
            f"{name}: Parquet compresses its columns itself, so a compressed Parquet file cannot be read in pieces. "
            "Decompress it."
        )
    return format, compression


def reader_of(
    path: str,
    format: str | None,
    reading: Reading,
    start: Cursor | None = None,
    stop: int | None = None,
) -> CorpusReader:
    """Return the reader of a file, or of its records from a place on and before a number."""
    found, compression = corpus_format(path, format)
    return READERS[found or "text"](path, compression, reading, start, stop)


def read_records(
    path: str | os.PathLike[str],
    format: str | None = None,
    text_column: str | Sequence[str] = "text",
    on_error: str = "fail",
) -> CorpusReader:
    """Read text records in batches, in constant memory.

    Parameters
    ----------
    path
        The file, or ``"-"`` for standard input.
    format
        ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"text"`` or ``"parquet"``; None goes by the extension, and by ``"text"`` for
        standard input. The columns of a CSV file may also have semicolons or tabs between them.
    text_column
        The JSON field, CSV or Parquet column with the text, or a sequence of several. ``text`` files have none.
    on_error
        ``"fail"`` raises at the first bad record; ``"skip"`` leaves bad records out: ``batch.bad`` of each batch lists
        them.

    Returns
    -------
    CorpusReader
        Iterate over it for :class:`~textpriv.corpus.records.Batch` objects.

    Raises
    ------
    CorpusError
        Here for an unknown format; while iterating for bad records and damaged files. The message names the file and the
        line, never the content.
    """
    columns = (text_column,) if isinstance(text_column, str) else tuple(text_column)
    return reader_of(os.fspath(path), format, Reading(columns, on_error=on_error, null="fail"))
