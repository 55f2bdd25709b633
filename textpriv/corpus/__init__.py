"""Corpus: files of records in, private files of the same format out, resumable."""

from __future__ import annotations

from textpriv.corpus.formats import read_records
from textpriv.corpus.options import ColumnRule, RunOptions
from textpriv.corpus.plan import check_corpus, files_of
from textpriv.corpus.report import CorpusReport, Progress
from textpriv.corpus.run import privatize_corpus, rewrite_file, run_corpus
from textpriv.engines.batch import unnamed_key
from textpriv.settings import PrivatizerSettings

__all__ = [
    "ColumnRule",
    "CorpusReport",
    "PrivatizerSettings",
    "Progress",
    "RunOptions",
    "check_corpus",
    "files_of",
    "privatize_corpus",
    "read_records",
    "rewrite_file",
    "run_corpus",
    "unnamed_key",
]
