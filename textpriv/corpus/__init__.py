"""Corpus: files of records in, private files of the same format out, resumable."""

from __future__ import annotations

from textpriv.corpus.columns import ColumnRule
from textpriv.corpus.formats import corpus_format, read_records
from textpriv.corpus.job import ENGINES
from textpriv.corpus.records import STANDARD_STREAM, Batch, CorpusReader
from textpriv.corpus.report import CorpusReport, Progress
from textpriv.corpus.run import PART_RECORDS, privatize_corpus
from textpriv.engines.batch import PrivatizerSettings
from textpriv.engines.identity import document_key, unnamed_key

__all__ = [
    "ENGINES",
    "PART_RECORDS",
    "STANDARD_STREAM",
    "Batch",
    "ColumnRule",
    "CorpusReader",
    "CorpusReport",
    "PrivatizerSettings",
    "Progress",
    "corpus_format",
    "document_key",
    "privatize_corpus",
    "read_records",
    "unnamed_key",
]
