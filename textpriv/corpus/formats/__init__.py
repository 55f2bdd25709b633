"""Formats: how a path names one, and the reader and the writer of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from textpriv.corpus.formats import csv, lines, parquet
from textpriv.corpus.options import RunOptions
from textpriv.corpus.records import CorpusReader, needs_text
from textpriv.corpus.stores import STANDARD_STREAM, is_stream
from textpriv.errors import CorpusError

_READERS: tuple[type[CorpusReader], ...] = (*lines.READERS, *csv.READERS, *parquet.READERS)
FORMATS = {reader.format: reader for reader in _READERS}
EXTENSIONS = {ending: reader.format for reader in _READERS for ending in reader.extensions}
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}


def corpus_format(
    path: str | os.PathLike[str], format: str | None = None
) -> tuple[str | None, str | None]:
    """Return the format and the compression of a path: None where it shows none; ``format`` overrules the extension."""
    if format is not None and format not in FORMATS:
        raise CorpusError(f"The format must be one of {', '.join(FORMATS)}; found {format!r}.")
    name = os.fspath(path)
    if name == STANDARD_STREAM:
        return format, None
    stem = Path(name)
    compression = _PACKED.get(stem.suffix.lower())
    stem = stem.with_suffix("") if compression else stem
    format = format or EXTENSIONS.get(stem.suffix.lower())
    # A device or a pipe has no extension to go by; the other end then decides.
    if format is None and not is_stream(name):
        raise CorpusError(
            f"Cannot tell the format of {name}: expected one of {' '.join(EXTENSIONS)}, perhaps with .gz, .bz2, .zst. Say "
            f"which it is with --format {'|'.join(FORMATS)}."
        )
    if compression is not None and format == "parquet":
        raise CorpusError(f"{name}: a compressed Parquet file cannot be read. Decompress it.")
    return format, compression


def read_records(
    path: str | os.PathLike[str],
    format: str | None = None,
    text_column: str | Sequence[str] = "text",
    on_error: str = "fail",
) -> CorpusReader:
    """Read text records in :class:`~textpriv.corpus.records.Batch` objects, in constant memory.

    The arguments are those of :class:`textpriv.corpus.RunOptions`; a null text is a bad record.
    """
    found, compression = corpus_format(path, format)
    options = RunOptions(text_column=text_column, on_error=on_error)
    return FORMATS[found or "text"](os.fspath(path), compression, options, needs_text)
