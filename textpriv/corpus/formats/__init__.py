"""Formats: how a path names one, and the reader and the writer of each.

A format is one file of this folder, named in ``FORMATS``.

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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from textpriv.corpus.columns import ColumnRule
from textpriv.corpus.formats import csv, jsonl, parquet, text
from textpriv.corpus.records import (
    MAX_TEXT_BYTES,
    STANDARD_STREAM,
    Batch,
    CorpusReader,
    Cursor,
    Format,
    RecordWriter,
    is_stream,
)
from textpriv.errors import CorpusError

__all__ = ["FORMATS", "corpus_format", "read_records", "write_file", "writer_for"]

FORMATS: dict[str, Format] = {
    kind.name: kind for kind in (jsonl.FORMAT, csv.FORMAT, csv.TSV, text.FORMAT, parquet.FORMAT)
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
        ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"text"`` or ``"parquet"`` overrules the extension; None reads it.

    Returns
    -------
    tuple
        The format, or None where the path does not tell (``"-"``), and the compression (``"gzip"``, ``"zstd"`` or
        None; Parquet compresses within).

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
    extensions = {each: kind.name for kind in FORMATS.values() for each in kind.extensions}
    if format is None:
        format = extensions.get(stem.suffix.lower())
        # A device or a pipe has no extension to go by; the other end then decides.
        if format is None and not is_stream(name):
            raise CorpusError(
                f"Cannot tell the format of {name} from its name: expected one of "
                f"{' '.join(extensions)}, perhaps with {' or '.join(_COMPRESSIONS)} after it. "
                f"Say which it is with --format {'|'.join(FORMATS)}."
            )
    if compression is not None and format is not None and not FORMATS[format].compressible:
        raise CorpusError(
            f"{name}: Parquet compresses its columns itself, so a compressed Parquet file cannot be read in pieces. "
            "Decompress it."
        )
    return format, compression


def read_records(
    path: str | os.PathLike[str],
    format: str | None = None,
    text_column: str | Sequence[str] = "text",
    on_error: str = "fail",
    *,
    batch_size: int = 1000,
    max_text_bytes: int = MAX_TEXT_BYTES,
    start: Cursor | None = None,
    stop: int | None = None,
    cut: int | None = None,
    names: Sequence[str] = (),
    labels: str | None = None,
) -> CorpusReader:
    """Read text records in batches, in constant memory.

    Parameters
    ----------
    path
        The file, or ``"-"`` for standard input.
    format
        ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"text"`` or ``"parquet"``; None goes by the extension, and by ``"text"`` for
        standard input. The columns of a CSV file may also have semicolons or tabs between them: what its header shows.
    text_column
        The JSON field, CSV or Parquet column that holds the text, or a sequence of several. ``text`` files have none.
    on_error
        ``"fail"`` raises at the first bad record; ``"skip"`` leaves bad records out and counts them by reason:
        ``encoding``, ``null_byte``, ``malformed``, ``missing_text``, ``wrong_type``, ``columns``, ``too_large``;
        ``"quarantine"`` also hands their bytes on. A broken quote in a CSV file ends the run in any case, since the
        rows after it cannot be told apart.
    batch_size
        Most records in a batch; a batch also closes at about 4 MiB of the file (of Parquet: 16 MiB in memory).
    max_text_bytes
        Most bytes (UTF-8) of one text.
    start, stop
        Read the records from a place on, and up to (without) a record number.
    cut
        Close a batch after every part of so many records, whatever the batch size; the first parts are smaller.
    names
        Fields or columns that must hold a name, as text or a whole number; a record without is a bad one
        (``missing_name``).
    labels
        The field or column with the spans of each text (:func:`textpriv.spans.span.read_labels`); a record whose spans
        cannot be read, or lie beyond its text, is a bad one (``labels``).

    Returns
    -------
    CorpusReader
        Iterate over it for :class:`Batch` objects; its ``skipped`` and ``columns`` fill as it goes.

    Raises
    ------
    CorpusError
        Here for an unknown format or option; while iterating for bad records and damaged files. The message names the
        file and the line, never what stands there.
    """
    found, compression = corpus_format(path, format)
    return FORMATS[found or "text"].reader(
        path,
        compression,
        (text_column,) if isinstance(text_column, str) else text_column,
        on_error,
        batch_size,
        max_text_bytes,
        start,
        stop,
        cut,
        names,
        labels,
    )


def writer_for(reader: CorpusReader, out: BinaryIO, rule: ColumnRule) -> RecordWriter:
    """Return the writer for what a reader reads; the reader must have read its header."""
    return FORMATS[reader.format].writer(reader, out, rule)


def write_file(
    reader: CorpusReader,
    out: BinaryIO,
    rule: ColumnRule,
    released: Iterable[tuple[Batch, Sequence[Sequence[str]]]],
) -> None:
    """Write a whole file: the batches of a reader, each with its new texts; the header also where there is no record."""
    writer: RecordWriter | None = None
    for batch, texts in released:
        if writer is None:
            writer = writer_for(reader, out, rule)
            writer.begin()
        writer.write(batch, texts)
    if writer is None:
        writer = writer_for(reader, out, rule)
        writer.begin()
    writer.close()
